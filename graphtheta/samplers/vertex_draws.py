"""Draws of source vertices, shared by all nodes that a vertex sends to, and dependent mini-batches.

Samplers that draw a number for every source vertex choose the same vertices for many receiving
nodes. Dependent mini-batches extend this over time: draws change slowly from step to step, so that
consecutive batches read many of the same rows.

Source: Balin et al., https://arxiv.org/abs/2310.12403
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi, sin

import numpy as np

from graphtheta.base.rng import Purpose, key
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.relation import StoredRelation
from graphtheta.engine.sampling.candidates import Chosen, Frontier
from graphtheta.engine.sampling.columns import check_mask, check_weights, in_block, masked, positive
from graphtheta.engine.sampling.degrees import degrees_of
from graphtheta.errors import ConfigError
from graphtheta.ops.kernels.sampling import vertex_sample
from graphtheta.ops.parallel.buffers import by_blocks
from graphtheta.samplers.neighbour import Fanouts

# arguments of the kernels: two keys, the two factors of the mix, and whether draws are mixed
Draws = tuple[np.uint64, np.uint64, float, float, bool]
# a draw takes as long as so many sums
WORK = 4


@dataclass(frozen=True)
class VertexSampler(Fanouts):
    """Common options of samplers that draw a number for every source vertex.

    Attributes:
        fanouts: One number per hop, the one furthest from the targets first; -1 keeps all edges.
        seed: Seed of the draws.
        weight: Edge column by which edges are sampled; empty for uniform sampling. Edges of weight
            0 are never chosen and do not count as edges.
        normalise: Rescale the importance weights of each node to sum to the number of its edges;
            sums are then not unbiased, but vary less.
        mask: An edge column of True and False; only edges with True take part. Empty for all.
        kappa: Steps over which the draws of a vertex change to independent ones: 1 draws anew in
            every step, 0 never.
        mega_batch: Draw anew every ``kappa`` steps and not in between, instead of a slow change.
            The samples of these steps are then those of one batch of all their targets, if what a
            node keeps depends on itself only, as in neighbour sampling and LABOR-0.
        layer_dependency: Use the same draws in all hops.

    Raises:
        ConfigError: A fanout is neither positive nor -1, or ``kappa`` is negative, or below 2 with
            ``mega_batch``.
    """

    seed: int = 0
    weight: str = ""
    normalise: bool = False
    mask: str = ""
    kappa: int = 1
    mega_batch: bool = False
    layer_dependency: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kappa < 0:
            raise ConfigError(
                f"kappa: got {self.kappa}, expected the number of steps over which draws change, 1"
                " for independent draws, or 0 for the same draws in all steps"
            )
        if self.mega_batch and self.kappa < 2:
            raise ConfigError(
                f"mega_batch: kappa is {self.kappa}, expected the number of batches of a"
                " mega-batch, at least 2"
            )

    def prepare(self, partition: Partition, relation: StoredRelation, reverse: bool) -> None:
        """Compute the degrees of receiving rows for one pass.

        Args:
            partition: The partition to sample from.
            relation: The edges of the pass.
            reverse: Whether messages run against the edges.

        Collective: all ranks of the partition.
        """
        if not self.weight and not self.mask and any(fanout > 0 for fanout in self.fanouts):
            degrees_of(partition, relation, reverse)

    def check(self, partition: Partition) -> None:
        """Check the columns.

        Raises:
            ConfigError: There is no such column.
            DataError: A weight cannot be used, or a mask has other values than True and False.

        Collective: all ranks of the partition.
        """
        if self.weight:
            check_weights(partition, self.weight)
        check_mask(partition, self.mask)

    def eligible(self, frontier: Frontier) -> Frontier:
        """The edges of a frontier that may be chosen."""
        frontier = masked(frontier, self.mask)
        return positive(frontier, self.weight) if self.weight else frontier

    def values(self, frontier: Frontier, edges: list[Chosen]) -> list[np.ndarray] | None:
        """The values by which edges are sampled, [n_edges] float64 by block, or None for uniform
        sampling.
        """
        if not self.weight:
            return None
        column = frontier.partition.edge.read(self.weight)
        return [in_block(column, c.block)[c.edges].astype(np.float64) for c in edges]

    def draws(self, hop: int, step: int) -> Draws:
        """The draws of one hop, for the kernels of ``vertex_sample``.

        A draw is the distribution function of cos(a) n1 + sin(a) n2, where n1 and n2 are normal
        draws of the vertex and a grows from 0 to pi / 2 in ``kappa`` steps; then n2 becomes n1.
        """
        period, part = divmod(step, self.kappa) if self.kappa else (0, 0)
        of_hop = 0 if self.layer_dependency else hop
        first, second = (
            np.uint64(key(self.seed, Purpose.SAMPLE, p, of_hop)) for p in (period, period + 1)
        )
        angle = part / max(self.kappa, 1) * pi / 2
        return first, second, cos(angle), sin(angle), self.kappa > 1 and not self.mega_batch


def drawn(draws: Draws, ids: np.ndarray) -> np.ndarray:
    """The draws of some vertices, [n] float64 in [0, 1)."""
    r = np.empty(len(ids))
    by_blocks(
        lambda b, begin, end: vertex_sample.vertex_draws(
            draws=draws, ids=ids, out=r, first=begin, last=end
        ),
        len(ids),
        WORK,
    )
    return r
