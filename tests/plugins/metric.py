"""Two metrics: one whose sums add up over workers, and one that needs all rows at once."""

import numpy as np

import graphtheta as gt


def right_and_all(y, out):
    """Number of correct rows and of all rows of each class, [2, C]."""
    n_classes = out.shape[1]
    right = y[out.argmax(axis=1) == y]
    return np.stack([np.bincount(right, minlength=n_classes), np.bincount(y, minlength=n_classes)])


def mean_recall(sums):
    right, rows = sums[:, sums[1] > 0]
    return np.mean(right / rows) if len(rows) else np.nan


def median_error(y, out):
    known = ~np.isnan(y)
    return np.median(np.abs(y - out)[known]) if known.any() else np.nan


BALANCED = gt.METRICS.add(gt.Metric("balanced", {"classes": right_and_all}, mean_recall))
MEDIAN_ERROR = gt.METRICS.add(
    gt.Metric("median_error", {"values": None}, median_error, smaller_is_better=True)
)
