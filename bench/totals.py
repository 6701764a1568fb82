"""Totals of features before training (``--precompute``) on 1 to 8 workers.

    python bench/totals.py
    python bench/totals.py --graphs rmat:scale=12 --workers 1 2

SAGE sums the neighbours of every node once. "processor" is the processor time of the slowest
worker, in milliseconds, the least of several repetitions; it does not count time in which other
workers have its core. "of one" is the share of one worker's time, and "edges" that of the edges, on
the worker with the most. "MiB" is what all workers send.
"""

from __future__ import annotations

import sys
from typing import Any

from harness import Contender, disagreement, finish, on_workers, parser, race, script

# of the proportions of ogbn-arxiv (169,343 nodes, 1.17M edges, 128 features), and of ogbn-products
# at a tenth of its size (2.45M nodes, 61.9M edges, 100 features)
GRAPHS = {
    "arxiv": "rmat:scale=17,edge_factor=9,features=128,classes=8",
    "products": "rmat:scale=18,edge_factor=13,features=100,classes=8",
}
COLUMNS = ["graph", "workers", "processor", "of one", "edges", "MiB", "note"]


def row_of(graph: str, workers: int, c: Contender) -> dict[str, Any]:
    """Figures of a number of workers."""
    ranks = c.figures.get("ranks", [])
    most = max((rank["edges"] for rank in ranks), default=0) / max(
        sum(rank["edges"] for rank in ranks), 1
    )
    return {
        "graph": graph,
        "workers": workers,
        "processor": max((1e3 * rank["processor"] for rank in ranks), default=None),
        "edges": most,
        "MiB": sum(rank["sent"] for rank in ranks) / 2**20,
        "note": c.error,
        "seconds": None,
        "label": f"{graph} {workers}",
        "version": c.version,
    }


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.set_defaults(threads=1)
    options.add_argument(
        "--graphs",
        nargs="+",
        default=list(GRAPHS),
        help=f"{', '.join(GRAPHS)}, or any name that gt.load knows",
    )
    options.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4, 8])
    options.add_argument("--times", type=int, default=5, help="repetitions; 5")
    options = options.parse_args()
    rows: list[dict[str, Any]] = []
    faults: list[str] = []
    for name in options.graphs:
        words = (GRAPHS.get(name, name), options.times)
        made = [
            Contender(f"{n} workers", on_workers(n, script("own", "totals", *words)))
            for n in options.workers
        ]
        race(made, options.rounds, options.threads)
        faults += disagreement(made)
        found = [row_of(name, n, c) for n, c in zip(options.workers, made, strict=True)]
        one = found[0]["processor"]
        rows += [
            {**row, "of one": row["processor"] / one if one and row["processor"] else None}
            for row in found
        ]
    return finish(options, rows, COLUMNS, faults, bench="totals")


if __name__ == "__main__":
    sys.exit(main())
