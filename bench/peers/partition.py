"""DGL as a contender: the assignment of nodes by METIS that its offline partitioning makes, and the
whole of it.

    PYTHONPATH=bench python bench/peers/partition.py EDGES.npz WORKERS,... yes|no

The file has ``src``, ``dst`` [n_edges] int32 and ``n_nodes``. With "yes", partitions with their
halos are built and written too, in a temporary folder.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import dgl
import numpy as np
import torch
from contender import peak_bytes, report


def resident() -> int:
    """Bytes that this process holds; sets its peak to that."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak_bytes()


def spent(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result of some work, its time, and its processor time."""
    began = perf_counter()
    used = process_time()
    return work(), perf_counter() - began, process_time() - used


def main(path: str, workers: str, whole: str) -> None:
    with np.load(path) as z:
        src = z["src"]
        dst = z["dst"]
        n = int(z["n_nodes"])
    g = dgl.graph((torch.from_numpy(src).long(), torch.from_numpy(dst).long()), num_nodes=n)
    rows = []
    for size in map(int, workers.split(",")):
        before = resident()
        found, seconds, processor = spent(
            lambda size=size: dgl.metis_partition_assignment(g, size).numpy()
        )
        row = {
            "masters": "dgl",
            "partitioner": "1d-dst",
            "n_workers": size,
            "seconds": seconds,
            "processor": processor,
            "peak_bytes": max(peak_bytes() - before, 0),
            "edge_cut": float(np.mean(found[src] != found[dst])),
            "nodes": float(np.bincount(found, minlength=size).max() * size / n),
            "edges": float(np.bincount(found[dst], minlength=size).max() * size / len(dst)),
        }
        if whole == "yes":
            with tempfile.TemporaryDirectory() as folder:
                _, row["whole"], row["whole processor"] = spent(
                    lambda size=size, folder=folder: dgl.distributed.partition_graph(
                        g, "graph", size, folder
                    )
                )
            row["whole_bytes"] = peak_bytes() - before
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
    report({}, {}, f"dgl {dgl.__version__}", rows=rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
