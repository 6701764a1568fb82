"""PageRank and connected components against NetworKit and GAPBS.

    python bench/graph_algorithms.py                                   facebook100 and R-MAT
    python bench/graph_algorithms.py --peers networkit                 without GAPBS
    python bench/graph_algorithms.py --gapbs FOLDER                    where GAPBS is built

Graphs are undirected, without duplicates, self loops and isolated nodes, which the contenders treat
differently. "seconds" is the time of the algorithm on a graph that is ready, "start" the time from
arrays to there (of GAPBS: from its own file). PageRank does 20 iterations of the power method;
"converged" ends when ranks change by 1e-8 in all. NetworKit's components are the faster of its
sequential and parallel algorithm, GAPBS has Afforest. GAPBS computes ranks in float32, the others
in 64 bits. The largest rank, the length of the vector of ranks and the number of components must
agree.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from harness import Contender, disagreement, finish, parser, peer, race, ratio, script

import graphtheta as gt

GRAPHS = {
    "facebook": "facebook100",
    "rmat": "rmat:scale=20,edge_factor=16,features=2,classes=2",
    "small": "rmat:scale=10,edge_factor=8",
}
CASES = ("pagerank", "converged", "components")
COLUMNS = [
    "graph",
    "case",
    "contender",
    "seconds",
    "least",
    "of the fastest peer",
    "start",
    "GiB",
    "note",
]


def undirected_file(name: str, folder: Path) -> Path:
    """A file with the neighbours of each node, ascending: ``indptr`` [n + 1] int64 and ``indices``
    int32.
    """
    path = folder / f"undirected-{name}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        graph = gt.load(GRAPHS[name])
        src = graph.src[graph.src != graph.dst]
        dst = graph.dst[graph.src != graph.dst]
        pairs = np.unique(np.concatenate((src * graph.n_nodes + dst, dst * graph.n_nodes + src)))
        used, src = np.unique(pairs // graph.n_nodes, return_inverse=True)
        dst = np.searchsorted(used, pairs % graph.n_nodes)
        np.savez(
            path,
            indptr=np.concatenate(([0], np.cumsum(np.bincount(src)))),
            indices=dst.astype(np.int32),
        )
    return path


def rows_of(graph: str, contenders: list[Contender]) -> list[dict[str, Any]]:
    """A row for each case and contender; "of the fastest peer" compares least times."""
    rows = []
    for case in CASES:
        least = {c.name: min(c.seconds[case]) for c in contenders if c.seconds.get(case)}
        fastest = min((s for name, s in least.items() if name != contenders[0].name), default=None)
        rows += [
            {
                "graph": graph,
                "case": case,
                "contender": c.name,
                "seconds": c.median(case),
                "least": least.get(c.name),
                "of the fastest peer": ratio(least.get(c.name), fastest),
                "start": c.median("start"),
                "GiB": c.peak / 2**30,
                "label": f"{graph} {case} {c.name}",
                "note": c.error,
                "version": c.version,
                **c.figures.get(case, {}),
            }
            for c in contenders
            if case in c.seconds or c.error
        ]
    return rows


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument("--graphs", nargs="*", choices=tuple(GRAPHS), default=["facebook", "rmat"])
    options.add_argument(
        "--peers", nargs="*", choices=("networkit", "gapbs"), default=["networkit", "gapbs"]
    )
    options.add_argument(
        "--gapbs", type=Path, help="folder with the programs of GAPBS; that of the inputs"
    )
    options.add_argument(
        "--times", type=int, default=5, help="runs of each algorithm in a process; 5"
    )
    options = options.parse_args()
    rows, faults = [], []
    for graph in options.graphs:
        file = undirected_file(graph, options.folder)
        contenders = [
            Contender("graphtheta", script("own", "graph_algorithms", file, options.times))
        ]
        for name in options.peers:
            command = (
                peer(
                    options.envs or options.folder,
                    "networkit",
                    "graph_algorithms",
                    file,
                    options.times,
                )
                if name == "networkit"
                else script(
                    "peers",
                    "graph_algorithms_gapbs",
                    file,
                    options.times,
                    options.gapbs or options.folder / "gapbs",
                )
            )
            contenders += [Contender(name, command)] if command else []
        race(contenders, options.rounds, options.threads)
        rows = rows + rows_of(graph, contenders)
        faults = faults + disagreement(contenders)
    return finish(options, rows, COLUMNS, faults, bench="graph_algorithms")


if __name__ == "__main__":
    sys.exit(main())
