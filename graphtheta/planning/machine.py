"""The speed of this machine in the units of the cost model, from training steps of small jobs.

Each job is dominated by another part: products, products of sparse features, operations at nodes,
edges that read rows, edges that compute, or the interpreter. Non-negative least squares gives the
seconds of a unit of each part on one thread. Threads and workers of a machine share its memory,
so what reads memory is slower on all cores than on one, and giving blocks of an operation to
threads takes time; both follow from steps on all threads. What messages cost is measured between
two workers (``messages.py``). The result is stored beside the compiled kernels.
"""
from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
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
from graphtheta.planning import messages
from graphtheta.planning.placement import Placement
from graphtheta.planning.skeleton import skeleton
from graphtheta.planning.work import DIVIDED, EDGES, NODES, work_of
from graphtheta.train.trainer import Trainer

# changes with the units of the cost model
VERSION = 3
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
# steps of a job: some that compile and warm up, and those of which the shortest counts. They are timed
# in several rounds over all jobs, because other programs slow a shared machine for seconds
WARM, TIMED, ROUNDS = 3, 5, 4
# an operation is divided in about so many seconds
UNIT = 1e-4
# parts that read memory
MEMORY = [NODES, EDGES]
# where two workers cannot be started: seconds of a byte, and of a message besides its bytes, most of
# them of the interpreter at both ends
BYTE, LATENCY = 2e-10, 1e-4
# seconds that MPICH takes to send and receive a message between two processes of a machine, with
# what the interpreter does for a message
POST = 8e-6


@dataclass(frozen=True)
class Machine:
    """Speed of a machine.

    Attributes:
        seconds: Seconds of a unit of each entry of ``PARTS``, on one thread.
        crowded: How many times as long reading memory takes when all cores do.
        divide: Seconds to divide an operation among threads.
        byte: Seconds of a byte sent within the machine, while both ends send.
        message: Seconds of a message besides its bytes.
        cores: Cores of the machine.
        error: Largest relative error of the jobs that were measured.
    """

    seconds: tuple[float, ...]
    crowded: float
    divide: float
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
        busy[DIVIDED] = self.divide * threads * (threads > 1)
        # on one thread alone, the memory is this thread's
        alone = np.array(self.seconds) if workers == 1 else busy
        found: np.ndarray = (parts[:, 0] @ alone + parts[:, 1] @ busy / threads) * max(1.0, workers / self.cores)
        return found

    def transfer(self, sent: np.ndarray, messages: np.ndarray, workers: int, counted: bool = False) -> float:
        """Seconds in which workers send, if ``workers`` of them share the machine.

        Args:
            sent, messages: Of each worker, [size].
            workers: Workers of a machine.
            counted: Whether the interpreter's time around messages is counted elsewhere, which is most
                of what they take within a machine.
        """
        each = POST if counted else self.message
        return float(sent.max() * self.byte + messages.max() * each) * max(1.0, workers / self.cores)


def machine(again: bool = False) -> Machine:
    """The speed of this machine, measured at the first use.

    Args:
        again: Measure it anew.
    """
    path = cache_folder() / f"machine-{len(available_cores())}-{VERSION}.json"
    if not again:
        with suppress(OSError, ValueError, TypeError, KeyError):
            return read(path)
    found = measured()
    with suppress(OSError):
        write(found, path)
    return found


def write(found: Machine, path: Path) -> None:
    """Write the speed of a machine to a file."""
    with atomic_file(path) as f:
        f.write((json.dumps(asdict(found), indent=1) + "\n").encode())


def read(path: Path) -> Machine:
    """The speed of a machine from a file."""
    held = json.loads(path.read_text(encoding="utf-8"))
    return Machine(**{**held, "seconds": tuple(map(float, held["seconds"]))})


def measured() -> Machine:
    """Measure this machine."""
    from scipy.optimize import nnls

    from graphtheta.ops.kernels import pool

    graphs = {name: load(text) for name, text in GRAPHS.items()}
    features = scipy.sparse.random(graphs["sparse"].n_nodes, SPARSE_WIDTH, SPARSE_DENSITY, format="csr", dtype=np.float32, random_state=0)
    graphs["sparse"] = graphs["sparse"].replace(x=scipy.sparse.csr_array(features))
    jobs = [(Job(**keys, keep=0), graphs[name]) for name, keys in JOBS]
    each, cores, threads = np.array([_work(*job) for job in jobs]), len(available_cores()), pool.threads()
    trainers = [Trainer(graph=graph, job=job, comm=SerialComm()) for job, graph in jobs]
    steps = np.min([[_seconds(trainer, threads) for trainer in trainers] for _ in range(ROUNDS)], axis=0)
    work, seconds = each.sum(axis=1), steps[:, 0]
    # one thread divides nothing
    work[:, DIVIDED] = 0
    # relative errors, so that short steps count as much as long ones
    scaled = work / seconds[:, None]
    size = np.maximum(scaled.max(axis=0), np.finfo(float).tiny)
    found = nnls(scaled / size, np.ones(len(seconds)))[0] / size
    error = float(np.abs(scaled @ found - 1).max())
    crowded, divide = _shared(each, steps, found, threads)
    message, byte = messages.measured() or (LATENCY, BYTE)
    return Machine(tuple(found.tolist()), crowded, divide, byte, message, cores, error)


def _shared(each: np.ndarray, steps: np.ndarray, unit: np.ndarray, threads: int) -> tuple[float, float]:
    """How many times as long reading memory takes when all threads do, 1 at least; and seconds to divide an operation among threads.

    Args:
        each: Work of each job on one thread and on all, [jobs, 2, parts].
        steps: Seconds of a step with one thread and with all, [jobs, 2].
        unit: Seconds of a unit of each part on one thread.
        threads: Number of all threads.
    """
    from scipy.optimize import nnls

    if threads == 1:
        return 1.0, 0.0
    parts = each * unit
    # errors of the fit belong to the job
    parts *= (steps[:, 0] / parts.sum(axis=(1, 2)))[:, None, None]
    reading, divided = parts[:, 1, MEMORY].sum(axis=1) / threads, each[:, 1, DIVIDED]
    more = steps[:, 1] - parts[:, 0].sum(axis=1) - parts[:, 1].sum(axis=1) / threads
    scale = np.array([1.0, UNIT])
    found = nnls(np.stack([reading, divided * UNIT], axis=1) / steps[:, 1:], more / steps[:, 1])[0] * scale
    return 1 + float(found[0]), float(found[1])


def _work(job: Job, graph: Graph) -> np.ndarray:
    held = skeleton(job, graph)
    whole = Placement.of(held.graph, 1, job.partitioner, job.masters, job.seed)
    parts: np.ndarray = work_of(held, held.strategy(job).batch(0, 0), whole).parts[0]
    return parts


def _seconds(trainer: Trainer, threads: int) -> tuple[float, float]:
    """Seconds of the shortest step, which other programs change least: of the processor on one thread, and of the clock on all."""
    from graphtheta.ops.kernels import pool

    found = []
    for n, clock in ((1, process_time), (threads, perf_counter)):
        pool.set_threads(n)
        times = []
        for _ in range(WARM + TIMED):
            began = clock()
            trainer.train_epoch(0)
            times.append(clock() - began)
        found.append(min(times[WARM:]))
    return found[0], found[1]
