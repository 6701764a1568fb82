"""Thresholds: the probability above which a label, or the positive class of two, is predicted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from graphtheta.engine.comm.communicator import Comm
from graphtheta.ops.functions.metrics.scores import best_thresholds


@dataclass(frozen=True)
class Threshold:
    """A fixed threshold, or one for each label that is best on the validation rows.

    Attributes:
        value: The threshold if it is fixed, or one for each label.
        goal: What a chosen threshold maximises, a name in ``GOALS``; empty if it is fixed.
    """

    value: float | tuple[float, ...] = 0.5
    goal: str = ""

    def decided(
        self, comm: Comm, y: np.ndarray, out: np.ndarray, chosen: np.ndarray, positive: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Decisions, as outputs that are 1 for what is predicted and -1 for the rest.

        Args:
            comm: The workers.
            y: Labels, [n, C] of 0 and 1 (NaN: unknown); or classes, [n].
            out: Logits, [n, C]; or outputs of two classes, [n, 2].
            chosen: The rows on which thresholds are chosen, [n] bool; if there are none on any
                worker, they are 0.5.
            positive: The class, of two, whose probability is compared.

        Returns:
            [n, C] or [n, 2], of the type of ``out``, and the thresholds as probabilities, [C] or
            [1].

        Collective: all ranks of comm.
        """
        classes = y.ndim == 1
        margin = margin_of(out, positive)[:, None] if classes else out
        if self.goal:
            cut = self._chosen(comm, (y == positive)[:, None] if classes else y, margin, chosen)
        else:
            # a chosen one may have been rounded to 1, which nothing is above
            value = np.minimum(self.value, np.nextafter(1, 0))
            cut = np.broadcast_to(scipy.special.logit(value), margin.shape[1:])
        signs = np.where(margin > cut, 1, -1).astype(out.dtype)
        if classes:
            signs = np.concatenate((-signs, signs) if positive else (signs, -signs), axis=1)
        return signs, scipy.special.expit(cut)

    def _chosen(
        self, comm: Comm, y: np.ndarray, margin: np.ndarray, chosen: np.ndarray
    ) -> np.ndarray:
        labels = comm.gather_rows(y[chosen])
        margins = comm.gather_rows(margin[chosen])
        best = None
        if labels is not None and margins is not None:
            best = best_thresholds(np.concatenate(labels), np.concatenate(margins), self.goal)
        return np.asarray(comm.broadcast(best))


def margin_of(out: np.ndarray, positive: int) -> np.ndarray:
    """The output of the positive class minus that of the other one, [n], of outputs [n, 2]."""
    return np.asarray(out[:, positive] - out[:, 1 - positive])
