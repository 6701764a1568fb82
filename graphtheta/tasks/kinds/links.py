"""Links that a model learns to predict: positives at the owners of their sources; negatives."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graphtheta.base.rng import Purpose, key
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.cluster_nodes import Members
from graphtheta.engine.strategy.positives import (
    draw_others,
    edges_by_key,
    labels_of,
    sharing,
    weights_of_pairs,
)
from graphtheta.engine.view.scored_pairs import ScoredPairs


@dataclass(frozen=True)
class Links:
    """Positive links whose sources this worker owns, and the draws of their negatives.

    Attributes:
        numbers: Global numbers of the links, ascending, [n] int64.
        src, dst: Their ends, [n] int64.
        n_links: Links of all workers.
        link_keys: Sorted keys (src * n_nodes + dst) of all links of all splits whose sources this
            worker owns; no negative is one of them.
        negatives: Negatives per positive.
        key: Key of the draws.
        groups: Groups of positives with the same negatives; 0 if each has its own.
        types: The first node of each type but the first, ascending; empty for a graph of one type.
            A negative has the type of the end that it replaces.
        cutoff: ``Task.cutoffs`` of the links, [n], or None.
        weight: What the links weigh in the loss, [n] float64, or None.
    """

    numbers: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    n_links: int
    link_keys: np.ndarray
    negatives: int
    key: int
    groups: int = 0
    types: tuple[int, ...] = ()
    cutoff: np.ndarray | None = None
    weight: np.ndarray | None = None

    def of_step(self, step: int) -> Links:
        return replace(self, key=key(self.key, Purpose.NEGATIVE, step))

    def stored(self, partition: Partition) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The stored edges along each of this worker's links, in either direction; see
        ``edges_by_key``.

        Collective: all ranks of the partition.
        """
        n = partition.n_nodes
        return edges_by_key(
            partition, _unordered(self.src, self.dst, n), _unordered(*partition.edge_ends(), n)
        )

    def pairs(
        self, partition: Partition, own: np.ndarray, among: Members | None = None
    ) -> ScoredPairs:
        """Positives, each followed by its negatives; see ``Positives``."""
        n = partition.n_nodes
        drawn, taken = self.draw(own, n, among)
        dst = np.concatenate((self.dst[own][:, None], drawn), axis=1)
        src = np.broadcast_to(self.src[own][:, None], dst.shape)
        gid = self.numbers[own][:, None] * (self.negatives + 1) + np.arange(self.negatives + 1)
        weights = weights_of_pairs(self.weight, own, self.negatives)
        return ScoredPairs(
            src=src.ravel(),
            dst=dst.ravel(),
            gid=gid.ravel(),
            stored=None,
            label=labels_of(taken).ravel(),
            columns=weights,
        )

    def draw(
        self, own: np.ndarray, n_nodes: int, among: Members | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw the other ends of the negatives of some positives.

        A draw is a hash of the positive's number, or of its group; pairs that are links or self
        loops, and nodes of another type, are redrawn.

        Args:
            own: Positions of the positives, [k] int64.
            n_nodes: Nodes of the graph.
            among: The nodes to draw from; None for all.

        Returns:
            The nodes, and where none could be found, [k, negatives] int64 and bool.

        Collective: all ranks of the partition.
        """
        keyed = sharing(self.key, self.numbers[own], self.groups)
        slots = (keyed[:, None] * self.negatives + np.arange(self.negatives)).ravel()
        own = np.repeat(own, self.negatives)
        kind = self._type(self.dst[own])
        ends = np.array([0, *self.types, n_nodes])
        others = draw_others(
            draws=self.key,
            slots=slots,
            bounds=(ends[kind], ends[kind + 1]),
            among=among,
            taken=lambda at, nodes: self.taken(own[at], nodes, n_nodes),
        )
        nodes, taken = (x.reshape(-1, self.negatives) for x in others)
        return nodes, taken

    def taken(self, own: np.ndarray, dst: np.ndarray, n_nodes: int) -> np.ndarray:
        """Whether nodes cannot be the other ends of negatives of these positives: links, self
        loops, or nodes of another type.
        """
        src = self.src[own]
        wanted = src * n_nodes + dst
        at = np.minimum(np.searchsorted(self.link_keys, wanted), max(len(self.link_keys) - 1, 0))
        linked = (
            self.link_keys[at] == wanted if len(self.link_keys) else np.zeros(wanted.shape, bool)
        )
        return np.asarray(linked | (src == dst) | (self._type(dst) != self._type(self.dst[own])))

    def _type(self, nodes: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.types, nodes, side="right")


def _unordered(src: np.ndarray, dst: np.ndarray, n_nodes: int) -> np.ndarray:
    return np.minimum(src, dst) * np.int64(n_nodes) + np.maximum(src, dst)
