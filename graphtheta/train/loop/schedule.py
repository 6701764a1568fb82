"""Learning-rate schedules: from the number of an update to the factor of the learning rate in it.

A schedule depends only on the number of the update, counted from 0, and "plateau" on the
evaluations so far, so that a resumed run continues it and all workers agree.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi

from graphtheta.engine.train.update import Plateau, Schedule, constant
from graphtheta.run.job.job import Job


def cosine(updates: int) -> Schedule:
    """From 1 to 0 along half a cosine over ``updates`` updates, and 0 afterwards."""
    return lambda update: (1 + cos(pi * min(update / updates, 1.0))) / 2


def step(updates: int, factor: float) -> Schedule:
    """Multiplied by ``factor`` after every ``updates`` updates."""
    return lambda update: factor ** (update // updates)


def warm_up(updates: int, then: Schedule) -> Schedule:
    """Linearly from 1 / updates to 1 over ``updates`` updates; then ``then`` from its update 0."""
    return lambda update: (update + 1) / updates if update < updates else then(update - updates)


SCHEDULES: dict[str, Callable[[Job], Schedule]] = {
    "constant": lambda job: constant,
    "cosine": lambda job: cosine(job.lr_decay_updates),
    "step": lambda job: step(job.lr_decay_updates, job.lr_decay),
    # evaluations decide, and not the number of the update
    "plateau": lambda job: constant,
}


def plateau_of(job: Job) -> Plateau | None:
    """The factor that follows evaluations, if the keys of a job describe one."""
    return Plateau(job.lr_decay, job.lr_patience) if job.lr_schedule == "plateau" else None


def schedule_of(job: Job) -> Schedule:
    """The schedule that the keys of a job describe."""
    then = SCHEDULES[job.lr_schedule](job)
    return warm_up(job.lr_warmup_updates, then) if job.lr_warmup_updates else then
