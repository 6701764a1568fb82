"""Tasks: what a model is trained to predict, and which nodes or pairs a batch of targets needs.

A target has a global id: a node, an edge, or a positive link. Batches are lists of target ids, the same on every
worker; a task turns such a list into the part of this worker.
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphtheta.errors import ConfigError, DataError
from graphtheta.rng import Purpose, integers, key, uniform

from ...ops.autodiff.tape import Var
from ...ops.functions.loss import binary_cross_entropy, mean_squared_error, softmax_cross_entropy
from ...ops.kernels.batch import expand
from ..partition.partition import Partition
from .row_loss import Grouping, RowLoss, grouped
from .scored_pairs import PairPlan, Pairs
from .view import GraphView


@dataclass
class Seeds:
    """Where a view starts.

    Attributes:
        nodes: Masters whose final values are needed, [n_masters] bool.
        pairs: The pairs a decoder scores, with the plan of their ends; None for node tasks.
        excluded: Local edges no message may use, or None.
    """

    nodes: np.ndarray
    pairs: PairPlan | None = None
    excluded: np.ndarray | None = None


class Task(ABC):
    """What is predicted. ``targets`` are the ids of the training targets, ascending, equal on every worker.

    Attributes:
        kind: Of labels: "classes", "labels" or "values".
        own_loss: In place of the loss that fits the labels; None for that.
    """

    targets: np.ndarray
    kind: str
    own_loss: RowLoss | None = None

    @abstractmethod
    def seeds(self, ids: np.ndarray, step: int, among: np.ndarray | None = None) -> Seeds:
        """This worker's part of a batch of targets.

        Args:
            ids: Targets, the same on every worker.
            step: Number of the training step, for draws.
            among: The nodes the batch is limited to, ascending ids, the same on every worker; None for all.

        Collective: all ranks of the partition.
        """

    @abstractmethod
    def owned_by(self, nodes: np.ndarray) -> np.ndarray:
        """The targets that lie inside a set of nodes ([n_nodes] bool of the whole graph), ascending ids."""

    @abstractmethod
    def clusters_with_targets(self, clusters: np.ndarray) -> np.ndarray:
        """The clusters ([n_nodes], one number per node) with a target inside, ascending."""

    @abstractmethod
    def loss(self, view: GraphView, out: Var) -> Var:
        """This worker's share of the mean loss over the targets of the view.

        Collective: all ranks of the partition.
        """

    def mean_loss(self, out: Var, y: np.ndarray, mask: np.ndarray | None) -> Var:
        """This worker's share of the mean loss over some rows, in training and in evaluation alike.

        Args:
            out: Outputs of the model, [n, ...].
            y: Labels of the same rows.
            mask: The rows that count, [n] bool; None for all.

        Collective: all ranks of the partition.
        """
        return loss_of(self.kind, out, y, mask) if self.own_loss is None else self.own_loss(out, y, mask)

    def group_loss(self, out: Var, y: np.ndarray, grouping: Grouping) -> Var:
        """The same over all rows, some of which belong together; a loss of the user's own gets one row for each group.

        Args:
            out: Outputs of the model, one number for each row.
            y: Labels of the same rows, [n].
            grouping: Which rows belong together.

        Collective: all ranks of the partition.
        """
        return self.mean_loss(out, y, None) if self.own_loss is None else self.mean_loss(*grouped(out, y, grouping), None)


class NodeTask(Task):
    """Classes, several labels, or real values of nodes.

    Args:
        partition: Holds ``y`` and the mask ``train``.
        kind: "classes", "labels" (0/1 per column, NaN missing) or "values".
    """

    def __init__(self, partition: Partition, kind: str):
        self._partition = partition
        self.kind = kind
        mine = partition.masters[partition.node.read("train")] if "train" in partition.node else partition.masters[:0]
        self.targets = np.sort(np.concatenate(partition.halo_comm.all_gather(mine)))
        if not len(self.targets):
            raise DataError("the training set is empty; give the graph a train mask or choose a split")

    def seeds(self, ids: np.ndarray, step: int, among: np.ndarray | None = None) -> Seeds:
        p = self._partition
        nodes = np.zeros(p.n_masters, bool)
        nodes[p.row_of[ids[p.owner[ids] == p.halo_comm.rank]]] = True
        return Seeds(nodes)

    def owned_by(self, nodes: np.ndarray) -> np.ndarray:
        return self.targets[nodes[self.targets]]

    def clusters_with_targets(self, clusters: np.ndarray) -> np.ndarray:
        return np.unique(clusters[self.targets])

    def loss(self, view: GraphView, out: Var) -> Var:
        n = out.shape[0]
        y, mask = view.node_column("y", n), view.node_column("train", n)
        return self.mean_loss(out, y, mask)


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
    """

    def __init__(self, partition: Partition, train: np.ndarray, kind: str = "values"):
        self._partition = partition
        self.kind = kind
        self._by_gid = np.argsort(partition.edge_gid, kind="stable")
        self._gid = partition.edge_gid[self._by_gid]
        self.targets = np.sort(np.concatenate(partition.halo_comm.all_gather(partition.edge_gid[train])))
        self._ends = partition.edge_ends()
        if not len(self.targets):
            raise DataError("the training set is empty; give the graph an edge_train mask")

    def seeds(self, ids: np.ndarray, step: int, among: np.ndarray | None = None) -> Seeds:
        return self._of_stored(self._find(ids))

    def _find(self, ids: np.ndarray) -> np.ndarray:
        """Storage positions of those ids that are kept here."""
        gid = self._gid
        at = np.searchsorted(gid, ids)
        here = gid[np.minimum(at, len(gid) - 1)] == ids if len(gid) else np.zeros(len(ids), bool)
        return self._by_gid[at[here]]

    def _of_stored(self, stored: np.ndarray) -> Seeds:
        p = self._partition
        pairs = Pairs(self._ends[0][stored], self._ends[1][stored], p.edge_gid[stored], stored, p.edge.read("y", stored))
        plan = PairPlan(p, pairs)
        return Seeds(plan.needed, plan)

    def masked(self, mask: np.ndarray) -> Seeds:
        """All local edges of a mask in storage order, for evaluation.

        Collective: all ranks of the partition.
        """
        return self._of_stored(np.flatnonzero(mask))

    def owned_by(self, nodes: np.ndarray) -> np.ndarray:
        p, ends = self._partition, self._ends
        inside = nodes[ends[0]] & nodes[ends[1]]
        all_inside = np.sort(np.concatenate(p.halo_comm.all_gather(p.edge_gid[inside])))
        return np.intersect1d(self.targets, all_inside, assume_unique=True)

    def clusters_with_targets(self, clusters: np.ndarray) -> np.ndarray:
        src, dst = (end[self._find(self.targets)] for end in self._ends)
        mine = np.unique(clusters[src[clusters[src] == clusters[dst]]])
        return np.unique(np.concatenate(self._partition.halo_comm.all_gather(mine)))

    def loss(self, view: GraphView, out: Var) -> Var:
        assert view.pairs is not None
        return self.mean_loss(out, view.pairs.label, None)


@dataclass(frozen=True)
class Links:
    """Positive links and the draws of their negatives.

    Attributes:
        src, dst: Ends of the positives, [n] int64.
        known: Sorted keys (src * n_nodes + dst) of all links of all splits; no negative is one of them.
        negatives: Negatives per positive.
        key: Key of the draws.
    """

    src: np.ndarray
    dst: np.ndarray
    known: np.ndarray
    negatives: int
    key: int

    def draw(self, ids: np.ndarray, n_nodes: int, among: np.ndarray | None = None) -> np.ndarray:
        """Other ends of the negatives of some positives, [n, negatives]: hashes of the positive's number, drawn again
        while the pair is a link or a self loop; from all nodes or ``among`` some."""
        slots = ids[:, None] * self.negatives + np.arange(self.negatives)
        src = np.broadcast_to(self.src[ids][:, None], slots.shape).ravel()
        ends = np.full(src.shape, -1, np.int64)
        open_ = np.arange(len(ends))
        for attempt in range(64):
            drawn = integers(key(self.key, Purpose.NEGATIVE, attempt), slots.ravel()[open_], n_nodes if among is None else len(among))
            ends[open_] = drawn if among is None else among[drawn]
            open_ = open_[self.taken(src[open_], ends[open_], n_nodes)]
            if not len(open_):
                break
        return ends.reshape(slots.shape)

    def taken(self, src: np.ndarray, dst: np.ndarray, n_nodes: int) -> np.ndarray:
        """Whether a pair is a link or a self loop, in the shape of src."""
        wanted = src * n_nodes + dst
        at = np.minimum(np.searchsorted(self.known, wanted), max(len(self.known) - 1, 0))
        return (self.known[at] == wanted if len(self.known) else np.zeros(wanted.shape, bool)) | (src == dst)


class LinkTask(Task):
    """Whether two nodes are linked.

    The pairs of a batch and their reverse are excluded from its messages. A global batch supervises a random share of
    the links and passes messages along the others.

    Args:
        partition: Its edges are the training links.
        links: The training links as positives, each unordered pair once; the same on every worker.
        supervision: Share of the links a global batch supervises.
        seed: Seed of that choice and of the negatives.
    """

    kind = "labels"

    def __init__(self, partition: Partition, links: Links, supervision: float = 0.3, seed: int = 0):
        if not 0 < supervision <= 1:
            raise ConfigError(f"supervision {supervision} must be above 0 and at most 1")
        self._partition, self._links = partition, links
        self._supervision, self._seed = supervision, seed
        self.targets = np.arange(len(links.src))
        if not len(self.targets):
            raise DataError("there are no links to train on; lower the validation and test shares")
        src, dst = partition.edge_ends()
        keys = _unordered(src, dst, partition.n_nodes)
        self._by_key = np.argsort(keys, kind="stable").astype(np.int32)
        self._edge_key = keys[self._by_key]
        self._link_key = _unordered(links.src, links.dst, partition.n_nodes)

    def seeds(self, ids: np.ndarray, step: int, among: np.ndarray | None = None) -> Seeds:
        if len(ids) == len(self.targets) and self._supervision < 1:
            draws = uniform(key(self._seed, Purpose.SPLIT, step), ids)
            # never none, whatever the draws
            ids = ids[(draws < self._supervision) | (draws == draws.min())]
        excluded = np.zeros(self._partition.n_local_edges, bool)
        first, last = (np.searchsorted(self._edge_key, self._link_key[ids], side) for side in ("left", "right"))
        excluded[expand(first, last, self._by_key, self._by_key)[1]] = True
        step_links = replace(self._links, key=key(self._links.key, Purpose.NEGATIVE, step))
        plan = PairPlan(self._partition, link_pairs(self._partition, step_links, ids, among))
        return Seeds(plan.needed, plan, excluded)

    def owned_by(self, nodes: np.ndarray) -> np.ndarray:
        return self.targets[nodes[self._links.src] & nodes[self._links.dst]]

    def clusters_with_targets(self, clusters: np.ndarray) -> np.ndarray:
        src, dst = clusters[self._links.src], clusters[self._links.dst]
        return np.unique(src[src == dst])

    def loss(self, view: GraphView, out: Var) -> Var:
        assert view.pairs is not None
        return self.group_loss(out, view.pairs.label, Grouping(view.pairs.order, self._links.negatives + 1))


def link_pairs(partition: Partition, links: Links, ids: np.ndarray, among: np.ndarray | None = None) -> Pairs:
    """Positives and their negatives, placed with the owner of the source; pairs of one positive stand together.

    The label is 1 for positives, 0 for negatives, and NaN where no negative could be found.
    """
    mine = ids[partition.owner[links.src[ids]] == partition.halo_comm.rank]
    others = links.draw(mine, partition.n_nodes, among)
    dst = np.concatenate((links.dst[mine][:, None], others), axis=1)
    src = np.broadcast_to(links.src[mine][:, None], dst.shape)
    # a node linked to all others, or to all of a small batch, has no negatives there: such pairs do not count
    label = np.where(links.taken(src, dst, partition.n_nodes), np.nan, 0.0)
    label[:, 0] = 1
    gid = mine[:, None] * (links.negatives + 1) + np.arange(links.negatives + 1)
    return Pairs(src.ravel(), dst.ravel(), gid.ravel(), None, label.ravel())


def _unordered(src: np.ndarray, dst: np.ndarray, n_nodes: int) -> np.ndarray:
    return np.minimum(src, dst) * np.int64(n_nodes) + np.maximum(src, dst)


def label_kind(y: Any, multilabel: bool) -> str:
    """The kind of node label of a graph: "classes", "labels" or "values"."""
    return "classes" if y.dtype.kind in "iu" else "labels" if multilabel else "values"
