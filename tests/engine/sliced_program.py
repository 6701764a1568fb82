"""Peak memory of arrays while a partition is built, from mapped edges and from arrays, on each
rank.

Arguments: folder of src.npy and dst.npy, and the number of nodes.
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path

import numpy as np

from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.runtime.start import run_main, start
from graphtheta.graph.data.graph import Graph


def program() -> int:
    comm = start()
    n = int(sys.argv[2])
    peaks = []
    for mode in ("r", None):
        graph = Graph(
            [np.load(Path(sys.argv[1], f"{end}.npy"), mmap_mode=mode) for end in ("src", "dst")], n
        )
        # the first time loads machine code
        build_partition(graph, comm, "vertex-cut")
        tracemalloc.start()
        build_partition(graph, comm, "vertex-cut")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    found = comm.all_gather(peaks)
    if comm.rank == 0:
        sys.stdout.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(run_main(program))
