"""Full-batch epochs against DGL and PyTorch Geometric, with equal graphs and initial weights.

    python bench/epoch.py                                     gcn, sage, gat, Reddit size, 3 rounds
    python bench/epoch.py --models gat_e --graph medium       against PyG's GATConv(edge_dim=16)
    python bench/epoch.py --models gcn --peers --graph small  GraphTheta alone

Networks have two layers, 128 wide (attention: 4 heads of 32, then one head), relu and dropout 0.5
between them, Adam, and cross entropy on the training nodes. Before the timed epochs all contenders
train two epochs without dropout, whose losses must agree; "bfloat16" is GraphTheta with values
stored so, whose losses are shown only.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from contender import EDGE_ATTRIBUTES, Input
from harness import Contender, disagreement, finish, parser, peer, race, ratio, say, script
from inputs import HELP, graph_file
from own.fullbatch import build

from graphtheta.ops.autodiff.init import init_scope

MODELS = {"gcn": ("dgl", "pyg"), "sage": ("dgl", "pyg"), "gat": ("dgl", "pyg"), "gat_e": ("pyg",)}
# whose first layer may start from the features' total, computed once
PRECOMPUTED = ("gcn", "sage")
COLUMNS = [
    "model",
    "contender",
    "seconds",
    "least",
    "times faster",
    "GiB",
    "times less",
    "runs",
    "note",
]


def first_weights(model: str, graph: Path, folder: Path) -> Path:
    """A file of the weights that all contenders begin with."""
    z = Input.read(graph)
    path = folder / f"{graph.stem}-{model}-weights.npz"
    with init_scope(0):
        np.savez(path, **build(model, z.x.shape[1], z.classes, EDGE_ATTRIBUTES).state())
    return path


def compete(model: str, graph: Path, options) -> list[Contender]:
    """All contenders of a model, raced."""
    words = (
        model,
        graph,
        first_weights(model, graph, options.folder),
        options.epochs,
        options.dropout,
    )
    contenders = [
        Contender("graphtheta", script("own", "fullbatch", *words)),
        Contender("bfloat16", script("own", "fullbatch", *words, "bfloat16")),
    ]
    if model in PRECOMPUTED:
        contenders.append(
            Contender("precomputed", script("own", "fullbatch", *words, "precompute"))
        )
    for library in options.peers:
        command = (
            peer(options.envs or options.folder, library, "fullbatch", library, *words)
            if library in MODELS[model]
            else []
        )
        contenders += [Contender(library, command)] if command else []
    say(f"{model} on {graph.stem}")
    race(contenders, options.rounds, options.threads)
    return contenders


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument("--models", nargs="+", choices=MODELS, default=["gcn", "sage", "gat"])
    options.add_argument("--peers", nargs="*", choices=("dgl", "pyg"), default=["dgl", "pyg"])
    options.add_argument("--graph", default="reddit", help=f"{HELP}; reddit")
    options.add_argument("--epochs", type=int, default=5, help="timed epochs of a round; 5")
    options.add_argument("--dropout", type=float, default=0.5, help="in the timed epochs; 0.5")
    options = options.parse_args()
    graph = graph_file(options.graph, options.folder)
    rows, faults = [], []
    for model in options.models:
        contenders = compete(model, graph, options)
        own = contenders[0]
        faults += [f"{model} {fault}" for fault in disagreement(contenders)]
        for c in contenders:
            times = c.seconds.get("epoch", [])
            seconds = c.median("epoch")
            beside = (
                {}
                if c is own
                else {
                    "times faster": ratio(seconds, own.median("epoch")),
                    "times less": ratio(c.peak, own.peak),
                }
            )
            rows.append(
                {
                    "model": model,
                    "contender": c.name,
                    "seconds": seconds,
                    "least": min(times, default=None),
                    "GiB": c.peak / 2**30,
                    **beside,
                    "runs": len(times),
                    "note": c.error,
                    "label": f"{model} {c.name}",
                    "version": c.version,
                    "losses": next(iter(c.checks.values()), None),
                    "all": times,
                }
            )
    return finish(options, rows, COLUMNS, faults, bench="epoch", graph=graph.stem)


if __name__ == "__main__":
    sys.exit(main())
