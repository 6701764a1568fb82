"""``gt.Inference``: a trained model on another graph than it was trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from graphtheta.analytics.features import SCALE, with_structural_features
from graphtheta.base.arguments import checked
from graphtheta.engine.comm.communicator import Comm
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.schema.conform import conformed
from graphtheta.graph.splits.several import choose_split
from graphtheta.inference.forward.assembly import (
    AssemblyPurpose,
    Make,
    Measured,
    Prepared,
    assemble,
    prepare,
)
from graphtheta.inference.forward.on_graph import ModelOnGraph
from graphtheta.inference.grown.grown import Grown, keep_layers
from graphtheta.inference.grown.trained import Trained
from graphtheta.run.agreement.digest import graph_digests
from graphtheta.run.agreement.ranks import check_graphs, check_jobs
from graphtheta.run.embeddings.saved import load_values
from graphtheta.run.job.job import Job
from graphtheta.run.memory.bound import memory_errors
from graphtheta.samplers.hidden import hidden_by
from graphtheta.tasks.evaluation.evaluate import RowEvaluator
from graphtheta.tasks.kinds.edge import EdgeKind
from graphtheta.tasks.kinds.imbalance import RARER
from graphtheta.tasks.kinds.kind import TaskKind

# what to do about too little memory
MORE = "the graph and the weights do", "use more workers"
# arrays of a file of weights
Arrays = Mapping[str, np.ndarray]


class Inference(ModelOnGraph):
    """A trained model on a graph that it was not trained on, partitioned over the workers.

    ``trainer.on(graph)`` and ``gt.open_run(folder, graph)`` make one. What was derived from the
    training graph, such as the means and deviations of features, is applied and not computed again.
    The graph needs no labels and no masks. Without masks, all that has labels is the test set.

    Args:
        job: The job of the training; its keys choose workers, precision and back end.
        trained: What is carried from the training graph.
        graph: Returns the graph.
        comm: The workers.
        make: Makes the model.
        arrays: Weights of the model and learned features of nodes, which are loaded; or only the
            latter for a model that has its weights.

    Raises:
        DataError: The graph lacks something that the model reads, or has it in another form.
        GraphThetaError: The graph cannot be loaded.
        Each on all ranks together.

    Collective: all ranks of comm, here and in every method.
    """

    def __init__(
        self,
        job: Job,
        trained: Trained,
        graph: Callable[[], Graph],
        comm: Comm,
        make: Make,
        arrays: Arrays,
    ):
        given, prepared = _prepared(job=job, trained=trained, load=graph, comm=comm, make=make)
        assembly = assemble(prepared, comm, AssemblyPurpose())
        whole = prepared.graph
        with comm.agreed():
            rows = {
                t.name: trained.graph.learned[t.name].rows(whole, t.masters)
                for t in assembly.tables
            }
            rest = load_values(assembly.tables, trained.graph.n_nodes, arrays, rows)
            if rest:
                prepared.model.load_state(rest)
        task = prepared.kind.objective(whole, assembly.partition)
        task.weighting = trained.weighting
        evaluator, limit = assembly.measuring(task)
        prepared.kind.target_types = trained.target_types or prepared.kind.target_types
        if isinstance(evaluator, RowEvaluator):
            if job.positive == RARER:
                evaluator.positive = trained.positive
            evaluator.threshold = trained.threshold(evaluator.positive) or evaluator.threshold
        super().__init__(
            Measured(**vars(assembly), evaluator=evaluator, limit=limit),
            _unlabelled(given, prepared.kind),
        )
        self.epoch = trained.epoch
        self._trained = trained
        self._arrays = {name: x for name, x in arrays.items() if name not in rest}

    @checked
    def on(self, graph: Graph) -> Inference:
        """The same model on another graph."""
        return Inference(
            job=self.job,
            trained=self._trained,
            graph=lambda: graph,
            comm=self.comm,
            make=lambda *_: self.model,
            arrays=self._arrays,
        )

    def keep_layers(self, folder: str | Path) -> None:
        """Compute the values of all layers and keep them in a folder, for inference on this graph
        when it has grown; see ``since``.
        """
        keep_layers(self, folder)

    def since(self, folder: str | Path, compare: str = "values") -> Grown:
        """Inference that computes only what has changed since ``keep_layers`` wrote a folder on an
        earlier graph.

        The graphs may differ by nodes, edges and values; nodes are the same by their original ids.
        See ``Grown`` for ``compare``.
        """
        return Grown(self, folder, compare)


def _prepared(
    job: Job, trained: Trained, load: Callable[[], Graph], comm: Comm, make: Make
) -> tuple[Graph, Prepared]:
    """The graph as it was given, and in the form of the training with its model.

    Collective: all ranks of comm.
    """
    hidden = hidden_by(job)
    # a kind of task from a file is known after the file was read
    kind_of = trained.kind(job)

    def applied() -> TaskKind:
        kind = kind_of(job)
        kind.trains = False
        return kind

    check_jobs(job, comm)
    with comm.agreed(), memory_errors(*MORE):
        given = load()
        given = choose_split(given, job.split_index if given.n_splits > 1 else 0)
    if comm.size > 1:
        check_graphs(graph_digests(given, comm.cores), comm)
    times = [f"edge.{hidden.time}"] if hidden is not None and hidden.timed else []
    with comm.agreed(), memory_errors(*MORE):
        trained.check_nodes(given)
        in_form = conformed(given, trained.graph, [*trained.read, *times])
    with memory_errors(*MORE):
        whole = with_structural_features(
            job=job,
            graph=in_form,
            comm=comm,
            kind=applied(),
            scale=trained.graph.meta.get(SCALE, ()),
        )
    with comm.agreed(), memory_errors(*MORE):
        return given, prepare(job, whole, applied(), make)


def _unlabelled(graph: Graph, kind: TaskKind) -> str:
    """Why nothing can be measured; empty if there are labels."""
    name = graph.name or "the graph"
    if isinstance(kind, EdgeKind):
        return f"{name} has no targets of edges (edge_y)" if graph.edge_y is None else ""
    return f"{name} has no labels of nodes (y)" if not kind.of_pairs and graph.y is None else ""
