"""What the stages of a mini-batch cost, and how many mini-batches in flight take the least time.

A stage computes, which takes a core, and waits for other workers, which takes none. With f views in
flight on c cores the time of a view is the largest of

    cores    (prepare + compute) / c               all of it must be computed
    updates  compute + its waits, over the views   the next step needs the parameters of this one
             of a step
    flight   (prepare + compute + all waits) / f   a view takes so long from its start to its end

where "prepare" is sampling, fetching and assembling, which need no parameters, and "compute" is
forward, backward and sum of gradients. One view at a time takes the sum of all. Stages are not
bound to cores of their own, as in BGL: a core takes whatever can continue, so that the first line
is the least over all divisions of the cores among the stages.

Source: the minimax of BGL, https://arxiv.org/abs/2112.08541 (section 3.4)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

# stages of the ledger that need no parameters; all others of a step do
PREPARE = ("batch", "fetch")
# a further view in flight takes memory, so it must save this share of the time
WORTH = 0.02
# times of views vary, and workers wait for the slowest of them, so more views are in flight than
# the means ask for
SPARE = 2
LIMITS = ("cores", "updates", "flight")


@dataclass(frozen=True)
class Costs:
    """Seconds of a view on one worker.

    Attributes:
        prepare, compute: Of processor.
        prepare_wait, compute_wait: In which it waits for other workers.
    """

    prepare: float
    compute: float
    prepare_wait: float
    compute_wait: float

    @classmethod
    def of(cls, stages: Mapping[str, Mapping[str, float]], views: int) -> Costs:
        """From what a ledger counted for some views."""
        seconds = np.zeros(2)
        wait = np.zeros(2)
        for stage, book in stages.items():
            kind = 0 if stage in PREPARE else 1
            seconds[kind] += book["seconds"]
            wait[kind] += book["wait"]
        return cls(*(seconds / views).tolist(), *(wait / views).tolist())

    @property
    def whole(self) -> float:
        """From the start of a view to its end."""
        return self.prepare + self.compute + self.prepare_wait + self.compute_wait

    def bounds(self, flight: int, cores: int, together: int) -> tuple[float, float, float]:
        """The least time of a view by each of ``LIMITS``.

        Args:
            flight: Views in flight, at least 1.
            cores: Cores of the worker.
            together: Views that need no update of each other: those of a step, times 1 + staleness.
        """
        used = min(cores, flight)
        chain = (self.compute + self.compute_wait) / together
        return (self.prepare + self.compute) / used, chain, self.whole / flight

    def seconds(self, flight: int, cores: int, together: int) -> float:
        """The time of a view; arguments as for ``bounds``."""
        return max(self.bounds(flight, cores, together))

    def best(self, most: int, cores: int, together: int) -> tuple[int, str]:
        """Views in flight, at most ``most``, and what limits.

        If more than one pays, they are ``SPARE`` times the fewest that take hardly longer than any
        other number.
        """
        times = [self.seconds(flight, cores, together) for flight in range(1, most + 1)]
        fewest = next(i for i, t in enumerate(times, start=1) if t <= min(times) * (1 + WORTH))
        bounds = self.bounds(fewest, cores, together)
        limit = next(
            name for name, t in zip(LIMITS, bounds, strict=True) if t * (1 + WORTH) >= max(bounds)
        )
        return min(SPARE * fewest, most) if fewest > 1 else 1, limit
