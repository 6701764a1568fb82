"""Values of nodes as bfloat16 beside float32: time of an epoch, memory, loss and accuracy.

    python bench/values.py                                     all graphs, 5 seeds: 10 minutes
    python bench/values.py --graphs computers --models gcn --epochs 10 --seeds 2

Networks have two layers of 128 numbers. "epoch" is the median over all seeds, "times faster" the
ratio of medians, and "MiB" the peak of the process in epochs, "of memory" the ratio. "loss" and
"accuracy" are means over the seeds on the test set; "difference" is that of the accuracies of
equal seeds, with its standard error, "+-". A graph for which GRAPHS has a number of epochs is for
time and memory: it has so many and one seed.
"""

from __future__ import annotations

import sys
from statistics import mean
from typing import Any, NamedTuple

from harness import Contender, finish, paired, parser, race, ratio, script

FORMATS = ("float32", "bfloat16")


class Case(NamedTuple):
    """A graph, and the number of epochs if accuracy says nothing there."""

    dataset: str
    epochs: int | None = None


GRAPHS = {
    "cora": Case("cora"),
    "computers": Case("amazon_computers"),
    "photo": Case("amazon_photo"),
    "facebook": Case("facebook100:target=year,colleges=2"),
    "rmat": Case("rmat:scale=17,edge_factor=22,features=602,classes=41", 6),
}
COLUMNS = [
    *("graph", "model", "epoch", "bfloat16 epoch", "times faster"),
    *("MiB", "bfloat16 MiB", "of memory", "loss", "bfloat16 loss"),
    *("accuracy", "bfloat16 accuracy", "difference", "+-", "note"),
]


def figures_of(run: Contender) -> dict[str, Any]:
    """What the seeds of one format gave."""
    accuracies = run.figures.get("accuracy", [])
    return {
        "epoch": run.median("epoch"),
        "MiB": run.figures["training"] / 2**20 if accuracies else None,
        "loss": mean(run.figures["loss"]) if accuracies else None,
        "accuracy": mean(accuracies) if accuracies else None,
        "accuracies": accuracies,
    }


def row_of(graph: str, model: str, runs: list[Contender]) -> dict[str, Any]:
    """Both formats side by side; figures of bfloat16 have its name in front."""
    exact, short = map(figures_of, runs)
    row = {"graph": graph, "model": model, **exact}
    row |= {f"bfloat16 {name}": value for name, value in short.items()}
    row |= {
        "times faster": ratio(exact["epoch"], short["epoch"]),
        "of memory": ratio(short["MiB"], exact["MiB"]),
        "seconds": short["epoch"],
        "label": f"{graph}, {model}",
        "note": next((c.error for c in runs if c.error), ""),
        "version": runs[0].version,
    }
    if len(exact["accuracies"]) == len(short["accuracies"]) > 0:
        compared = paired({"accuracies": short["accuracies"]}, exact, "difference")
        row |= {name: compared[name] for name in ("difference", "+-")}
    return row


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    options.add_argument("--models", nargs="+", default=["gcn", "sage", "gat"])
    options.add_argument("--epochs", type=int, default=60)
    options.add_argument("--seeds", type=int, default=5)
    options = options.parse_args()
    rows = []
    for graph in options.graphs:
        case = GRAPHS[graph]
        sizes = (options.epochs, options.seeds) if case.epochs is None else (case.epochs, 1)
        for model in options.models:
            runs = [
                Contender(f, script("own", "values", f, model, case.dataset, *sizes))
                for f in FORMATS
            ]
            race(runs, options.rounds, options.threads)
            rows.append(row_of(graph, model, runs))
    return finish(options, rows, COLUMNS, [], bench="values", epochs=options.epochs)


if __name__ == "__main__":
    sys.exit(main())
