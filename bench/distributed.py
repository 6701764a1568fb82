"""Steps of mini-batches on several workers against DistDGL, with one thread each.

    python bench/distributed.py   GCN: sampled, and all neighbours of 2, 3 layers
    python bench/distributed.py --cases "4 layers" "5 layers" --graph small
    python bench/distributed.py --peers --graph small GraphTheta alone

A step has the same number of targets over all workers for both: GraphTheta computes them together,
each trainer of DistDGL computes its share. DistDGL runs on one machine as one partition with one
server and as many trainers as workers. Losses on all edges between the first nodes of the graph
must agree. "nodes" are input nodes of a step over all workers, those of several trainers counted
several times.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from contender import Input
from harness import (
    Contender,
    disagreement,
    finish,
    on_workers,
    parser,
    peer,
    race,
    ratio,
    say,
    script,
)
from inputs import HELP, graph_file
from own.distributed import build

from graphtheta.ops.autodiff.init import init_scope

# targets of a step, and neighbours by hop from the targets outwards
CASES = {
    "sampled": (1000, "25,10"),
    **{f"{n} layers": (1500, ",".join(["-1"] * n)) for n in (2, 3, 4, 5)},
}
# more layers reach the whole graph from every batch
USUAL = ("sampled", "2 layers", "3 layers")
COLUMNS = [
    "case",
    "contender",
    "seconds",
    "least",
    "times faster",
    "by least",
    "nodes",
    "GiB",
    "note",
]


def first_weights(graph: Path, hidden: int, hops: int, folder: Path) -> Path:
    """A file of the weights that all contenders begin with."""
    z = Input.read(graph)
    path = folder / f"{graph.stem}-gcn-{hidden}-{hops}-weights.npz"
    with init_scope(0):
        np.savez(path, **build(z.x.shape[1], hidden, z.classes, hops).state())
    return path


def compete(case: str, graph: Path, options: Any) -> list[Contender]:
    """All contenders of a case, raced."""
    targets, fanout = CASES[case]
    weights = first_weights(graph, options.hidden, len(fanout.split(",")), options.folder)
    words = (graph, weights, fanout, options.targets or targets, options.batches)
    contenders = [
        Contender("graphtheta", on_workers(options.workers, script("own", "distributed", *words)))
    ]
    command = (
        peer(options.envs or options.folder, "dgl", "distributed", options.workers, *words)
        if "dgl" in options.peers
        else []
    )
    contenders += [Contender("distdgl", command)] if command else []
    say(f"{case} on {graph.stem}")
    race(contenders, options.rounds, options.threads)
    return contenders


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.set_defaults(threads=1)
    options.add_argument(
        "--cases", nargs="+", choices=CASES, default=list(USUAL), help=", ".join(CASES)
    )
    options.add_argument("--workers", type=int, default=2, help="of both; 2")
    options.add_argument("--hidden", type=int, default=128, help="width of the layers; 128")
    options.add_argument(
        "--targets",
        type=int,
        default=0,
        help="of a step over all workers; 1000 if sampled, otherwise 1500",
    )
    options.add_argument("--batches", type=int, default=5, help="timed steps of a round; 5")
    options.add_argument("--peers", nargs="*", choices=("dgl",), default=["dgl"])
    options.add_argument("--graph", default="reddit", help=f"{HELP}; reddit")
    options = options.parse_args()
    graph = graph_file(options.graph, options.folder)
    rows = []
    faults = []
    for case in options.cases:
        contenders = compete(case, graph, options)
        own = contenders[0]
        faults += [f"{case}: {fault}" for fault in disagreement(contenders)]
        for c in contenders:
            times = c.seconds.get("step", [])
            mine = own.seconds.get("step", [])
            least = min(times, default=None)
            beside = (
                {}
                if c is own
                else {
                    "times faster": ratio(c.median("step"), own.median("step")),
                    "by least": ratio(least, min(mine, default=None)),
                }
            )
            rows.append(
                {
                    "case": case,
                    "contender": c.name,
                    "seconds": c.median("step"),
                    "least": least,
                    **beside,
                    "nodes": c.figures.get("nodes"),
                    "GiB": c.figures.get("GiB"),
                    "note": c.error,
                    "runs": len(times),
                    "label": f"{case} {c.name}",
                    "version": c.version,
                }
            )
    return finish(
        options,
        rows,
        COLUMNS,
        faults,
        bench="distributed",
        graph=graph.stem,
        workers=options.workers,
        hidden=options.hidden,
    )


if __name__ == "__main__":
    sys.exit(main())
