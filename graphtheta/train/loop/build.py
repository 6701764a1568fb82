"""Builds a run from a job, a graph and a model: all that does not change during training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphtheta.analytics.features import with_structural_features
from graphtheta.base.costs import GRADIENTS_ALIVE
from graphtheta.base.logger import logger
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.dry_run import Probe, probe
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.layer.settings import pass_scope
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.strategy.registry import AUTO
from graphtheta.engine.strategy.strategy import Strategy
from graphtheta.engine.strategy.task import Task
from graphtheta.engine.train.metrics import choose_metric
from graphtheta.engine.train.step import Training
from graphtheta.engine.train.update import Schedule, UpdateRule
from graphtheta.errors import ConfigError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.schema.schema import Schema
from graphtheta.graph.splits.several import choose_split
from graphtheta.inference.forward.assembly import (
    Assembly,
    AssemblyPurpose,
    Division,
    Measured,
    Passes,
    Prepared,
    assemble,
    divided,
)
from graphtheta.inference.forward.reads import columns_read
from graphtheta.ops.autodiff.tape import Parameter
from graphtheta.ops.functions.losses.row_loss import RowLoss
from graphtheta.ops.optimisers.optim import SGD, Adam, AdamW, Optimiser, RMSprop
from graphtheta.run.agreement.digest import Digests, graph_digests
from graphtheta.run.agreement.ranks import check_graphs, check_jobs, check_models
from graphtheta.run.embeddings.setup import learned_types
from graphtheta.run.job.job import Job
from graphtheta.run.memory.bound import (
    Extent,
    MemoryBound,
    check_memory,
    memory_bound,
    memory_errors,
)
from graphtheta.samplers.hidden import hidden_by, refuse
from graphtheta.tasks.kinds.pair_counts import PairCounts
from graphtheta.train.loop.aggregation import passes_of
from graphtheta.train.loop.chosen_strategy import with_strategy
from graphtheta.train.loop.groups import SETTINGS, Choice, Groups, frozen_parameters, rates
from graphtheta.train.loop.make_model import Factory
from graphtheta.train.loop.modes import ModeCounts, count_modes
from graphtheta.train.loop.prepare import build_strategy, choices_of, load_graph, prepare_job
from graphtheta.train.loop.schedule import plateau_of, schedule_of
from graphtheta.train.reuse.caching.setup import with_cached_columns
from graphtheta.train.reuse.macrobatch.setup import comm_of_views
from graphtheta.train.reuse.reuse import Reuse

# what does not fit into memory, and what to do about it
IN_PARTS = (
    "the graph does",
    (
        "use a smaller graph, or import it as a store (graphtheta import), of which each worker"
        " reads its share"
    ),
)
SMALLER = "the graph and the weights do", "use fewer or narrower layers"


@dataclass(frozen=True)
class Choices:
    """Settings that exist in Python only, not as keys of a job.

    Attributes:
        loss: Replaces the loss that fits the labels; a function as ``RowLoss`` takes it.
        schedule: Replaces the learning-rate schedule of the job.
        groups: Learning rates and weight decays of some parameters.
        freeze: Parameters that are not trained.
    """

    loss: Callable[..., Any] | None = None
    schedule: Schedule | None = None
    groups: Groups | None = None
    freeze: tuple[Choice, ...] = ()

    def described(self, model: Model, frozen: frozenset[Parameter]) -> dict[str, Any]:
        """What these settings mean for a model, as plain values, which all workers must have alike.

        Args:
            model: The model.
            frozen: Its parameters that are not trained.
        """
        rates_of = rates(
            model, model.parameters(), self.groups or {}, dict.fromkeys(SETTINGS, -1.0)
        )
        names = [name for name, p in model.named_parameters() if p in frozen]
        factor = None if self.schedule is None else self.schedule(0)
        return {"groups": rates_of, "freeze": names, "lr_schedule": factor}


@dataclass(frozen=True)
class ForTraining(AssemblyPurpose):
    """A model on a graph is put together to be trained.

    Attributes:
        frozen: Parameters that are not trained.
    """

    frozen: frozenset[Parameter]

    def division(self, prepared: Prepared, comm: Comm) -> Division:
        job = prepared.job
        return divided(prepared, comm, comm_of_views(job, comm), job.epochs)

    def passes(self, prepared: Prepared, partition: Partition) -> Passes:
        partition, settings, saving = passes_of(prepared, partition, self.frozen)
        partition = with_cached_columns(prepared.job, partition)
        with pass_scope(settings):
            return partition, settings, saving, probe(prepared.model, partition)


@dataclass(frozen=True)
class RunSetup(Measured):
    """The parts of a run that do not change during training. Of the model it changes parameters and
    running statistics, and nothing else.

    Attributes:
        bound: Upper bound of the memory of this worker.
        task: The objective of training.
        metric: Name of the metric that selects the best model.
        strategy: Makes the views.
        parameters: The parameters that are trained.
        rule: Makes updates of gradients: learning-rate schedule and clipping.
        views_per_step: Views whose gradients are summed for an update.
        independent: Whether each worker computes views of its own.
        strategy_line: What strategy=auto chose, and why; empty if the job leaves no choice.
        modes: What both modes do with the first views; None unless the job chooses between them.
        choices: Settings that exist in Python only.
        schema: Form of the graph, before self loops were added or dropped.
        prepared: How the dataset was prepared, see ``Trained``.
        digests: Of the graph, before structural features and self loops.
    """

    bound: MemoryBound
    task: Task
    metric: str
    strategy: Strategy
    parameters: tuple[Parameter, ...]
    rule: UpdateRule
    views_per_step: int
    independent: bool
    strategy_line: str
    modes: ModeCounts | None
    choices: Choices
    schema: Schema
    prepared: dict[str, str]
    digests: Digests

    @property
    def mode_line(self) -> str:
        """How workers share the views of a step, and why; empty if the job leaves no choice."""
        return (
            ""
            if self.modes is None
            else f"mode={'independent' if self.independent else 'cooperative'}; {self.modes}"
        )

    def optimiser(self) -> Optimiser:
        """A new optimiser."""
        job = self.job
        decay = self.kind.weight_decay if job.weight_decay == "auto" else job.weight_decay
        by_option = rates(
            self.model,
            self.parameters,
            self.choices.groups or {},
            {"lr": job.lr, "weight_decay": float(decay)},
        )
        lr, decays = by_option["lr"], by_option["weight_decay"]
        if job.optimiser == "sgd":
            return SGD(self.parameters, lr, decays, momentum=job.momentum)
        if job.optimiser == "rmsprop":
            return RMSprop(
                self.parameters, lr, decays, momentum=job.momentum, centered=job.centered
            )
        return {"adam": Adam, "adamw": AdamW}[job.optimiser](self.parameters, lr, decays)

    def reuse(self) -> Reuse:
        """New caches of features, which replace earlier ones, and new macrobatches.

        Collective: all ranks of comm.
        """
        return Reuse.of(self.job, self.strategy, self.views_per_step, self.independent)

    def training(self, reuse: Reuse) -> Training:
        """A new training, before its first update."""
        return training_of(
            self,
            self.strategy,
            self.optimiser(),
            reuse,
            independent=self.independent,
            views_per_step=self.views_per_step,
            views_in_flight=self.job.views_in_flight,
            staleness=self.job.staleness,
            rule=self.rule,
        )


def training_of(
    assembly: Assembly, strategy: Strategy, optimiser: Optimiser, reuse: Reuse, **settings: Any
) -> Training:
    """A training, before its first update.

    Args:
        assembly: The model on a graph.
        strategy: Makes the views.
        optimiser: Makes updates from gradients.
        reuse: Caches and macrobatches.
        **settings: Further arguments of ``Training``.
    """
    job = assembly.job
    return Training(
        assembly.model,
        strategy,
        optimiser,
        assembly.comm,
        seed=job.seed,
        backend=job.backend,
        halo=job.halo,
        settings=assembly.settings,
        stored=assembly.probe.stored,
        features=reuse.caches.features,
        ahead=reuse.macrobatches,
        tables=assembly.learned,
        foresight=reuse.foresight,
        **settings,
    )


def build(
    job: Job, graph: Graph | None, model: Model | Factory | None, comm: Comm, choices: Choices
) -> RunSetup:
    """Build a run.

    Args:
        job: The job.
        graph: The graph; None loads the job's dataset.
        model: A model, or a function that makes one; None makes the job's.
        comm: The workers.
        choices: Settings that exist in Python only.

    Raises:
        GraphThetaError: Something does not fit; on all workers together.

    Collective: all ranks of comm.
    """
    check_jobs(job, comm)
    with comm.agreed(), memory_errors(*IN_PARTS):
        whole = load_graph(job) if graph is None else choose_split(graph, job.split_index)
    digests = graph_digests(whole, comm.cores)
    check_graphs(digests, comm)
    with memory_errors(*SMALLER):
        featured = with_structural_features(job, whole, comm)
    with comm.agreed(), memory_errors(*SMALLER):
        prepared = prepare_job(job, featured, model)
        metric = choose_metric(job.metric, prepared.kind.measured)
        frozen = frozen_parameters(prepared.model, choices.freeze)
        schema = Schema.of(featured, learned_types(job, featured))
        described = choices.described(prepared.model, frozen)
    check_models(prepared.model, described, comm)
    assembly = assemble(prepared, comm, ForTraining(frozen))
    partition = assembly.partition
    task = prepared.task(partition)
    strategy_line = ""
    if job.strategy == AUTO:
        job, strategy_line = with_strategy(
            prepared=prepared, partition=partition, probe=assembly.probe, task=task, comm=comm
        )
        assembly = replace(assembly, job=job)
        assembly.kind.job = job
    _check_degrees(assembly)
    _report(assembly, prepared.graph)
    bound = memory_of(
        job=job,
        partition_bytes=partition.nbytes(),
        extent=Extent.of(partition),
        dry_run=assembly.probe,
        rank=comm.rank,
        size=comm.size,
        scored=prepared.kind.scored(),
    )
    check_memory(bound, partition, job.strategy == "global")
    evaluator, limit = assembly.measuring(task)
    if choices.loss is not None:
        task.own_loss = RowLoss(choices.loss)
    strategy = build_strategy(
        job=job,
        graph=prepared.graph,
        partition=partition,
        layers=assembly.probe.layers,
        task=task,
        precomputed=assembly.saving is not None,
    )
    views = job.views_of_a_step(comm.size)
    compared = job.mode != "cooperative" and comm.size > 1 and not strategy.alone
    itemsize = np.dtype(job.dtype).itemsize
    modes = count_modes(strategy, assembly.probe, views, itemsize) if compared else None
    independent = strategy.alone or (
        modes is not None and "independent" in (job.mode, modes.faster)
    )
    if strategy.alone and views % comm.size:
        raise ConfigError(
            f"views_per_step={views}: each of the {comm.size} workers computes batches of its own,"
            f" so a step has as many of each; give a multiple of {comm.size}, or drop"
            " --views-per-step"
        )
    rule = UpdateRule(
        schedule_of(job) if choices.schedule is None else choices.schedule,
        job.clip_norm,
        plateau_of(job),
    )
    return RunSetup(
        **vars(assembly),
        evaluator=evaluator,
        limit=limit,
        bound=bound,
        task=task,
        metric=metric.name,
        strategy=strategy,
        parameters=tuple(p for p in assembly.model.parameters() if p not in frozen),
        rule=rule,
        views_per_step=views,
        independent=independent,
        strategy_line=strategy_line,
        modes=modes,
        choices=choices,
        schema=schema,
        prepared=choices_of(job) if graph is None else {},
        digests=digests,
    )


def memory_of(
    job: Job,
    partition_bytes: int,
    extent: Extent,
    dry_run: Probe,
    rank: int,
    size: int,
    scored: PairCounts,
    gradients: int = GRADIENTS_ALIVE,
) -> MemoryBound:
    """The memory bound of a worker of a job.

    Args:
        job: The job.
        partition_bytes: Bytes of the worker's part.
        extent: What the worker computes at a time.
        dry_run: Dry run of the model.
        rank, size: The worker, and the number of workers.
        scored, gradients: Arguments of ``memory_bound``.
    """
    fanout = max((*job.fanout, *job.eval_fanout), default=0)
    in_flight = 1 if job.strategy == "global" else job.views_in_flight
    # copies of the state: one waiting; one being written, with its bytes by array and as a file
    checkpoints = 4 * (rank == 0 and job.keep > 0)
    return memory_bound(
        partition_bytes=partition_bytes,
        extent=extent,
        probe=dry_run,
        itemsize=np.dtype(job.dtype).itemsize,
        fanout=fanout,
        in_flight=in_flight,
        staleness=job.staleness,
        checkpoints=checkpoints,
        batches=job.strategy == "mini",
        dealt=size if job.mode != "cooperative" else 1,
        gradients=gradients,
        scored=scored,
        short=job.values == "bfloat16",
    )


def _report(assembly: Assembly, graph: Graph) -> None:
    """Log, on rank 0, what is probably a mistake in the labels or in the model."""
    if assembly.comm.rank:
        return
    text = assembly.kind.warning(graph) if assembly.kind.trains else ""
    names = assembly.probe.unread
    if text:
        logger.warning(text)
    if names:
        logger.warning(
            f"no operation in forward of {type(assembly.model).__name__} reads {', '.join(names)},"
            " so it is not trained; pass the gt.Parameter itself to functions of gt: its .value is"
            " a constant"
        )


def _check_degrees(assembly: Assembly) -> None:
    """Refuse a model that reads degrees where the sampler hides edges, which they count.

    Raises:
        ConfigError: It does.
    """
    job = assembly.job
    if hidden_by(job) is None:
        return
    with assembly.scope():
        read = [
            name
            for name in columns_read(assembly.model, assembly.partition, assembly.probe.layers)
            if name.partition(".")[2] in ("in_degree", "out_degree")
        ]
    if read:
        refuse("degrees", job, f"the model reads {' and '.join(read)}")
