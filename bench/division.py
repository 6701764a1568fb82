"""Peak memory of a worker while a graph with edges in files is divided.

    python bench/division.py                                  R-MAT of 2^20 edges, 1 and 2 workers
    python bench/division.py --graph facebook100 --pairs grem/1d-src hash/hdrf

"MB" is the growth of the memory of the largest worker, without pages of files, while nodes get
their owners, and "dealing" while the edges get their workers. "share" is the bytes of the worker's
share of the edges as arrays of 64 bits, or of all edges on rank 0, which runs some partitioners
alone. "processor" is the processor time of all workers until the owners are known. The exit code is
1 if a worker takes more than its share and ``CONSTANT``, other than for ``LIBRARIES``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from harness import Contender, finish, on_workers, parser, race, script

import graphtheta as gt

COLUMNS = [
    "masters",
    "partitioner",
    "workers",
    "MB",
    "dealing",
    "share",
    "processor",
    "cut",
    "nodes",
    "note",
]
PAIRS = [
    f"{masters}/1d-src"
    for masters in (
        "block",
        "degree-block",
        "ldg",
        "fennel",
        "bgl",
        "bgl:passes=1,second=1",
        "grem",
        "grem:slack=0.001",
        "louvain",
        "metis",
    )
]
PAIRS += [f"hash/{partitioner}" for partitioner in ("hybrid", "hdrf", "libra")]
# run on rank 0, and take memory of their own
LIBRARIES = ("louvain", "leiden", "metis")
# MB that a worker may take beyond its share, for chunks of edges and their messages
CONSTANT = 200


def written(folder: Path, name: str) -> tuple[Path, int, int]:
    """The folder of the edges of a graph, made if there is none, and the numbers of nodes and
    edges.
    """
    at = folder / f"{name.translate(str.maketrans(':,', '--', '='))}-mapped"
    if not (at / "n.npy").exists():
        graph = gt.load(name, split="none")
        at.mkdir(parents=True, exist_ok=True)
        for end in ("src", "dst"):
            np.save(at / f"{end}.npy", getattr(graph, end))
        np.save(at / "n.npy", [graph.n_nodes, graph.n_edges])
    nodes, edges = np.load(at / "n.npy").tolist()
    return at, nodes, edges


def row_of(c: Contender, n: int, pair: str, edges: int) -> dict[str, Any]:
    """Figures of a contender."""
    masters, partitioner = pair.split("/")
    found = c.figures
    alone = masters.partition(":")[0] in LIBRARIES
    return {
        "masters": masters,
        "partitioner": partitioner,
        "workers": n,
        "MB": max(found.get("assigning", [0])) / 1e6,
        "dealing": max(found.get("dealing", [0])) / 1e6,
        "share": 16 * edges / (1 if alone else n) / 1e6,
        **{
            name: found.get(name)
            for name in ("processor", "cut", "nodes", "edges", "crc", "assigning")
        },
        "seconds": c.median("assignment"),
        "contender": f"{n} workers",
        "label": f"{pair} {n}",
        "note": c.error,
    }


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument(
        "--graph",
        default="rmat:scale=16,edge_factor=16,features=1,classes=1",
        help="a name that gt.load knows",
    )
    options.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    options.add_argument(
        "--pairs", nargs="+", default=PAIRS, help="node partitioner/edge placement"
    )
    options = options.parse_args()
    at, nodes, edges = written(options.folder, options.graph)
    rows = []
    for pair in options.pairs:
        for n in options.workers:
            c = Contender(
                f"{pair} {n}", on_workers(n, script("own", "divided", at, nodes, *pair.split("/")))
            )
            race([c], options.rounds, max(1, options.threads // n))
            rows.append(row_of(c, n, pair, edges))
    faults = [
        f"{row['label']} takes {row['MB']:.0f} MB, its share is {row['share']:.0f}"
        for row in rows
        if row["MB"] > row["share"] + CONSTANT and row["masters"].partition(":")[0] not in LIBRARIES
    ]
    return finish(options, rows, COLUMNS, faults, bench="division", graph=options.graph)


if __name__ == "__main__":
    sys.exit(main())
