"""Steps of sampled mini-batches against GraphBolt: sampling, features, forward, backward, update.

    python bench/minibatch.py                                  SAGE, neighbours, Reddit size
    python bench/minibatch.py --samplers neighbour labor
    python bench/minibatch.py --models gat --hidden 256        4 heads of 64
    python bench/minibatch.py --peers --threads 1              GraphTheta alone, one thread

Networks have a layer for each fan-out, relu and dropout 0.5 between them, Adam, and cross entropy
on the targets; attention has 4 heads in all layers but the last. All contenders begin with the same
weights, and their losses on all edges between the first nodes of the graph must agree; "bfloat16"
is GraphTheta with values stored so, whose loss is not compared. "sampling" is the time from the
targets to the sampled blocks, without features; it is part of the step. Sampled batches are random,
so their mean sizes are shown.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from contender import Input
from harness import Contender, disagreement, finish, parser, peer, race, ratio, say, script
from inputs import HELP, graph_file
from own.minibatch import build

from graphtheta.ops.autodiff.init import init_scope

MODELS = ("sage", "gat")
COLUMNS = [
    "model",
    "sampler",
    "contender",
    "seconds",
    "least",
    "sampling",
    "times faster",
    "by least",
    "nodes",
    "edges",
    "GiB",
    "note",
]


def first_weights(model: str, graph: Path, hidden: int, hops: int, folder: Path) -> Path:
    """A file of the weights that all contenders begin with."""
    z = Input.read(graph)
    path = folder / f"{graph.stem}-{model}-{hidden}-{hops}-weights.npz"
    with init_scope(0):
        np.savez(path, **build(model, z.x.shape[1], hidden, z.classes, hops).state())
    return path


def rows_of(model: str, sampler: str, contenders: list[Contender]) -> list[dict[str, Any]]:
    """A row for each contender; a peer's row says how many times faster the first contender is."""
    rows = []
    own = contenders[0]
    for c in contenders:
        times = c.seconds.get("step", [])
        sampling = c.median("sampling")
        sizes = c.figures.get("sizes", (None, None))
        least = min(times, default=None)
        beside = (
            {}
            if c is own
            else {
                "times faster": ratio(c.median("step"), own.median("step")),
                "by least": ratio(least, min(own.seconds.get("step", []), default=None)),
            }
        )
        rows.append(
            {
                "model": model,
                "sampler": sampler,
                "contender": c.name,
                "seconds": c.median("step"),
                "least": least,
                "sampling": sampling,
                **beside,
                "nodes": sizes[0],
                "edges": sizes[1],
                "GiB": c.peak / 2**30,
                "note": c.error,
                "runs": len(times),
                "label": f"{model} {sampler} {c.name}",
                "version": c.version,
            }
        )
    return rows


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument("--models", nargs="+", choices=MODELS, default=["sage"])
    options.add_argument(
        "--samplers",
        nargs="+",
        default=["neighbour"],
        help="names in the registry of samplers; neighbour",
    )
    options.add_argument("--fanout", default="15,10,5", help="from the targets outwards; 15,10,5")
    options.add_argument("--hidden", type=int, default=256, help="width of the layers; 256")
    options.add_argument("--targets", type=int, default=1024, help="of a batch; 1024")
    options.add_argument("--batches", type=int, default=10, help="timed batches of a round; 10")
    options.add_argument("--peers", nargs="*", choices=("dgl",), default=["dgl"])
    options.add_argument("--graph", default="reddit", help=f"{HELP}; reddit")
    options = options.parse_args()
    graph = graph_file(options.graph, options.folder)
    rows = []
    faults = []
    for model in options.models:
        weights = first_weights(
            model, graph, options.hidden, len(options.fanout.split(",")), options.folder
        )
        for sampler in options.samplers:
            words = (
                model,
                graph,
                weights,
                sampler,
                options.fanout,
                options.targets,
                options.batches,
            )
            contenders = [
                Contender("graphtheta", script("own", "minibatch", *words)),
                Contender("bfloat16", script("own", "minibatch", *words, "bfloat16")),
            ]
            command = (
                peer(options.envs or options.folder, "dgl", "minibatch", *words)
                if "dgl" in options.peers
                else []
            )
            contenders += [Contender("graphbolt", command)] if command else []
            say(f"{model}, {sampler}, on {graph.stem}")
            race(contenders, options.rounds, options.threads)
            faults += disagreement(contenders)
            rows += rows_of(model, sampler, contenders)
    return finish(
        options,
        rows,
        COLUMNS,
        faults,
        bench="minibatch",
        graph=graph.stem,
        fanout=options.fanout,
        hidden=options.hidden,
    )


if __name__ == "__main__":
    sys.exit(main())
