"""Errors of real values: MAE, RMSE, R2.

The variation of targets is summed about their mean, because the mean of the squares minus the
square of the mean cancels for targets that are far from zero, such as prices and times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .shared import ratio, same_shape


def regression_sums(targets: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Figures for regression, of some rows.

    Args:
        targets: [n] or [n, k]; NaN (unknown) is left out.
        predicted: The same shape.

    Returns:
        [6, k] float64, which :func:`merged` puts together: number of targets; the first of them,
        and their mean minus it; sum of squares of the targets about their mean; sum of absolute and
        of squared errors.
    """
    same_shape(targets, predicted)
    width = targets.shape[1] if targets.ndim == 2 else 1
    columns = zip(targets.reshape(-1, width).T, predicted.reshape(-1, width).T, strict=True)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.stack(
            [_of_column(truth.astype(np.float64), said) for truth, said in columns], axis=1
        )


def _of_column(truth: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    labelled = ~np.isnan(truth)
    if not labelled.all():
        truth = truth[labelled]
        predicted = predicted[labelled]
    if not len(truth):
        return np.zeros(6)
    error = predicted - truth
    origin = truth[0]
    moved = truth - origin
    offset = moved.mean()
    moved -= offset
    return np.array([len(truth), origin, offset, moved @ moved, np.abs(error).sum(), error @ error])


def merged(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Figures of all rows, [6, k], of those of their parts, [6, k] each.

    Source: Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample
    variances, 1979.
    """
    whole = parts[0].copy()
    for part in parts[1:]:
        whole = _merged(whole, part)
    return whole


def _merged(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    n_a, origin_a, offset_a, squares_a, *errors_a = a
    n_b, origin_b, offset_b, squares_b, *errors_b = b
    n = n_a + n_b
    with np.errstate(invalid="ignore", over="ignore"):
        # both means are measured from the origin of a, so that no digits are lost
        gap = np.where((n_a > 0) & (n_b > 0), origin_b - origin_a + offset_b - offset_a, 0)
        share = n_b / np.maximum(n, 1)
        origin = np.where(n_a > 0, origin_a, origin_b)
        offset = np.where(n_a > 0, offset_a, offset_b) + gap * share
        squares = squares_a + squares_b + gap**2 * n_a * share
        return np.stack([n, origin, offset, squares, *np.add(errors_a, errors_b)])


def mae(sums: np.ndarray) -> float:
    """Mean absolute error, over all columns together."""
    return ratio(sums[4].sum(), sums[0].sum())


def rmse(sums: np.ndarray) -> float:
    """Root of the mean squared error, over all columns together."""
    return float(np.sqrt(ratio(sums[5].sum(), sums[0].sum())))


def r2(sums: np.ndarray) -> float:
    """Share of the variance explained, mean over columns; NaN for a column of equal targets."""
    variation, error = sums[3], sums[5]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(variation > 0, 1 - error / variation, np.nan)
    return float(np.mean(share))
