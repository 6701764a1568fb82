"""Weights of rows in the loss: by class, by a column of the graph, or by both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Weighting:
    """What each label of each row weighs in the weighted mean that is the loss.

    Attributes:
        classes: Weight of each class, [C] float64; of several labels a row, those of 0 and of 1 of
            each label, [2, C]; None if all weigh 1.
        column: Node or edge column of the weights of rows; empty if all weigh 1.
        mean: Mean weight of the known labels of all targets of all workers.
    """

    classes: np.ndarray | None = None
    column: str = ""
    mean: float = 1.0

    def of(self, y: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
        """Weights of labels; those of unknown labels are not used.

        Args:
            y: Labels, [n] or [n, C].
            rows: Values of ``column`` for the same rows, [n]; None without a column.

        Returns:
            [n], or [n, C] for several labels a row.
        """
        weights = np.ones(len(y)) if rows is None else rows.astype(np.float64)
        if self.classes is None:
            return weights
        if self.classes.ndim == 1:
            return np.asarray(weights * self.classes[np.maximum(y, 0)])
        return np.asarray(weights[:, None] * np.where(y == 1, self.classes[1], self.classes[0]))


def balanced(counts: np.ndarray) -> np.ndarray:
    """Weights of classes that give each the same total: n / (k n_c) for k classes that occur, 1 for
    the others.

    Args:
        counts: Targets of each class, [C] or [C, ...]; classes are the first axis.
    """
    n = counts.sum(axis=0)
    occurring = (counts > 0).sum(axis=0)
    return np.asarray(
        np.where(counts > 0, n / (np.maximum(counts, 1) * np.maximum(occurring, 1)), 1.0)
    )
