"""The task ``edge``: predicts values of edges."""

from __future__ import annotations

import numpy as np

from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.sampler import TimedPairs
from graphtheta.engine.strategy.task import EdgeTask, Task
from graphtheta.engine.view.hop import Layers
from graphtheta.errors import DataError
from graphtheta.graph.data.graph import Graph
from graphtheta.ops.functions.losses.weighting import Weighting
from graphtheta.tasks.evaluation.evaluate import SPLITS, EdgeEvaluator, Evaluator
from graphtheta.tasks.kinds.imbalance import check_weights
from graphtheta.tasks.kinds.kind import GraphInfo, TaskKind
from graphtheta.tasks.kinds.pair_counts import PairCounts
from graphtheta.tasks.kinds.timed import TimedEdgeEvaluator, timed_pairs


class EdgeKind(TaskKind):
    """Real values of the edges that the graph has."""

    name = "edge"
    summary = "values of edges"
    keys = ("sample_weights",)
    label_kinds = ("values",)
    of_pairs = True
    labels = "values"
    _n_edges: int
    _sampler: TimedPairs | None

    @classmethod
    def fits(cls, graph: Graph) -> bool:
        """A graph with targets of edges, and no labels of nodes."""
        return graph.y is None and graph.edge_y is not None

    def take(self, graph: Graph) -> Graph:
        name = graph.name or "the graph"
        if graph.edge_y is None:
            raise DataError(
                f"{name} has no labels for task '{self.name}'; give it edge_y, or choose another"
                " --task"
            )
        if self.trains and (graph.edge_train is None or not graph.edge_train.any()):
            raise DataError(f"{name} has no training edges; give it an edge_train mask")
        self.width = graph.edge_y.shape[1] if graph.edge_y.ndim == 2 else 1
        check_weights(self.job, self.labels, self.width, graph.edge_columns)
        self._n_edges = graph.n_edges
        return graph

    def scored(self) -> PairCounts:
        return PairCounts(self.in_batch(self._n_edges), self._n_edges)

    @property
    def decoder(self) -> str:
        return "edge"

    def objective(self, graph: Graph, partition: Partition) -> EdgeTask:
        train = (
            partition.edge.read("train")
            if "train" in partition.edge
            else np.zeros(partition.n_local_edges, bool)
        )
        task = EdgeTask(partition, train, self.labels)
        self._sampler = timed_pairs(self.job, partition)
        if self._sampler is not None:
            task.cutoffs = self._sampler.edge_cutoffs(task.column_of_targets, earlier=False)
        return task

    def weighting(self, partition: Partition, task: Task) -> Weighting | None:
        return Weighting(column=self.job.sample_weights) if self.job.sample_weights else None

    def evaluator(self, partition: Partition, layers: Layers, task: Task) -> Evaluator:
        assert isinstance(task, EdgeTask)
        masks = {n: partition.edge.read(n) for n in SPLITS if n in partition.edge}
        if self._sampler is None:
            return EdgeEvaluator(partition, layers, task, masks)
        return TimedEdgeEvaluator(
            partition=partition, layers=layers, task=task, masks=masks, sampler=self._sampler
        )

    def named(
        self, info: GraphInfo, rows: np.ndarray, out: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of edges, and their outputs; added self loops, which come last, are left out."""
        rows = rows[: np.searchsorted(rows, info.n_edges)]
        return rows if info.edges is None else info.edges[rows], out[: len(rows)]
