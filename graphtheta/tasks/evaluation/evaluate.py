"""Evaluation and prediction over the whole graph, with the views and supersteps of training.

Predictions read all neighbours. Metrics and decisions do so too, unless an evaluator has sampled
views and is ``at`` an epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from graphtheta.base.logger import logger
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.strategy.positives import WEIGHT, Positives
from graphtheta.engine.strategy.strategy import whole
from graphtheta.engine.strategy.task import EdgeTask, Seeds, Task
from graphtheta.engine.train.metrics import METRICS, measure
from graphtheta.engine.view.hop import Layers
from graphtheta.engine.view.scored_pairs import PairPlan
from graphtheta.engine.view.view import GraphView
from graphtheta.ops.autodiff.space import RowSpace
from graphtheta.ops.autodiff.tape import Tape, Var
from graphtheta.ops.functions.losses.row_loss import Grouping
from graphtheta.ops.functions.metrics.counts import class_sums, label_sums, matrix_sums
from graphtheta.ops.functions.metrics.curves import class_curve_sums, label_curve_sums
from graphtheta.ops.functions.metrics.ranking import NO_RANK, ranks
from graphtheta.ops.parallel.buffers import taken
from graphtheta.tasks.evaluation.past import Past
from graphtheta.tasks.evaluation.sampled import SampledViews
from graphtheta.tasks.evaluation.threshold import Threshold, margin_of

# the watchdog gives steps less time than other code
RUNS_STEPS = True

SPLITS = ("train", "val", "test")
Metrics = dict[str, float]
# functions that count decisions, by the kinds of rows that have classes or labels
COUNTED = {"classes": class_sums, "labels": label_sums}
CURVES = {"classes": class_curve_sums, "labels": label_curve_sums}
# most classes of a matrix, and most classes or labels with curves
MOST_IN_MATRIX, MOST_CURVES = 50, 10


class Decisions(NamedTuple):
    """Decisions of a model, counted.

    Attributes:
        counts: By split, true and false positives, false and true negatives of each class or label,
            [C, 4] int64.
        thresholds: Probabilities above which a label, [C], or the positive one of two classes, [1],
            is predicted; None if all are 0.5.
        matrices: By split, rows by true and predicted class, [C, C] int64; none of labels, or of
            more than ``MOST_IN_MATRIX`` classes.
        curves: By split, what ``curve_sums`` returns; none of more than ``MOST_CURVES``.
    """

    counts: dict[str, np.ndarray]
    thresholds: np.ndarray | None
    matrices: Mapping[str, np.ndarray] = MappingProxyType({})
    curves: Mapping[str, np.ndarray] = MappingProxyType({})


class Evaluator(ABC):
    """Metrics of a model by split: "val_loss", "val_accuracy", ...

    Args:
        partition: Holds labels and masks.
        layers: The supersteps of the model.
        task: Gives the loss.

    Attributes:
        by_blocks: Computes the outputs of a model for a view; None to compute them at once.
        sampled: Views of metrics and decisions; None for those with all neighbours.
        past: Views of what was known at a time; None if no time matters.
        positive: Number of the positive class of rows of two classes.
    """

    by_blocks: Callable[[Model, GraphView], Var] | None = None
    sampled: SampledViews | None = None
    past: Past | None = None
    positive = 1

    def __init__(self, partition: Partition, layers: Layers, task: Task):
        self.partition = partition
        self.layers = layers
        self.task = task
        # metrics, with their split, that the user knows not to be defined
        self._told = set[str]()

    @property
    def job_comm(self) -> Comm:
        """The workers whose rows are measured together."""
        return self.partition.job_comm

    @contextmanager
    def at(self, epoch: int) -> Iterator[None]:
        """A block that measures over sampled neighbourhoods, with the draws of an epoch, if the
        evaluator has sampled views.
        """
        if self.sampled is None:
            yield
            return
        self.sampled.epoch = epoch
        try:
            yield
        finally:
            self.sampled.end()

    def metrics(self, model: Model) -> Metrics:
        """Loss and all metrics of all splits that have rows.

        Metrics that are not defined for these are NaN, which is logged once.

        Collective: all ranks of job_comm.
        """
        metrics = dict[str, float]()
        for split, values in self.measured(model):
            metrics |= {f"{split}_{name}": value for name, value in values.items()}
            self._tell_undefined(split, values)
        return metrics

    def _tell_undefined(self, split: str, values: Metrics) -> None:
        """Log, once and on rank 0, which metrics of a split are undefined for its rows, and why."""
        # without a loss the outputs are no numbers, and so is every metric
        if self.job_comm.rank or not np.isfinite(values["loss"]):
            return
        reasons = dict[str, list[str]]()
        for name, value in values.items():
            if np.isnan(value) and name in METRICS and f"{split}_{name}" not in self._told:
                self._told.add(f"{split}_{name}")
                reason = METRICS[name].undefined or "its rows have no such value"
                reasons.setdefault(reason, []).append(name)
        for reason, names in reasons.items():
            verb = "are" if names[1:] else "is"
            listed = " and ".join(names)
            logger.warning(f"{listed} of the {split} set {verb} not defined (NaN): {reason}")

    def _tell_weightless(self) -> None:
        """Log, once and on rank 0, that the loss of a split is not defined."""
        if self.job_comm.rank == 0 and "loss" not in self._told:
            self._told.add("loss")
            logger.warning(
                "the loss of a set whose rows all weigh 0 is not defined (NaN); give some of "
                "its rows a weight with --sample-weights or --class-weights"
            )

    @abstractmethod
    def measured(self, model: Model) -> Iterator[tuple[str, Metrics]]:
        """Each split that has rows, with its loss and metrics.

        Collective: all ranks of job_comm.
        """

    @abstractmethod
    def outputs(self, model: Model) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of this worker's rows among those of all workers, [n] int64, and the outputs, [n,
        ...].

        Collective: all ranks of job_comm.
        """

    def decisions(self, model: Model) -> Decisions:
        """The decisions of a model, counted by split and class; none if the task has no classes.

        Collective: all ranks of job_comm.
        """
        return Decisions({}, None)

    def run(self, model: Model, view: GraphView) -> Any:
        """The outputs of a model without training it."""
        if self.sampled is not None and self.past is None:
            view = self.sampled.instead_of(view)
        if self.by_blocks is not None:
            return self.by_blocks(model, view)
        with Tape(record=False, training=False, all_sum=view.partition.halo_comm.all_sum):
            out = model(view)
        # a new variable, which is a constant in passes that compute metrics
        return Var(out.value, out.space)

    def score(
        self,
        y: np.ndarray,
        out: Any,
        rows: np.ndarray,
        grouping: Grouping | None = None,
        *,
        weights: np.ndarray | None = None,
        decided: np.ndarray | None = None,
    ) -> Metrics:
        """Loss and metrics of some rows of all workers.

        Args:
            y: Labels, [n, ...].
            out: Outputs, [n, ...].
            rows: The rows that count, [n] bool.
            grouping: Groups of all rows, an argument of ``Task.group_loss``; None if there are
                none.
            weights: Weights of all rows in the loss, an argument of ``Task.mean_loss``.
            decided: Outputs of 1 and -1, which thresholds decide, for metrics that decide; None
                without a threshold.

        Collective: all ranks of job_comm.
        """
        with Tape(record=False, training=False, all_sum=self.job_comm.all_sum):
            share = (
                self.task.mean_loss(out, y, rows, weights)
                if grouping is None
                else self.task.group_loss(out, y, grouping, weights)
            )
            loss = float(self.job_comm.all_sum(np.asarray(share.value, np.float64)))
        if weights is not None and not self.job_comm.all_sum(np.asarray(weights[rows].sum())):
            # the share of a batch without weight is 0, but a mean of nothing is not defined
            loss = float("nan")
            self._tell_weightless()
        value = out.value
        if self.task.kind == "labels" and value.ndim == 1:
            # links have one label each and no axis for it
            y = y.reshape(-1, 1)
            value = value[:, None]
        chosen = np.flatnonzero(rows)
        y = taken(y, chosen)
        value = taken(value, chosen)
        decided = None if decided is None else taken(decided, chosen)
        metrics = {
            "loss": loss,
            **measure(self.job_comm, self.task.kind, y, value, decided=decided),
        }
        if self.task.kind == "classes" and value.shape[1] == 2:
            said = (value if decided is None else decided).argmax(axis=1) == self.positive
            truth = (y == self.positive).astype(np.int64)
            margin = margin_of(value, self.positive)
            metrics |= measure(
                self.job_comm, "binary", truth, margin, decided=np.where(said, 1, -1)
            )
        return metrics


class RowEvaluator(Evaluator):
    """Evaluator of rows with one label each, all of one view; a split is a mask.

    Args:
        partition, layers, task: As for every evaluator.
        view: The view that the model runs over.
        ids: Global ids of the rows, [n].
        y: Labels, [n, ...].
        masks: By split, [n] bool; a split that is empty on all workers is left out.
        weights: Weights of the rows in the loss, an argument of ``Task.mean_loss``.
        threshold: Decides which labels, or which of two classes, are predicted; None for 0.5.
        positive: Number of the positive class of rows of two classes.

    Attributes:
        threshold: As the argument.

    Collective: all ranks of job_comm.
    """

    def __init__(
        self,
        partition: Partition,
        layers: Layers,
        task: Task,
        view: GraphView,
        *,
        ids: np.ndarray,
        y: np.ndarray,
        masks: dict[str, np.ndarray],
        weights: np.ndarray | None = None,
        threshold: Threshold | None = None,
        positive: int = 1,
    ):
        super().__init__(partition, layers, task)
        self._view = view
        self._ids = ids
        self._y = y
        self._weights = weights
        self.threshold = threshold
        self.positive = positive
        used = {
            split: mask
            for split, mask in masks.items()
            if self.job_comm.all_sum(np.asarray(np.count_nonzero(mask))) > 0
        }
        self._split = np.full(len(ids), len(SPLITS), np.int8)
        for split, mask in used.items():
            self._split[mask] = SPLITS.index(split)
        labelled = y >= 0 if task.kind == "classes" else np.ones(len(y), bool)
        self._masks = {split: mask & labelled for split, mask in used.items()}

    def truth(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Labels of rows, [n, ...], and the positions of their splits in ``SPLITS``, [n] int8; the
        number of splits for rows of none.

        Args:
            rows: Global ids of some rows of this worker, [n].
        """
        order = np.argsort(self._ids, kind="stable")
        at = order[np.searchsorted(self._ids, rows, sorter=order)]
        return self._y[at], self._split[at]

    def measured(self, model: Model) -> Iterator[tuple[str, Metrics]]:
        out = self.run(model, self._view)
        y = self._y.reshape(out.shape) if self.task.kind == "values" else self._y
        decided, _ = self.decided(out.value)
        for split, mask in self._masks.items():
            yield split, self.score(y, out, mask, weights=self._weights, decided=decided)

    def decided(self, out: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Decisions at the thresholds as outputs of 1 and -1, and the thresholds as probabilities.

        Both are None without a threshold.

        Collective: all ranks of job_comm.
        """
        if self.threshold is None:
            return None, None
        chosen = self._masks.get("val", np.zeros(len(out), bool))
        return self.threshold.decided(self.job_comm, self._y, out, chosen, self.positive)

    def decisions(self, model: Model) -> Decisions:
        """The decisions of a model for classes or labels, counted; none for values.

        Collective: all ranks of job_comm.
        """
        if self.task.kind not in COUNTED:
            return Decisions({}, None)
        out = self.run(model, self._view).value
        decided, thresholds = self.decided(out)
        said = out if decided is None else decided
        width = out.shape[1]

        def summed(
            count: Callable[[np.ndarray, np.ndarray], np.ndarray], values: np.ndarray
        ) -> dict[str, np.ndarray]:
            return {
                split: self.job_comm.all_sum(count(self._y[mask], values[mask]))
                for split, mask in self._masks.items()
            }

        one = self.task.kind == "classes" and width <= MOST_IN_MATRIX
        return Decisions(
            counts=summed(COUNTED[self.task.kind], said),
            thresholds=thresholds,
            matrices=summed(matrix_sums, said) if one else {},
            curves=summed(CURVES[self.task.kind], out) if width <= MOST_CURVES else {},
        )

    def outputs(self, model: Model) -> tuple[np.ndarray, np.ndarray]:
        """Global ids and outputs of this worker's rows.

        Collective: all ranks of job_comm.
        """
        return self._ids, self.run(model, self._view).value


class NodeEvaluator(RowEvaluator):
    """Evaluator of node labels: the column ``y`` and the masks of the partition."""

    def __init__(
        self,
        partition: Partition,
        layers: Layers,
        task: Task,
        threshold: Threshold | None = None,
        positive: int = 1,
    ):
        masks = {split: partition.node.read(split) for split in SPLITS if split in partition.node}
        y = partition.node.read("y")
        super().__init__(
            partition,
            layers,
            task,
            whole(partition, layers),
            ids=partition.masters,
            y=y,
            masks=masks,
            weights=task.weights_of(y, partition.node.read),
            threshold=threshold,
            positive=positive,
        )


class EdgeEvaluator(RowEvaluator):
    """Evaluator of edge labels; ``masks`` are by split, over the local edges in storage order."""

    def __init__(
        self, partition: Partition, layers: Layers, task: EdgeTask, masks: dict[str, np.ndarray]
    ):
        view = whole(partition, layers, task.masked(np.ones(partition.n_local_edges, bool)))
        pairs = view.pairs
        assert pairs is not None
        masks = {split: mask[pairs.stored] for split, mask in masks.items()}
        super().__init__(
            partition,
            layers,
            task,
            view,
            ids=pairs.gid,
            y=pairs.label,
            masks=masks,
            weights=task.pair_weights(partition, pairs),
        )


class LinkEvaluator(Evaluator):
    """Evaluator of held-back links against fixed negatives; messages use training links only.

    Args:
        partition, layers, task: As for every evaluator.
        links: The links by split.
        past: Gives each link and its negatives the training links up to its cutoff; None for all of
            them.

    Collective: all ranks of the partition.
    """

    def __init__(
        self,
        partition: Partition,
        layers: Layers,
        task: Task,
        links: Mapping[str, Positives],
        past: Past | None = None,
    ):
        super().__init__(partition, layers, task)
        self.links = links
        self.past = past
        self._pairs = {
            split: positives.pairs(partition, np.arange(len(positives.src)))
            for split, positives in links.items()
        }
        self.times = dict[str, np.ndarray]()
        self._views = dict[str, GraphView]()
        for split, positives in links.items():
            if past is None:
                plan = PairPlan(partition, self._pairs[split])
                self._views[split] = whole(partition, layers, Seeds(plan.needed, plan))
            else:
                assert positives.cutoff is not None
                self.times[split] = past.times(positives.cutoff)

    def measured(self, model: Model) -> Iterator[tuple[str, Metrics]]:
        for split, pairs in self._pairs.items():
            if not self.links[split].n_links:
                continue
            out = self.scored(model, split)
            per = self.links[split].negatives + 1
            rows = np.ones(len(out), bool)
            grouping = Grouping(np.arange(len(out)), per)
            metrics = self.score(
                pairs.label.reshape(out.shape),
                Var(out, RowSpace(pairs.gid, "edge")),
                rows,
                grouping,
                weights=pairs.columns.get(WEIGHT),
            )
            drawn = ~np.isnan(pairs.label)
            rank = self.ranks(model, split, out.reshape(-1, per), drawn.reshape(-1, per))
            yield split, metrics | measure(self.job_comm, "ranks", rank[rank != NO_RANK])

    def scored(self, model: Model, split: str) -> np.ndarray:
        """The outputs of a model for this worker's pairs of a split, in their order, [n, ...].

        Collective: all ranks of the partition.
        """
        pairs = self._pairs[split]
        out = np.zeros(0)
        for chosen, view in self._parts(split):
            assert view.pairs is not None
            value = self.run(model, view).value
            out = np.empty((len(pairs.gid), *value.shape[1:]), value.dtype) if not len(out) else out
            out[chosen[view.pairs.order]] = value
        return out

    def _parts(self, split: str) -> Iterator[tuple[np.ndarray, GraphView]]:
        """Positions of pairs of a split, and the view in which they are scored.

        Collective: all ranks of the partition.
        """
        pairs = self._pairs[split]
        per = self.links[split].negatives + 1
        if self.past is None:
            yield np.arange(len(pairs.gid)), self._views[split]
            return
        for time in self.times[split]:
            chosen = np.flatnonzero(np.repeat(self.links[split].cutoff == time, per))
            plan = PairPlan(self.partition, pairs.some(chosen))
            yield chosen, self.past.view(Seeds(plan.needed, plan), time)

    def every(self, time: Any = None) -> GraphView:
        """The view of all nodes at a time; without times, that of the whole graph.

        Collective: all ranks of the partition.
        """
        return (
            self._whole
            if self.past is None
            else self.past.view(Seeds(np.ones(self.partition.n_masters, bool)), time)
        )

    @cached_property
    def _whole(self) -> GraphView:
        return whole(self.partition, self.layers)

    def ranks(self, model: Model, split: str, scores: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """The rank of each of this worker's links of a split, [n] float64.

        It is ``NO_RANK`` for a link without candidates.

        Args:
            model: The model.
            split: The split.
            scores: Of each link and its negatives, the link first, [n, 1 + negatives].
            drawn: Which of these are links or negatives, and not places of negatives that could not
                be drawn, bool of this shape.

        Collective: all ranks of job_comm.
        """
        return ranks(scores[:, 0], scores[:, 1:], drawn[:, 1:])

    def outputs(self, model: Model) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of test links, and their scores, [n] each.

        Collective: all ranks of job_comm.
        """
        pairs = self._pairs["test"]
        per = self.links["test"].negatives + 1
        positive = pairs.gid % per == 0
        return pairs.gid[positive] // per, self.scored(model, "test").reshape(-1)[positive]
