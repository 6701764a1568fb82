"""GraphTheta as a contender: PageRank and components on a partition of one worker.

PYTHONPATH=bench python bench/own/graph_algorithms.py GRAPH.npz TIMES
"""

from __future__ import annotations

import sys

import numpy as np
from contender import Parts, report, size_of

import graphtheta as gt
from graphtheta.analytics.components import Components
from graphtheta.analytics.page_rank import PageRank
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.partition.partition import build_partition

ALGORITHMS = {
    "pagerank": PageRank(tolerance=0.0, iterations=20),
    "converged": PageRank(tolerance=1e-8),
    "components": Components(),
}


def main(path: str, times: str) -> None:
    with np.load(path) as z:
        indptr, indices = z["indptr"], z["indices"]
    few = gt.Graph(([0, 1], [1, 0]))
    partition = build_partition(few, SerialComm(), dtype=np.float64)
    for algorithm in ALGORITHMS.values():
        algorithm.run(partition, few)
    seconds: dict[str, list[float]] = {}
    parts = Parts()
    with parts.timed("start"):
        graph = gt.Graph(
            (np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), indices), len(indptr) - 1
        )
        partition = build_partition(graph, SerialComm(), dtype=np.float64)
    found = {}
    for case, algorithm in ALGORITHMS.items():
        for _ in range(int(times)):
            with parts.timed(case):
                found[case] = algorithm.run(partition, graph)
            seconds.setdefault(case, []).extend(parts.seconds[case])
    checks = {case: [size_of(found[case])] for case in ("pagerank", "converged")} | {
        "largest rank": [float(found["pagerank"].max())]
    }
    report(
        {"start": parts.seconds["start"], **seconds},
        {**checks, "components": [float(len(np.unique(found["components"])))]},
        f"graphtheta {gt.__version__}",
        **{case: {"processor": parts.processor[case]} for case in ALGORITHMS},
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
