"""Training whose first steps are profiled, to choose the number of views in flight."""

from __future__ import annotations

import numpy as np

from graphtheta.engine.comm.ledger import STAGES
from graphtheta.engine.train.step import Training
from graphtheta.train.pipeline.costs import PREPARE, Costs

# steps before the profile, in which caches fill and loops are compiled, and steps of the profile
WARM, PROFILED = 2, 8
FIELDS = ("seconds", "wait")
SAID = {
    "cores": "the processor limits",
    "updates": "the updates limit, since each needs the one before",
    "flight": "the number of views in flight limits",
}


class Pipeline:
    """Runs a training, whose first steps compute one view after another and are profiled.

    Args:
        training: Its views in flight are the most that may be chosen.
        least: Steps to profile at least; macrobatches expand the views of several steps in the
            first of them.

    Attributes:
        line: What was chosen, for the log; empty until then.
        costs: The profile; None until then.
    """

    def __init__(self, training: Training, least: int = 1):
        self._training = training
        self._most = training.queue.in_flight
        self._left = WARM + max(PROFILED, least)
        self._warm = WARM
        self._counted = np.zeros((len(STAGES), len(FIELDS)))
        self._views = 0
        self.line = ""
        self.costs: Costs | None = None
        training.queue.in_flight = 1

    def run(self, epoch: int, first: int, last: int) -> np.ndarray:
        """As ``Training.run``, with the same numbers."""
        training = self._training
        per = self._training.views_per_step
        losses = []
        while self._left and first < last:
            end = min(first + per, last)
            before = training.job_comm.ledger.snapshot()
            losses.append(training.run(epoch, first, end))
            self._count(training.job_comm.ledger.since(before), end - first)
            first = end
        return np.concatenate([*losses, training.run(epoch, first, last)])

    def _count(self, books: dict[str, dict[str, float]], views: int) -> None:
        """Take the times of a step; after the last one to profile, choose.

        Collective: all ranks, after the last one.
        """
        self._left -= 1
        if self._warm:
            self._warm -= 1
            return
        self._counted += [[books[stage][name] for name in FIELDS] for stage in STAGES]
        # in independent mode a worker computes one view of a group
        self._views += -(-views // self._training.width)
        if not self._left:
            self._choose()

    def _choose(self) -> None:
        training = self._training
        # the slowest worker decides
        counted = training.job_comm.all_max(self._counted)
        stages = {
            stage: dict(zip(FIELDS, values, strict=True))
            for stage, values in zip(STAGES, counted.tolist(), strict=True)
        }
        self.costs = costs = Costs.of(stages, self._views)
        # channels follow from the views in flight, so that all workers choose alike
        cores = int(training.job_comm.all_min(np.array(training.job_comm.cores)))
        # views of this worker that need no update of each other
        together = -(-training.views_per_step // training.width) * (1 + training.versions.staleness)
        flight, limit = costs.best(self._most, cores, together)
        training.queue.in_flight = flight
        parts = ", ".join(
            f"{stage} {_ms(book['seconds'] / self._views)} and {_ms(book['wait'] / self._views)}"
            " waiting"
            for stage, book in stages.items()
            if stage in PREPARE and sum(book.values())
        )
        self.line = (
            f"pipeline=auto: a view takes {_ms(costs.prepare)} to prepare ({parts}),"
            f" {_ms(costs.compute)} to compute and "
            f"{_ms(costs.compute_wait)} waiting for that; {flight} of at most {self._most} views in"
            " flight take about "
            f"{_ms(costs.seconds(flight, cores, together))} each, one after another"
            f" {_ms(costs.whole)}; {SAID[limit]}"
        )


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
