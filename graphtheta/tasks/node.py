"""The task ``node``: predicts labels of nodes."""
from __future__ import annotations

import numpy as np

from graphtheta.data.graph import Graph
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.train.evaluate import Evaluator, NodeEvaluator
from graphtheta.engine.view.hop import Layers
from graphtheta.engine.view.task import NodeTask, Task, label_kind
from graphtheta.errors import DataError
from graphtheta.tasks.kind import GraphInfo, TaskKind


class NodeKind(TaskKind):
    """Classes, several labels, or real values of nodes."""

    name = "node"
    summary = "classes or values of nodes"
    # other kinds remove edges from neighbourhoods, or read values of edges
    keys = ("precompute",)
    label_kinds = ("classes", "labels", "values")

    @classmethod
    def fits(cls, graph: Graph) -> bool:
        """A graph with labels of nodes."""
        return graph.y is not None

    def take(self, graph: Graph) -> Graph:
        if graph.y is None:
            raise DataError(f"{graph.name or 'the graph'} has no labels for task '{self.name}'; give it y, or choose another --task")
        graph.require_training()
        self.labels = label_kind(graph.y, graph.multilabel)
        self.width = graph.n_classes if self.labels == "classes" else graph.y.shape[1]
        return graph

    def objective(self, graph: Graph, partition: Partition) -> Task:
        return NodeTask(partition, self.labels)

    def evaluator(self, partition: Partition, layers: Layers, task: Task) -> Evaluator:
        return NodeEvaluator(partition, layers, task)

    def named(self, info: GraphInfo, rows: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Original ids of nodes, and their outputs."""
        return info.ids(rows), out
