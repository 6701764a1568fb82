"""NetworKit as a contender: PageRank and components.

PYTHONPATH=bench python bench/peers/graph_algorithms.py GRAPH.npz TIMES
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import networkit as nk
import numpy as np
from contender import Parts, report, size_of


def page_rank(graph: Any, tolerance: float, iterations: int) -> np.ndarray:
    """Ranks by the L1 norm of changes; ``iterations`` 0 is no limit."""
    made = nk.centrality.PageRank(graph, 0.85, tolerance)
    made.norm = nk.centrality.Norm.L1_NORM
    if iterations:
        made.maxIterations = iterations
    return np.array(made.run().scores())


def main(path: str, times: str) -> None:
    with np.load(path) as z:
        indptr, indices = z["indptr"], z["indices"]
    parts = Parts()
    seconds = {}
    with parts.timed("start"):
        src = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        once = src < indices
        ends = src[once].astype(np.uint64), indices[once].astype(np.uint64)
        graph = nk.GraphFromCoo(ends, n=len(indptr) - 1, directed=False, weighted=False)
    cases: dict[str, Callable[[], Any]] = {
        "pagerank": lambda: page_rank(graph, 0.0, 20),
        "converged": lambda: page_rank(graph, 1e-8, 0),
        "components": lambda: nk.components.ConnectedComponents(graph).run().numberOfComponents(),
        "parallel": lambda: (
            nk.components.ParallelConnectedComponents(graph, False).run().numberOfComponents()
        ),
    }
    found = {}
    for case, run in cases.items():
        for _ in range(int(times)):
            with parts.timed(case):
                found[case] = run()
            seconds.setdefault(case, []).extend(parts.seconds[case])
    parallel = seconds.pop("parallel")
    seconds["components"] = min(seconds["components"], parallel, key=min)
    checks = {case: [size_of(found[case])] for case in ("pagerank", "converged")} | {
        "largest rank": [float(found["pagerank"].max())]
    }
    report(
        {"start": parts.seconds["start"], **seconds},
        {**checks, "components": [float(found["components"])]},
        f"networkit {nk.__version__}",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
