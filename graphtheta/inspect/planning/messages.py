"""What two workers of this machine cost each other: messages between them, and the memory and cores
that they share.

Run by mpiexec on two workers, it prints a line of JSON. Steps of small jobs are timed in several
bursts, and the shortest of each counts, because other programs slow a shared machine for seconds.

A message is mostly work of the interpreter at both ends. That is processor time, which other
programs change little: of a step on two workers, without waiting, less that of the same step on one
worker and half of the graph. Besides, a worker waits until a message has arrived, which is found
with a small move. Waiting is taken from processor time too, because it polls at first.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

import numpy as np

from graphtheta.base.console import say
from graphtheta.base.mpiexec import find_mpiexec, run
from graphtheta.base.strict_json import to_json
from graphtheta.engine.comm.channel import Send
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.wrapped import WrappedComm
from graphtheta.engine.partition.exchange import Exchange, MovePlan

if TYPE_CHECKING:
    from graphtheta.train.loop.trainer import Trainer

BEGIN = "messages "
# rows of the large and of the small move, and their width
LARGE = 1 << 15
SMALL = 16
WIDTH = 128
# steps of a burst, of which the first warm caches; and bursts, until they have taken so many
# seconds
WARM = 2
TIMED = 4
ROUNDS = 5
LONGEST = 20
# seconds of the whole program on a busy machine, with kernels that are compiled
PATIENCE = 240
# the first steps load or compile kernels
LOADING = 3


@dataclass(frozen=True)
class Talk:
    """Seconds of a step of a small job, the shortest, mean of two workers.

    Attributes:
        two: Of the processor without waiting, which polls.
        one: Of the processor on one worker with half of the graph.
        messages, collectives, sent: Of a step: messages to the other worker, collectives, and
            bytes.
    """

    two: float
    one: float
    messages: float
    collectives: float
    sent: float


@dataclass(frozen=True)
class Pair:
    """What two workers of this machine cost each other.

    Attributes:
        message: Processor seconds of a message at both of its ends, besides its bytes.
        collective: Processor seconds of a sum of a few numbers.
        latency: Seconds until an empty message has arrived.
        byte: Seconds of a byte: it is packed, sent and unpacked.
        wire: Seconds of it that are not the sender's and the receiver's work.
        ratios: How many times as long each of the jobs ``TOGETHER`` takes a worker while the other
            runs it too.
    """

    message: float
    collective: float
    latency: float
    byte: float
    wire: float
    ratios: tuple[float, ...]


def measured() -> Pair | None:
    """Measure two workers; None where they cannot be started."""
    try:
        done = run([str(find_mpiexec()), "-n", "2", sys.executable, "-m", __name__], PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith(BEGIN)]
    if not lines:
        return None
    record = json.loads(lines[0][len(BEGIN) :])
    return Pair(**{**record, "ratios": tuple(record["ratios"])})


def message_seconds(talks: list[Talk], byte: float, collective: float) -> float:
    """Processor seconds of a message: the median of some jobs, 0 at least.

    Args:
        talks: The jobs.
        byte, collective: As those of a ``Pair``.
    """
    return max(
        median(
            (t.two - t.one - t.sent * byte - t.collectives * collective) / t.messages for t in talks
        ),
        0.0,
    )


class Working(WrappedComm):
    """Counts the processor seconds of waiting, which polls, so that those of work are known.

    Attributes:
        waited: Seconds so far.
    """

    waited = 0.0

    def _gather_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        self._counted(lambda: self.inner._gather_flat(x, out))

    def _swap_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        self._counted(lambda: self.inner._swap_flat(x, out))

    def _broadcast_flat(self, x: np.ndarray, root: int) -> None:
        self._counted(lambda: self.inner._broadcast_flat(x, root))

    def _post(
        self, sends: list[Send], recvs: list[Send], tag: int, at_most: bool
    ) -> Callable[[], None]:
        receive = self.inner._post(sends, recvs, tag, at_most)
        return lambda: self._counted(receive)

    def _counted(self, wait: Callable[[], None]) -> None:
        began = thread_time()
        wait()
        self.waited += thread_time() - began

    def least(
        self, run: Callable[[], Any], clock: Callable[[], float] = thread_time
    ) -> tuple[float, float]:
        """Seconds of the shortest of some runs, without and with waiting: of the processor, or on
        another clock both with it.
        """
        times = []
        for _ in range(WARM + TIMED):
            before = clock()
            waited = self.waited
            run()
            total = clock() - before
            times.append((total - (self.waited - waited) * (clock is thread_time), total))
        work, total = np.min(times[WARM:], axis=0).tolist()
        return work, total


def program(comm: Comm) -> Pair:
    """Measure.

    Collective: all ranks of comm, which are two.
    """
    from graphtheta.inspect.planning.samples import TALKING, TOGETHER, graph, sample
    from graphtheta.ops.parallel import pool
    from graphtheta.run.job.job import Job
    from graphtheta.train.loop.trainer import Trainer

    working = Working(comm)
    talking = [
        (
            Trainer(graph=graph("tiny"), job=Job(**keys, keep=0), comm=working),
            Trainer(graph=graph("half"), job=Job(**keys, keep=0), comm=SerialComm()),
        )
        for keys in TALKING
    ]
    together = [
        Trainer(graph=its_graph, job=job, comm=SerialComm())
        for job, its_graph in map(sample, TOGETHER)
    ]
    counts = [_loaded(working, two, one) for two, one in talking]
    for trainer in together:
        _load(trainer)
    # threads besides that of the worker are not on its clock
    clock = thread_time if pool.threads() == 1 else perf_counter
    large, small, collective, steps, shared = _in_turns(
        comm,
        [
            partial(working.least, _move(working, LARGE)),
            partial(working.least, _move(working, SMALL)),
            partial(working.least, partial(working.all_sum, np.zeros(2))),
            lambda: [[working.least(_step(trainer))[0] for trainer in pair] for pair in talking],
            lambda: [_alone_and_together(working, _step(trainer), clock) for trainer in together],
        ],
    )
    n_bytes = LARGE * WIDTH * np.dtype(np.float32).itemsize
    byte = large[1] / n_bytes
    talks = [Talk(two, one, *count) for (two, one), count in zip(steps, counts, strict=True)]
    return Pair(
        message=message_seconds(talks, byte, collective[0]),
        collective=collective[0],
        latency=max(small[1] - small[0], 0.0),
        byte=byte,
        wire=max(large[1] - large[0], 0.0) / n_bytes,
        ratios=tuple(both / alone for alone, both in shared),
    )


def _in_turns(comm: Comm, measures: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each of some measures returns, numbers of one shape: the least of several rounds on each
    rank, and the mean of the ranks. All are measured in each round, so that other programs disturb
    all of them alike.

    Collective: all ranks of comm.
    """
    rounds: list[list[Any]] = []
    began = perf_counter()
    while len(rounds) < ROUNDS and not comm.broadcast(
        len(rounds) > 1 and perf_counter() - began > LONGEST, 0
    ):
        rounds.append([measure() for measure in measures])
    return [
        np.mean(comm.all_gather(np.min(each, axis=0)), axis=0).tolist()
        for each in zip(*rounds, strict=True)
    ]


def _move(comm: Comm, n: int) -> Callable[[], Any]:
    """A move in which each of two workers reads n rows of the other."""
    bounds = np.where(np.arange(3) > 1 - comm.rank, n, 0)
    plan = MovePlan(n_rows=n, rows=np.arange(n), send_ptr=bounds, recv_ptr=bounds, anywhere=True)
    return partial(Exchange(comm, plan).to_mirrors, {"": np.zeros((n, WIDTH), np.float32)})


def _step(trainer: Trainer) -> Callable[[], Any]:
    """An epoch of a trainer, which is a step."""
    return partial(trainer.train_epoch, 0)


def _load(trainer: Trainer) -> None:
    """Run the first steps, which load or compile kernels."""
    for _ in range(LOADING):
        trainer.train_epoch(0)


def _loaded(comm: Comm, two: Trainer, one: Trainer) -> tuple[float, float, float]:
    """Run the first steps; returns messages, collectives and bytes of a step on two workers, mean
    of the workers.
    """
    _load(one)
    _load(two)
    before = comm.ledger.snapshot()
    to_other = comm.ledger.receivers(comm.size)[:, 1].sum()
    two.train_epoch(0)
    since = comm.ledger.since(before)
    to_other = comm.ledger.receivers(comm.size)[:, 1].sum() - to_other
    both, sent = (sum(book[field] for book in since.values()) for field in ("messages", "bytes"))
    messages, collectives, sent = np.mean(
        comm.all_gather([to_other, both - to_other, sent]), axis=0
    ).tolist()
    return messages, collectives, sent


def _alone_and_together(
    comm: Working, step: Callable[[], Any], clock: Callable[[], float]
) -> tuple[float, float]:
    """Seconds of a step while the other worker is idle, and while it does the same."""
    alone = 0.0
    for rank in range(comm.size):
        comm.barrier()
        if rank == comm.rank:
            alone = comm.least(step, clock)[0]
    comm.barrier()
    return alone, comm.least(step, clock)[0]


def main() -> int:
    """Measure and print."""
    from graphtheta.engine.runtime.start import start

    comm = start()
    pair = program(comm)
    if comm.rank == 0:
        say(BEGIN + to_json(asdict(pair)))
    return 0


if __name__ == "__main__":
    from graphtheta.engine.runtime.start import run_main

    sys.exit(run_main(main))
