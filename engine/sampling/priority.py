"""Priorities: how the edges into a node are ranked. A bottom-k sampler keeps the lowest ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..partition.partition import MASTER, Partition
from ..partition.relation import StoredRelation
from .candidates import IN_ORDER, Candidates, Chosen, Frontier

ALL_BITS = 0xFFFFFFFFFFFFFFFF
NO_RATES = np.zeros(0, np.float32)
Arrays = tuple[
    np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.uint64, bool, np.uint64, np.ndarray
]


@dataclass(frozen=True)
class Ranked:
    """Edges with their ranks, unsigned numbers of 64 bits.

    Attributes:
        edges: The edges.
        values: Ids that ranks are drawn for, or ranks themselves, [n] int64 or uint64.
        index: Where in ``values`` the value of each edge of the lists of ``edges`` is; empty if
            edge k has value k.
        key: Key of the draws; None if ``values`` are ranks.
        distinct: Whether no two edges have the same rank. If they may, the lowest bits of a rank
            are replaced by the edge's id, which breaks ties.
        rates: Positive rate of each edge of the block, [n_block_edges]; empty for none. With rates
            a draw u in (0, 1) becomes the rank u / rate, and -log(u) / rate where each of several
            choices has a draw of its own. Ranks are the bits of these numbers.
    """

    edges: Candidates
    values: np.ndarray
    index: np.ndarray
    key: int | None
    distinct: bool = False
    rates: np.ndarray = field(default_factory=lambda: NO_RATES)

    def arrays(self, relation: StoredRelation) -> Arrays:
        """The ranks as arguments of kernels."""
        low = 0 if self.distinct else tie_bits(relation)
        high = np.uint64(ALL_BITS >> low << low)
        ids = edge_ids(relation, self.edges)
        values = self.values.view(np.int64)
        key = np.uint64(self.key or 0)
        return (
            self.edges.edges,
            ids,
            self.index,
            values,
            key,
            self.key is not None,
            high,
            self.rates,
        )


class Priority(ABC):
    """How edges are ranked, and the importance weights of those that are chosen.

    Attributes:
        draws: Whether ranks are drawn (``Ranked.key``); sampling with replacement needs a draw for
            each choice.
    """

    draws: ClassVar[bool] = False

    @property
    def threshold(self) -> bool:
        """Whether importance weights depend on the lowest rank that is not chosen,
        ``Chosen.threshold``.
        """
        return False

    @abstractmethod
    def rank(self, frontier: Frontier, edges: Candidates, key: int) -> Ranked:
        """Rank some edges of a block.

        The rank of an edge may depend on the key, on global ids and on stored values, but not on
        the worker. The method is called again for the few edges that may be among the chosen.

        Args:
            frontier: What the edges are chosen from.
            edges: The edges; ``edges.listed()`` has one entry for each.
            key: Key of the draws of this pass.
        """

    def total(self, frontier: Frontier, edges: Candidates) -> np.ndarray:
        """What the edges of each row add up to, [n_groups]: the sum that shares are parts of.

        By default the number of edges. It is positive for a row with edges.
        """
        return edges.end - edges.begin

    def weight(self, frontier: Frontier, edges: Chosen, share: np.ndarray) -> np.ndarray | None:
        """Importance weight of each edge, for each time it is chosen; by default its row's share.

        Args:
            frontier: What the edges are chosen from.
            edges: The chosen edges.
            share: ``total`` of each row over all workers, divided by the number of edges chosen
                from it, [n_groups] float64.

        Returns:
            [n_edges] floating, or None if all weights are 1.
        """
        return np.repeat(share, np.diff(edges.ptr))


class EdgePriority(Priority):
    """Every edge draws a random rank: uniform sampling."""

    draws = True

    def rank(self, frontier: Frontier, edges: Candidates, key: int) -> Ranked:
        # draws of distinct ids are distinct
        return Ranked(edges, edge_ids(frontier.relation, edges), edges.edges, key, distinct=True)


def tie_bits(relation: StoredRelation) -> int:
    """Number of low bits of a rank that are replaced by an edge id."""
    return max(relation.n_edges - 1, 0).bit_length()


def edge_ids(relation: StoredRelation, edges: Candidates) -> np.ndarray:
    """Global ids of the edges of a block; ``edges.edges`` are positions in it."""
    block = edges.block
    return relation.gid[block.start : block.start + block.n_edges]


def sender_ids(partition: Partition, edges: Candidates) -> np.ndarray:
    """Global ids of the sending rows of a block; ``edges.senders`` are positions in it."""
    return partition.masters if edges.kinds[0] == MASTER else partition.gid[partition.n_masters :]


def ranked_by(edges: Chosen, values: np.ndarray) -> Ranked:
    """Edges ranked by a number each, ascending.

    Args:
        edges: The edges.
        values: [n_edges] floating, without NaN. In a graph with many edges, numbers that differ
            only in their last bits count as equal.
    """
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    negative = bits >> np.uint64(63) != 0
    return Ranked(edges, np.where(negative, ~bits, bits | np.uint64(1 << 63)), IN_ORDER, None)
