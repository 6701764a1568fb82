"""Peak memory of a worker and its time while a graph with edges in files is divided.

    mpiexec -n 2 python bench/own/divided.py FOLDER NODES MASTERS PARTITIONER

FOLDER has src.npy and dst.npy. Rank 0 prints a row: arrays at their peak by tracemalloc, without
the edges that a worker receives in the end.
"""
from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path
from time import process_time

import numpy as np

from graphtheta.data.graph import Graph
from graphtheta.engine.partition.division import divide
from graphtheta.engine.partition.edge_source import GraphEdges
from graphtheta.engine.runtime.start import run_main, start
from graphtheta.partitioners.registry import DEFAULT_PLACEMENT

# compiles kernels on a graph that is not measured, a ring
SMALL = Graph(np.stack((np.arange(1000), (np.arange(1000) + 1) % 1000)), 1000)


def program() -> int:
    comm, (folder, nodes, masters, partitioner) = start(), sys.argv[1:]
    graph = Graph([np.load(Path(folder, f"{end}.npy"), mmap_mode="r") for end in ("src", "dst")], int(nodes))
    peak, used = 0, 0.0
    for source in (GraphEdges(SMALL), GraphEdges(graph)):
        tracemalloc.start()
        began, counts, cut = process_time(), np.zeros(comm.size, np.int64), 0
        division = divide(source, comm, partitioner, masters, 0)
        for chunk, workers in division.dealt:
            counts += np.bincount(workers, minlength=comm.size)
            if partitioner == DEFAULT_PLACEMENT:
                cut += int(np.count_nonzero(division.owner(chunk.dst) != workers))
        peak, used = tracemalloc.get_traced_memory()[1], process_time() - began
        tracemalloc.stop()
    counts, cut = comm.all_sum(counts), int(comm.all_sum(np.array(cut)))
    found = comm.all_gather([peak, used])
    if comm.rank == 0:
        sys.stdout.write(json.dumps({"workers": comm.size, "masters": masters, "partitioner": partitioner, "cut": cut / graph.n_edges,
                                     "edges": float(counts.max() * comm.size / counts.sum()), "peaks": [int(peak) for peak, _ in found],
                                     "processor": sum(used for _, used in found)}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(run_main(program))
