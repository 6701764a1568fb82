"""A job in one process without its node features: the model, the targets and the views, to be
counted.
"""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from time import process_time, thread_time

import numpy as np

from graphtheta.base.memory import peak_bytes, resident_bytes
from graphtheta.base.sparse import is_sparse
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.layer.dry_run import Probe, gradient_order, probe, sums_of_a_pass
from graphtheta.engine.layer.settings import PassSettings, pass_scope
from graphtheta.engine.partition.message import halo_scope
from graphtheta.engine.partition.partition import Partition, build_partition
from graphtheta.engine.store.column import Column, Role
from graphtheta.engine.store.store import ColumnStore
from graphtheta.engine.strategy.strategy import Strategy
from graphtheta.engine.strategy.task import Task
from graphtheta.engine.view.level import Counts
from graphtheta.engine.view.view import PRECOMPUTED, GraphView
from graphtheta.errors import ConfigError
from graphtheta.graph.data.graph import Graph
from graphtheta.inspect.planning.blank import BlankColumn, BlankTable
from graphtheta.ops.autodiff.tape import Parameter
from graphtheta.ops.edge.backend.fused import backend_scope
from graphtheta.run.embeddings.setup import learned_bytes, width_of
from graphtheta.run.job.job import Job
from graphtheta.tasks.kinds.kind import TaskKind
from graphtheta.train.loop.aggregation import passes_of
from graphtheta.train.loop.make_model import Factory
from graphtheta.train.loop.prepare import Prepared, build_strategy, prepare
from graphtheta.train.reuse.staleness.registry import make_exchange

# views of an epoch that are built and counted, besides a first one that compiles kernels
SAMPLED_VIEWS = 16
# views that take fewer seconds of the processor in all are built twice
SHORT = 2.0
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
        seconds, processor: Processor seconds to build one: of the worker's own thread, and of all.
        libraries, peak: Bytes that making the strategy has added to the process, afterwards and at
            most.
    """

    steps: int
    views: list[tuple[int, GraphView]]
    seconds: float
    processor: float
    libraries: int
    peak: int


@dataclass(frozen=True)
class Skeleton:
    """A job without features.

    Attributes:
        job: The job.
        prepared: Its model, task and graph; dense node features are blank.
        kind: Kind of the task, before it has made a task.
        partition: The whole graph on one worker.
        settings: Settings of its passes.
        precomputed: Whether the first layer has totals.
        found: Dry run of the model.
        task: The objective of training.
        order: Parameters in the order in which their gradients are final.
        sums: Numbers that a step of cooperative workers adds up besides: of the model, and what the
            mean of the loss is divided by.
        blank: By name, bytes of a row of each blank node column in the memory of a worker.
        density: Share of the numbers of the features that are stored.
        process: Memory of this process.
    """

    job: Job
    prepared: Prepared
    kind: TaskKind
    partition: Partition
    settings: PassSettings
    precomputed: bool
    found: Probe
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
        with backend_scope(self.job.backend), halo_scope(self.job.halo), pass_scope(self.settings):
            return probe(self.prepared.model, self.partition, counts)

    def blanked(self, partition: Partition) -> Partition:
        """A worker's part of the graph with blank columns, which count as rows in its memory."""
        like = self.partition.node
        n = partition.n_masters
        found = {
            name: (like.role(name), _blank(like.role(name), n, like.column(name), width * n))
            for name, width in self.blank.items()
        }
        return replace(partition, node=partition.node.joined(ColumnStore(n, found)))

    def strategy(self, job: Job) -> Strategy:
        """The strategy of a job that differs from this one in keys of the strategy only."""
        return build_strategy(
            job=job,
            graph=self.graph,
            partition=self.partition,
            layers=self.found.layers,
            task=self.task,
            precomputed=self.precomputed,
        )

    def sampled(self, job: Job, most: int = SAMPLED_VIEWS) -> Sampled:
        """Some views of the first epoch of a job that differs from this one in keys of the strategy
        only; ``most`` bounds their number.
        """
        release()
        before = resident_bytes()
        high = peak_bytes()
        strategy = self.strategy(job)
        n = strategy.steps_per_epoch
        libraries = max(resident_bytes() - before, 0)
        peak = peak_bytes() - before if peak_bytes() > high else libraries
        # compiles kernels
        strategy.batch(0, 0)
        views = []
        for i in sorted(set(np.linspace(0, n - 1, min(n, most)).astype(int).tolist())):
            views.append((i, *_timed(strategy, i)))
        seconds = [[found[2:] for found in views]]
        # other programs only lengthen the time, so the shorter of two counts, unless views take
        # long
        if np.sum(seconds) < SHORT:
            seconds.append([_timed(strategy, i)[1:] for i, *_ in views])
        own, all_threads = np.mean(np.min(seconds, axis=0), axis=0).tolist()
        return Sampled(
            steps=n,
            views=[found[:2] for found in views],
            seconds=own,
            processor=all_threads,
            libraries=libraries,
            peak=peak,
        )


def _timed(strategy: Strategy, number: int) -> tuple[GraphView, float, float]:
    """A view of the first epoch, and processor seconds to build it: of this thread, and of all."""
    began = thread_time(), process_time()
    view = strategy.batch(0, number)
    return view, thread_time() - began[0], process_time() - began[1]


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
    held = graph.x
    dtype = np.dtype(job.dtype)
    blank = (
        {"x": int(np.prod(held.shape[1:])) * dtype.itemsize} if isinstance(held, np.ndarray) else {}
    )
    prepared = prepare(
        job, graph.replace(x=BlankColumn(held.shape, held.dtype)) if blank else graph, model
    )
    made = prepared.model
    kind = copy(prepared.kind)
    loading = peak_bytes()
    partition = build_partition(prepared.graph, SerialComm(), dtype=dtype, seed=job.seed)
    if job.embedding:
        partition, blank["x"] = _with_learned(job, prepared.graph, partition)
    partition, settings, saving = passes_of(job, prepared, partition)
    if saving is not None:
        # of zeros, because the features are
        totals = partition.node.column(PRECOMPUTED)
        blank[PRECOMPUTED] = saving.width * totals.dtype.itemsize
        partition = partition.overlay({PRECOMPUTED: BlankColumn(totals.shape, totals.dtype)}, {})
    with backend_scope(job.backend), halo_scope(job.halo), pass_scope(settings):
        found = probe(made, partition)
        order = gradient_order(made, partition)
        sums = sums_of_a_pass(made, partition)
    prepared.kind.check_output(made, found)
    # learned features and those beside them are read as dense rows
    density = (
        held.nnz / max(int(np.prod(held.shape)), 1)
        if is_sparse(held) and not job.embedding
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
    task, _ = prepared.build_task(partition, found.layers)
    return Skeleton(
        job=job,
        prepared=prepared,
        kind=kind,
        partition=partition,
        settings=settings,
        precomputed=saving is not None,
        found=found,
        task=task,
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


def _blank(role: Role, n: int, like: Column, nbytes: int) -> BlankColumn:
    """A blank column of n rows in place of another one."""
    return (BlankTable if role is Role.LEARNED else BlankColumn)(
        (n, *like.shape[1:]), like.dtype, nbytes
    )


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


def release() -> None:
    """Return free memory to the system, where it can, so that it does not hide what is allocated
    next.
    """
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
