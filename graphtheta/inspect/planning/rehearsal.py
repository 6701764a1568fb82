"""What making views sends, from a rehearsal: simulated workers make the views of an epoch without
features.

Samplers draw by hashes, and views depend on no value of a model. So the views of a run, the rows
that they read, and what caches and macrobatches do with them are known before it runs. The workers
of a rehearsal are built and make their views by the code of the run, and their ledgers count. They
hold the structure of the graph once more, and columns of zeros that take no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from time import thread_time
from typing import NamedTuple

import numpy as np

from graphtheta.engine.comm.channel import Send
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.ledger import Snapshot
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.strategy.strategy import Strategy
from graphtheta.engine.train.step import Training
from graphtheta.engine.view.level import Counts
from graphtheta.inference.forward.assembly import (
    Assembly,
    AssemblyPurpose,
    Division,
    Passes,
    Prepared,
    assemble,
)
from graphtheta.inspect.planning.blank import BlankTable
from graphtheta.inspect.planning.messages import Working
from graphtheta.inspect.planning.placement import Ends, Share
from graphtheta.inspect.planning.skeleton import Skeleton
from graphtheta.inspect.planning.work import ViewWork, divided
from graphtheta.ops.autodiff.gradients import Gradients
from graphtheta.ops.optimisers.optim import SGD
from graphtheta.ops.parallel import pool
from graphtheta.partitioners.pairs import Pair
from graphtheta.run.dividing import divide
from graphtheta.run.job.job import Job
from graphtheta.train.loop.build import training_of
from graphtheta.train.loop.prepare import build_strategy
from graphtheta.train.reuse.caching.setup import with_cached_columns
from graphtheta.train.reuse.macrobatch.setup import comm_of_views
from graphtheta.train.reuse.reuse import Reuse

# views are made so many times, while this takes less than so many seconds: the shortest time of
# each step counts, because other programs change it least
TIMES = 12
LONGEST = 4.0


@dataclass(frozen=True)
class Rehearsal:
    """What workers do to make the first views of the first epoch.

    Attributes:
        views: Number of these views.
        sent, messages: Bytes and messages of each worker, [size] int64.
        collectives: Those of the messages that are collectives, of which there are as many on any
            number of workers, [size] int64.
        seconds: Processor seconds of each worker, on one thread, without those of messages, [size].
        n_bytes: Bytes of caches and macrobatches of each worker, [size] int64.
        hits, misses: Rows of all workers that caches held, and that they did not.
        macrobatch: Groups of views that are expanded together.
    """

    views: int
    sent: np.ndarray
    messages: np.ndarray
    collectives: np.ndarray
    seconds: np.ndarray
    n_bytes: np.ndarray
    hits: int
    misses: int
    macrobatch: int

    def on(self, size: int, growth: float, groups: float, alone: float) -> Rehearsal:
        """An estimate for more workers.

        A worker has as many rounds for a group of views, in which it sends to all others, and as
        much work of the interpreter. The workers share the rest, which is what one worker needs
        more time for than several; each of independent workers has a view.

        Args:
            size: Their number.
            growth: How many times as many bytes all of them send.
            groups: How many times as many groups they make of the same number of views.
            alone: Processor seconds in which one worker makes the views; 0 if workers are
                independent.
        """
        fewer = len(self.sent)
        seconds = float(self.seconds.max())
        shared = min(max(alone - seconds, 0.0) / (1 - 1 / max(fewer, 2)), seconds * fewer)
        others = (size - 1) / max(fewer - 1, 1)
        messages = round(
            groups * (others * (self.messages - self.collectives).max() + self.collectives.max())
        )
        seconds += shared / size - shared / fewer
        return Rehearsal(
            views=self.views,
            sent=np.full(size, round(self.sent.max() * growth * fewer / size)),
            messages=np.full(size, messages),
            collectives=np.full(size, round(groups * self.collectives.max())),
            seconds=np.full(size, groups * seconds),
            n_bytes=np.full(size, self.n_bytes.max()),
            hits=self.hits,
            misses=self.misses,
            macrobatch=self.macrobatch,
        )


def rehearse(
    skeleton: Skeleton,
    job: Job,
    pair: Pair,
    size: int,
    views: int,
    per_machine: int = 0,
    room: int | None = None,
    warm: bool = False,
) -> Rehearsal:
    """Make the first views of the first epoch.

    Args:
        skeleton: A job without features.
        job: The same job with other keys of the strategy, and its mode.
        pair: Divides the graph.
        size: Number of workers.
        views: How many views; those of the last step are complete.
        per_machine: Workers of a machine; 0 for all.
        room: Bytes of a worker that ``macrobatch=auto`` may use; None as in a run.
        warm: Whether caches hold what these views have left in them; otherwise they are empty.

    Raises:
        GraphThetaError: Job and graph do not fit together.
    """
    figures = np.array(
        run_simulated(
            size,
            _worker,
            skeleton=skeleton,
            job=job,
            pair=pair,
            views=views,
            per_machine=per_machine or size,
            room=room,
            warm=warm,
        )
    )
    n_views, sent, messages, collectives, seconds, n_bytes, hits, misses, macrobatch = figures.T
    return Rehearsal(
        views=int(n_views[0]),
        sent=sent.astype(np.int64),
        messages=messages.astype(np.int64),
        collectives=collectives.astype(np.int64),
        seconds=seconds,
        n_bytes=n_bytes.astype(np.int64),
        hits=int(hits.sum()),
        misses=int(misses.sum()),
        macrobatch=int(macrobatch[0]),
    )


class _Posts(Working):
    """Counts the processor seconds of messages, which simulated workers copy and check; real
    workers take less to send them.
    """

    def _post(
        self, sends: list[Send], recvs: list[Send], tag: int, at_most: bool
    ) -> Callable[[], None]:
        began = thread_time()
        receive = super()._post(sends, recvs, tag, at_most)
        self.waited += thread_time() - began
        return receive


def _worker(
    inner: Comm,
    skeleton: Skeleton,
    job: Job,
    pair: Pair,
    views: int,
    per_machine: int,
    room: int | None,
    warm: bool,
) -> list[float]:
    """The figures of a worker, in the order in which ``rehearse`` reads them."""
    # of this thread, which is that of the worker
    pool.set_threads(1)
    comm = _Posts(inner)
    comm.machines = np.arange(comm.size) // per_machine
    independent = job.mode == "independent" and comm.size > 1
    each = job.views_of_a_step(comm.size)

    def new_training() -> tuple[Training, Reuse]:
        assembly, strategy = _strategy(comm, skeleton, job, pair)
        reuse = Reuse.of(job, strategy, each, independent, room)
        training = training_of(
            assembly,
            strategy,
            SGD([], 1.0),
            reuse,
            independent=independent,
            views_per_step=each,
        )
        return training, reuse

    training, reuse = new_training()
    n = min(-(-views // each) * each, training.strategy.steps_per_epoch)
    # loads kernels and code, and fills caches
    _timed(comm, training, *((0, n) if warm else (1, min(each, n))))
    again = warm or (reuse.macrobatches is None and not reuse.caches.nbytes)
    if not again:
        # empty caches, and macrobatches that begin with the epoch
        training, reuse = new_training()
    before = comm.ledger.snapshot()
    to_others = _to_others(comm)
    counts = np.array(reuse.caches.counts())
    seconds = _timed(comm, training, 0, n)
    since = comm.ledger.since(before)
    to_others = _to_others(comm) - to_others
    counts = np.array(reuse.caches.counts()) - counts
    if again:
        # workers take turns
        most = LONGEST / max(float(comm.all_sum(seconds.sum())), 1e-9)
        seconds = np.min(
            [seconds, *(_timed(comm, training, 0, n) for _ in range(int(min(TIMES, most)) - 1))],
            axis=0,
        )
    sent = [_total(since, field) for field in ("bytes", "messages")]
    return [
        n,
        *sent,
        sent[1] - to_others,
        float(seconds.sum()),
        reuse.nbytes,
        *counts.tolist(),
        1 if reuse.macrobatches is None else reuse.macrobatches.size,
    ]


def _total(since: Snapshot, field: str) -> int:
    """A field of the ledger, of all stages."""
    return sum(int(book[field]) for book in since.values())


def _to_others(comm: Comm) -> int:
    """Messages of this worker to single workers, so far."""
    return int(comm.ledger.receivers(comm.size)[:, 1].sum())


def _worked(comm: _Posts) -> float:
    """Processor seconds of this thread so far, without those of messages."""
    return thread_time() - comm.waited


def _timed(comm: _Posts, training: Training, epoch: int, n: int) -> np.ndarray:
    """Processor seconds of this worker to make the first n views of an epoch, without those of
    messages, by work item.

    What a training does besides, for each step, belongs to the steps by which the machine is
    measured.
    """
    seconds = []
    for make in training.rehearse(epoch, 0, n):
        began = _worked(comm)
        view, learned = make()
        for name in training.stored:
            view.node.read(name, view.space.n)
        learned.read()
        learned.changes(Gradients())
        seconds.append(_worked(comm) - began)
    return np.array(seconds)


@dataclass(frozen=True)
class ForRehearsal(AssemblyPurpose):
    """A job is put together to make views of a graph without features.

    Attributes:
        skeleton: The job without features.
        pair: Divides the graph.
    """

    skeleton: Skeleton
    pair: Pair

    def division(self, prepared: Prepared, comm: Comm) -> Division:
        job = prepared.job
        part = divide(job, prepared.graph, self.pair, comm_of_views(job, comm), comm)
        partition = self.skeleton.blanked(part)
        x = partition.node.column("x") if "x" in partition.node else None
        return self.pair, partition, (x,) if isinstance(x, BlankTable) else (), ()

    def passes(self, prepared: Prepared, partition: Partition) -> Passes:
        skeleton = self.skeleton
        cached = with_cached_columns(prepared.job, partition)
        return cached, skeleton.settings, skeleton.saving, skeleton.probe


def _strategy(comm: Comm, skeleton: Skeleton, job: Job, pair: Pair) -> tuple[Assembly, Strategy]:
    prepared = replace(skeleton.prepared, job=job, kind=copy(skeleton.prepared.kind))
    assembly = assemble(prepared, comm, ForRehearsal(skeleton, pair))
    with assembly.scope():
        return assembly, build_strategy(
            job=job,
            graph=prepared.graph,
            partition=assembly.partition,
            layers=skeleton.probe.layers,
            task=prepared.task(assembly.partition),
            precomputed=skeleton.saving is not None,
        )


def exchanged(skeleton: Skeleton, job: Job, pair: Pair, size: int) -> ViewWork:
    """The view of the first epoch of a job whose halo exchange changes views, as the workers have
    it.

    Args:
        skeleton, job, pair, size: As for ``rehearse``.

    Raises:
        GraphThetaError: Job and graph do not fit together.
    """
    each = run_simulated(size, _levels, skeleton, job, pair)
    nodes = np.array([n for n, _ in each])
    levels = [own for _, own in each]
    return divided(
        skeleton, [_share(*same) for same in zip(*levels, strict=True)], None, nodes, False
    )


class _Level(NamedTuple):
    """A level on one worker; ``sent`` has, for each pass, the rows at either end that each other
    worker reads, and the edges here into masters of each, [size].
    """

    rows_in: int
    rows_out: int
    edges: int
    sent: list[list[np.ndarray]]
    counts: Counts


def _levels(comm: Comm, skeleton: Skeleton, job: Job, pair: Pair) -> tuple[int, list[_Level]]:
    """Rows and levels of a worker."""
    _, strategy = _strategy(comm, skeleton, job, pair)
    view = strategy.batch(0, 0)
    return view.space.n, [
        _Level(
            rows_in=level.n_in,
            rows_out=level.n_out,
            edges=level.n_edges,
            sent=[
                [
                    *(np.diff(end.plan.send_ptr) for end in (p.senders, p.receivers)),
                    p.leaving_to,
                ]
                for p in level.passes
            ],
            counts=level.counts,
        )
        for level in view.levels
    ]


def _share(*same: _Level) -> Share:
    """A level, from that of each worker."""
    rows_in, rows_out, edges, sent, counts = zip(*same, strict=True)
    ends = [
        Ends(senders, receivers, leaving.T)
        for workers in zip(*sent, strict=True)
        for senders, receivers, leaving in [map(np.array, zip(*workers, strict=True))]
    ]
    return Share(
        rows_in=np.array(rows_in),
        rows_out=np.array(rows_out),
        edges=np.array(edges),
        ends=ends,
        counts=counts[0],
    )
