"""Neighbour sampling: a fixed number of in-edges of every node, by default uniformly.

Source: GraphSAGE, https://arxiv.org/abs/1706.02216
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from graphtheta.errors import ConfigError
from graphtheta.rng import Purpose, key

from .bottom_k import BottomK
from .candidates import Frontier, Sample
from .priority import EdgePriority, Priority


@dataclass(frozen=True)
class NeighbourSampler:
    """Keeps ``fanout`` in-edges of every receiving node: those that a priority ranks lowest.

    Attributes:
        fanouts: Edges per node for each hop, the one furthest from the targets first; -1 keeps all.
        replace: Draw with replacement; an edge drawn twice counts twice.
        seed: Seed of the draws.
        shared: Use the draws of the first hop in all of them, so that edge values can be carried.
        priority: Ranks the edges; by default each edge draws.
        name: What a job calls it.

    Raises:
        ConfigError: A fanout is neither positive nor -1; fanouts differ and the draws are shared; or ranks are not drawn and
            ``replace`` is set.
    """

    name: ClassVar[str] = "neighbour"

    fanouts: tuple[int, ...]
    replace: bool = False
    seed: int = 0
    shared: bool = False
    priority: Priority = field(default_factory=EdgePriority)

    def __post_init__(self) -> None:
        if any(f == 0 or f < -1 for f in self.fanouts):
            raise ConfigError(f"fanout {self.fanouts} must hold positive numbers, or -1 for all neighbours")
        if self.shared and len(set(self.fanouts)) > 1:
            raise ConfigError(f"one sample shared by all hops needs equal fanouts, got {self.fanouts}")
        if self.replace and not self.priority.draws:
            raise ConfigError(f"replace: sampling with replacement needs random ranks, and those of {type(self.priority).__name__} "
                              "are not random; sample without replacement, or use a priority with random ranks")

    @property
    def hops(self) -> int:
        """Number of hops the fanouts are for."""
        return len(self.fanouts)

    def choose(self, frontier: Frontier, *, hop: int, step: int) -> Sample:
        """Choose edges of one pass.

        Args:
            frontier: All edges of the pass.
            hop: Number of the hop, as in ``fanouts``.
            step: Number of the training step.

        Collective: all ranks of the frontier's partition.
        """
        fanout = self.fanouts[hop]
        if fanout < 0:
            return Sample([c.listed() for c in frontier.candidates])
        k = key(self.seed, Purpose.SAMPLE, step, 0 if self.shared else hop, int(frontier.reverse))
        return BottomK(frontier, self.priority, k, fanout, self.replace).choose()
