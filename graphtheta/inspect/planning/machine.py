"""The speed of this machine in the units of the cost model, from training steps of small jobs.

Non-negative least squares over the jobs of ``samples.py`` gives the seconds of a unit of each part
of the work on one thread. A kernel runs on the thread that calls it until others have woken up, and
threads share the machine's memory, so what reads memory is slower on all of them than on one; both
follow from steps on all threads. What messages cost, and what workers that compute at the same time
cost each other, is measured on two workers (``messages.py``). The result is stored beside the
compiled kernels.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from graphtheta.base.atomic import BEGINNINGS, atomic_file
from graphtheta.base.costs import BYTE, COLLECTIVE, LATENCY, MESSAGE, POST, WIRE
from graphtheta.base.regular import read_regular
from graphtheta.base.strict_json import to_json
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.runtime.affinity import available_cores
from graphtheta.graph.data.graph import Graph
from graphtheta.inspect.planning import messages, samples
from graphtheta.inspect.planning.placement import Placement
from graphtheta.inspect.planning.skeleton import skeleton
from graphtheta.inspect.planning.work import EDGES, NODES, Load, work_of
from graphtheta.ops.compile.cache import cache_folder
from graphtheta.run.job.job import Job
from graphtheta.train.loop.trainer import Trainer

# changes with the units of the cost model
VERSION = 7
# steps of a job: some that compile and warm up, and those of which the shortest counts. They are
# timed in several rounds over all jobs, because other programs slow a shared machine for seconds
WARM = 2
TIMED = 4
ROUNDS = 4
# of which are chosen: seconds until other threads take part in a kernel, and how many times as long
# reading memory takes on all threads
WAKES, CROWDED = np.geomspace(1e-5, 2e-3, 48), np.linspace(1.0, 2.0, 41)
# parts that read memory
MEMORY = [NODES, EDGES]
# where two workers cannot be started
GUESS = messages.Pair(
    message=MESSAGE,
    collective=COLLECTIVE,
    latency=LATENCY,
    byte=BYTE,
    wire=WIRE,
    ratios=(1.0,) * len(samples.TOGETHER),
)


@dataclass(frozen=True)
class Machine:
    """Speed of a machine.

    Attributes:
        seconds: Seconds of a unit of each entry of ``PARTS``, on one thread.
        crowded: How many times as long reading memory takes when all threads of a worker do.
        wake: Seconds until the other threads take part in a kernel.
        together: How many times as long reading memory, and all else, takes when two workers
            compute.
        message, collective, latency, byte, wire: As those of a ``Pair``.
        cores: Cores of the machine.
        error: Largest relative error of the jobs that were measured.
    """

    seconds: tuple[float, ...]
    crowded: float
    wake: float
    together: tuple[float, float]
    message: float
    collective: float
    latency: float
    byte: float
    wire: float
    cores: int
    error: float

    def compute(self, load: Load, workers: int) -> np.ndarray:
        """Seconds in which workers compute, [size], if ``workers`` of them share the machine.

        Args:
            load: What each worker computes.
            workers: Workers of a machine.
        """
        threads = max(self.cores // workers, 1)
        speed = np.array(self.seconds)
        reading, other = self.together if workers > 1 else (1.0, 1.0)
        speed[:] *= other
        speed[MEMORY] *= reading / other
        seconds: np.ndarray = _on_threads(
            load=load,
            unit=speed,
            threads=threads,
            wake=self.wake,
            crowded=max(self.crowded / reading, 1.0),
        ) * max(1.0, workers / self.cores)
        return seconds

    def transfer(
        self,
        sent: np.ndarray,
        messages: np.ndarray,
        workers: int,
        collectives: float = 0.0,
        counted: bool = False,
    ) -> float:
        """Seconds in which workers send, if ``workers`` of them share the machine.

        They are of bytes, of the start and latency of each move, of its further messages, and of
        collectives. A worker sends at most one message to each other worker in a move, so there are
        at least as many moves as its messages divided by the number of the others.

        Args:
            sent, messages: Of each worker, [size]; messages are those to single workers.
            workers: Workers of a machine.
            collectives: Their number.
            counted: Whether the processor time around messages is counted elsewhere.
        """
        most = float(messages.max())
        moves = most / max(len(messages) - 1, 1)
        start, each, byte, posted = (
            (0.0, 0.0, self.wire, most)
            if counted
            else (self.message, self.collective, self.byte, most - moves)
        )
        seconds = float(sent.max()) * byte + moves * (start + self.latency) + posted * POST
        # in each round of a collective workers wait for others
        seconds += collectives * (each + (len(messages) - 1).bit_length() * self.latency)
        return seconds * max(1.0, workers / self.cores)


def machine(again: bool = False) -> Machine:
    """The speed of this machine, measured at the first use.

    Args:
        again: Measure it anew.
    """
    speed = None if again else recorded_speed()
    if speed is None:
        speed = measured()
        with suppress(OSError):
            write(speed, _stored())
    return speed


def recorded_speed() -> Machine | None:
    """The speed of this machine if it has been measured."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        return read(_stored())
    return None


def _stored() -> Path:
    return cache_folder() / f"machine-{len(available_cores())}-{VERSION}.json"


def write(speed: Machine, path: Path) -> None:
    """Write the speed of a machine to a file."""
    with atomic_file(path, BEGINNINGS["machine"]) as f:
        f.write((to_json(asdict(speed), indent=1) + "\n").encode())


def read(path: Path) -> Machine:
    """The speed of a machine from a file."""
    record = json.loads(read_regular(path, 1 << 20))
    return Machine(
        **{**record, **{name: tuple(map(float, record[name])) for name in ("seconds", "together")}}
    )


def measured() -> Machine:
    """Measure this machine."""
    from scipy.optimize import nnls

    from graphtheta.ops.parallel import pool

    jobs = [samples.sample(number) for number in range(len(samples.JOBS))]
    loads = [_load(*job) for job in jobs]
    cores = len(available_cores())
    threads = pool.threads()
    trainers = [Trainer(graph=graph, job=job, comm=SerialComm()) for job, graph in jobs]
    steps = np.min(
        [[_seconds(trainer, threads) for trainer in trainers] for _ in range(ROUNDS)], axis=0
    )
    work = np.array([load.total for load in loads])
    seconds = steps[:, 0]
    # relative errors, so that short steps count as much as long ones
    scaled = work / seconds[:, None]
    size = np.maximum(scaled.max(axis=0), np.finfo(float).tiny)
    units = nnls(scaled / size, np.ones(len(seconds)))[0] / size
    error = float(np.abs(scaled @ units - 1).max())
    wake, crowded = _threads(loads, steps, units, threads)
    pair = messages.measured() or GUESS
    reading = work[list(samples.TOGETHER)] * units
    together = shared(reading[:, MEMORY].sum(axis=1) / reading.sum(axis=1), np.array(pair.ratios))
    return Machine(
        seconds=tuple(units.tolist()),
        crowded=crowded,
        wake=wake,
        together=together,
        message=pair.message,
        collective=pair.collective,
        latency=pair.latency,
        byte=pair.byte,
        wire=pair.wire,
        cores=cores,
        error=error,
    )


def shared(reading: np.ndarray, ratios: np.ndarray) -> tuple[float, float]:
    """How many times as long reading memory, and all else, takes while another worker computes, 1
    at least.

    Args:
        reading: Share of the time of some jobs that reading memory takes, [jobs].
        ratios: How many times as long they take in all, [jobs].
    """
    from scipy.optimize import nnls

    more = nnls(np.stack([reading, 1 - reading], axis=1), ratios - 1)[0]
    return 1 + float(more[0]), 1 + float(more[1])


def _on_threads(
    load: Load, unit: np.ndarray, threads: int, wake: float, crowded: float
) -> np.ndarray:
    """Seconds of some work, [size].

    Args:
        load: The work.
        unit: Seconds of a unit of each part on one thread.
        threads: Threads that may take part.
        wake: Seconds until they do.
        crowded: How many times as long reading memory takes on all of them.
    """
    one, reading = (
        load.parts[..., parts] @ unit[parts] / load.kernels for parts in (slice(None), MEMORY)
    )
    several = np.clip(np.floor(load.blocks), 1, threads)
    # threads that wake up later share what is left
    left = np.where(several > 1, np.maximum(one - wake, 0), 0)
    slower = 1 + (crowded - 1) * reading / np.maximum(one, np.finfo(float).tiny)
    seconds: np.ndarray = (one - left + left * slower / several) @ load.kernels
    return seconds


def _threads(
    loads: Sequence[Load], steps: np.ndarray, unit: np.ndarray, threads: int
) -> tuple[float, float]:
    """Seconds until other threads take part in a kernel, and how many times as long reading memory
    takes when all threads do.

    Args:
        loads: Work of some jobs on one worker.
        steps: Seconds of a step with one thread and with all, [jobs, 2].
        unit: Seconds of a unit of each part on one thread.
        threads: Number of all threads.
    """
    if threads == 1:
        return 0.0, 1.0
    # errors of the fit belong to the job
    units = [
        unit * seconds / (load.total @ unit)
        for load, seconds in zip(loads, steps[:, 0], strict=True)
    ]

    def error(wake: float, crowded: float) -> float:
        predicted = [
            _on_threads(load=load, unit=its, threads=threads, wake=wake, crowded=crowded)[0]
            for load, its in zip(loads, units, strict=True)
        ]
        return float(np.square(predicted / steps[:, 1] - 1).sum())

    wake, crowded = min(product(WAKES.tolist(), CROWDED.tolist()), key=lambda pair: error(*pair))
    return wake, crowded


def _load(job: Job, graph: Graph) -> Load:
    prepared = skeleton(job, graph)
    whole = Placement.of(prepared.graph, 1, job.partitioner, job.masters, job.seed)
    return work_of(prepared, prepared.strategy(job).batch(0, 0), whole).load


def _seconds(trainer: Trainer, threads: int) -> tuple[float, float]:
    """Seconds of the shortest step, which other programs change least, without making its view: of
    the processor on one thread, and of the clock on all."""
    from graphtheta.ops.parallel import pool

    shortest = []
    for n, clock in ((1, process_time), (threads, perf_counter)):
        pool.set_threads(n)
        times = []
        for _ in range(WARM + TIMED):
            view = trainer.strategy.batch(0, 0)
            began = clock()
            trainer.training.update(view)
            times.append(clock() - began)
        shortest.append(min(times[WARM:]))
    return shortest[0], shortest[1]
