"""How far a run has come: what tells, beside parameters and optimiser, how it goes on."""
from __future__ import annotations

from dataclasses import dataclass, field
from sys import intern
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

# seconds between two looks at whether to stop
LOOK = 2.0


@dataclass
class Result:
    """What came out of a run.

    Attributes:
        best_epoch: Epoch of the best validation metric.
        metrics: Metrics of the best model ("test_accuracy", ...).
        history: One row per evaluated epoch.
        seconds: Time spent training.
    """

    best_epoch: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0


class Progress(BaseModel):
    """Where a run is; the same on every rank, apart from seconds, and part of every checkpoint.

    Attributes:
        epoch: Number of the epoch under way, from 0.
        losses: Of its views that are done, summed over the ranks.
        epoch_seconds, seconds: Spent training, in this epoch and in all.
        measured: Whether the model was evaluated after the last step.
        waited: Evaluations since the best one.
        quality: Of the best model: validation metric and, among equals, validation loss; larger is better.
        best_epoch, metrics: Of the best model.
        history: A row per evaluated epoch.
        ended: Whether a callback ended the run.
        over: Whether the run came to its end.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    epoch: int = 0
    losses: list[float] = []
    epoch_seconds: float = 0.0
    seconds: float = 0.0
    measured: bool = False
    waited: int = 0
    quality: list[float] | None = None
    best_epoch: int = 0
    metrics: dict[str, float] = {}
    history: list[dict[str, Any]] = []
    ended: bool = False
    over: bool = False

    def take_views(self, losses: np.ndarray, seconds: float) -> None:
        """Views of this epoch are done; losses [n], summed over the ranks."""
        self.losses += losses.tolist()
        self.epoch_seconds += seconds
        self.seconds += seconds
        self.measured = False

    def take_row(self, row: dict[str, Any], metrics: dict[str, float], quality: tuple[float, float]) -> bool:
        """The model was evaluated; returns whether it is the best so far."""
        # a long run has many rows, which need not have names of their own
        self.history.append({intern(name): value for name, value in row.items()})
        self.measured = True
        best = tuple(self.quality) if self.quality else None
        # a smaller loss at an equal metric is kept, but is no reason to wait longer
        self.waited = 0 if best is None or quality[0] > best[0] else self.waited + 1
        if best is not None and quality <= best:
            return False
        self.quality, self.best_epoch, self.metrics = list(quality), self.epoch + 1, metrics
        return True

    def next_epoch(self) -> None:
        """All views of the epoch are done, and it was evaluated if it had to be."""
        self.epoch += 1
        self.losses, self.epoch_seconds = [], 0.0

    def frozen(self) -> Progress:
        """As it is now, whatever becomes of it; what is in the lists is never changed."""
        return self.model_copy(update={"losses": self.losses.copy(), "history": self.history.copy()})

    def result(self) -> Result:
        """What came out of the run."""
        return Result(self.best_epoch, self.metrics, self.history, self.seconds)


class Pace:
    """How many updates are made between two looks at whether to stop: what takes about ``LOOK`` seconds.

    Several views in flight run dry at a look, so that one after every update would cost what they win.

    Args:
        every: Look after each multiple of so many updates too; 0 is off.
    """

    def __init__(self, every: int):
        self.every = every
        self._updates = 1

    def updates(self, step: int) -> int:
        """Updates to make after ``step`` of them."""
        return min(self._updates, self.every - step % self.every) if self.every else self._updates

    def adapt(self, updates: int, seconds: float) -> None:
        """Updates have taken so long; the same numbers on every rank."""
        # the first updates compile, and take longer than all others
        self._updates = max(1, min(2 * self._updates, int(updates * LOOK / max(seconds, 1e-9))))
