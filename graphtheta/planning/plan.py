"""Plans of a job: for each strategy, mode, number of workers and partitioner, what a worker holds, sends and needs of time."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from graphtheta.engine.layer.memory import MemoryBound
from graphtheta.job.job import Job
from graphtheta.partitioners.auto import Work as Training
from graphtheta.partitioners.auto import choose
from graphtheta.partitioners.pairs import AUTO, Pair, pair_of
from graphtheta.planning.holding import largest_bound
from graphtheta.planning.machine import Machine
from graphtheta.planning.placement import Placement
from graphtheta.planning.skeleton import Sampled, Skeleton
from graphtheta.planning.work import Work, dealt, reduced, work_of

MODES = ("cooperative", "independent")
# memory that a worker among several has for messages, besides the buffers of its moves
MESSAGE_BYTES = 18 << 20

# messages between two workers that deal views: nodes, edges, and their uses; and requests and features
DEALT_KINDS = 5
# seconds to deal a group of views, besides its bytes: of each use of an edge, and of the group
DEALT, GROUP = 2e-7, 2.5e-3
# messages to a partner at every hop of the search of a view: of senders and of receivers
ROUNDS = 2


@dataclass(frozen=True)
class Row:
    """One way to run a job.

    Attributes:
        strategy, mode, workers, partitioner, masters: The way; ``mode`` is "" where there is no choice.
        memory: Bytes of the worker that needs most.
        bound: Those of its part and of a step, by purpose; the others are of its process.
        steps: Updates of an epoch.
        views: Views of an epoch.
        counted: How many of them were counted; the figures of an epoch are exact if all were.
        sent: Bytes that all workers send in an epoch: halo moves or dealt views, and sums of gradients.
        messages: Messages of these.
        compute, build, transfer: Seconds of an epoch that workers compute, build views, and send.
        processor: Processor seconds of an epoch, of all workers, without waiting and sending.
    """

    strategy: str
    mode: str
    workers: int
    partitioner: str
    masters: str
    memory: int
    bound: MemoryBound
    steps: int
    views: int
    counted: int
    sent: int
    messages: int
    compute: float
    build: float
    transfer: float
    processor: float

    @property
    def seconds(self) -> float:
        """Seconds of an epoch, without evaluation."""
        return self.compute + self.build + self.transfer

    @property
    def name(self) -> str:
        """The way as one would write it as flags."""
        mode = f" --mode {self.mode}" if self.mode else ""
        return f"--strategy {self.strategy}{mode} --partitioner {self.partitioner} --masters {self.masters} on {self.workers} worker(s)"


def planned(held: Skeleton, jobs: Sequence[Job], workers: Sequence[int], machine: Machine, modes: Sequence[str] = MODES,
            per_machine: int = 0) -> list[Row]:
    """Predict a job in several ways, in this process, without running it.

    Views are those of the jobs; at most ``SAMPLED_VIEWS`` of an epoch are counted.

    Args:
        held: A job without features.
        jobs: The job, with other strategies, partitioners and keys of these.
        workers: Numbers of workers.
        machine: Speed of the machines.
        modes: Modes of mini- and cluster-batch on several workers.
        per_machine: Workers of a machine; 0 for all.

    Raises:
        GraphThetaError: Job and graph do not fit together.
    """
    rows: list[Row] = []
    sampled: dict[str, Sampled] = {}
    placed: dict[tuple[int, str, str], tuple[Pair, Placement]] = {}
    for job in jobs:
        if job.strategy not in sampled:
            sampled[job.strategy] = held.sampled(job)
        for size in workers:
            key = size, job.partitioner, job.masters
            if key not in placed:
                placed[key] = _placed(job, held, size)
            way = _Way(job, held, sampled[job.strategy], *placed[key], machine, per_machine or size)
            rows += way.rows(modes)
    return rows


def _placed(job: Job, held: Skeleton, size: int) -> tuple[Pair, Placement]:
    """The pair that divides the graph among some workers, and the division."""
    work = Training(job.layers, job.hidden, job.epochs, job.seed)
    pair = choose(held.graph, size, work) if job.partitioner == AUTO else pair_of(job.partitioner, job.masters)
    return pair, Placement.of(held.graph, size, pair.partitioner, pair.masters, job.seed)


@dataclass(frozen=True)
class _Way:
    """A job on some workers, before its mode is chosen."""

    job: Job
    held: Skeleton
    sampled: Sampled
    pair: Pair
    placement: Placement
    machine: Machine
    together: int

    def rows(self, modes: Sequence[str]) -> Iterator[Row]:
        """A row for each mode."""
        works = [work_of(self.held, view, self.placement) for _, view in self.sampled.views]
        if self.job.strategy == "global" or self.placement.size == 1:
            yield self._cooperative(works, "")
            return
        for mode in modes:
            yield self._cooperative(works, mode) if mode == "cooperative" else self._independent(works)

    def _cooperative(self, works: list[Work], mode: str) -> Row:
        """All workers compute each view together."""
        views = self.sampled.steps
        bytes_, messages = self._gradients()
        each = self.job.views_per_step or 1
        compute = views * float(np.mean([self.machine.compute(work.parts, self.together).max() for work in works]))
        build = views * self._expansion(works)
        sent = np.mean([work.sent for work in works], axis=0) + bytes_
        posted = np.mean([work.messages for work in works], axis=0) + messages
        return self._row(mode, works, views * sent, views * posted, -(-views // each), compute, build)

    def _independent(self, works: list[Work]) -> Row:
        """Each worker computes views of its own, which all have expanded together."""
        size, views = self.placement.size, self.sampled.steps
        per_step = self.job.views_per_step or size
        groups = sum(-(-min(per_step, views - i) // size) for i in range(0, views, per_step))
        bytes_, messages = self._gradients()
        sent = np.zeros(size)
        for number, view in self.sampled.views:
            sent += dealt(self.held, view, self.placement, number % per_step % size) * (views / len(works))
        whole = [work.parts.sum(axis=0, keepdims=True) for work in works]
        compute = groups * float(np.mean([self.machine.compute(parts, self.together)[0] for parts in whole]))
        edges = float(np.mean([sum(share.edges.sum() for share in {id(s): s for s in work.shares}.values()) for work in works]))
        build = views * self._expansion(works) + groups * (DEALT * edges + GROUP)
        posted = groups * (DEALT_KINDS * (size - 1) + messages)
        return self._row("independent", works, sent + groups * bytes_, posted, -(-views // per_step), compute, build)

    def _expansion(self, works: list[Work]) -> float:
        """Seconds in which the workers build a view: each searches its part, and waits for messages about rows at every hop."""
        size, searched = self.placement.size, any(work.searched for work in works)
        hops = len({id(share) for share in works[0].shares})
        rounds = (ROUNDS * hops + 1) * (size - 1) if searched else 0
        return self.sampled.seconds / size * max(1.0, self.together / self.machine.cores) + rounds * self.machine.message

    def _gradients(self) -> tuple[np.ndarray, np.ndarray]:
        model = self.held.prepared.model
        return reduced(self.held.order, list(model.parameters()), self.placement.size)

    def _row(self, mode: str, works: list[Work], sent: np.ndarray, messages: np.ndarray, steps: int, compute: float,
             build: float) -> Row:
        job, process, size = self.job, self.held.process, self.placement.size
        most = largest_bound(job.change(mode=mode) if mode else job, self.held, self.placement, works)
        views, sampled = self.sampled.steps, self.sampled
        # the graph is freed before the first step
        memory = max(process.loading, process.building + most.partition, process.holding + most.partition + sampled.peak,
                     process.base + sampled.libraries + most.total) + (MESSAGE_BYTES if size > 1 else 0)
        work = np.mean([work.parts.sum(axis=(0, 1)) for work in works], axis=0)
        processor = views * (sampled.seconds + float(work @ self.machine.seconds))
        # workers of a machine share its memory and its cores
        transfer = float(sent.max() * self.together * self.machine.byte + messages.max() * self.machine.message) if size > 1 else 0.0
        return Row(job.strategy, mode, size, self.pair.partitioner, self.pair.masters, memory, most, steps, views, len(works),
                   round(sent.sum()), round(messages.sum()), compute, build, transfer, processor)
