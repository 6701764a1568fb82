"""The speed of this machine in the units of the cost model, from training steps of small jobs.

Each job is dominated by another part: products, products of sparse features, operations at nodes,
edges that read rows, edges that compute, or the interpreter. Non-negative least squares gives the
seconds of a unit of each part on one thread. Threads and workers of a machine share its memory,
so what reads memory is slower on all cores than on one, by the factor of a copy. The result is
stored beside the compiled kernels.
"""
from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from threading import Barrier
from time import perf_counter, process_time
from typing import Any

import numpy as np
import scipy

from graphtheta.atomic import atomic_file
from graphtheta.data.graph import Graph
from graphtheta.datasets.dataset import load
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.runtime.affinity import available_cores
from graphtheta.job.job import Job
from graphtheta.ops.compile.cache import cache_folder
from graphtheta.planning.placement import Placement
from graphtheta.planning.skeleton import skeleton
from graphtheta.planning.work import EDGES, NODES, work_of
from graphtheta.train.trainer import Trainer

# changes with the units of the cost model
VERSION = 2
GRAPHS = {
    "tiny": "rmat:scale=9,edge_factor=4,features=16,classes=4",
    "wide": "rmat:scale=11,edge_factor=2,features=512,classes=16",
    "long": "rmat:scale=12,edge_factor=2,features=128,classes=16",
    "edges": "rmat:scale=13,edge_factor=16,features=32,classes=16",
    "sparse": "rmat:scale=12,edge_factor=2,features=16,classes=16",
}
# width and share of stored numbers of the features of "sparse"
SPARSE_WIDTH, SPARSE_DENSITY = 1000, 0.02
JOBS: list[tuple[str, dict[str, Any]]] = [
    ("tiny", {"model": "gcn", "hidden": 16}),
    ("tiny", {"model": "gat", "hidden": 16, "heads": 2, "layers": 3}),
    ("tiny", {"model": "mlp", "hidden": 16, "layers": 4}),
    ("wide", {"model": "mlp", "hidden": 512, "dropout": 0.0}),
    ("long", {"model": "mlp", "hidden": 64, "layers": 4}),
    ("long", {"model": "gcn", "hidden": 64, "layers": 3, "norm": "layer"}),
    ("edges", {"model": "gcn", "hidden": 32}),
    ("edges", {"model": "gcn", "hidden": 128}),
    ("edges", {"model": "sage", "hidden": 64}),
    ("edges", {"model": "gat", "hidden": 32, "heads": 4}),
    ("sparse", {"model": "mlp", "hidden": 64}),
    ("sparse", {"model": "gcn", "hidden": 128}),
]
# steps of a job: some that compile and warm up, and those of which the fastest counts
WARM, TIMED = 3, 6
COPIED_BYTES = 1 << 25
# parts that read memory
MEMORY = [NODES, EDGES]
# a message within a machine is written, copied and read
COPIES = 3
# seconds of a message besides its bytes, most of them of the interpreter at both ends
LATENCY = 2e-4


@dataclass(frozen=True)
class Machine:
    """Speed of a machine.

    Attributes:
        seconds: Seconds of a unit of each entry of ``PARTS``, on one thread.
        crowded: How many times as long reading memory takes when all cores do.
        byte: Seconds of a byte sent within the machine.
        message: Seconds of a message besides its bytes.
        cores: Cores of the machine.
        error: Largest relative error of the jobs that were measured.
    """

    seconds: tuple[float, ...]
    crowded: float
    byte: float
    message: float
    cores: int
    error: float

    def compute(self, parts: np.ndarray, workers: int) -> np.ndarray:
        """Seconds in which workers compute, [size], if ``workers`` of them share the machine.

        Args:
            parts: Work of each worker on one thread and on all, [size, 2, parts].
            workers: Workers of a machine.
        """
        threads, busy = max(self.cores // workers, 1), np.array(self.seconds)
        busy[MEMORY] *= self.crowded
        # on one thread alone, the memory is this thread's
        alone = np.array(self.seconds) if workers == 1 else busy
        found: np.ndarray = (parts[:, 0] @ alone + parts[:, 1] @ busy / threads) * max(1.0, workers / self.cores)
        return found


def machine(again: bool = False) -> Machine:
    """The speed of this machine, measured at the first use.

    Args:
        again: Measure it anew.
    """
    path = cache_folder() / f"machine-{len(available_cores())}-{VERSION}.json"
    if not again:
        with suppress(OSError, ValueError, TypeError, KeyError):
            return _read(path)
    found = measured()
    with suppress(OSError), atomic_file(path) as f:
        f.write((json.dumps(asdict(found), indent=1) + "\n").encode())
    return found


def _read(path: Path) -> Machine:
    held = json.loads(path.read_text(encoding="utf-8"))
    return Machine(**{**held, "seconds": tuple(map(float, held["seconds"]))})


def measured() -> Machine:
    """Measure this machine."""
    from scipy.optimize import nnls

    graphs = {name: load(text) for name, text in GRAPHS.items()}
    features = scipy.sparse.random(graphs["sparse"].n_nodes, SPARSE_WIDTH, SPARSE_DENSITY, format="csr", dtype=np.float32, random_state=0)
    graphs["sparse"] = graphs["sparse"].replace(x=scipy.sparse.csr_array(features))
    rows, times = [], []
    for name, keys in JOBS:
        job = Job(**keys, keep=0)
        rows.append(_work(job, graphs[name]))
        times.append(_seconds(job, graphs[name]))
    work, seconds = np.array(rows), np.array(times)
    # relative errors, so that short steps count as much as long ones
    scaled = work / seconds[:, None]
    size = scaled.max(axis=0)
    found = nnls(scaled / size, np.ones(len(seconds)))[0] / size
    error = float(np.abs(scaled @ found - 1).max())
    alone, cores = _copy(1), len(available_cores())
    return Machine(tuple(found.tolist()), _copy(cores) / alone, COPIES * alone, LATENCY, cores, error)


def _work(job: Job, graph: Graph) -> np.ndarray:
    held = skeleton(job, graph)
    whole = Placement.of(held.graph, 1, job.partitioner, job.masters, job.seed)
    parts: np.ndarray = work_of(held, held.strategy(job).batch(0, 0), whole).parts[0].sum(axis=0)
    return parts


def _seconds(job: Job, graph: Graph) -> float:
    """Processor seconds of a step on one thread, which other processes of the machine hardly change."""
    from graphtheta.ops.kernels import pool

    trainer, found, threads = Trainer(graph=graph, job=job, comm=SerialComm()), [], pool.threads()
    pool.set_threads(1)
    try:
        for epoch in range(WARM + TIMED):
            began = process_time()
            trainer.train_epoch(epoch)
            found.append(process_time() - began)
    finally:
        pool.set_threads(threads)
    return median(found[WARM:])


def _copy(threads: int) -> float:
    """Seconds to copy a byte while so many threads copy."""
    found, barrier = [], Barrier(threads)

    def copy(timed: bool) -> None:
        source, target = np.ones(COPIED_BYTES, np.uint8), np.zeros(COPIED_BYTES, np.uint8)
        for _ in range(WARM + TIMED):
            barrier.wait()
            began = perf_counter()
            np.copyto(target, source)
            if timed:
                found.append(perf_counter() - began)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(copy, [True, *[False] * (threads - 1)]))
    return median(found[WARM:]) / COPIED_BYTES
