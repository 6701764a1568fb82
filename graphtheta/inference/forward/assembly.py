"""A model on a graph is put together here, for training, inference, planning and rehearsals.

``prepare`` makes graph and model fit each other; ``assemble`` divides the graph and runs the model
dry on it. A purpose says in which parts these four differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.dry_run import Probe, probe
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.layer.precompute import Saving
from graphtheta.engine.layer.settings import PassSettings, pass_scope
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.store.table import EmbeddingTable
from graphtheta.engine.strategy.task import Task
from graphtheta.engine.train.table import LearnedTable
from graphtheta.engine.view.hop import depth
from graphtheta.graph.data.graph import Graph
from graphtheta.inference.forward.limited import Limited, limited
from graphtheta.inference.forward.self_loops import check_loops, with_loops
from graphtheta.ops.edge.backend.fused import backend_scope
from graphtheta.partitioners.pairs import Pair
from graphtheta.run.dividing import choose_pair, divide
from graphtheta.run.embeddings.setup import with_embedding
from graphtheta.run.job.job import Job
from graphtheta.samplers.hidden import check_times, hidden_by
from graphtheta.tasks.evaluation.evaluate import Evaluator
from graphtheta.tasks.evaluation.sampled import SampledViews, evaluation_sampler
from graphtheta.tasks.kinds.kind import GraphInfo, TaskKind
from graphtheta.tasks.kinds.timed import timed_sampler

# makes the model for a graph, as the kind of task has taken it
Make = Callable[[Graph, TaskKind], Model]


@dataclass(frozen=True)
class Prepared:
    """A job with its graph, model and kind of task.

    Attributes:
        job: The job.
        graph: The message-passing graph.
        model: The model.
        info: Original ids of nodes and edges, for results.
        kind: Kind of task.
        unknown: Integer edge columns without a value for the added self loops.
    """

    job: Job
    graph: Graph
    model: Model
    info: GraphInfo
    kind: TaskKind
    unknown: frozenset[str] = frozenset()

    def task(self, partition: Partition) -> Task:
        """The objective of training.

        Collective: all ranks of the partition.
        """
        task = self.kind.objective(self.graph, partition)
        task.weighting = self.kind.weighting(partition, task)
        return task


def prepare(job: Job, graph: Graph, kind: TaskKind, make: Make) -> Prepared:
    """Make the model, and add or remove edges of the graph as job, task and model require.

    Raises:
        ConfigError, DataError: Job, graph and model do not fit together.
    """
    taken = kind.take(graph)
    model = make(taken, kind)
    hidden = hidden_by(job)
    check_times(taken, hidden, kind.name == "node")
    looped = with_loops(taken, job.loops, model, hidden)
    return Prepared(
        job=job,
        graph=looped.graph,
        model=model,
        info=looped.info,
        kind=kind,
        unknown=looped.unknown,
    )


# how the graph is divided, this worker's part of it, the columns of it that training changes, and
# their rows that are learned
Division = tuple[Pair, Partition, tuple[LearnedTable, ...], tuple[EmbeddingTable, ...]]
# the part as passes read it, their settings, what a precomputed total saves (None if there is
# none), and the dry run of the model
Passes = tuple[Partition, PassSettings, Saving | None, Probe]


class AssemblyPurpose:
    """What a model on a graph is put together for: here, for passes over all nodes, without
    training.
    """

    def division(self, prepared: Prepared, comm: Comm) -> Division:
        """The graph, divided over workers.

        Collective: all ranks of comm.
        """
        return divided(prepared, comm, comm, 1)

    def passes(self, prepared: Prepared, partition: Partition) -> Passes:
        """What passes read, and a dry run.

        Collective: all ranks of the partition.
        """
        settings = PassSettings()
        with pass_scope(settings), backend_scope(prepared.job.backend):
            check_loops(prepared.model, partition, prepared.unknown)
            return partition, settings, None, probe(prepared.model, partition)


def divided(prepared: Prepared, comm: Comm, halo_comm: Comm, epochs: int) -> Division:
    """The graph, divided as its job says, with learned features.

    Args:
        prepared: Gives job and graph.
        comm: The workers.
        halo_comm: The same, by the communicator that moves rows.
        epochs: Passes over the graph, which a better division must be worth.

    Collective: all ranks of comm.
    """
    pair = choose_pair(prepared.job, prepared.graph, comm, epochs)
    partition = divide(prepared.job, prepared.graph, pair, halo_comm, comm)
    return pair, *with_embedding(prepared.job, prepared.graph, partition)


@dataclass(frozen=True)
class Assembly:
    """A model on a graph that is divided over workers. The whole graph is no part of it.

    Attributes:
        job: The job.
        comm: The workers.
        model: The model.
        info: Original ids of the whole graph.
        kind: Kind of task.
        pair: Node partitioner and edge placement.
        partition: This worker's part of the graph.
        learned: Node columns that training changes.
        tables: Their rows that are learned, which are saved.
        settings: Settings of the passes.
        saving: The work saved by a precomputed total; None if there is none.
        probe: Result of the dry run of the model.
    """

    job: Job
    comm: Comm
    model: Model
    info: GraphInfo
    kind: TaskKind
    pair: Pair
    partition: Partition
    learned: tuple[LearnedTable, ...]
    tables: tuple[EmbeddingTable, ...]
    settings: PassSettings
    saving: Saving | None
    probe: Probe

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Context in which passes use back end and settings."""
        with backend_scope(self.job.backend), pass_scope(self.settings):
            yield

    def measuring(self, task: Task) -> tuple[Evaluator, Limited | None]:
        """What measures the model on all nodes, and its passes by blocks; None if passes over the
        whole graph are within the memory limit.

        Collective: all ranks of comm.
        """
        evaluator = self.kind.evaluator(self.partition, self.probe.layers, task)
        evaluator.sampled = self._sampled()
        if evaluator.past is not None:
            evaluator.past.sampled = evaluator.sampled
        limit = limited(self.job, self.partition, self.probe)
        evaluator.by_blocks = None if limit is None else limit.outputs
        return evaluator, limit

    def _sampled(self) -> SampledViews | None:
        """Views of sampled neighbourhoods for metrics; None if these are exact.

        Collective: all ranks of comm.
        """
        job = self.job
        if not job.evaluation_sampled:
            return None
        layers = self.probe.layers
        n = depth(layers)
        # the hop of a stored total is not sampled
        stored = self.saving is not None
        sampler = evaluation_sampler(
            fanouts=job.fanouts(n + stored, "eval_fanout")[:n][::-1],
            seed=job.seed,
            repeats=job.replace,
            shared=job.share_sample,
            timed=timed_sampler(job),
        )
        return SampledViews(self.partition, layers, sampler)


def assemble(prepared: Prepared, comm: Comm, purpose: AssemblyPurpose) -> Assembly:
    """Put a model on a graph together.

    Args:
        prepared: Graph and model.
        comm: The workers.
        purpose: What for.

    Raises:
        GraphThetaError: Something does not fit; on all workers together.

    Collective: all ranks of comm.
    """
    pair, partition, learned, tables = purpose.division(prepared, comm)
    partition, settings, saving, dry_run = purpose.passes(prepared, partition)
    prepared.kind.check_output(prepared.model, dry_run)
    return Assembly(
        job=prepared.job,
        comm=comm,
        model=prepared.model,
        info=prepared.info,
        kind=prepared.kind,
        pair=pair,
        partition=partition,
        learned=learned,
        tables=tables,
        settings=settings,
        saving=saving,
        probe=dry_run,
    )


@dataclass(frozen=True)
class Measured(Assembly):
    """A model on a graph with what measures it.

    Attributes:
        evaluator: Measures and predicts.
        limit: Passes by blocks; None if passes over the whole graph are within the memory limit.
    """

    evaluator: Evaluator
    limit: Limited | None
