"""Probabilities of outputs, and precision and recall of each class by the probability above which
it is predicted.

Counts at fixed thresholds are integers that add up over workers, so that no worker needs the
scores of all rows.
"""

from __future__ import annotations

import numpy as np

from ...parallel.buffers import by_blocks, empty
from .shared import counted, ratio

# 0, and thresholds whose logits are evenly spaced: dense near 0 and 1
THRESHOLDS = np.append(0.0, 1 / (1 + np.exp(-np.linspace(-8, 8, 65))))
# seconds that a probability takes on one thread, as measured
PER_SHARE = 2e-9


def class_probabilities(out: np.ndarray) -> np.ndarray:
    """Softmax along the last axis, on all threads.

    Args:
        out: Outputs, [..., C]; those of equal infinities share the probability.

    Returns:
        [..., C], of the type of ``out``, at least float32.
    """
    from ...kernels.logits import softmax_rows

    rows = _wide(out).reshape(-1, max(1, out.shape[-1]))
    shares = empty(rows.shape, rows.dtype)
    by_blocks(
        work=lambda b, begin, end: softmax_rows(rows, begin, end, shares),
        n=len(rows),
        width=rows.shape[1],
        per_number=PER_SHARE,
    )
    return shares.reshape(out.shape)


def label_probabilities(out: np.ndarray) -> np.ndarray:
    """Sigmoid of logits, [...], in their shape and type, at least float32; on all threads."""
    from ...kernels.logits import sigmoids

    logits = _wide(out).reshape(-1)
    shares = empty(logits.shape, logits.dtype)
    by_blocks(
        work=lambda b, begin, end: sigmoids(logits, begin, end, shares),
        n=logits.size,
        width=1,
        per_number=PER_SHARE,
    )
    return shares.reshape(out.shape)


def _wide(out: np.ndarray) -> np.ndarray:
    """Numbers as kernels take them: in C order, of float32 or float64."""
    return np.ascontiguousarray(out, np.result_type(out.dtype, np.float32))


@counted
def class_curve_sums(labels: np.ndarray, out: np.ndarray) -> np.ndarray:
    """:func:`curve_sums` of each class against all others.

    Args:
        labels: Classes, [n] integers, negative if unknown.
        out: Outputs, [n, C].
    """
    labelled = labels >= 0
    right = labels[labelled][:, None] == np.arange(out.shape[1])
    return curve_sums(right.astype(np.float64), class_probabilities(out[labelled]))


@counted
def label_curve_sums(labels: np.ndarray, out: np.ndarray) -> np.ndarray:
    """:func:`curve_sums` of several labels a row.

    Args:
        labels: [n, C] of 0 and 1; NaN if unknown.
        out: Logits, [n, C].
    """
    return curve_sums(labels, label_probabilities(out))


def curve_sums(labels: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """True and false positives above each threshold, and rows of each class.

    Args:
        labels: [n, C] of 0 and 1; NaN (unknown) is left out.
        probability: [n, C] in [0, 1].

    Returns:
        [C, 1 + len(THRESHOLDS), 2] int64; adds up over workers. The first entry counts the rows
        that are of the class and those that are not, the others those of them that are above a
        threshold.
    """
    n = len(THRESHOLDS)
    sums = np.zeros((labels.shape[1], 1 + n, 2), np.int64)
    for of, label, share in zip(sums, labels.T, probability.T, strict=True):
        # how many thresholds are below each probability
        below = np.searchsorted(THRESHOLDS, share)
        for side, value in enumerate((1, 0)):
            counts = np.bincount(below[label == value], minlength=n + 1)
            of[1:, side] = counts[::-1].cumsum()[::-1][1:]
            of[0, side] = counts.sum()
    return sums


def precision_recall(sums: np.ndarray) -> list[tuple[float, float, float]]:
    """Threshold, precision and recall of a class, thresholds that nothing is above left out.

    Args:
        sums: Counts of the class, [1 + len(THRESHOLDS), 2].

    Returns:
        One for each set of rows that is predicted, of the lowest threshold that predicts it; none
        without rows of the class.
    """
    points = list[tuple[float, float, float]]()
    total = int(sums[0, 0])
    last = None
    for threshold, counts in zip(THRESHOLDS.tolist(), sums[1:].tolist(), strict=True):
        if total and counts != last and any(counts):
            points.append((threshold, ratio(counts[0], sum(counts)), counts[0] / total))
        last = counts
    return points
