"""Measures of scores that need all rows at once: areas under curves, and the best threshold.

Rows are gathered first. Scores tie if they are equal, and in no other case. Infinite scores are the
highest and the lowest ones. A value does not depend on the order of the rows, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from .shared import same_shape


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve: the chance that a positive scores above a negative, ties counting
    half.

    Args:
        labels: [n] or [n, C] of 0 and 1; NaN (unknown) is left out.
        scores: Numbers of the same shape.

    Returns:
        The mean over the columns that have positives and negatives; NaN if none has or a score is
        NaN.
    """
    areas = [area for area in map(one_auc, _columns(labels, scores)) if area is not None]
    return float(np.mean(areas)) if areas else float("nan")


def one_auc(column: LabelScores) -> float | None:
    """The area of one column, the Mann-Whitney statistic; None without both kinds of rows."""
    positive, negative = column
    if not len(positive) or not len(negative):
        return None
    if column.has_nan:
        return float("nan")
    # of each positive, twice the negatives below and once those at its score
    twice = (
        negative.searchsorted(positive, "left").sum()
        + negative.searchsorted(positive, "right").sum()
    )
    return float(twice / (2 * len(positive) * len(negative)))


def average_precision(labels: np.ndarray, scores: np.ndarray) -> float:
    """Sum of the precision at each score, weighted by the rise in recall, without interpolation;
    rows that tie are taken together.

    Args:
        labels, scores: As for :func:`auc`.

    Returns:
        The mean over the columns that have known labels; one without positives counts as 0, as in
        scikit-learn. NaN if no label is known or a score is NaN.
    """
    precisions = [
        one_average_precision(column) for column in _columns(labels, scores) if column.n_rows
    ]
    return float(np.mean(precisions)) if precisions else float("nan")


def one_average_precision(column: LabelScores) -> float:
    """The average precision of one column, 0 without positives."""
    if column.has_nan:
        return float("nan")
    if not len(column.positive):
        return 0.0
    cuts = _cuts(column)
    rise = np.diff(cuts.true, prepend=0)
    return float(np.sum(rise * (cuts.true / cuts.taken)) / len(column.positive))


def f1_at(true: np.ndarray, taken: np.ndarray, positives: int, n: int) -> np.ndarray:
    """F1 if ``taken`` of n rows are predicted, ``true`` of them rightly."""
    return np.asarray(2 * true / (taken + positives))


def balanced_accuracy_at(true: np.ndarray, taken: np.ndarray, positives: int, n: int) -> np.ndarray:
    """Balanced accuracy if ``taken`` of n rows are predicted, ``true`` of them rightly."""
    return np.asarray(
        (true / positives + (n - positives - taken + true) / max(n - positives, 1))
        / (2 if n > positives else 1)
    )


# goals of thresholds by name; none may rise if a negative is predicted too
GOALS: dict[str, Callable[[np.ndarray, np.ndarray, int, int], np.ndarray]] = {
    "f1": f1_at,
    "balanced_accuracy": balanced_accuracy_at,
}


def best_thresholds(labels: np.ndarray, scores: np.ndarray, goal: str) -> np.ndarray:
    """For each column, the score above which a row is predicted positive so that a measure is
    largest.

    A threshold lies in the middle between two scores, or at the lower one if no number lies between
    them; it is the highest of the best.

    Args:
        labels, scores: As for :func:`auc`, [n, C].
        goal: A name in ``GOALS``.

    Returns:
        [C] float64: -inf to predict all rows, and the highest score to predict none, which is best
        only if rows score -inf; 0 for a column without positives, or with a score that is NaN.
    """
    return np.array([_best_threshold(column, goal) for column in _columns(labels, scores)])


def _best_threshold(column: LabelScores, goal: str) -> float:
    if column.has_nan or not len(column.positive):
        return 0.0
    measure = GOALS[goal]
    positives = len(column.positive)
    cuts = _cuts(column)
    # no threshold is below -inf
    reached = np.count_nonzero(cuts.score > -np.inf)
    quality = measure(cuts.true[:reached], cuts.taken[:reached], positives, column.n_rows)
    of_none = measure(np.zeros(1), np.zeros(1), positives, column.n_rows)
    if quality.max(initial=-np.inf) < of_none[0]:
        return max(float(scores[-1]) for scores in column if len(scores))
    best = int(np.argmax(quality))
    at = float(cuts.score[best])
    below = _next_below(column, cuts.score[best])
    middle = at / 2 + below / 2
    # between neighbouring numbers, and below infinity, there is no middle
    return middle if middle < at else below


class LabelScores(NamedTuple):
    """The scores of one column of labels.

    Attributes:
        positive, negative: Scores of the known rows whose label is 1, and of the others, ascending.
    """

    positive: np.ndarray
    negative: np.ndarray

    @property
    def n_rows(self) -> int:
        """Number of known rows."""
        return len(self.positive) + len(self.negative)

    @property
    def has_nan(self) -> bool:
        """Whether a score is NaN; sorting puts it last."""
        return any(bool(np.isnan(scores[-1])) for scores in self if len(scores))


class Cuts(NamedTuple):
    """Places to cut the order of the rows: just below each score of positives, from the highest on.

    Attributes:
        score: The score, [m].
        true, taken: Positives, and all rows, that score at least as high, [m] int64.
    """

    score: np.ndarray
    true: np.ndarray
    taken: np.ndarray


def _columns(labels: np.ndarray, scores: np.ndarray) -> Iterator[LabelScores]:
    """The sorted scores of each column."""
    same_shape(labels, scores)
    width = labels.shape[1] if labels.ndim == 2 else 1
    for y, x in zip(labels.reshape(-1, width).T, scores.reshape(-1, width).T, strict=True):
        labelled = ~np.isnan(y) if y.dtype.kind == "f" else np.ones(len(y), bool)
        yield LabelScores(np.sort(x[y == 1]), np.sort(x[labelled & (y != 1)]))


def _cuts(column: LabelScores) -> Cuts:
    positive, negative = column
    first = np.flatnonzero(np.append(True, positive[1:] != positive[:-1])[: len(positive)])[::-1]
    score = positive[first]
    true = len(positive) - first
    return Cuts(score, true, true + len(negative) - negative.searchsorted(score, "left"))


def _next_below(column: LabelScores, score: np.generic) -> float:
    """The highest score that is below a score; -inf if there is none."""
    last = [scores.searchsorted(score, "left") - 1 for scores in column]
    return max(
        (float(scores[i]) for scores, i in zip(column, last, strict=True) if i >= 0),
        default=-np.inf,
    )
