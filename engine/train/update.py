"""How summed gradients become an update: clipping and the learning-rate schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from graphtheta.errors import ConfigError

from ...ops.optimisers.optim import Optimiser

Schedule = Callable[[int], float]


def constant(update: int) -> float:
    """The schedule that does not change learning rates."""
    return 1.0


class Plateau:
    """A factor of learning rates that decays where a model stops to improve.

    It follows from the evaluations so far alone, which all workers share and checkpoints hold.

    Args:
        decay: Multiplied with the factor after more than ``patience`` evaluations in a row that
            were no better than the best one before.
        patience: Number of these evaluations.

    Attributes:
        factor: The factor.
    """

    def __init__(self, decay: float, patience: int):
        self.decay = decay
        self.patience = patience
        self.begin(())

    def begin(self, qualities: Iterable[float]) -> None:
        """Start again, after some evaluations; larger is better."""
        self.factor = 1.0
        self._best: float | None = None
        self._waited = 0
        for quality in qualities:
            self.take(quality)

    def take(self, quality: float) -> None:
        """Count an evaluation."""
        if self._best is None or quality > self._best:
            self._best = quality
            self._waited = 0
            return
        self._waited += 1
        if self._waited > self.patience:
            self.factor *= self.decay
            self._waited = 0


@dataclass(frozen=True)
class UpdateRule:
    """What is done with the gradients of a step, summed over views and workers.

    Attributes:
        schedule: Maps the number of an update, counted from 0, to a factor of all learning rates.
        clip_norm: Largest Euclidean norm of all gradients together; longer ones are scaled down to
            it. 0 is off.
        plateau: A further factor of all learning rates, which evaluations change; None for none.
    """

    schedule: Schedule = constant
    clip_norm: float = 0.0
    plateau: Plateau | None = None

    def factor(self, update: int) -> float:
        """The factor of all learning rates for update number ``update``, from 0.

        Raises:
            ConfigError: The schedule does not return a finite number of at least 0.
        """
        factor = self.schedule(update)
        if not isinstance(factor, (int, float, np.number)) or not 0 <= factor < np.inf:
            raise ConfigError(
                f"lr_schedule gives {factor!r} for update {update}; expected the factor of the"
                " learning rate, a finite number of at least 0"
            )
        return float(factor) * (1.0 if self.plateau is None else self.plateau.factor)

    def apply(
        self,
        optimiser: Optimiser,
        gradients: Sequence[np.ndarray],
        update: int,
        others: float = 0.0,
    ) -> float:
        """Make an update; returns the factor that clipping has multiplied with the gradients.

        Args:
            optimiser: Holds the parameters.
            gradients: One per parameter of the optimiser, the same bits on every worker.
            update: Its number, from 0.
            others: The sum of the squares of other gradients that are clipped with these, the same
                bits on every worker.

        Raises:
            ConfigError: See ``factor``.
        """
        scale = 1.0
        if self.clip_norm:
            length = float(
                np.sqrt(
                    others + sum(float(np.sum(np.square(g, dtype=np.float64))) for g in gradients)
                )
            )
            scale = self.clip_norm / length if length > self.clip_norm else 1.0
        optimiser.step(
            [g * g.dtype.type(scale) for g in gradients] if scale < 1 else gradients,
            self.factor(update),
        )
        return scale
