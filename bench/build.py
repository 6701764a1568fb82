"""From arrays in memory to the first step, by part, against DGL and PyTorch Geometric.

    python bench/build.py                         GCN, Reddit size
    python bench/build.py --graph facebook        any graph
    python bench/build.py --peers --threads 1     GraphTheta alone, one thread

Edges are given as two int64 arrays in random order. "start" is the time from the arrays to the
first step: "construction" (``gt.Graph`` with its checks; ``dgl.graph``; ``Data``), "partition"
(owners, rows, blocks and columns; all sparse formats of DGL; the sparse matrix of PyG) and what
else a trainer needs. "copy" is the time to copy the features to the order of rows, which is a part
of the second step. "total" is the time to the end of the first step, and "two steps" to the end of
the second. Kernels are compiled and loaded
before, with a small graph. Losses of two full-batch steps without dropout must agree.

NumPy asks Linux for huge pages for large arrays. On a virtual machine that gives free memory back
to its host, their first touch can take longer than that of small pages, which "small pages" uses
(NUMPY_MADVISE_HUGEPAGE=0); PyTorch does not ask for huge pages.

"processor" columns are the least processor time over all threads, which other programs on the
machine change less than the wall time.
"""

from __future__ import annotations

import sys
from statistics import median
from typing import Any

from epoch import first_weights
from harness import Contender, disagreement, finish, parser, peer, race, ratio, script
from inputs import HELP, graph_file

PARTS = ("construction", "partition", "copy", "start", "first", "second")
COLUMNS = [
    "contender",
    "construction",
    "partition",
    "start",
    "first",
    "total",
    "least",
    "copy",
    "two steps",
    "processor start",
    "processor total",
    "processor two",
    "times slower",
    "GiB",
    "note",
]


def rows_of(contenders: list[Contender]) -> list[dict[str, Any]]:
    """A row for each contender, with medians of its parts and the least processor times."""
    rows = []
    own = None
    for c in contenders:
        totals = [
            a + b
            for a, b in zip(c.seconds.get("start", []), c.seconds.get("first", []), strict=True)
        ]
        total = median(totals) if totals else None
        used = [run["processor"] for run in c.more]
        own = total if c is contenders[0] else own
        rows.append(
            {
                "contender": c.name,
                **{part: c.median(part) for part in PARTS},
                "total": total,
                "seconds": total,
                "least": min(totals, default=None),
                "processor start": min((t["start"] for t in used), default=None),
                "processor total": min((t["start"] + t["first"] for t in used), default=None),
                "two steps": (
                    median(map(sum, zip(totals, c.seconds["second"], strict=True)))
                    if totals
                    else None
                ),
                "processor two": min(
                    (t["start"] + t["first"] + t["second"] for t in used), default=None
                ),
                "times slower": None if c is contenders[0] else ratio(total, own),
                "GiB": c.peak / 2**30,
                "note": c.error,
                "runs": len(totals),
                "label": c.name,
                "version": c.version,
                "wall by part": c.seconds,
                "processor by part": {
                    part: [t[part] for t in used] for part in (used[0] if used else ())
                },
            }
        )
    return rows


def main() -> int:
    options = parser(__doc__, rounds=5)
    options.add_argument("--model", choices=("gcn", "sage", "gat"), default="gcn", help="gcn")
    options.add_argument("--peers", nargs="*", choices=("dgl", "pyg"), default=["dgl", "pyg"])
    options.add_argument("--graph", default="reddit", help=f"{HELP}; reddit")
    options = options.parse_args()
    graph = graph_file(options.graph, options.folder)
    words = (options.model, graph, first_weights(options.model, graph, options.folder))
    own = script("own", "build", *words)
    contenders = [
        Contender("graphtheta", own),
        Contender("small pages", own, {"NUMPY_MADVISE_HUGEPAGE": "0"}),
    ]
    for library in options.peers:
        command = peer(options.envs or options.folder, library, "build", library, *words)
        contenders += [Contender(library, command)] if command else []
    race(contenders, options.rounds, options.threads)
    return finish(
        options,
        rows_of(contenders),
        COLUMNS,
        disagreement(contenders),
        bench="build",
        model=options.model,
        graph=graph.stem,
    )


if __name__ == "__main__":
    sys.exit(main())
