"""Measures of scores that need all rows at once: areas under curves, and the best threshold.

Rows are gathered first. Scores that differ only by rounding tie, so that values are equal on any
number of workers.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .shared import TIE, same_shape


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve: the chance that a positive scores above a negative, ties counting half.

    Args:
        labels: [n] or [n, C] of 0 and 1; NaN (unknown) is left out.
        scores: The same shape.

    Returns:
        The mean over the columns that have positives and negatives; NaN if none has or a score is NaN.
    """
    areas = [area for area in (one_auc(*rows) for rows in _columns(labels, scores)) if area is not None]
    return float(np.mean(areas)) if areas else float("nan")


def one_auc(positive: np.ndarray, scores: np.ndarray) -> float | None:
    """The area of one column, the Mann-Whitney statistic with ties counting half; None without both kinds of rows."""
    if positive.all() or not positive.any():
        return None
    if np.isnan(scores).any():
        return float("nan")
    width = _width(scores)
    negative, scores = np.sort(scores[~positive].astype(np.float64)), scores[positive].astype(np.float64)
    below, up_to = np.searchsorted(negative, scores - width, "left"), np.searchsorted(negative, scores + width, "right")
    return float((below + up_to).mean() / 2 / len(negative))


def average_precision(labels: np.ndarray, scores: np.ndarray) -> float:
    """Sum of the precision at each score, weighted by the rise in recall, without interpolation; rows that tie are taken together.

    Args:
        labels, scores: As for :func:`auc`.

    Returns:
        The mean over the columns that have known labels; one without positives counts as 0, as in
        scikit-learn. NaN if no label is known or a score is NaN.
    """
    found = [one_average_precision(*rows) for rows in _columns(labels, scores) if len(rows[0])]
    return float(np.mean(found)) if found else float("nan")


def one_average_precision(positive: np.ndarray, scores: np.ndarray) -> float:
    """The average precision of one column, 0 without positives."""
    if np.isnan(scores).any():
        return float("nan")
    true, taken, _ = _cuts(positive, scores)
    return float(np.sum(np.diff(true, prepend=0) * (true / taken)) / max(true[-1], 1))


def f1_at(true: np.ndarray, taken: np.ndarray, positives: int, n: int) -> np.ndarray:
    """F1 if ``taken`` of n rows are predicted, ``true`` of them rightly."""
    return np.asarray(2 * true / (taken + positives))


def balanced_accuracy_at(true: np.ndarray, taken: np.ndarray, positives: int, n: int) -> np.ndarray:
    """Balanced accuracy if ``taken`` of n rows are predicted, ``true`` of them rightly."""
    return np.asarray((true / positives + (n - positives - taken + true) / max(n - positives, 1)) / (2 if n > positives else 1))


# goals of thresholds by name
GOALS: dict[str, Callable[[np.ndarray, np.ndarray, int, int], np.ndarray]] = {"f1": f1_at, "balanced_accuracy": balanced_accuracy_at}


def best_thresholds(labels: np.ndarray, scores: np.ndarray, goal: str) -> np.ndarray:
    """For each column, the score above which a row is predicted positive so that a measure is largest.

    A threshold lies in the middle between two scores that do not tie; it is the highest of the best.

    Args:
        labels, scores: As for :func:`auc`, [n, C].
        goal: A name in ``GOALS``.

    Returns:
        [C] float64: -inf to predict all rows; 0 for a column without positives, or with a score
        that is not finite.
    """
    return np.array([_best_threshold(*rows, goal) for rows in _columns(labels, scores)])


def _best_threshold(positive: np.ndarray, scores: np.ndarray, goal: str) -> float:
    if not positive.any() or not np.isfinite(scores).all():
        return 0.0
    true, taken, below = _cuts(positive, scores)
    return float(below[np.argmax(GOALS[goal](true, taken, int(true[-1]), len(positive)))])


def _columns(labels: np.ndarray, scores: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of each column, which of the known rows are positive, and their scores."""
    same_shape(labels, scores)
    width = labels.shape[1] if labels.ndim == 2 else 1
    for y, x in zip(labels.reshape(-1, width).T, scores.reshape(-1, width).T, strict=True):
        known = ~np.isnan(y) if y.dtype.kind == "f" else np.ones(len(y), bool)
        yield y[known] == 1, x[known]


def _cuts(positive: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each place between scores that do not tie, from the highest on: positives above, rows above, and the score in its middle."""
    order = np.argsort(-scores, kind="stable")
    x = scores[order].astype(np.float64)
    last = np.append(np.flatnonzero(x[:-1] - x[1:] > _width(scores)), len(x) - 1)
    return np.cumsum(positive[order])[last], last + 1, np.append((x[last[:-1]] + x[last[:-1] + 1]) / 2, -np.inf)


def _width(scores: np.ndarray) -> float:
    """The largest difference of scores that tie."""
    return float(TIE * np.finfo(scores.dtype).eps * np.abs(scores).max(initial=0))
