"""Peak memory of a worker and its time while a graph with edges in files is divided.

    PYTHONPATH=bench mpiexec -n 2 python bench/own/divided.py FOLDER NODES MASTERS PARTITIONER

FOLDER has src.npy and dst.npy. Memory is that of the process without pages of files, beyond what it
has when nodes get their owners, and is read every 2 ms by a process of its own, because libraries
do not let other threads run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from contender import report

import graphtheta as gt
from graphtheta.engine.partition.division import divide
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import block_bounds
from graphtheta.engine.runtime.start import start
from graphtheta.partitioners.registry import DEFAULT_PLACEMENT

# reads memory of its own and shared memory, in kB, until its input ends
WATCH = """
import select, sys
def now():
    with open(f"/proc/{sys.argv[1]}/status") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith(("RssAnon", "RssShmem")))
first = most = now()
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.002)[0]:
    most = max(most, now())
print(most - first)
"""
# compiles kernels on a graph that is not measured, a ring
SMALL = gt.Graph(np.stack((np.arange(1000), (np.arange(1000) + 1) % 1000)), 1000)


@contextmanager
def watched() -> Iterator[list[int]]:
    """The growth of memory while something runs, in bytes, appended in the end."""
    grown = list[int]()
    with subprocess.Popen(
        [sys.executable, "-S", "-c", WATCH, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as watch:
        assert watch.stdout is not None
        watch.stdout.readline()
        yield grown
        grown.append(int(watch.communicate()[0]) << 10)


def main(folder: str, nodes: str, masters: str, partitioner: str) -> None:
    comm = start()
    graph = gt.Graph(
        [np.load(Path(folder, f"{end}.npy"), mmap_mode="r") for end in ("src", "dst")], int(nodes)
    )
    for source in (EdgeSource(SMALL), EdgeSource(graph)):
        comm.barrier()
        began = perf_counter()
        used = process_time()
        counts = np.zeros(comm.size, np.int64)
        cut = 0
        with watched() as assigning:
            division = divide(source, comm, partitioner, masters, 0)
        seconds = perf_counter() - began
        processor = process_time() - used
        owners = division.owner(np.arange(*block_bounds(source.n_nodes, comm.rank, comm.size)))
        with watched() as dealing:
            for chunk, workers in division.dealt:
                counts += np.bincount(workers, minlength=comm.size)
                if partitioner == DEFAULT_PLACEMENT:
                    cut += int(np.count_nonzero(division.owner(chunk.dst) != workers))
    counts = comm.all_sum(counts)
    cut = int(comm.all_sum(np.array(cut)))
    found = comm.all_gather([assigning[0], dealing[0], processor])
    parts = np.concatenate(comm.all_gather(owners))
    if comm.rank == 0:
        assigned, dealt, used = ([row[i] for row in found] for i in range(3))
        report(
            {"assignment": [seconds]},
            {},
            f"graphtheta {gt.__version__}",
            assigning=assigned,
            dealing=dealt,
            processor=sum(used),
            cut=cut / graph.n_edges,
            crc=zlib.crc32(parts),
            edges=float(counts.max() * comm.size / counts.sum()),
            nodes=float(np.bincount(parts).max() * comm.size / len(parts)),
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
