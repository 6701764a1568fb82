"""The task ``node``: predicts labels of nodes."""

from __future__ import annotations

import numpy as np

from graphtheta.base.logger import logger
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.strategy.task import NodeTask, Task, label_kind
from graphtheta.engine.view.hop import Layers
from graphtheta.errors import DataError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.typed import TYPE
from graphtheta.ops.functions.losses.weighting import Weighting
from graphtheta.tasks.evaluation.evaluate import Evaluator, NodeEvaluator
from graphtheta.tasks.evaluation.threshold import Threshold
from graphtheta.tasks.kinds.imbalance import (
    check_weights,
    positive_of,
    rarer_class,
    threshold_of,
    weighting_of,
)
from graphtheta.tasks.kinds.kind import GraphInfo, TaskKind
from graphtheta.tasks.kinds.timed import TimedNodeEvaluator, timed_sampler

# different labels up to which whole numbers are probably classes, and nodes whose labels are read
# to find out
FEW = 20
READ = 1 << 16


class NodeKind(TaskKind):
    """Classes, several labels, or real values of nodes."""

    name = "node"
    summary = "classes or values of nodes"
    # other kinds remove edges from neighbourhoods, or read values of edges
    keys = ("precompute", "class_weights", "sample_weights", "threshold", "positive")
    label_kinds = ("classes", "labels", "values", "binary")
    _threshold: Threshold | None
    _positive: int | None
    _type_names: tuple[str, ...]
    _masters: np.ndarray
    _type_of: np.ndarray | None

    @classmethod
    def fits(cls, graph: Graph) -> bool:
        """A graph with labels of nodes."""
        return graph.y is not None

    def take(self, graph: Graph) -> Graph:
        if graph.y is None:
            raise DataError(
                f"{graph.name or 'the graph'} has no labels for task '{self.name}'; give it y, or"
                " choose another --task"
            )
        if self.trains:
            graph.require_training()
        self.labels = label_kind(graph.y, graph.multilabel)
        self.width = graph.n_classes if self.labels == "classes" else graph.y.shape[1]
        self._threshold = threshold_of(self.job.threshold, self.labels, self.width)
        check_weights(self.job, self.labels, self.width, graph.node_columns)
        self.class_names = graph.class_names
        self._type_names = graph.node_types
        self._positive = positive_of(self.job.positive, self.labels, self.class_names, self.width)
        return graph

    @property
    def measured(self) -> tuple[str, ...]:
        return (
            (self.labels, "binary")
            if self.labels == "classes" and self.width == 2
            else (self.labels,)
        )

    def objective(self, graph: Graph, partition: Partition) -> Task:
        return NodeTask(partition, self.labels)

    def weighting(self, partition: Partition, task: Task) -> Weighting | None:
        assert isinstance(task, NodeTask)
        return weighting_of(self.job, task, partition, self.width)

    def evaluator(self, partition: Partition, layers: Layers, task: Task) -> Evaluator:
        tells = self.trains and partition.job_comm.rank == 0
        if tells and (self.labels, self.width) == ("classes", 1):
            named = f", {self.class_names[0]!r}" if self.class_names else ""
            logger.warning(
                f"all labels are of one class{named}, so there is nothing to learn; check which"
                " column they are from"
            )
        positive = self._positive
        if positive is None:
            assert isinstance(task, NodeTask)
            positive = rarer_class(task, partition) if "binary" in self.measured else 1
        self._find_target_types(partition)
        sampler = timed_sampler(self.job)
        if sampler is None:
            return NodeEvaluator(
                partition=partition,
                layers=layers,
                task=task,
                threshold=self._threshold,
                positive=positive,
            )
        return TimedNodeEvaluator(
            partition=partition,
            layers=layers,
            task=task,
            threshold=self._threshold,
            sampler=sampler,
            positive=positive,
        )

    def _find_target_types(self, partition: Partition) -> None:
        """Note which types of nodes have labels.

        Collective: all ranks of the partition.
        """
        self._masters = partition.masters
        self._type_of = partition.node.read(TYPE) if TYPE in partition.node else None
        if self._type_of is None:
            return
        y = partition.node.read("y")
        labelled = y >= 0 if self.labels == "classes" else ~np.isnan(y).all(axis=1)
        most = int(partition.job_comm.all_max(np.array(self._type_of.max(initial=0))))
        here = np.bincount(self._type_of[labelled], minlength=most + 1)
        counts = partition.job_comm.all_sum(here)
        self.target_types = tuple(np.flatnonzero(counts).tolist())

    def warning(self, graph: Graph) -> str:
        """A text if the values to predict are a few whole numbers from 0 on, which may be classes
        that were read as floats.
        """
        if graph.y is None or self.labels != "values" or self.width != 1:
            return ""
        y = np.asarray(graph.y[:READ])
        numbers = np.unique(y[~np.isnan(y)]).tolist()
        if not 2 <= len(numbers) <= FEW or numbers != list(range(len(numbers))):
            return ""
        return (
            f"the labels are the floating-point numbers 0 to {len(numbers) - 1}, so values are"
            " predicted and not classes; if they are classes, give them as integers, and -1 for"
            " nodes without a label"
        )

    def reported(self, info: GraphInfo, rows: np.ndarray) -> np.ndarray:
        """Nodes of the types that have labels; of whole graphs their readout nodes."""
        if info.whole is not None:
            return np.isin(rows, info.whole[0])
        if self._type_of is None or not self.target_types:
            return super().reported(info, rows)
        return np.isin(rows, self._masters[np.isin(self._type_of, self.target_types)])

    def own_ids(self, ids: np.ndarray) -> np.ndarray:
        """Ids without the name of their type, if all are those of one type."""
        if ids.dtype.kind != "U" or len(self.target_types) != 1 or not self._type_names:
            return ids
        prefix = f"{self._type_names[self.target_types[0]]}:"
        return np.array([text.removeprefix(prefix) for text in ids.tolist()], np.str_)

    def named(
        self, info: GraphInfo, rows: np.ndarray, out: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Original ids of nodes or of whole graphs, and their outputs."""
        if info.whole is None:
            return info.ids(rows), out
        nodes, ids = info.whole
        return ids[np.searchsorted(nodes, rows)], out
