"""Reports on partitions of a graph.

    PYTHONPATH=bench python bench/own/partition.py DATASET WORKERS yes|no MASTERS/PARTITIONER ...

With "yes", the parts of all workers are built too, one worker at a time.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from contender import report

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.partition.partitioner import assign
from graphtheta.errors import ConfigError
from graphtheta.partitioners.report import OneOf


def measured(graph: gt.Graph, workers: int, pair: str) -> dict[str, Any]:
    """The fields of a report, or why there is none."""
    masters, partitioner = pair.split("/")
    try:
        # memory of earlier pairs is used again
        return {
            **asdict(gt.partition_report(graph, workers, masters, partitioner)),
            "peak_bytes": None,
        }
    except ConfigError as error:
        return {
            "masters": masters,
            "partitioner": partitioner,
            "n_workers": workers,
            "note": str(error),
        }


def whole(graph: gt.Graph, workers: int, pair: str) -> dict[str, float]:
    """Time and processor time to assign nodes once and to build the parts of all workers."""
    masters, partitioner = pair.split("/")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "owners.npy")
        began = perf_counter()
        used = process_time()
        np.save(path, assign(EdgeSource(graph), OneOf(workers), partitioner, masters, 0)[0])
        run_simulated(
            workers, lambda comm: build_partition(graph, comm, partitioner, f"file:path={path}")
        )
        return {"whole": perf_counter() - began, "whole processor": process_time() - used}


def main(dataset: str, workers: str, wholly: str, *pairs: str) -> None:
    small = gt.load("ring:n=1000")
    graph = gt.load(dataset)
    size = int(workers)
    rows = []
    for pair in pairs:
        # compiles kernels
        measured(small, size, pair)
        row = measured(graph, size, pair)
        if wholly == "yes" and "note" not in row:
            whole(small, size, pair)
            row |= whole(graph, size, pair)
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
    report({}, {}, f"graphtheta {gt.__version__}", rows=rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
