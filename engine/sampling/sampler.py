"""The protocol of samplers: which in-edges a view keeps when it expands its frontier."""
from __future__ import annotations

from typing import ClassVar, Protocol

from .candidates import Frontier, Sample


class Sampler(Protocol):
    """Keeps some of the edges at the frontier of a view.

    The choice must be a function of (seed, step, hop, global ids), so that it is the same for
    every number of workers and every partition.

    Attributes:
        name: Name in a job.
    """

    name: ClassVar[str]

    @property
    def hops(self) -> int | None:
        """Number of hops the sampler is made for; None for any."""

    def choose(self, frontier: Frontier, *, hop: int, step: int) -> Sample:
        """Choose edges of one pass.

        Args:
            frontier: All edges of the pass.
            hop: Number of the hop; 0 is the one furthest from the targets.
            step: Number of the training step.

        Returns:
            The edges with their importance weights: an edge of weight w represents w edges of its
            receiving node.

        Collective: all ranks of the frontier's partition.
        """
