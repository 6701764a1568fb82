"""Neighbour sampling: a fixed number of in-edges of every node, by default uniformly.

Uniform sampling draws positions among the edges of a node and reads only the edges that it keeps.
With a priority, or if some edges are excluded from the frontier, all edges are ranked, and those of
the lowest ranks are kept.

Source: GraphSAGE, https://arxiv.org/abs/1706.02216
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphtheta.base.rng import Purpose, key
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.relation import StoredRelation
from graphtheta.engine.sampling.bottom_k import BottomK
from graphtheta.engine.sampling.candidates import Chosen, Frontier, Frontiers, Sample
from graphtheta.engine.sampling.columns import check_mask, masked
from graphtheta.engine.sampling.positions import positions_of
from graphtheta.engine.sampling.priority import EdgePriority, Priority
from graphtheta.engine.sampling.uniform import drawn, uniform
from graphtheta.errors import ConfigError


@dataclass(frozen=True)
class Fanouts:
    """What samplers have in common that keep a number of edges of each node.

    Attributes:
        fanouts: One number per hop, the one furthest from the targets first; -1 keeps all edges.

    Raises:
        ConfigError: A fanout is neither positive nor -1.
    """

    fanouts: tuple[int, ...]

    def __post_init__(self) -> None:
        if wrong := [f for f in self.fanouts if f == 0 or f < -1]:
            raise ConfigError(
                f"fanouts {self.fanouts}: got {wrong[0]}, expected a positive number for each hop,"
                " or -1 for all neighbours"
            )

    @property
    def hops(self) -> int:
        """Number of hops that have a fanout."""
        return len(self.fanouts)


@dataclass(frozen=True)
class NeighbourSampler(Fanouts):
    """Keeps ``fanout`` in-edges of every receiving node, all with the same probability.

    The draws of a node read only the edges that are kept. If a task excludes edges, such as the
    links of a batch, every edge of the node draws a random rank instead, and the lowest are kept.

    Attributes:
        fanouts: Edges per node for each hop, the one furthest from the targets first; -1 keeps all.
        replace: Draw with replacement; an edge drawn twice counts twice.
        seed: Seed of the draws.
        shared: Use the draws of the first hop in all hops, so that edge values can be carried from
            layer to layer.
        priority: Ranks the edges; those of the lowest ranks are kept. None samples uniformly.
        mask: An edge column of True and False; only edges with True take part. Empty for all.
        name: Name in a job.

    Raises:
        ConfigError: A fanout is neither positive nor -1; fanouts differ and the draws are shared;
            or ranks are not random and ``replace`` is set.
    """

    name: ClassVar[str] = "neighbour"

    replace: bool = False
    seed: int = 0
    shared: bool = False
    priority: Priority | None = None
    mask: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shared and len(set(self.fanouts)) > 1:
            raise ConfigError(
                f"shared: one sample for all hops needs equal fanouts, got {self.fanouts}; "
                "use equal fanouts, or a sample for each hop"
            )
        if self.replace and self.priority is not None and not self.priority.draws:
            raise ConfigError(
                "replace: sampling with replacement needs random ranks, and those of"
                f" {type(self.priority).__name__} are not random; sample without replacement, or"
                " use a priority with random ranks"
            )

    def prepare(self, partition: Partition, relation: StoredRelation, reverse: bool) -> None:
        """Compute the positions of edges, which uniform draws need, for one pass.

        Args:
            partition: The partition to sample from.
            relation: The edges of the pass.
            reverse: Whether messages run against the edges.

        Collective: all ranks of the partition.
        """
        if self.priority is None and not self.mask and any(fanout > 0 for fanout in self.fanouts):
            positions_of(partition, relation, reverse)

    def check(self, partition: Partition) -> None:
        """Check the mask.

        Raises:
            ConfigError: There is no such column.
            DataError: The mask has other values than True and False.

        Collective: all ranks of the partition.
        """
        check_mask(partition, self.mask)

    def choose(self, frontier: Frontier, *, hop: int, step: int) -> Sample:
        """Choose edges of one pass.

        Args:
            frontier: All edges of the pass.
            hop: Index of the hop in ``fanouts``.
            step: Number of the training step.

        Collective: all ranks of the frontier's partition.
        """
        frontier = masked(frontier, self.mask)
        fanout = self.fanouts[hop]
        if fanout < 0:
            return Sample([c.listed() for c in frontier.candidates])
        k = self._key(step, hop, frontier.reverse)
        if self.priority is None and frontier.complete:
            return uniform(frontier, k, fanout, self.replace)
        return BottomK(
            frontier=frontier,
            priority=self.priority or EdgePriority(),
            key=k,
            k=fanout,
            replace=self.replace,
        ).choose()

    def choose_all(
        self, frontiers: Frontiers, *, hop: int, steps: Sequence[int]
    ) -> list[Chosen] | None:
        """Choose edges of one pass for several views; see ``SamplerOfViews.choose_all``."""
        fanout = self.fanouts[hop]
        if self.mask or (fanout >= 0 and (self.priority is not None or not frontiers.complete)):
            return None
        if fanout < 0:
            return [c.listed() for c in frontiers.candidates]
        keys = [self._key(step, hop, frontiers.reverse) for step in steps]
        return drawn(frontiers, keys, fanout, self.replace)

    def _key(self, step: int, hop: int, reverse: bool) -> int:
        """Key of the draws of a pass."""
        return key(self.seed, Purpose.SAMPLE, step, 0 if self.shared else hop, int(reverse))
