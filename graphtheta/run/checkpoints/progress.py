"""Progress of a run: what a resumed run continues from, beside parameters and optimiser."""

from __future__ import annotations

from dataclasses import dataclass, field
from sys import intern
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from graphtheta.base.console import figure
from graphtheta.base.html import html_table
from graphtheta.base.wording import HintsAtNames

# seconds between two checks for a request to stop
CHECK_EVERY = 2.0
# what an evaluation changes, besides the history
STANDING = ("measured", "waited", "quality", "best_epoch", "metrics", "audit")


@dataclass(repr=False)
class Result(HintsAtNames):
    """The result of a run.

    Attributes:
        best_epoch: Epoch of the best validation metric.
        metrics: Metrics of the best model ("test_accuracy", ...).
        history: One row per evaluated epoch.
        seconds: Time spent training.
        positive: Name of the positive class, that f1, auc and average_precision are about; empty if
            there are not two classes.
        eval_fanout: Numbers of neighbours of the sampled neighbourhoods that metrics are about;
            empty for exact metrics.
        metric: Name of the metric that the best epoch is the best of.
    """

    best_epoch: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    positive: str = ""
    eval_fanout: str = ""
    metric: str = ""

    def __repr__(self) -> str:
        values = "".join(
            f", {name} {figure(x)}"
            for name, x in self.metrics.items()
            if name.partition("_")[2] == self.metric
        )
        n = len(self.history)
        evaluations = f"{n:,} evaluation{'s' * (n != 1)}"
        return f"Result(best epoch {self.best_epoch}{values}; {evaluations}, {self.seconds:.1f} s)"

    def _repr_html_(self) -> str:
        pairs = [name.partition("_")[::2] for name in self.metrics]
        splits = list(dict.fromkeys(split for split, _ in pairs))
        rows = [
            (name, *(figure(self.metrics.get(f"{split}_{name}", "")) for split in splits))
            for name in dict.fromkeys(name for _, name in pairs)
        ]
        return html_table(f"best epoch {self.best_epoch}", ("metric", *splits), rows)


class Progress(BaseModel):
    """Progress of a run; the same on every rank, apart from seconds, and part of every checkpoint.

    Attributes:
        epoch: Number of the current epoch, from 0.
        losses: Losses of the views of this epoch that are done, summed over the ranks.
        epoch_seconds, seconds: Training time of this epoch and of the run.
        last: Mean loss of the epoch before, and its training time; None in the first epoch.
        measured: Whether the model was evaluated after the last step.
        waited: Number of evaluations since the best one.
        quality: Validation metric of the best model and, to break ties, its negative validation
            loss; larger is better.
        best_epoch, metrics: Epoch and metrics of the best model.
        history: A row per evaluated epoch.
        audit: Figures of the last audit.
        before: ``STANDING`` before the last evaluation, if that is there only because the run ends
            with it; a run that goes on must not count it.
        ended: Whether a callback ended the run.
        over: Whether the run is finished.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    epoch: int = 0
    losses: list[float] = []
    epoch_seconds: float = 0.0
    seconds: float = 0.0
    last: list[float] | None = None
    measured: bool = False
    waited: int = 0
    quality: list[float] | None = None
    best_epoch: int = 0
    metrics: dict[str, float] = {}
    history: list[dict[str, Any]] = []
    audit: dict[str, float] = {}
    before: dict[str, Any] | None = None
    ended: bool = False
    over: bool = False

    def take_views(self, losses: np.ndarray, seconds: float) -> None:
        """Record views of this epoch; losses [n], summed over the ranks."""
        self.losses += losses.tolist()
        self.epoch_seconds += seconds
        self.seconds += seconds
        self.measured = False

    @property
    def evaluated(self) -> tuple[int, float, float]:
        """Number of the epoch, from 1, that an evaluation is about, its mean loss and its training
        time.
        """
        if self.losses or self.last is None:
            return self.epoch + 1, float(np.mean(self.losses)), self.epoch_seconds
        loss, seconds = self.last
        return self.epoch, loss, seconds

    def take_row(
        self,
        row: dict[str, Any],
        metrics: dict[str, float],
        quality: tuple[float, float],
        before: dict[str, Any] | None = None,
    ) -> bool:
        """Record an evaluation of the model; returns whether it is the best so far.

        Args:
            row: For the history.
            metrics: Of the model.
            quality: See the attribute.
            before: See the attribute.
        """
        self.before = before
        # interning saves memory: a long run has many rows with the same names
        self.history.append({intern(name): value for name, value in row.items()})
        self.measured = True
        best = tuple(self.quality) if self.quality else None
        # a smaller loss at an equal metric makes a better model, but does not reset patience
        self.waited = 0 if best is None or quality[0] > best[0] else self.waited + 1
        if best is not None and quality <= best:
            return False
        self.quality = list(quality)
        self.best_epoch = row["epoch"]
        self.metrics = metrics
        return True

    def standing(self) -> dict[str, Any]:
        """What the next evaluation changes, besides the history."""
        return {name: getattr(self, name) for name in STANDING}

    def without_last(self) -> None:
        """Forget the evaluation at the end of the run, which goes on."""
        for name, value in (self.before or {}).items():
            setattr(self, name, value)
        self.history.pop()
        self.before = None
        self.over = False

    def next_epoch(self) -> None:
        """Begin the next epoch, after all views of this one and its evaluation if it is due."""
        self.last = [float(np.mean(self.losses)), self.epoch_seconds]
        self.epoch += 1
        self.losses = []
        self.epoch_seconds = 0.0

    def frozen(self) -> Progress:
        """A copy that later progress does not change; items of lists are shared and immutable."""
        return self.model_copy(
            update={"losses": self.losses.copy(), "history": self.history.copy()}
        )

    def result(self, positive: str = "", eval_fanout: str = "", metric: str = "") -> Result:
        """The result of the run; for the arguments see there."""
        return Result(
            best_epoch=self.best_epoch,
            metrics=self.metrics,
            history=self.history,
            seconds=self.seconds,
            positive=positive,
            eval_fanout=eval_fanout,
            metric=metric,
        )


class Pace:
    """Number of updates between two checks for a request to stop: about ``CHECK_EVERY`` seconds.

    A check drains the pipeline of mini-batches, so that a check after every update would undo its
    gain.

    Args:
        every: Also check after each multiple of any of these numbers of updates; 0 is none.
    """

    def __init__(self, *every: int):
        self.every = [n for n in every if n]
        self._updates = 1

    def updates(self, step: int) -> int:
        """Number of updates to make after ``step`` of them."""
        return min([self._updates, *(n - step % n for n in self.every)])

    def adapt(self, updates: int, seconds: float) -> None:
        """Adapt to the time that some updates took; both numbers are the same on every rank."""
        # the first updates compile, and take longer than all others
        self._updates = max(
            1, min(2 * self._updates, int(updates * CHECK_EVERY / max(seconds, 1e-9)))
        )
