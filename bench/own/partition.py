"""Reports on partitions of a graph.

    PYTHONPATH=bench python bench/own/partition.py DATASET WORKERS,... MASTERS/PARTITIONER ...
"""
from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from contender import report

import graphtheta as gt
from graphtheta.errors import ConfigError


def measured(graph: gt.Graph, workers: int, pair: str) -> dict[str, Any]:
    """The fields of a report, or why there is none."""
    masters, partitioner = pair.split("/")
    try:
        return asdict(gt.partition_report(graph, workers, masters, partitioner))
    except ConfigError as error:
        return {"masters": masters, "partitioner": partitioner, "n_workers": workers, "note": str(error)}


def main(dataset: str, workers: str, *pairs: str) -> None:
    small, graph = gt.load("ring:n=1000"), gt.load(dataset)
    rows = []
    for size in map(int, workers.split(",")):
        for pair in pairs:
            # compiles kernels
            measured(small, size, pair)
            rows.append(measured(graph, size, pair))
            print(rows[-1], file=sys.stderr, flush=True)
    report({}, {}, f"graphtheta {gt.__version__}", rows=rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
