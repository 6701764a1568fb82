"""What the stages of a mini-batch cost, and how many mini-batches in flight, and which division of
the processors among the stages, take the least time.

A stage computes, which takes a processor, and waits for other workers, which takes none. On c
threads a stage of a view computes for a / c + d seconds, where a and d are fitted to times on one
thread and on all. A team of p processors takes some stages of k views at a time, with p / k threads
each. With f views in flight the time of a view is the largest of

    cores    over the teams, their stages' sum of a / p + d / k   all of it must be computed
    updates  compute + its waits, over the views of a step        the next step needs its parameters
    flight   all stages + all waits, over f                       from its start to its end

k is at most p and f, for compute also the views that need no update of each other. One team of all
processors takes all stages by default: a thread takes whatever can continue, so that the first line
is then the least over all divisions. It leaves out what threads cost that get in each other's way.

Source: the minimax of BGL, https://arxiv.org/abs/2112.08541 (section 3.4), which fits such a line
to one stage and takes d = 0 for the others
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphtheta.engine.train.stages import COMPUTE, FEATURES, SAMPLING, STAGES
from graphtheta.train.pipeline.divisions import Division

# stages of the ledger and what they belong to; all others belong to compute
BELONGS = {"batch": SAMPLING, "fetch": FEATURES}
# a further view in flight takes memory, so it must save this share of the time
WORTH = 0.02
# times of views vary, and workers wait for the slowest of them, so more views are in flight than
# the means ask for
SPARE = 2
LIMITS = ("cores", "updates", "flight")


@dataclass(frozen=True)
class Costs:
    """Seconds of a view on one worker, by stage of the pipeline.

    Attributes:
        divided: Of one thread, which several threads divide.
        serial: Which do not depend on the number of threads.
        wait: In which it waits for other workers.
    """

    divided: dict[str, float]
    serial: dict[str, float]
    wait: dict[str, float]

    @classmethod
    def of(
        cls,
        one: Mapping[str, Mapping[str, float]],
        several: Mapping[str, Mapping[str, float]],
        threads: int,
    ) -> Costs:
        """From what a ledger counts for a view on one thread, and on several."""
        divided = dict.fromkeys(STAGES, 0.0)
        serial = dict.fromkeys(STAGES, 0.0)
        wait = dict.fromkeys(STAGES, 0.0)
        for name, book in one.items():
            stage = BELONGS.get(name, COMPUTE)
            alone = book["seconds"]
            saved = alone - several[name]["seconds"]
            # what n threads divide takes 1 / n of the time
            parallel = alone if threads == 1 else min(max(saved / (1 - 1 / threads), 0.0), alone)
            divided[stage] += parallel
            serial[stage] += alone - parallel
            wait[stage] += several[name]["wait"]
        return cls(divided, serial, wait)

    def alone(self, stage: str) -> float:
        """Seconds of a stage on one thread."""
        return self.divided[stage] + self.serial[stage]

    def bounds(self, division: Division, flight: int, together: int) -> tuple[float, float, float]:
        """The least time of a view by each of ``LIMITS``.

        Args:
            division: The processors of each team.
            flight: Views in flight, at least 1.
            together: Views that need no update of each other: those of a step, times 1 + staleness.
        """
        chain = 0.0
        longest = sum(self.wait.values())
        busiest = 0.0
        for stages, processors in division:
            busy = 0.0
            for stage in stages:
                views = min(processors, flight, together if stage == COMPUTE else flight)
                seconds = self.divided[stage] * views / processors + self.serial[stage]
                busy += seconds / views
                longest += seconds
                if stage == COMPUTE:
                    chain = (seconds + self.wait[stage]) / together
            busiest = max(busiest, busy)
        return busiest, chain, longest / flight

    def seconds(self, division: Division, flight: int, together: int) -> float:
        """The time of a view; arguments as for ``bounds``."""
        return max(self.bounds(division, flight, together))

    def best_division(self, divisions: Sequence[Division], flight: int, together: int) -> Division:
        """That of the least time of a view; of several, the one with the fewest teams."""
        return min(divisions, key=lambda d: (self.seconds(d, flight, together), len(d)))

    def limit(self, division: Division, flight: int, together: int) -> str:
        """Which of ``LIMITS`` is the largest, or nearly so."""
        bounds = self.bounds(division, flight, together)
        return next(
            name for name, t in zip(LIMITS, bounds, strict=True) if t * (1 + WORTH) >= max(bounds)
        )


def enough(times: Sequence[float]) -> int:
    """Views in flight, at least 1, given the time of a view with 1, 2, ...

    If more than one pays, they are ``SPARE`` times the fewest that take hardly longer than any
    other number.
    """
    fewest = next(i for i, t in enumerate(times, start=1) if t <= min(times) * (1 + WORTH))
    return min(SPARE * fewest, len(times)) if fewest > 1 else 1
