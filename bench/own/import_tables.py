"""Imports tables of edges and nodes, and reports time and memory of each worker.

PYTHONPATH=bench mpiexec -n 2 python bench/own/import_tables.py EDGES NODES STORE [OPTION=VALUE ...]
"""

from __future__ import annotations

import resource
import shutil
import sys
import zlib
from pathlib import Path
from time import perf_counter

from contender import report

import graphtheta as gt


def held() -> int:
    """The most memory this process has held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(edges: str, nodes: str, store: str, *options: str) -> None:
    comm = gt.start()
    # imports, buffers of MPI and threads are not the graph's
    gt.import_graph({"src": [0, 1], "dst": [1, 0]}, to=Path(store, "small"), comm=comm)
    before = held()
    comm.barrier()
    begin = perf_counter()
    gt.import_graph(
        edges,
        None if nodes == "-" else nodes,
        to=Path(store, "graph"),
        comm=comm,
        **{name: value.split(",") for name, value in (option.split("=", 1) for option in options)},
    )
    comm.barrier()
    seconds = perf_counter() - begin
    peaks = comm.all_gather([before, held()])
    if comm.rank == 0:
        graph = gt.load(Path(store, "graph"), split="none")
        checks = [
            float(graph.n_nodes),
            float(graph.n_edges),
            float(zlib.crc32(graph.src.tobytes() + graph.dst.tobytes())),
        ]
        report(
            {"import": [seconds]},
            {"import": checks},
            f"graphtheta {gt.__version__}",
            before=[a for a, _ in peaks],
            peaks=[b for _, b in peaks],
            edges=graph.n_edges,
            nodes=graph.n_nodes,
        )
        shutil.rmtree(store)


if __name__ == "__main__":
    main(*sys.argv[1:])
