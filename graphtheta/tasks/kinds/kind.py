"""Base class of kinds of task: labels, split, objective, evaluation, decoder, ids of outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from graphtheta.engine.layer.dry_run import Probe
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.strategy.task import Task
from graphtheta.engine.view.hop import Layers
from graphtheta.errors import ConfigError
from graphtheta.graph.data.graph import Graph
from graphtheta.ops.functions.losses.weighting import Weighting
from graphtheta.ops.functions.metrics.curves import class_probabilities, label_probabilities
from graphtheta.tasks.evaluation.evaluate import Evaluator
from graphtheta.tasks.kinds.pair_counts import PairCounts

# kinds of labels, for messages
WORDS = {"classes": "classes", "labels": "labels", "values": "target values"}


@dataclass
class GraphInfo:
    """Original ids of the whole graph, which are kept once it is partitioned. Those of a graph in
    files are read when needed.

    Attributes:
        node_ids: Original ids, [n_nodes]; None if they are the numbers of the nodes.
        n_edges: Number of remaining edges; added self loops come after them.
        edges: Original numbers of the remaining edges; None if all remain.
        whole: Of whole graphs their readout nodes, ascending, and their ids, [n_graphs] each; None
            for other graphs.
    """

    node_ids: Any
    n_edges: int
    edges: Any
    whole: tuple[np.ndarray, np.ndarray] | None = None

    def ids(self, nodes: np.ndarray) -> np.ndarray:
        """Original ids of nodes, in the shape of ``nodes``."""
        return nodes if self.node_ids is None else np.asarray(self.node_ids[nodes])

    def reported(self, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
        """The nodes that have predictions, ascending, and the ids that these are reported under:
        those of whole graphs, or of all nodes.
        """
        nodes = np.arange(n_nodes)
        return (nodes, self.ids(nodes)) if self.whole is None else self.whole


class TaskKind(ABC):
    """A kind of task, made for one job.

    Methods are called in this order: ``take``, then (with the model made) ``check_output``,
    ``objective``, ``weighting``, ``evaluator`` and, after training, ``named``.

    Attributes:
        name: Name in a job.
        summary: What is predicted, for ``--help``.
        keys: Keys of the job that have no meaning with kinds that do not list them.
        label_kinds: Kinds of rows that may be measured, see ``Metric``; earlier ones choose the
            default metric.
        of_pairs: Whether the model returns values of pairs of nodes, and not of nodes.
        weight_decay: What ``weight_decay=auto`` is in jobs of this kind.
        job: The job.
        labels: Kind of the labels: "classes", "labels" or "values"; set by ``take``.
        width: Number of outputs per row, 0 for a scalar without an axis of its own; set by
            ``take``.
        target_types: Codes of the types of nodes that have labels; empty if all nodes may have
            some. Set by ``evaluator``.
        class_names: Names of the classes or labels; empty if the graph has none.
        trains: Whether the job trains. If it only applies a trained model, the graph needs no
            training rows, and labels may be unknown: -1, or NaN.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    keys: ClassVar[tuple[str, ...]] = ()
    label_kinds: ClassVar[tuple[str, ...]]
    of_pairs: ClassVar[bool] = False
    weight_decay: ClassVar[float] = 5e-4
    labels: str
    width: int
    class_names: tuple[str, ...] = ()
    target_types: tuple[int, ...] = ()
    trains = True

    def __init__(self, job: Any):
        self.job = job

    @classmethod
    def fits(cls, graph: Graph) -> bool:
        """Whether ``task=auto`` can choose this kind for a graph; the last kind added wins."""
        return False

    @abstractmethod
    def take(self, graph: Graph) -> Graph:
        """Read the labels and split them; sets ``labels`` and ``width``.

        Returns:
            The graph that messages run over.

        Raises:
            DataError: The graph has no such labels, or nothing to train on.
        """

    @property
    def measured(self) -> tuple[str, ...]:
        """The kinds of rows that are measured, of ``label_kinds``."""
        return (self.labels,)

    @property
    def decoder(self) -> str | Callable[[int], Layer]:
        """Decoder of published models: "none", "edge", "dot", "hadamard", see ``build_model``; or a
        function from the width of node values that makes it."""
        return "none"

    def scored(self) -> PairCounts:
        """The pairs of nodes that a job scores, at most; to be called after ``take``. None by
        default.
        """
        return PairCounts()

    def in_batch(self, targets: int) -> int:
        """How many of the targets are in a batch, at most."""
        limit = self.job.batch_size if self.job.strategy == "mini" else 0
        return min(limit or targets, targets)

    def warning(self, graph: Graph) -> str:
        """What is logged before training of labels that are probably a mistake; empty for nothing.

        Args:
            graph: What ``take`` returned.
        """
        return ""

    @abstractmethod
    def objective(self, graph: Graph, partition: Partition) -> Task:
        """The objective that training minimises, with its targets.

        Args:
            graph: What ``take`` returned, with self loops added or dropped.
            partition: The same graph on the workers.

        Collective: all ranks of the partition.
        """

    def weighting(self, partition: Partition, task: Task) -> Weighting | None:
        """Weights of rows in the loss; None if all weigh the same.

        Args:
            partition: The graph on the workers.
            task: The result of ``objective``.

        Collective: all ranks of the partition.
        """
        return None

    @abstractmethod
    def evaluator(self, partition: Partition, layers: Layers, task: Task) -> Evaluator:
        """The evaluator, which measures the model and predicts with it.

        Args:
            partition: The graph on the workers.
            layers: The hop of each superstep of the model.
            task: The result of ``objective``.

        Collective: all ranks of the partition.
        """

    @abstractmethod
    def named(
        self, info: GraphInfo, rows: np.ndarray, out: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The ids of predictions, and the predictions that users receive.

        If ``out`` is returned as it is, users receive what ``presented`` makes of it.

        Args:
            info: Original ids of the whole graph.
            rows: Numbers of some rows of the evaluator, ascending, [n] int64.
            out: Their outputs, [n, ...].

        Returns:
            [m] or [m, k] ids, and [m, ...] predictions.
        """

    def own_ids(self, ids: np.ndarray) -> np.ndarray:
        """Original ids of predictions as the tables of the user have them; the same by default."""
        return ids

    def reported(self, info: GraphInfo, rows: np.ndarray) -> np.ndarray:
        """Which rows of the evaluator users receive, [n] bool; all by default."""
        return np.ones(len(rows), bool)

    def presented(self, out: np.ndarray) -> np.ndarray:
        """Outputs as ``scores`` of the job asks for them, of the shape and type of ``out``.

        Args:
            out: Outputs of the model, [n, ...], classes along the last axis.
        """
        if not self.of_probabilities:
            return out
        of_rows = class_probabilities if self.labels == "classes" else label_probabilities
        return of_rows(out)

    @property
    def of_probabilities(self) -> bool:
        """Whether predictions are probabilities; otherwise they are what the model returns."""
        return self.job.scores == "probabilities" and self.labels in ("classes", "labels")

    def check_output(self, model: Model, probe: Probe) -> None:
        """Check that the model's outputs fit the labels.

        Raises:
            ConfigError: They do not.
        """
        name = type(model).__name__
        if probe.per_edge != self.of_pairs:
            per, want = ("edges", "nodes") if probe.per_edge else ("nodes", "pairs of nodes")
            raise ConfigError(
                f"{name} returns values of {per}, the task '{self.name}' needs values of {want}; "
                "end forward with a decoder for edges, or choose another --task"
            )
        wanted = max(self.width, 1)
        if int(np.prod(probe.output)) != wanted or len(probe.output) > 1:
            raise ConfigError(
                f"{name} returns rows of shape {list(probe.output)}, but the data has {wanted} "
                f"{WORDS.get(self.labels, self.labels)}; build the model with output width {wanted}"
            )
