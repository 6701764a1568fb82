"""Training whose first steps are profiled, to choose the number of views in flight and the threads
of each stage.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphtheta.base.logger import logger
from graphtheta.engine.comm.ledger import STAGES as LEDGER
from graphtheta.engine.runtime.affinity import own_processors
from graphtheta.engine.train.stages import FREE, STAGES, StageThreads
from graphtheta.engine.train.step import Training
from graphtheta.run.job.job import Job
from graphtheta.train.pipeline.costs import Costs, enough
from graphtheta.train.pipeline.divisions import (
    AUTO,
    Division,
    as_text,
    bound,
    divisions_of,
    free,
)

# steps before the profile, in which caches fill and loops are compiled, and steps of each of its
# halves: with all threads, and with one
WARM, PROFILED = 2, 4
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
        least: Steps of a half of the profile at least; macrobatches expand the views of several
            steps in the first of them.
        chooses_flight: Whether fewer views in flight may be chosen.
        divisions: Divisions of the processors among the stages to choose from; none for threads
            that take all stages.
        processors: Of this worker, for the threads of stages.

    Attributes:
        line: What was chosen, for the log; empty until then.
        costs: The profile; None until then.
        stage_threads: The division of the processors, as the key of this name.
        seconds: The time of a view that is foreseen.
    """

    def __init__(
        self,
        training: Training,
        *,
        least: int = 1,
        chooses_flight: bool = True,
        divisions: Sequence[Division] = (),
        processors: Sequence[int] = (),
    ):
        self._training = training
        self._most = training.queue.in_flight
        self._chooses_flight = chooses_flight
        self._divisions = divisions
        self._processors = processors
        self._half = max(PROFILED, least)
        self._left = WARM + 2 * self._half
        self._warm = WARM
        # with one thread, and with all
        self._counted = np.zeros((2, len(LEDGER), len(FIELDS)))
        self._views = np.zeros(2, np.int64)
        self.line = ""
        self.costs: Costs | None = None
        self.stage_threads = FREE
        self.seconds = 0.0
        training.queue.in_flight = 1

    def run(self, epoch: int, first: int, last: int) -> np.ndarray:
        """As ``Training.run``, with the same numbers."""
        training = self._training
        per = self._training.views_per_step
        losses = []
        while self._left and first < last:
            end = min(first + per, last)
            before = training.job_comm.ledger.snapshot()
            losses.append(self._step(epoch, first, end))
            self._count(training.job_comm.ledger.since(before), end - first)
            first = end
        return np.concatenate([*losses, training.run(epoch, first, last)])

    def _step(self, epoch: int, first: int, last: int) -> np.ndarray:
        """A step of the profile, on one thread in its second half."""
        if self._left > self._half:
            return self._training.run(epoch, first, last)
        # numba takes long to import
        from graphtheta.ops.parallel import pool

        threads = pool.threads()
        pool.set_threads(1)
        try:
            return self._training.run(epoch, first, last)
        finally:
            pool.set_threads(threads)

    def _count(self, books: dict[str, dict[str, float]], views: int) -> None:
        """Take the times of a step; after the last one to profile, choose.

        Collective: all ranks, after the last one.
        """
        half = int(self._left > self._half)
        self._left -= 1
        if self._warm:
            self._warm -= 1
            return
        self._counted[half] += [[books[stage][name] for name in FIELDS] for stage in LEDGER]
        # in independent mode a worker computes one view of a group
        self._views[half] += -(-views // self._training.width)
        if not self._left:
            self._choose()

    def _choose(self) -> None:
        training = self._training
        comm = training.job_comm
        # the slowest worker decides
        counted = comm.all_max(self._counted / self._views[:, None, None])
        one, several = (
            {
                stage: dict(zip(FIELDS, values, strict=True))
                for stage, values in zip(LEDGER, of_half, strict=True)
            }
            for of_half in counted.tolist()
        )
        # channels follow from the views in flight, so that all workers choose alike
        cores = int(comm.all_min(np.array(comm.cores)))
        self.costs = costs = Costs.of(one, several, cores)
        # views of this worker that need no update of each other
        together = -(-training.views_per_step // training.width) * (1 + training.versions.staleness)
        division = costs.best_division(self._divisions or [free(cores)], self._most, together)
        times = comm.all_max(
            np.array([costs.seconds(division, f, together) for f in range(1, self._most + 1)])
        ).tolist()
        flight = enough(times) if self._chooses_flight else self._most
        training.queue.in_flight = flight
        training.queue.stages = bound(division, self._processors)
        self.stage_threads = as_text(division)
        self.seconds = times[flight - 1]
        divided = self._divided(costs.seconds(free(cores), flight, together))
        parts = ", ".join(
            f"{stage} {_ms(costs.alone(stage))} and {_ms(costs.wait[stage])} waiting"
            for stage in STAGES
        )
        self.line = (
            f"profile of the pipeline: a view takes, on one thread, {parts}; {flight} of at most"
            f" {self._most} views in flight take about {_ms(self.seconds)} each{divided}, one"
            f" after another {_ms(times[0])}; {SAID[costs.limit(division, flight, together)]}"
        )

    def _divided(self, undivided: float) -> str:
        """The division of the processors, in the words of the log, beside the time without one."""
        stages = self._training.queue.stages
        if not stages:
            return ""
        return (
            f" with stage_threads={self.stage_threads} ({_on_processors(stages)}), and with free"
            f" threads {_ms(undivided)} if these did not get in each other's way"
        )


def pipeline_of(job: Job, training: Training, macrobatch: int) -> Pipeline | None:
    """What chooses the views in flight and the threads of stages of a training; None if the job
    gives both, which the training then has.

    Args:
        job: The job.
        training: A new training.
        macrobatch: Steps whose views are expanded together; 0 for none.

    Raises:
        ConfigError: Threads cannot be bound to processors, or there are too few; on all ranks.

    Collective: all ranks.
    """
    comm = training.job_comm
    divisions: list[Division] = []
    processors: list[int] = []
    if job.stage_threads != FREE:
        processors = own_processors(comm)
        with comm.agreed():
            divisions = divisions_of(job.stage_threads, processors, comm.rank)
    if job.pipeline == "auto" or job.stage_threads == AUTO:
        return Pipeline(
            training,
            least=macrobatch,
            chooses_flight=job.pipeline == "auto",
            divisions=divisions,
            processors=processors,
        )
    if divisions:
        training.queue.stages = bound(divisions[0], processors)
        logger.info(f"stage_threads={job.stage_threads}: {_on_processors(training.queue.stages)}")
    return None


def _on_processors(stages: Sequence[StageThreads]) -> str:
    return "; ".join(
        f"{threads.name} on processor {', '.join(map(str, threads.processors))}"
        for threads in stages
    )


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
