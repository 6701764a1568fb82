"""A job in one process without its node features: the model, the targets and the views, to be counted."""
from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from graphtheta.data.graph import Graph
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.layer.dry_run import Probe, gradient_order, probe
from graphtheta.engine.layer.memory import resident_bytes
from graphtheta.engine.layer.settings import PassSettings, pass_scope
from graphtheta.engine.partition.partition import Partition, build_partition
from graphtheta.engine.store.column import Read, Ready
from graphtheta.engine.view.level import Counts
from graphtheta.engine.view.strategy import Strategy
from graphtheta.engine.view.task import Task
from graphtheta.engine.view.view import GraphView
from graphtheta.errors import ConfigError
from graphtheta.job.job import Job
from graphtheta.ops.autodiff.tape import Parameter
from graphtheta.ops.backend.fused import backend_scope
from graphtheta.sparse import is_sparse
from graphtheta.train.make_model import Factory
from graphtheta.train.prepare import Prepared, build_strategy, prepare

# views of an epoch that are built and counted, besides a first one that compiles kernels
SAMPLED_VIEWS = 16
# kernels that the first step loads
KERNEL_BYTES = 8 << 20


class BlankColumn:
    """A column of zeros that takes no memory: the shape and type of one whose values do not matter.

    Args:
        like: A column or an array, [n_rows, ...].
    """

    def __init__(self, like: Any):
        self.shape: tuple[int, ...] = like.shape
        self.dtype: np.dtype = like.dtype
        self.sparse = False
        self.nbytes = 0

    def read_begin(self, rows: np.ndarray | None) -> Read:
        n = self.shape[0] if rows is None else len(rows)
        return Ready(np.broadcast_to(np.zeros((), self.dtype), (n, *self.shape[1:])))


@dataclass(frozen=True)
class Process:
    """Memory of a worker's process besides its part of the graph, in bytes, as measured on this one.

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
        seconds: Processor seconds to build one.
        libraries, peak: Bytes that making the strategy has added to the process, afterwards and at
            most.
    """

    steps: int
    views: list[tuple[int, GraphView]]
    seconds: float
    libraries: int
    peak: int


@dataclass(frozen=True)
class Skeleton:
    """A job without features.

    Attributes:
        job: The job.
        prepared: Its model, task and graph; dense node features are blank.
        partition: The whole graph on one worker.
        settings: Settings of its passes.
        found: Dry run of the model.
        task: The objective of training.
        order: Parameters in the order in which their gradients are final.
        feature_bytes: Bytes of the blank features of a node in the memory of a worker.
        density: Share of the numbers of the features that are stored.
        process: Memory of this process.
    """

    job: Job
    prepared: Prepared
    partition: Partition
    settings: PassSettings
    found: Probe
    task: Task
    order: list[Parameter]
    feature_bytes: int
    density: float
    process: Process

    @property
    def graph(self) -> Graph:
        """The message-passing graph."""
        return self.prepared.graph

    def traced(self, counts: list[Counts]) -> Probe:
        """Dry run of the model over levels of these sizes."""
        with backend_scope(self.job.backend), pass_scope(self.settings):
            return probe(self.prepared.model, self.partition, counts)

    def strategy(self, job: Job) -> Strategy:
        """The strategy of a job that differs from this one in keys of the strategy only."""
        return build_strategy(job, self.graph, self.partition, self.found.layers, self.task)

    def sampled(self, job: Job) -> Sampled:
        """Some views of the first epoch of a job that differs from this one in keys of the strategy only."""
        before, most = current_bytes(), resident_bytes()
        strategy = self.strategy(job)
        n, libraries = strategy.steps_per_epoch, max(current_bytes() - before, 0)
        peak = resident_bytes() - before if resident_bytes() > most else libraries
        first, views, seconds = strategy.batch(0, 0), [], []
        if n == 1:
            return Sampled(1, [(0, first)], 0.0, libraries, peak)
        for i in sorted(set(np.linspace(0, n - 1, SAMPLED_VIEWS).astype(int).tolist())):
            began = process_time()
            views.append((i, strategy.batch(0, i)))
            seconds.append(process_time() - began)
        return Sampled(n, views, float(np.median(seconds)), libraries, peak)


def skeleton(job: Job, graph: Graph, model: Factory | None = None) -> Skeleton:
    """Prepare a job for counting.

    Args:
        job: The job.
        graph: Its graph, with features.
        model: A function that makes the model; None makes the job's.

    Raises:
        ConfigError: The job precomputes totals.
        GraphThetaError: Job, graph and model do not fit together.
    """
    if job.precompute != "no":
        raise ConfigError(f"graphtheta plan does not predict precompute={job.precompute}, whose totals are made from the features; drop "
                          "--precompute")
    held, dtype = graph.x, np.dtype(job.dtype)
    blank = isinstance(held, np.ndarray)
    prepared = prepare(job, graph.replace(x=BlankColumn(held)) if blank else graph, model)
    made, loading = prepared.model, resident_bytes()
    partition = build_partition(prepared.graph, SerialComm(), dtype=dtype, seed=job.seed)
    settings = PassSettings(frozenset(map(id, made.checkpoint_segments())) if job.recompute else frozenset())
    with backend_scope(job.backend), pass_scope(settings):
        prepared.check_columns(made, partition)
        found, order = probe(made, partition), gradient_order(made, partition)
    prepared.kind.check_output(made, found)
    width = int(np.prod(held.shape[1:])) * dtype.itemsize if blank else 0
    density = held.nnz / max(int(np.prod(held.shape)), 1) if is_sparse(held) else 1.0
    part, arrays = partition.nbytes(), graph.nbytes + (prepared.graph.nbytes if prepared.graph.src is not graph.src else 0)
    now, peak = current_bytes(), resident_bytes()
    process = Process(now - part - arrays + KERNEL_BYTES, loading, (peak if peak > loading else now) - part, now - part)
    task, _ = prepared.build_task(partition, found.layers)
    return Skeleton(job, prepared, partition, settings, found, task, order, width, density, process)


def current_bytes() -> int:
    """Resident memory of this process; its peak where the system does not give it."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return resident_bytes()
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
