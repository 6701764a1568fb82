"""A job in one process without its node features: the model, the targets and the views, to be
counted.
"""

from __future__ import annotations

import gc
from copy import copy
from dataclasses import dataclass, replace
from time import thread_time

import numpy as np

from graphtheta.base.bfloat16 import BFLOAT16, is_wide
from graphtheta.base.memory import peak_bytes, resident_bytes, total_bytes
from graphtheta.base.sparse import is_sparse
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.layer.dry_run import (
    Probe,
    StoredNumbers,
    gradient_order,
    probe,
    stored_numbers,
    sums_of_a_pass,
)
from graphtheta.engine.layer.settings import pass_scope
from graphtheta.engine.partition.message import halo_scope
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.partitioner import DEFAULT_PLACEMENT
from graphtheta.engine.store.column import Column, Role
from graphtheta.engine.store.short import ShortColumn, short_column
from graphtheta.engine.store.store import ColumnStore
from graphtheta.engine.strategy.strategy import Strategy
from graphtheta.engine.strategy.task import Task
from graphtheta.engine.view.level import Counts
from graphtheta.engine.view.view import PRECOMPUTED, GraphView
from graphtheta.errors import ConfigError
from graphtheta.graph.data.graph import Graph
from graphtheta.inference.forward.assembly import (
    Assembly,
    AssemblyPurpose,
    Division,
    Passes,
    Prepared,
    assemble,
)
from graphtheta.inspect.planning.blank import BlankColumn, BlankTable
from graphtheta.ops.autodiff.tape import Parameter
from graphtheta.ops.edge.backend.fused import backend_scope
from graphtheta.ops.parallel.buffers import release
from graphtheta.partitioners.pairs import Pair
from graphtheta.run.dividing import divide
from graphtheta.run.embeddings.setup import learned_bytes, width_of
from graphtheta.run.job.job import Job
from graphtheta.train.loop.aggregation import passes_of
from graphtheta.train.loop.chosen_strategy import StrategyChoice, choose_strategy, facts_of
from graphtheta.train.loop.make_model import Factory
from graphtheta.train.loop.prepare import build_strategy, prepare_job
from graphtheta.train.reuse.staleness.registry import make_exchange

# views of an epoch that are built and counted, besides a first one that compiles kernels
SAMPLED_VIEWS = 16
# views that take fewer seconds of the processor in all are built twice
SHORT = 1.0
# kernels that the first step loads
KERNEL_BYTES = 8 << 20


@dataclass(frozen=True)
class Process:
    """Memory of a worker's process besides its part of the graph, in bytes, as measured on this
    one.

    Attributes:
        base: Without any graph.
        loading: The peak until the whole graph is loaded.
        building: The peak, or what is held if loading took more, while the part is built.
        holding: With the whole graph, after the part is built.
    """

    base: int
    loading: int
    building: int
    holding: int


@dataclass(frozen=True)
class Sampled:
    """Some views of an epoch.

    Attributes:
        steps: Views of the epoch.
        views: Number and view, ascending.
        seconds: Processor seconds of the worker's own thread to build one.
        libraries, peak: Bytes that making the strategy has added to the process, afterwards and at
            most.
    """

    steps: int
    views: list[tuple[int, GraphView]]
    seconds: float
    libraries: int
    peak: int


@dataclass(frozen=True)
class Skeleton(Assembly):
    """A job without features. Its partition is the whole graph on one worker.

    Attributes:
        prepared: The job, its model and its graph, whose dense node features are blank; the kind of
            task has made no task.
        task: The objective of training.
        order: Parameters in the order in which their gradients are final.
        sums: Numbers that a step of cooperative workers adds up besides: of the model, and what the
            mean of the loss is divided by.
        blank: By name, bytes of a row of each blank node column in the memory of a worker.
        density: Share of the numbers of the features that are stored.
        process: Memory of this process.
    """

    prepared: Prepared
    task: Task
    order: list[Parameter]
    sums: int
    blank: dict[str, int]
    density: float
    process: Process

    @property
    def graph(self) -> Graph:
        """The message-passing graph."""
        return self.prepared.graph

    @property
    def feature_bytes(self) -> int:
        """Bytes of the blank columns of a node in the memory of a worker."""
        return sum(self.blank.values())

    def traced(self, counts: list[Counts]) -> Probe:
        """Dry run of the model over levels of these sizes."""
        with self.scope(), halo_scope(self.job.halo):
            return probe(self.model, self.partition, counts)

    def stored(self, counts: list[Counts]) -> StoredNumbers:
        """What a step over levels of these sizes stores."""
        with self.scope(), halo_scope(self.job.halo):
            return stored_numbers(self.model, self.partition, counts)

    def chosen(self, job: Job) -> StrategyChoice:
        """What strategy=auto chooses for a job on this machine, which differs from this one in keys
        of the partition only.
        """
        facts = facts_of(self.prepared, self.partition, self.task, total_bytes())
        return choose_strategy(job, self.probe, facts)

    def blanked(self, partition: Partition) -> Partition:
        """A worker's part of the graph with blank columns, which count as rows in its memory."""
        like = self.partition.node
        n = partition.n_masters
        columns = {
            name: (like.role(name), _blank(like.role(name), n, like.column(name), width * n))
            for name, width in self.blank.items()
        }
        return replace(partition, node=partition.node.joined(ColumnStore(n, columns)))

    def strategy(self, job: Job) -> Strategy:
        """The strategy of a job that differs from this one in keys of the strategy only."""
        return build_strategy(
            job=job,
            graph=self.graph,
            partition=self.partition,
            layers=self.probe.layers,
            task=self.task,
            precomputed=self.saving is not None,
        )

    def sampled(self, job: Job, most: int = SAMPLED_VIEWS) -> Sampled:
        """Some views of the first epoch of a job that differs from this one in keys of the strategy
        only; ``most`` bounds their number.
        """
        gc.collect()
        release()
        before = resident_bytes()
        high = peak_bytes()
        strategy = self.strategy(job)
        n = strategy.steps_per_epoch
        libraries = max(resident_bytes() - before, 0)
        peak = peak_bytes() - before if peak_bytes() > high else libraries
        # compiles kernels
        strategy.batch(0, 0)
        numbers = sorted(set(np.linspace(0, n - 1, min(n, most)).astype(int).tolist()))
        timed = [_timed(strategy, i) for i in numbers]
        seconds = [[spent for _, spent in timed]]
        # other programs only lengthen the time, so the shorter of two counts, unless views take
        # long
        if np.sum(seconds) < SHORT:
            seconds.append([_timed(strategy, i)[1] for i in numbers])
        return Sampled(
            steps=n,
            views=[(i, view) for i, (view, _) in zip(numbers, timed, strict=True)],
            seconds=float(np.min(seconds, axis=0).mean()),
            libraries=libraries,
            peak=peak,
        )


def _timed(strategy: Strategy, number: int) -> tuple[GraphView, float]:
    """A view of the first epoch, and processor seconds of this thread to build it."""
    began = thread_time()
    view = strategy.batch(0, number)
    return view, thread_time() - began


@dataclass(frozen=True)
class ForCounting(AssemblyPurpose):
    """A job is put together to be counted: on one worker, with columns that are blank.

    Attributes:
        blank: By name, bytes of a row of each blank node column; further ones are added.
    """

    blank: dict[str, int]

    def division(self, prepared: Prepared, comm: Comm) -> Division:
        job = prepared.job
        pair = Pair("hash", DEFAULT_PLACEMENT)
        whole = divide(job, prepared.graph, pair, comm)
        if job.embedding:
            whole, self.blank["x"] = _with_learned(job, prepared.graph, whole)
        return pair, whole, (), ()

    def passes(self, prepared: Prepared, partition: Partition) -> Passes:
        job = prepared.job
        partition, settings, saving = passes_of(prepared, partition)
        if saving is not None:
            # of zeros, because the features are
            totals = partition.node.column(PRECOMPUTED)
            self.blank[PRECOMPUTED] = saving.width * totals.dtype.itemsize
            partition = partition.overlay(
                {PRECOMPUTED: BlankColumn(totals.shape, totals.dtype)}, {}
            )
        with backend_scope(job.backend), halo_scope(job.halo), pass_scope(settings):
            return partition, settings, saving, probe(prepared.model, partition)


def skeleton(job: Job, graph: Graph, model: Factory | None = None) -> Skeleton:
    """Prepare a job for counting.

    Args:
        job: The job.
        graph: Its graph, with features.
        model: A function that makes the model; None makes the job's.

    Raises:
        ConfigError: What the job sends depends on values.
        GraphThetaError: Job, graph and model do not fit together.
    """
    _check_predictable(job)
    features = graph.x
    dtype = np.dtype(job.dtype)
    blank = {}
    if isinstance(features, np.ndarray):
        width = features.shape[1:]
        short = job.values == "bfloat16" and is_wide(width, dtype)
        blank["x"] = int(np.prod(width)) * (BFLOAT16 if short else dtype).itemsize
    prepared = prepare_job(
        job, graph.replace(x=BlankColumn(features.shape, features.dtype)) if blank else graph, model
    )
    fresh = replace(prepared, kind=copy(prepared.kind))
    loading = peak_bytes()
    assembly = assemble(prepared, SerialComm(), ForCounting(blank))
    partition = assembly.partition
    with assembly.scope(), halo_scope(job.halo):
        order = gradient_order(assembly.model, partition)
        sums = sums_of_a_pass(assembly.model, partition)
    # learned features and those beside them are read as dense rows
    density = (
        features.nnz / max(int(np.prod(features.shape)), 1)
        if is_sparse(features) and not job.embedding
        else 1.0
    )
    part = partition.nbytes()
    arrays = graph.nbytes + (prepared.graph.nbytes if prepared.graph.src is not graph.src else 0)
    now = resident_bytes()
    peak = peak_bytes()
    process = Process(
        now - part - arrays + KERNEL_BYTES,
        loading,
        (peak if peak > loading else now) - part,
        now - part,
    )
    return Skeleton(
        **vars(assembly),
        prepared=fresh,
        task=prepared.task(partition),
        order=order,
        sums=sums + 1,
        blank=blank,
        density=density,
        process=process,
    )


def _with_learned(job: Job, graph: Graph, partition: Partition) -> tuple[Partition, int]:
    """The partition of the whole graph with a blank column for learned features, and the bytes of a
    node in memory.
    """
    n = partition.n_nodes
    stored = partition.node.column("x").nbytes if "x" in partition.node else 0
    each = round((stored + learned_bytes(job, graph)) / max(n, 1))
    x = BlankTable((n, width_of(job, graph)), np.dtype(job.dtype))
    return (
        replace(partition, node=partition.node.joined(ColumnStore(n, {"x": (Role.LEARNED, x)}))),
        each,
    )


def _blank(role: Role, n: int, like: Column, nbytes: int) -> Column:
    """A blank column of n rows in place of another one."""
    kind = BlankTable if role is Role.LEARNED else BlankColumn
    column = kind((n, *like.shape[1:]), like.dtype, nbytes)
    return short_column(column) if isinstance(like, ShortColumn) else column


def _check_predictable(job: Job) -> None:
    """Refuse jobs whose messages depend on values.

    Raises:
        ConfigError: They do.
    """
    exchange = make_exchange(job.exchange, job.seed)
    if exchange is not None and exchange.by_values:
        raise ConfigError(
            f"graphtheta plan does not predict exchange={job.exchange}, whose messages depend on"
            " values; with --exchange exact it predicts the most that is sent"
        )
    if job.history.partition(":")[0] == "hec":
        raise ConfigError(
            "graphtheta plan does not predict history=hec, whose workers have views of their own;"
            " give another --history"
        )
