"""The protocol of samplers: which in-edges a view keeps when it expands its frontier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from ..partition.partition import Partition
from ..partition.relation import StoredRelation
from .candidates import Chosen, Frontier, Frontiers, Sample


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


@runtime_checkable
class SamplerOfViews(Protocol):
    """A sampler that can choose the edges of several views by one call."""

    def choose_all(
        self, frontiers: Frontiers, *, hop: int, steps: Sequence[int]
    ) -> list[Chosen] | None:
        """Choose edges of one pass for several views, without messages; each gets those that
        ``Sampler.choose`` chooses.

        Args:
            frontiers: All edges of the pass, for each view.
            hop: As for ``Sampler.choose``.
            steps: Number of the training step of each view.

        Returns:
            The edges by block; None if ``Sampler.choose`` has to be called for each view.
        """


@runtime_checkable
class Checked(Protocol):
    """A sampler that checks the columns that it reads before training starts."""

    def check(self, partition: Partition) -> None:
        """Check the columns of a partition.

        Raises:
            ConfigError, DataError: The sampler cannot sample from this partition.

        Collective: all ranks of the partition.
        """


@runtime_checkable
class Timed(Protocol):
    """A sampler whose choice depends on a cutoff of each receiving node, ``Frontier.cutoff``.

    Cutoffs start at the targets and travel down the hops of one view, which keeps them while it is
    built: a node has the lowest of its own cutoff in the hop before and of those of the nodes that
    chose one of its edges there. Those of nodes that are targets come from the sampler; an edge or
    a link has one of its own, and its ends have the lowest of their targets.
    """

    def cutoffs(self, partition: Partition, masters: np.ndarray) -> np.ndarray:
        """The cutoffs of targets, [n] int64 or float64, of the same type on all workers.

        Args:
            masters: Master rows of the targets of this worker, [n].
        """

    def complete(self, hops: int) -> Sampler:
        """The sampler that keeps all edges that the cutoffs allow, for evaluation."""


@runtime_checkable
class TimedPairs(Timed, Protocol):
    """A ``Timed`` sampler that also knows the times of targets that are edges or links."""

    def edge_cutoffs(self, read: Callable[[str], np.ndarray], earlier: bool) -> np.ndarray:
        """The cutoffs of targets that are edges or links, [n] int64 or float64, of the same type on
        all workers.

        Args:
            read: Reads an edge column for the targets, by its name.
            earlier: Whether the targets may only see edges that are earlier than they are.
        """

    def of_pairs(self) -> Sampler:
        """The sampler for targets that are edges or links, which reads no times of nodes."""


@runtime_checkable
class PreparedSampler(Protocol):
    """A sampler that computes something from the stored edges before it samples."""

    def prepare(self, partition: Partition, relation: StoredRelation, reverse: bool) -> None:
        """Prepare for one pass. Called once for each pass before the first view is built, since the
        ranks build pipelined views in different orders and cannot prepare together then.

        Args:
            partition: The partition to sample from.
            relation: The edges of the pass.
            reverse: Whether messages run against the edges.

        Collective: all ranks of the partition.
        """
