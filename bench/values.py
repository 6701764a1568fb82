"""Values of nodes as bfloat16 beside float32: time of an epoch, memory, loss and accuracy.

    python bench/values.py                                     all graphs, 5 seeds, 100 epochs
    python bench/values.py --graphs computers --models gcn --epochs 10 --seeds 2

"epoch" is the median over all seeds, "times faster" the ratio of medians, "MiB" the peak memory of
a process with its graph. "loss" and "accuracy" are means over the seeds on the test set;
"difference" is that of the accuracies of equal seeds, with its standard error, "+-".
"""

from __future__ import annotations

import sys
from statistics import mean, median
from typing import Any

from harness import Contender, finish, paired, parser, race, ratio, script

FORMATS = ("float32", "bfloat16")
GRAPHS = {
    "cora": "cora",
    "computers": "amazon_computers",
    "facebook": "facebook100:target=year,colleges=20",
    "sbm": "sbm:n_nodes=20000,n_edges=400000,classes=10,features=256",
    "rmat": "rmat:scale=16,edge_factor=16,features=602,classes=41",
}
COLUMNS = [
    *("graph", "model", "values", "epoch", "times faster", "MiB"),
    *("loss", "accuracy", "difference", "+-", "note"),
]


def row_of(graph: str, model: str, values: str, runs: list[Contender]) -> dict[str, Any]:
    """What the seeds of one format gave."""
    seconds = [s for c in runs for s in c.seconds.get("epoch", [])]
    done = [c for c in runs if c.figures]
    return {
        "graph": graph,
        "model": model,
        "values": values,
        "epoch": median(seconds) if seconds else None,
        "MiB": max((c.peak for c in done), default=0) / 2**20,
        "loss": mean(c.figures["loss"] for c in done) if done else None,
        "accuracy": mean(c.figures["accuracy"] for c in done) if done else None,
        "accuracies": [c.figures["accuracy"] for c in done],
        "seconds": median(seconds) if seconds else None,
        "label": f"{graph}, {model}, {values}",
        "note": next((c.error for c in runs if c.error), ""),
        "version": next((c.version for c in done), ""),
    }


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    options.add_argument("--models", nargs="+", default=["gcn", "sage", "gat"])
    options.add_argument("--epochs", type=int, default=100)
    options.add_argument("--seeds", type=int, default=5)
    options = options.parse_args()
    rows = []
    for graph in options.graphs:
        for model in options.models:
            runs: dict[str, list[Contender]] = {values: [] for values in FORMATS}
            for seed in range(options.seeds):
                words = model, GRAPHS[graph], options.epochs, seed
                pair = [Contender(f, script("own", "values", f, *words)) for f in FORMATS]
                race(pair, options.rounds, options.threads)
                for values, contender in zip(FORMATS, pair, strict=True):
                    runs[values].append(contender)
            exact, short = (row_of(graph, model, values, runs[values]) for values in FORMATS)
            short["times faster"] = ratio(exact["epoch"], short["epoch"])
            if len(exact["accuracies"]) == len(short["accuracies"]) > 0:
                short = paired(short, exact, "difference")
            rows += [exact, short]
    return finish(options, rows, COLUMNS, [], bench="values")


if __name__ == "__main__":
    sys.exit(main())
