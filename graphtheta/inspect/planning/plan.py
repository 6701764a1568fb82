"""Plans of a job: for each strategy, mode, number of workers and partitioner, what a worker holds,
sends and needs of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from graphtheta.base.memory import available_bytes
from graphtheta.engine.store.short import is_short
from graphtheta.inspect.planning.holding import largest_bound
from graphtheta.inspect.planning.machine import Machine
from graphtheta.inspect.planning.placement import Placement
from graphtheta.inspect.planning.rehearsal import Rehearsal, exchanged, rehearse
from graphtheta.inspect.planning.skeleton import SAMPLED_VIEWS, Sampled, Skeleton
from graphtheta.inspect.planning.work import PRODUCT, SPARSE, ViewWork, reduced, work_of
from graphtheta.ops.parallel.buffers import SLACK
from graphtheta.partitioners.auto import TrainingWork as Training
from graphtheta.partitioners.auto import choose
from graphtheta.partitioners.pairs import AUTO, Pair, pair_of
from graphtheta.run.job.job import Job
from graphtheta.run.memory.bound import MemoryBound
from graphtheta.train.reuse.staleness.registry import EXACT

MODES = ("cooperative", "independent")
# memory that a worker among several has for messages, besides the buffers of its moves
MESSAGE_BYTES = 18 << 20


@dataclass(frozen=True)
class Row:
    """One way to run a job.

    Attributes:
        strategy, mode, workers, partitioner, masters: The way; ``mode`` is "" where there is no
            choice.
        memory: Bytes of the worker that needs most.
        bound: Those of its part and of a step, by purpose; the others are of its process.
        steps: Updates of an epoch.
        views: Views of an epoch.
        counted: How many of them were counted; the figures of an epoch are exact if all were.
        moved, summed, built: Bytes that all workers send in an epoch: in halo moves, to sum
            gradients, and to make views, with the features of views that one worker computes.
        messages: Messages of these.
        hits, misses: Rows that caches of features hold of those that views read, and the others.
        macrobatch: Groups of views that are expanded together.
        compute, build, transfer: Seconds of an epoch that workers compute, build views, and send.
        carried: Those seconds of ``transfer`` that bytes take; the others are of messages.
        loads: Of a view, mean of those that were counted: the worker that has most, and the mean of
            the workers. "rows" and "edges" of the summing layers, forward, and "flops" of matrix
            products, forward and backward; "bytes" and "messages" in halo moves and sums of
            gradients. An independent worker has all rows of its view.
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
    moved: int
    summed: int
    built: int
    messages: int
    hits: int
    misses: int
    macrobatch: int
    compute: float
    build: float
    transfer: float
    carried: float
    loads: dict[str, tuple[float, float]]

    @property
    def sent(self) -> int:
        """Bytes that all workers send in an epoch."""
        return self.moved + self.summed + self.built

    @property
    def seconds(self) -> float:
        """Seconds of an epoch, without evaluation."""
        return self.compute + self.build + self.transfer

    def figures(self) -> dict[str, Any]:
        """All figures by name."""
        return {**asdict(self), "sent": self.sent, "seconds": self.seconds}

    @property
    def name(self) -> str:
        """The way as one would write it as flags."""
        mode = f" --mode {self.mode}" if self.mode else ""
        mode += f" --macrobatch {self.macrobatch}" if self.macrobatch > 1 else ""
        return (
            f"--strategy {self.strategy}{mode} --partitioner {self.partitioner} --masters"
            f" {self.masters} on {self.workers} worker(s)"
        )


def planned(
    skeleton: Skeleton,
    jobs: Sequence[Job],
    workers: Sequence[int],
    machine: Machine,
    modes: Sequence[str] = MODES,
    per_machine: int = 0,
    views: int = SAMPLED_VIEWS,
    limit: int | None = None,
    rehearsed: int = 0,
    warm: bool = False,
) -> list[Row]:
    """Predict a job in several ways, in this process, without running it.

    Args:
        skeleton: A job without features.
        jobs: The job, with other strategies, partitioners and keys of these.
        workers: Numbers of workers.
        machine: Speed of the machines.
        modes: Modes of mini- and cluster-batch on several workers.
        per_machine: Workers of a machine; 0 for all.
        views: How many views of an epoch are counted, at most; those of an epoch with a cache or
            macrobatches all are.
        limit: Bytes of memory of a worker, which bound macrobatch=auto; None for what this machine
            has free.
        rehearsed: Most workers that make views in this process; what more of them send to make
            views is estimated from these. 0 for any number.
        warm: Whether caches are full when the epoch begins; otherwise they are empty.

    Raises:
        GraphThetaError: Job and graph do not fit together.
    """
    rows: list[Row] = []
    # before other workers are rehearsed, whose memory would be used again
    sampled: dict[str, Sampled] = {}
    for job in jobs:
        if job.strategy not in sampled:
            sampled[job.strategy] = skeleton.sampled(job, views)
    placed: dict[tuple[int, str, str], tuple[Pair, Placement]] = {}
    for job in jobs:
        for size in workers:
            key = size, job.partitioner, job.masters
            if key not in placed:
                placed[key] = _placed(job, skeleton, size)
            way = _Way(
                job,
                skeleton,
                sampled[job.strategy],
                *placed[key],
                machine,
                per_machine or size,
                views,
                limit,
                rehearsed,
                warm,
            )
            rows += way.rows(modes)
    return rows


def _placed(job: Job, skeleton: Skeleton, size: int) -> tuple[Pair, Placement]:
    """The pair that divides the graph among some workers, and the division."""
    work = Training(job.hops, job.hidden, job.epochs, job.seed)
    pair = (
        choose(skeleton.graph, size, work)
        if job.partitioner == AUTO
        else pair_of(job.partitioner, job.masters)
    )
    return pair, Placement.of(skeleton.graph, size, pair.partitioner, pair.masters, job.seed)


@dataclass(frozen=True)
class _Way:
    """A job on some workers, before its mode is chosen."""

    job: Job
    skeleton: Skeleton
    sampled: Sampled
    pair: Pair
    placement: Placement
    machine: Machine
    together: int
    views: int
    limit: int | None
    rehearsed: int
    warm: bool

    def rows(self, modes: Sequence[str]) -> Iterator[Row]:
        """A row for each mode."""
        size = self.placement.size
        works = (
            [exchanged(self.skeleton, self.job, self.pair, size)]
            if self.job.exchange != EXACT and size > 1
            else [work_of(self.skeleton, view, self.placement) for _, view in self.sampled.views]
        )
        one = self.job.strategy == "global" or size == 1
        for mode in [""] if one else modes:
            # cooperative workers fetch no features
            unread = {"fetch_batch": 0, "machine_cache": "0"} if mode == "cooperative" else {}
            yield self._row(self.job.change(mode=mode, **unread) if mode else self.job, mode, works)

    def _row(self, job: Job, mode: str, works: list[ViewWork]) -> Row:
        size = self.placement.size
        views = self.sampled.steps
        alone = mode == "independent"
        each = job.views_of_a_step(size)
        # gradients are summed for each group of views
        groups = _groups(job, views, size) if alone else views
        loads = [work.alone if alone else work.load for work in works]
        moved = (
            np.zeros((2, size))
            if alone
            else views * np.mean([(work.sent, work.messages) for work in works], axis=0)
        )
        summed = groups * np.array(
            reduced(self.skeleton.order, list(self.skeleton.prepared.model.parameters()), size)
        )
        each_view = [float(self.machine.compute(load, self.together).max()) for load in loads]
        # independent workers wait for the one with the largest view of a group
        side = min(size, len(works)) if alone else 1
        compute = groups * float(
            np.mean([max(each_view[i : i + side]) for i in range(0, len(works), side)])
        )
        most = largest_bound(job, self.skeleton, self.placement, works)
        memory = self._memory(most)
        rehearsal = self._rehearsed(job, works, memory)
        built = np.array([rehearsal.sent, rehearsal.messages]) * (views / rehearsal.views)
        build = self._build(rehearsal)
        sent, messages = moved + summed
        counted = min(len(works), rehearsal.views if works[0].searched and size > 1 else views)
        sums = 0 if alone else views * self.skeleton.sums
        transfer, carried = (
            self.machine.transfer(sent, x, self.together, n) if size > 1 else 0.0
            for x, n in ((messages, sums), (0 * messages, 0))
        )
        return Row(
            strategy=job.strategy,
            mode=mode,
            workers=size,
            partitioner=self.pair.partitioner,
            masters=self.pair.masters,
            memory=memory + int(rehearsal.n_bytes.max()),
            bound=most,
            steps=-(-views // each),
            views=views,
            counted=counted,
            moved=round(moved[0].sum()),
            summed=round(summed[0].sum()),
            built=round(built[0].sum()),
            messages=round((moved + summed + built)[1].sum()),
            hits=rehearsal.hits,
            misses=rehearsal.misses,
            macrobatch=rehearsal.macrobatch,
            compute=compute,
            build=build,
            transfer=transfer,
            carried=carried,
            loads=_loads(works, alone, (moved + summed) / views),
        )

    def _memory(self, most: MemoryBound) -> int:
        """Bytes of the worker that needs most, without caches and macrobatches."""
        process = self.skeleton.process
        sampled = self.sampled
        skeleton = self.skeleton
        # one worker reads the features from the array of the graph, unless it rounds them
        shares = (
            self.placement.size == 1
            and "x" in skeleton.blank
            and not skeleton.job.embedding
            and skeleton.partition.node.column("x").dtype == skeleton.graph.x.dtype
            and not is_short(skeleton.partition.node.column("x"))
        )
        part_bytes = most.partition - shares * skeleton.blank.get("x", 0) * skeleton.graph.n_nodes
        # the graph is freed before the first step; then free memory is kept for the next arrays
        return max(
            process.loading,
            process.building + part_bytes,
            process.holding + part_bytes + sampled.peak,
            process.base + sampled.libraries + round(SLACK * most.total),
        ) + (MESSAGE_BYTES if self.placement.size > 1 else 0)

    def _rehearsed(self, job: Job, works: list[ViewWork], memory: int) -> Rehearsal:
        """What making the views sends."""
        size = self.placement.size
        searched = works[0].searched
        none = np.zeros(self.placement.size, np.int64)
        ahead = job.macrobatch != "1" or (job.feature_cache, job.machine_cache) != ("0", "0")
        if not searched or (size == 1 and not ahead):
            return Rehearsal(
                views=1,
                sent=none,
                messages=none,
                collectives=none,
                seconds=none + self.sampled.seconds,
                n_bytes=none,
                hits=0,
                misses=0,
                macrobatch=1,
            )
        room = max(
            (available_bytes() // self.together if self.limit is None else self.limit) - memory, 0
        )
        views = self.sampled.steps if ahead else self.views
        fewer = min(size, self.rehearsed or size)
        rehearsal = rehearse(
            skeleton=self.skeleton,
            job=job,
            pair=self.pair,
            size=fewer,
            views=views,
            per_machine=self.together,
            room=room,
            warm=self.warm,
        )
        if fewer == size:
            return rehearsal
        alone = job.mode == "independent"
        steps = self.sampled.steps
        groups = (
            _groups(job, steps, size)
            / steps
            / (_groups(job, rehearsal.views, fewer) / rehearsal.views)
            if alone
            else 1.0
        )
        return rehearsal.on(
            size,
            self._growth(works, fewer, alone),
            groups,
            0.0 if alone else self.sampled.seconds * rehearsal.views,
        )

    def _growth(self, works: list[ViewWork], fewer: int, alone: bool) -> float:
        """How many times as many bytes all workers send to make a view as fewer workers do.

        Workers of one view ask the owners of the rows that they read from others; a worker of its
        own view asks for all rows but its own.
        """
        size = self.placement.size
        if alone:
            return (size - 1) / size * fewer / (fewer - 1)
        placement = Placement.of(
            self.skeleton.graph, fewer, self.pair.partitioner, self.pair.masters, self.job.seed
        )
        before = sum(
            work_of(self.skeleton, view, placement).sent.sum() for _, view in self.sampled.views
        )
        return float(sum(work.sent.sum() for work in works) / max(before, 1))

    def _build(self, rehearsal: Rehearsal) -> float:
        """Seconds of an epoch in which the workers make views: their work, and messages, for which
        they wait.
        """
        share = self.sampled.steps / rehearsal.views
        seconds = float(rehearsal.seconds.max()) * max(1.0, self.together / self.machine.cores)
        # simulated workers spent the interpreter's time around their messages
        waits = self.machine.transfer(
            sent=rehearsal.sent,
            messages=rehearsal.messages - rehearsal.collectives,
            workers=self.together,
            collectives=float(rehearsal.collectives.max()),
            counted=True,
        )
        return share * (seconds + waits)


def _groups(job: Job, views: int, size: int) -> int:
    """Groups that independent workers make of some views."""
    each = job.views_of_a_step(size)
    return sum(-(-min(each, views - i) // size) for i in range(0, views, each))


def _loads(
    works: Sequence[ViewWork], alone: bool, sent: np.ndarray
) -> dict[str, tuple[float, float]]:
    """The loads of a row, by name.

    Args:
        works: The views.
        alone: Whether a worker computes a view alone.
        sent: Bytes and messages of each worker, [2, size].
    """
    figures = dict(zip(("bytes", "messages"), sent[:, None], strict=True))
    # of a model without layers
    none = np.zeros(sent.shape[1], np.int64)
    for name, each in (
        ("rows", [sum((share.rows_out for share in work.shares), none) for work in works]),
        ("edges", [sum((share.edges for share in work.shares), none) for work in works]),
        ("flops", [work.load.parts[:, :, [PRODUCT, SPARSE]].sum(axis=(1, 2)) for work in works]),
    ):
        counts = np.array(each)
        figures[name] = counts.sum(axis=1, keepdims=True) if alone else counts
    return {name: (float(x.max(axis=1).mean()), float(x.mean())) for name, x in figures.items()}
