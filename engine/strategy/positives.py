"""What a link task learns to tell apart: positives, and the draws of negatives beside each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from graphtheta.base.rng import Purpose, bits, integers, key

from ..partition.partition import Partition
from ..partition.table import DistributedTable, Route
from ..sampling.cluster_nodes import Members
from ..view.scored_pairs import ScoredPairs

# column of pairs: what each weighs in the loss
WEIGHT = "weight of the loss"


class Positives(Protocol):
    """Links that a model learns to predict."""

    @property
    def numbers(self) -> np.ndarray:
        """Global numbers of those at this worker, ascending, [n] int64."""

    @property
    def src(self) -> np.ndarray:
        """Their sources, [n] int64."""

    @property
    def dst(self) -> np.ndarray:
        """Their destinations, [n] int64."""

    @property
    def n_links(self) -> int:
        """Links of all workers."""

    @property
    def negatives(self) -> int:
        """Negatives per positive."""

    @property
    def cutoff(self) -> np.ndarray | None:
        """``Task.cutoffs`` of the links at this worker, or None."""

    @property
    def weight(self) -> np.ndarray | None:
        """What the links at this worker weigh in the loss, [n] float64; None if all weigh the
        same.
        """

    def of_step(self, step: int) -> Positives:
        """The same links with the draws of a step."""

    def stored(self, partition: Partition) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The stored edges that are one of these links; see ``edges_by_key``.

        Collective: all ranks of the partition.
        """

    def pairs(
        self, partition: Partition, own: np.ndarray, among: Members | None = None
    ) -> ScoredPairs:
        """Positives, each followed by its negatives.

        The label is 1 for positives, 0 for negatives, and NaN where no negative could be found. The
        id of a pair is that of its link times (1 + negatives), plus its position beside it. A pair
        weighs what its link does, in the column ``WEIGHT``.

        Args:
            partition: Holds the nodes.
            own: Positions of the positives to take, ascending, [k] int64.
            among: The nodes to draw negatives from; None for all.

        Collective: all ranks of the partition.
        """


def sharing(draws: int, numbers: np.ndarray, groups: int) -> np.ndarray:
    """What the draws of the negatives of some links are keyed by: equal for links that have the
    same negatives, [n] int64.

    Args:
        draws: Key of the draws of a step.
        numbers: Numbers of the links, [n] int64.
        groups: Groups among which the links are divided by hash; 0 if each has negatives of its
            own.
    """
    return (
        (bits(key(draws, Purpose.BATCH), numbers) % np.uint64(groups)).astype(np.int64)
        if groups
        else numbers
    )


def draw_others(
    draws: int,
    slots: np.ndarray,
    bounds: tuple[Any, Any],
    among: Members | None,
    taken: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """A node for each slot, a hash of the slot; nodes that are taken are drawn again.

    Args:
        draws: Key of the draws.
        slots: What the draws are keyed by, [n] int64.
        bounds: The first node to draw, and the first one beyond; integers, or [n] int64 by slot.
        among: Draw from these nodes, and not between the bounds.
        taken: From positions of slots [k, 1] and nodes [k, attempts] to which of them are taken.

    Returns:
        The nodes, [n] int64, and whether one is taken since no other was found, [n] bool.

    Collective: all ranks of the partition, if ``among`` is given.
    """
    ends = np.empty(len(slots), np.int64)
    left = np.arange(len(slots))
    first, beyond = (
        np.broadcast_to(x, len(slots)) for x in (bounds if among is None else (0, among.n))
    )
    # later rounds make more attempts, so that few rounds of messages look up the drawn nodes
    for attempts in (range(1), range(1, 8), range(8, 64)):
        low = first[left]
        count = (beyond - first)[left]
        drawn = np.stack(
            [low + integers(key(draws, Purpose.NEGATIVE, i), slots[left], count) for i in attempts],
            axis=1,
        )
        drawn = drawn if among is None else among.ids(drawn.ravel()).reshape(drawn.shape)
        is_taken = taken(left[:, None], drawn)
        none = is_taken.all(axis=1)
        ends[left] = drawn[np.arange(len(left)), np.where(none, -1, is_taken.argmin(axis=1))]
        left = left[none]
        if among is None and not len(left):
            break
    none_found = np.zeros(len(slots), bool)
    none_found[left] = True
    return ends, none_found


def labels_of(taken: np.ndarray) -> np.ndarray:
    """Labels of pairs, the positive first in each row, [n, 1 + negatives]: NaN where no negative
    could be found, [n, negatives].
    """
    # a node linked to all others, or to all nodes of a small batch, has no negatives
    return np.concatenate((np.ones((len(taken), 1)), np.where(taken, np.nan, 0.0)), axis=1)


def weights_of_pairs(
    weight: np.ndarray | None, own: np.ndarray, negatives: int
) -> dict[str, np.ndarray]:
    """The column of the weights of pairs, [k * (1 + negatives)]; none if all links weigh the same.

    Args:
        weight: As that of ``Positives``.
        own: Positions of the links, [k] int64.
        negatives: Negatives per link.
    """
    return {} if weight is None else {WEIGHT: np.repeat(weight[own], 1 + negatives)}


def edges_by_key(
    partition: Partition, links: np.ndarray, edges: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The stored edges of any worker that have the key of a link.

    Args:
        partition: Stores the edges.
        links: Key of each of this worker's links, [n] int64; no key twice on all workers.
        edges: Key of each of its stored edges, [n_local_edges] int64.

    Returns:
        Bounds of the edges of each link [n + 1], their storage positions and workers [m] int32.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    table = DistributedTable(
        comm, links, np.stack((np.full(len(links), comm.rank), np.arange(len(links))), axis=1)
    )
    keys, each = np.unique(edges, return_inverse=True)
    owner, link = table.look_up(keys)[each].T
    stored = np.flatnonzero(owner >= 0)
    parts = comm.all_to_all(
        Route(owner[stored], comm.size).parts(np.stack((link[stored], stored), axis=1))
    )
    entries = np.concatenate(parts)
    worker = np.repeat(np.arange(comm.size), [len(part) for part in parts])
    order = np.argsort(entries[:, 0], kind="stable")
    ptr = np.searchsorted(entries[order, 0], np.arange(len(links) + 1))
    return ptr, entries[order, 1].astype(np.int32), worker[order].astype(np.int32)
