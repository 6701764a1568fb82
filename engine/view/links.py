"""Links that a model learns to predict: positives at the owners of their sources; negatives."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphtheta.rng import Purpose, integers, key

from ..partition.partition import Partition
from ..partition.table import Route, Table
from .cluster_nodes import Members
from .scored_pairs import Pairs


@dataclass(frozen=True)
class Links:
    """Positive links whose sources this worker owns, and the draws of their negatives.

    Attributes:
        numbers: Global numbers of the links, ascending, [n] int64.
        src, dst: Their ends, [n] int64.
        n_links: Links of all workers.
        known: Sorted keys (src * n_nodes + dst) of all links of all splits whose sources this
            worker owns; no negative is one of them.
        negatives: Negatives per positive.
        key: Key of the draws.
    """

    numbers: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    n_links: int
    known: np.ndarray
    negatives: int
    key: int

    @classmethod
    def of(cls, partition: Partition, src: np.ndarray, dst: np.ndarray, known: np.ndarray, negatives: int, key: int) -> Links:
        """This worker's part of links that all workers hold in memory.

        Args:
            partition: Gives the owners of the sources.
            src, dst: Ends of the positives, [n] int64, the same on every rank; each unordered pair once.
            known: Sorted keys of all links of all splits, the same on every rank.
            negatives: Negatives per positive.
            key: Key of the draws.

        Collective: all ranks of the partition.
        """
        directory, rank = partition.directory, partition.halo_comm.rank
        mine = np.flatnonzero(directory.owner(src) == rank)
        own_keys = known[directory.owner(known // partition.n_nodes) == rank]
        return cls(mine, src[mine], dst[mine], len(src), own_keys, negatives, key)

    def draw(self, own: np.ndarray, n_nodes: int, among: Members | None = None) -> np.ndarray:
        """Draw the other ends of the negatives of some positives, [k, negatives] int64.

        A draw is a hash of the positive's number; pairs that are links or self loops are redrawn.

        Args:
            own: Positions of the positives, [k] int64.
            n_nodes: Nodes of the graph.
            among: The nodes to draw from; None for all.

        Collective: all ranks of the partition.
        """
        slots = (self.numbers[own][:, None] * self.negatives + np.arange(self.negatives)).ravel()
        src, ends = np.repeat(self.src[own], self.negatives), np.empty(len(slots), np.int64)
        left, high = np.arange(len(slots)), n_nodes if among is None else among.n
        # later rounds make more attempts, so that few rounds of messages look up the drawn nodes
        for attempts in (range(1), range(1, 8), range(8, 64)):
            drawn = np.stack([integers(key(self.key, Purpose.NEGATIVE, i), slots[left], high) for i in attempts], axis=1)
            drawn = drawn if among is None else among.ids(drawn.ravel()).reshape(drawn.shape)
            taken = self.taken(src[left][:, None], drawn, n_nodes)
            none = taken.all(axis=1)
            ends[left] = drawn[np.arange(len(left)), np.where(none, -1, taken.argmin(axis=1))]
            left = left[none]
            if among is None and not len(left):
                break
        return ends.reshape(-1, self.negatives)

    def taken(self, src: np.ndarray, dst: np.ndarray, n_nodes: int) -> np.ndarray:
        """Whether each pair is a link or a self loop; this worker owns the sources."""
        wanted = src * n_nodes + dst
        at = np.minimum(np.searchsorted(self.known, wanted), max(len(self.known) - 1, 0))
        return (self.known[at] == wanted if len(self.known) else np.zeros(wanted.shape, bool)) | (src == dst)


def edges_of_links(partition: Partition, links: Links) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The stored edges along each of this worker's links, in either direction and on any worker.

    Returns:
        Bounds of the edges of each link [n + 1], their storage positions and workers [m] int32.

    Collective: all ranks of the partition.
    """
    comm, n = partition.halo_comm, partition.n_nodes
    positions = np.stack((np.full(len(links.src), comm.rank), np.arange(len(links.src))), axis=1)
    table = Table(comm, _unordered(links.src, links.dst, n), positions)
    keys, each = np.unique(_unordered(*partition.edge_ends(), n), return_inverse=True)
    owner, link = table.look_up(keys)[each].T
    stored = np.flatnonzero(owner >= 0)
    parts = comm.all_to_all(Route(owner[stored], comm.size).parts(np.stack((link[stored], stored), axis=1)))
    found = np.concatenate(parts)
    worker = np.repeat(np.arange(comm.size), [len(part) for part in parts])
    order = np.argsort(found[:, 0], kind="stable")
    ptr = np.searchsorted(found[order, 0], np.arange(len(links.src) + 1))
    return ptr, found[order, 1].astype(np.int32), worker[order].astype(np.int32)


def link_pairs(partition: Partition, links: Links, own: np.ndarray, among: Members | None = None) -> Pairs:
    """Positives, each followed by its negatives, at the owner of the source.

    The label is 1 for positives, 0 for negatives, and NaN where no negative could be found.

    Args:
        partition: Holds the nodes.
        links: The positives.
        own: Positions of the positives to take, ascending, [k] int64.
        among: The nodes to draw negatives from; None for all.

    Collective: all ranks of the partition.
    """
    others = links.draw(own, partition.n_nodes, among)
    dst = np.concatenate((links.dst[own][:, None], others), axis=1)
    src = np.broadcast_to(links.src[own][:, None], dst.shape)
    # a node linked to all others, or to all nodes of a small batch, has no negatives: labels are
    # NaN
    label = np.where(links.taken(src, dst, partition.n_nodes), np.nan, 0.0)
    label[:, 0] = 1
    gid = links.numbers[own][:, None] * (links.negatives + 1) + np.arange(links.negatives + 1)
    return Pairs(src.ravel(), dst.ravel(), gid.ravel(), None, label.ravel())


def _unordered(src: np.ndarray, dst: np.ndarray, n_nodes: int) -> np.ndarray:
    return np.minimum(src, dst) * np.int64(n_nodes) + np.maximum(src, dst)
