"""Errors of real values: MAE, RMSE, R2."""
from __future__ import annotations

import numpy as np

from .shared import ratio, same_shape


def regression_sums(targets: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Sums for regression.

    Args:
        targets: [n] or [n, k]; NaN (unknown) is left out.
        predicted: The same shape.

    Returns:
        [5, k] float64, adds up over workers: number, sum and sum of squares of the targets, sum of absolute and of
        squared errors.
    """
    same_shape(targets, predicted)
    width = targets.shape[1] if targets.ndim == 2 else 1
    truth = targets.astype(np.float64).reshape(-1, width)
    known = ~np.isnan(truth)
    truth = np.where(known, truth, 0)
    error = np.where(known, predicted.astype(np.float64).reshape(-1, width) - truth, 0)
    return np.stack([known.sum(axis=0), truth.sum(axis=0), (truth**2).sum(axis=0), np.abs(error).sum(axis=0), (error**2).sum(axis=0)])


def mae(sums: np.ndarray) -> float:
    """Mean absolute error, over all columns together."""
    return ratio(sums[3].sum(), sums[0].sum())


def rmse(sums: np.ndarray) -> float:
    """Root of the mean squared error, over all columns together."""
    return float(np.sqrt(ratio(sums[4].sum(), sums[0].sum())))


def r2(sums: np.ndarray) -> float:
    """Share of the variance explained, mean over columns; NaN for a column of equal targets."""
    n, total, squares, _, error = sums
    with np.errstate(invalid="ignore", divide="ignore"):
        variation = squares - total**2 / n
        share = np.where(variation > 0, 1 - error / variation, np.nan)
    return float(np.mean(share))
