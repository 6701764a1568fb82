"""Weighted neighbour sampling: edges of large weights are chosen more often.

Without replacement a node keeps the k edges of the lowest ranks u / w, where u is uniform and w the
weight of the edge (priority sampling). Given the lowest rank t that is not chosen, an edge is among
the chosen if u < w t, that is with probability min(1, w t), and 1 / min(1, w t) is its importance
weight. Sums over any subset of the edges are then estimated without bias. With replacement every
choice is an exponential race: the edge of the lowest -log(u) / w is e with probability w / W, where
W is the weight of all edges of the node, and W / (k w) is its importance weight.

Source: Duffield, Lund and Thorup, Priority sampling for estimation of arbitrary subset sums, 2007,
https://doi.org/10.1145/1314690.1314696
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.candidates import Candidates, Chosen, Frontier, Sample
from graphtheta.engine.sampling.columns import check_mask, check_weights, in_block, masked, positive
from graphtheta.engine.sampling.normalised import normalised
from graphtheta.engine.sampling.priority import ALL_BITS, Priority, Ranked, edge_ids
from graphtheta.errors import ConfigError
from graphtheta.ops.kernels.sampling import rate
from graphtheta.samplers.neighbour import Fanouts, NeighbourSampler


@dataclass(frozen=True)
class RatePriority(Priority):
    """Edges are chosen in proportion to a column of positive rates.

    Attributes:
        column: The column.
        replace: Whether edges are chosen with replacement.
        importance: Whether chosen edges have importance weights; otherwise each counts once.
    """

    draws = True

    column: str
    replace: bool
    importance: bool

    @property
    def threshold(self) -> bool:
        return self.importance

    def rates(self, frontier: Frontier, edges: Candidates) -> np.ndarray:
        """Rate of each edge of the block of some edges, [n_block_edges]."""
        return in_block(frontier.partition.edge.read(self.column), edges.block)

    def rank(self, frontier: Frontier, edges: Candidates, key: int) -> Ranked:
        return Ranked(
            edges,
            edge_ids(frontier.relation, edges),
            edges.edges,
            key,
            rates=self.rates(frontier, edges),
        )

    def total(self, frontier: Frontier, edges: Candidates) -> np.ndarray:
        """The sum of the rates of each row with replacement, otherwise the number of its edges."""
        if not self.replace:
            return super().total(frontier, edges)
        return rate.sums(edges.begin, edges.end, edges.edges, self.rates(frontier, edges))

    def weight(self, frontier: Frontier, edges: Chosen, share: np.ndarray) -> np.ndarray | None:
        if not self.importance:
            return None
        rates = self.rates(frontier, edges)[edges.edges].astype(np.float64)
        times = np.diff(edges.ptr)
        if edges.threshold is None:
            return np.repeat(share, times) / rates
        lowest = np.where(edges.threshold == ALL_BITS, np.inf, edges.threshold.view(np.float64))
        return 1 / np.minimum(1, rates * np.repeat(lowest, times))


@dataclass(frozen=True)
class WeightedSampler(Fanouts):
    """Keeps ``fanout`` in-edges of every receiving node, chosen in proportion to an edge column.

    Edges of weight 0 are never chosen and do not count as edges.

    Attributes:
        fanouts, replace, seed, shared: As for ``NeighbourSampler``.
        weight: The edge column, of numbers that are not negative.
        importance: Chosen edges have importance weights, so that sums estimate those over all
            edges. Without them each chosen edge counts once, as in DGL and PyG.
        normalise: Rescale the importance weights of each node to sum to the number of its edges.
        mask: An edge column of True and False; only edges with True take part. Empty for all.
        name: Name in a job.

    Raises:
        ConfigError: As for ``NeighbourSampler``, or ``normalise`` is set without ``importance``.
    """

    name: ClassVar[str] = "weighted"

    replace: bool = False
    seed: int = 0
    shared: bool = False
    weight: str = "weight"
    importance: bool = True
    normalise: bool = False
    mask: str = ""

    def __post_init__(self) -> None:
        self._neighbours()
        if self.normalise and not self.importance:
            raise ConfigError(
                "normalise=yes rescales importance weights, but importance=no has none; drop one of"
                " them"
            )

    def _neighbours(self) -> NeighbourSampler:
        priority = RatePriority(self.weight, self.replace, self.importance)
        return NeighbourSampler(
            fanouts=self.fanouts,
            replace=self.replace,
            seed=self.seed,
            shared=self.shared,
            priority=priority,
        )

    def check(self, partition: Partition) -> None:
        """Check the columns.

        Raises:
            ConfigError: There is no such column.
            DataError: A weight cannot be used, or a mask has other values than True and False.

        Collective: all ranks of the partition.
        """
        check_weights(partition, self.weight)
        check_mask(partition, self.mask)

    def choose(self, frontier: Frontier, *, hop: int, step: int) -> Sample:
        """Choose edges of one pass; see ``Sampler.choose``.

        Collective: all ranks of the frontier's partition.
        """
        frontier = positive(masked(frontier, self.mask), self.weight)
        sample = self._neighbours().choose(frontier, hop=hop, step=step)
        return normalised(frontier, sample) if self.normalise and self.fanouts[hop] > 0 else sample
