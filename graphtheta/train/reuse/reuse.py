"""What a run keeps for later views, and what it makes ahead of them."""

from __future__ import annotations

from dataclasses import dataclass

from graphtheta.engine.strategy.strategy import Strategy
from graphtheta.run.job.job import Job
from graphtheta.train.reuse.caching.foresight import Foresight
from graphtheta.train.reuse.caching.setup import Caches, make_caches
from graphtheta.train.reuse.macrobatch.ahead import Macrobatches
from graphtheta.train.reuse.macrobatch.setup import make_macrobatches


@dataclass(frozen=True)
class Reuse:
    """Caches and macrobatches of a run; new ones when it begins or resumes.

    Attributes:
        caches: Caches of features.
        macrobatches: Make the views of several steps together; None to make them one by one.
    """

    caches: Caches
    macrobatches: Macrobatches | None

    @classmethod
    def of(
        cls,
        job: Job,
        strategy: Strategy,
        views_per_step: int,
        independent: bool,
        room: int | None = None,
    ) -> Reuse:
        """New caches and macrobatches of a job. The caches replace earlier ones of the same
        columns.

        Args:
            job: The job.
            strategy: Makes the views, from a partition as ``with_cached_columns`` returns it.
            views_per_step: Views of a step.
            independent: Whether each worker computes views of its own.
            room: Bytes of this worker that macrobatch=auto may use; None for its share of a part
                of the free memory.

        Collective: all ranks of the strategy's partition.
        """
        caches = make_caches(job, strategy, views_per_step, independent and not strategy.alone)
        macrobatches = make_macrobatches(
            job=job,
            strategy=strategy,
            caches=caches,
            views_per_step=views_per_step,
            independent=independent,
            room=room,
        )
        return cls(caches, macrobatches)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that they may hold."""
        return self.caches.nbytes + (0 if self.macrobatches is None else self.macrobatches.nbytes)

    @property
    def foresight(self) -> Foresight | None:
        """What tells caches by dry runs of the sampler what is read next; None if none asks, or if
        macrobatches tell it.
        """
        ahead = self.macrobatches
        return self.caches.foresight if ahead is None or ahead.foresight is None else None
