"""Tasks: what a model is trained to predict, and which nodes or pairs a batch of targets needs.

A target is a node, an edge, or a positive link. Each worker stores its own targets only: nodes
that it owns, edges that it stores, links whose sources it owns. A batch is given by this worker's
targets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.base.rng import Purpose, key, uniform
from graphtheta.errors import ConfigError, DataError

from ...ops.autodiff.tape import Var
from ...ops.functions.elementwise import mul, softplus, square, sub
from ...ops.functions.losses.loss import (
    binary_cross_entropy,
    mean_squared_error,
    softmax_cross_entropy,
)
from ...ops.functions.losses.pick import log_softmax, pick
from ...ops.functions.losses.row_loss import Grouping, RowLoss, grouped
from ...ops.functions.losses.weighting import Weighting
from ...ops.kernels.batch import expand
from ..partition.located import values_of
from ..partition.partition import Partition
from ..partition.table import Route
from ..sampling.cluster_nodes import Members, nodes_of
from ..view.scored_pairs import PairLevel, PairPlan, ScoredPairs
from ..view.view import GraphView
from .positives import WEIGHT, Positives

# node column of a view: the weight of the loss of each node in a sum that estimates the mean over
# all targets
IMPORTANCE = "importance of the loss"
NO_ROWS = np.zeros(0, np.int64)


@dataclass
class Seeds:
    """The targets of a batch, from which its view is built.

    Attributes:
        nodes: Masters whose final values are needed, [n_masters] bool.
        pairs: The pairs a decoder scores, with the plan of their ends; None for node tasks.
        excluded: Local edges no message may use, or None.
        cutoff: ``Frontier.cutoff`` of each of the nodes, ascending by master; None if no time
            matters, or for the times that the sampler knows.
    """

    nodes: np.ndarray
    pairs: PairPlan | None = None
    excluded: np.ndarray | None = None
    cutoff: np.ndarray | None = None


class Task(ABC):
    """What is predicted.

    Attributes:
        ids: Ids of this worker's own training targets, [n] int64; no id on two workers.
        n_targets: Training targets of all workers.
        kind: Kind of labels: "classes", "labels" or "values".
        own_loss: A user-defined loss; None for the loss that fits the labels.
        weighting: Weights of rows in the loss; None if all weigh the same.
        draws_nodes: Whether ``seeds`` draws nodes and therefore needs ``among``.
        excludes: Whether ``seeds`` excludes edges from messages.
        cutoffs: For a ``Timed`` sampler the latest time of an edge that each of this worker's
            targets may see, [n] int64 or float64, of the same type on all workers; None if no time
            matters, or targets are nodes.
    """

    ids: np.ndarray
    n_targets: int
    kind: str
    own_loss: RowLoss | None = None
    weighting: Weighting | None = None
    draws_nodes = False
    excludes = False
    cutoffs: np.ndarray | None = None

    @abstractmethod
    def seeds(self, own: np.ndarray, step: int, among: Members | None = None) -> Seeds:
        """This worker's part of a batch of targets.

        Args:
            own: Positions in ``ids`` of this worker's targets of the batch, ascending, [k] int64.
            step: Number of the training step, for draws.
            among: The nodes the batch is limited to; None for all.

        Collective: all ranks of the partition.
        """

    @abstractmethod
    def at_nodes(self, values: np.ndarray) -> np.ndarray:
        """Values of the nodes of this worker's targets: of nodes, [n, 1] int64; of the ends of
        pairs, [n, 2].

        Args:
            values: Value of each master of this worker, [n_masters] int64.

        Collective: all ranks of the partition.
        """

    @abstractmethod
    def loss(self, view: GraphView, out: Var) -> Var:
        """This worker's share of the mean loss over the targets of the view.

        Collective: all ranks of the partition.
        """

    def classes_of_targets(self) -> np.ndarray:
        """The class of each of this worker's targets, [n] int64, -1 if it is unknown.

        Raises:
            ConfigError: Targets have no classes, or several labels each.
        """
        raise ConfigError("the targets of this task have no class each; choose another --order")

    def mean_loss(
        self, out: Var, y: np.ndarray, mask: np.ndarray | None, weights: np.ndarray | None = None
    ) -> Var:
        """This worker's share of the mean loss over some rows, in training and in evaluation alike.

        Args:
            out: Outputs of the model, [n, ...].
            y: Labels of the same rows.
            mask: The rows that count, [n] bool; None for all.
            weights: What each row or label weighs, [n] or the shape of y, as ``weights_of`` returns
                it; None if all weigh the same.

        Collective: all ranks of the partition.
        """
        if self.own_loss is None and weights is None:
            return loss_of(self.kind, out, y, mask)
        return (self.own_loss or ROW_LOSSES[self.kind])(out, y, mask, weights)

    def weights_of(self, y: np.ndarray, column: Callable[[str], np.ndarray]) -> np.ndarray | None:
        """What rows with these labels weigh in the loss; None if all weigh the same.

        Args:
            y: Labels, [n, ...].
            column: Reads a column of the graph for the same rows, by its name.
        """
        w = self.weighting
        return None if w is None else w.of(y, column(w.column) if w.column else None)

    def group_loss(
        self, out: Var, y: np.ndarray, grouping: Grouping, weights: np.ndarray | None = None
    ) -> Var:
        """``mean_loss`` over rows in groups; a user-defined loss gets one row for each group.

        Args:
            out: Outputs of the model, one number for each row.
            y: Labels of the same rows, [n].
            grouping: The groups of rows.
            weights: What each row weighs, [n], the same in a group; None if all weigh the same.

        Collective: all ranks of the partition.
        """
        if self.own_loss is None:
            return self.mean_loss(out, y, None, weights)
        rows, labels, of_groups = grouped(out, y, grouping, weights)
        return self.mean_loss(rows, labels, None, of_groups)


class NodeTask(Task):
    """Classes, several labels, or real values of nodes.

    Attributes:
        rows: Master rows of this worker's targets, [n] int64.

    Args:
        partition: Holds ``y``.
        kind: "classes", "labels" (0/1 per column, NaN missing) or "values".
        rows: Master rows of this worker's targets, ascending, [n] int64; None for those of the mask
            ``train``.

    Collective: all ranks of the partition.
    """

    def __init__(self, partition: Partition, kind: str, rows: np.ndarray | None = None):
        self._partition = partition
        self.kind = kind
        if rows is None:
            trains = "train" in partition.node
            rows = np.flatnonzero(partition.node.read("train")) if trains else NO_ROWS
        self.rows = rows
        self.ids = partition.masters[self.rows]
        self.n_targets = int(partition.halo_comm.all_sum(np.array(len(self.ids))))

    def seeds(self, own: np.ndarray, step: int, among: Members | None = None) -> Seeds:
        nodes = np.zeros(self._partition.n_masters, bool)
        nodes[self.rows[own]] = True
        return Seeds(nodes)

    def at_nodes(self, values: np.ndarray) -> np.ndarray:
        return values[self.rows][:, None]

    def loss(self, view: GraphView, out: Var) -> Var:
        n = out.shape[0]
        y = view.node.read("y", n)
        mask = view.node.read("train", n)
        weights = self.weights_of(y, lambda name: view.node.read(name, n))
        if IMPORTANCE not in view.partition.node:
            return self.mean_loss(out, y, mask, weights)
        importance = view.node.read(IMPORTANCE, n)
        if weights is not None:
            importance = weights * importance.reshape(-1, *[1] * (weights.ndim - 1))
        if self.own_loss is not None:
            # the sum of the weights that it gives to all targets is unknown, so it is estimated too
            return self.own_loss(out, y, mask, importance)
        return ROW_LOSSES[self.kind](
            out, y, mask, importance, 1.0 if self.weighting is None else self.weighting.mean
        )

    def classes_of_targets(self) -> np.ndarray:
        y = self.labels_of_targets()
        if self.kind == "labels" and y.shape[1] == 1:
            return np.where(np.isnan(y[:, 0]), -1, y[:, 0]).astype(np.int64)
        return (
            np.maximum(y, -1).astype(np.int64)
            if self.kind == "classes"
            else super().classes_of_targets()
        )

    def labels_of_targets(self) -> np.ndarray:
        """The labels of this worker's targets, [n] or [n, C]."""
        return self.column_of_targets("y")

    def column_of_targets(self, name: str) -> np.ndarray:
        """A node column for this worker's targets, [n, ...]."""
        return np.asarray(self._partition.node.exact(name, self.rows))

    def n_labels(self) -> int:
        """Number of known labels of all targets of all workers.

        Collective: all ranks of the partition.
        """
        y = self.labels_of_targets()
        labelled = y >= 0 if self.kind == "classes" else ~np.isnan(y)
        return int(self._partition.halo_comm.all_sum(np.array(np.count_nonzero(labelled))))


# the losses of ``loss_of`` with a value for each row or entry
ROW_LOSSES = {
    "classes": RowLoss(lambda out, y: -pick(log_softmax(out), y)),
    "labels": RowLoss(lambda out, y: sub(softplus(out), mul(out, y))),
    "values": RowLoss(lambda out, y: square(sub(out, y))),
}


def loss_of(kind: str, out: Var, y: np.ndarray, mask: np.ndarray | None) -> Var:
    """The loss that fits a kind of label."""
    if kind == "classes":
        return softmax_cross_entropy(out, y, mask)
    loss = binary_cross_entropy if kind == "labels" else mean_squared_error
    return loss(out, y.reshape(out.shape) if y.size == out.value.size else y, mask)


class EdgeTask(Task):
    """Values of stored edges.

    Args:
        partition: Holds the edge column ``y``.
        train: Mask of the local edges in storage order that are trained on.
        kind: As for nodes.

    Collective: all ranks of the partition.
    """

    def __init__(self, partition: Partition, train: np.ndarray, kind: str = "values"):
        self._partition = partition
        self.kind = kind
        self._ends = partition.edge_ends()
        chosen = np.flatnonzero(train)
        self._stored = chosen[np.argsort(partition.edge_gid[chosen], kind="stable")]
        self.ids = partition.edge_gid[self._stored]
        self.n_targets = int(partition.halo_comm.all_sum(np.array(len(self.ids))))

    def seeds(self, own: np.ndarray, step: int, among: Members | None = None) -> Seeds:
        return self._of_stored(
            self._stored[own], None if self.cutoffs is None else self.cutoffs[own]
        )

    def _of_stored(self, stored: np.ndarray, cutoff: np.ndarray | None = None) -> Seeds:
        p = self._partition
        pairs = ScoredPairs(
            self._ends[0][stored],
            self._ends[1][stored],
            p.edge_gid[stored],
            stored,
            p.edge.read("y", stored),
        )
        plan = PairPlan(p, pairs)
        return Seeds(plan.needed, plan, cutoff=None if cutoff is None else plan.lowest(cutoff))

    def column_of_targets(self, name: str) -> np.ndarray:
        """An edge column for this worker's targets, [n, ...]."""
        return np.asarray(self._partition.edge.exact(name, self._stored))

    def masked(self, mask: np.ndarray) -> Seeds:
        """All local edges of a mask in storage order, for evaluation.

        Collective: all ranks of the partition.
        """
        return self._of_stored(np.flatnonzero(mask))

    def at_nodes(self, values: np.ndarray) -> np.ndarray:
        return np.stack(
            [values_of(self._partition, end[self._stored], values) for end in self._ends], axis=1
        )

    def loss(self, view: GraphView, out: Var) -> Var:
        assert view.pairs is not None
        return self.mean_loss(
            out, view.pairs.label, None, self.pair_weights(view.partition, view.pairs)
        )

    def pair_weights(self, partition: Partition, level: PairLevel) -> np.ndarray | None:
        """What the edges of a level of this task weigh in the loss; None if all weigh the same."""
        stored = level.pairs.stored
        assert stored is not None
        return self.weights_of(
            level.label, lambda name: partition.edge.read(name, stored[level.order])
        )


# share of the links that a global batch supervises
SUPERVISED = 0.3


class LinkTask(Task):
    """Whether two nodes are linked.

    The pairs of a batch and their reverse are excluded from its messages. A global batch supervises
    a random share of the links and passes messages along the others.

    Args:
        partition: Its edges are the training links.
        links: The training links as positives.
        supervision: Share of the links that a global batch supervises.
        seed: Seed of the choice of these links.
        in_batch: Whether negatives are drawn among the ends of the links of a batch, where
            ``seeds`` is not given other nodes.

    Raises:
        ConfigError: The share is out of range.
        DataError: There are no links.

    Collective: all ranks of the partition.
    """

    kind = "labels"
    draws_nodes = excludes = True

    def __init__(
        self,
        partition: Partition,
        links: Positives,
        supervision: float = SUPERVISED,
        seed: int = 0,
        in_batch: bool = False,
    ):
        if not 0 < supervision <= 1:
            raise ConfigError(
                f"supervision: got {supervision}, expected a number above 0 and at most 1"
            )
        self._partition = partition
        self._links = links
        self._supervision = supervision
        self._seed = seed
        self._in_batch = in_batch
        self.ids = links.numbers
        self.n_targets = links.n_links
        self.cutoffs = links.cutoff
        if not self.n_targets:
            raise DataError(
                "there are no links to train on: every edge is held out or joins a node to itself;"
                " give a graph with more edges, or masks edge_val and edge_test that hold out fewer"
            )
        self._edges = links.stored(partition)

    def seeds(self, own: np.ndarray, step: int, among: Members | None = None) -> Seeds:
        p = self._partition
        if self._supervision < 1 and int(p.halo_comm.all_sum(np.array(len(own)))) == self.n_targets:
            draws = uniform(key(self._seed, Purpose.SPLIT, step), self.ids[own])
            # at least one link, whatever the draws
            own = own[
                (draws < self._supervision)
                | (draws == p.halo_comm.all_min(np.array(draws.min(initial=1.0))))
            ]
        excluded = self._excluded(own)
        if self._in_batch and among is None:
            among = nodes_of(p, np.concatenate((self._links.src[own], self._links.dst[own])))
        plan = PairPlan(p, self._links.of_step(step).pairs(p, own, among))
        # negatives have the time of their positive
        cutoff = (
            None
            if self.cutoffs is None
            else plan.lowest(np.repeat(self.cutoffs[own], self._links.negatives + 1))
        )
        return Seeds(plan.needed, plan, excluded, cutoff)

    def _excluded(self, positions: np.ndarray) -> np.ndarray:
        """Local edges that are links of the batch, or their reverse, [n_local_edges] bool."""
        comm = self._partition.halo_comm
        ptr, stored, worker = self._edges
        _, stored, worker = expand(ptr[positions], ptr[positions + 1], stored, worker)
        out = np.zeros(self._partition.n_local_edges, bool)
        for part in comm.all_to_all(Route(worker, comm.size).parts(stored)):
            out[part] = True
        return out

    def at_nodes(self, values: np.ndarray) -> np.ndarray:
        return np.stack(
            [values_of(self._partition, end, values) for end in (self._links.src, self._links.dst)],
            axis=1,
        )

    def loss(self, view: GraphView, out: Var) -> Var:
        assert view.pairs is not None
        grouping = Grouping(view.pairs.order, self._links.negatives + 1)
        return self.group_loss(out, view.pairs.label, grouping, view.pairs.given.get(WEIGHT))


def label_kind(y: Any, multilabel: bool) -> str:
    """The kind of node label of a graph: "classes", "labels" or "values"."""
    return "classes" if y.dtype.kind in "iu" else "labels" if multilabel else "values"
