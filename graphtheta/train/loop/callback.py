"""``gt.Callback``: user functions that ``Trainer.fit`` calls during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.run.checkpoints.progress import Progress


@dataclass(frozen=True)
class Now:
    """The progress of a run, read-only, for callbacks.

    Attributes:
        epoch: Number of the epoch, from 1.
        step: Updates so far.
        losses: Losses of the views of this epoch that are done, means over all workers.
        row: The last evaluation: "epoch", "step", "loss" and the metrics ("val_accuracy", ...);
            empty before the first.
        best_epoch: Epoch of the best model so far; 0 before the first evaluation.
        seconds: Training time.
    """

    epoch: int
    step: int
    losses: tuple[float, ...]
    row: Mapping[str, Any]
    best_epoch: int
    seconds: float

    @classmethod
    def of(cls, run: Progress, step: int) -> Now:
        """The progress of a run after ``step`` updates."""
        row = MappingProxyType(dict(run.history[-1]) if run.history else {})
        return cls(
            epoch=run.epoch + 1,
            step=step,
            losses=tuple(run.losses),
            row=row,
            best_epoch=run.best_epoch,
            seconds=run.seconds,
        )


class Callback:
    """Base class of callbacks; override the methods you need.

    All workers call them with the same values, apart from seconds. A method that returns True on
    any worker ends training on all of them, as after the last epoch. A callback may call
    collective methods of the trainer, on all workers alike.
    """

    as_argument = "an object of a class derived from gt.Callback"

    def on_step(self, now: Now) -> bool | None:
        """After every update; overriding it disables pipelining across updates."""

    def on_evaluation(self, now: Now) -> bool | None:
        """After an evaluation; ``now.row`` is new."""

    def on_epoch(self, now: Now) -> bool | None:
        """At the end of an epoch, after its evaluation if it has one."""

    def on_end(self, now: Now) -> None:
        """Once, after training, when the model holds its best weights; not if interrupted."""


class Callbacks:
    """Several callbacks as one.

    Args:
        callbacks: Called in this order.

    Attributes:
        every_step: Whether a callback overrides ``on_step``.
    """

    def __init__(self, callbacks: Sequence[Callback]):
        self._callbacks = list(callbacks)
        self.every_step = any(type(c).on_step is not Callback.on_step for c in self._callbacks)

    def call(self, method: str, run: Progress, step: int) -> bool:
        """Call a method of all, after ``step`` updates; returns whether one ends training."""
        now = Now.of(run, step)
        answers = [getattr(callback, method)(now) for callback in self._callbacks]
        return any(answer is True for answer in answers)

    def agree(self, ends: bool, comm: Comm) -> bool:
        """Whether any rank ends the run.

        Collective: all ranks of comm.
        """
        return bool(self._callbacks) and float(comm.all_sum(np.asarray(float(ends)))) > 0
