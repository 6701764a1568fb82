"""Measures of quality, in two steps: sums that add up over workers, and values computed from them.

=============  ============================================  ============================
measure        sum over workers                              then
=============  ============================================  ============================
accuracy, F1   :func:`class_sums`, :func:`label_sums`        :func:`accuracy`, :func:`f1`
MAE, RMSE, R2  :func:`regression_sums`                       :func:`mae`, :func:`rmse`, :func:`r2`
MRR, Hits@k    :func:`ranking_sums` of :func:`ranks`         :func:`mrr`, :func:`hits`
AUC            nothing adds up: gather scores on one rank    :func:`auc`
=============  ============================================  ============================

The sums of no rows are zeros, and the value of no rows is NaN.

Scores tie if they are equal up to rounding. Indistinguishable nodes, such as two without edges,
have equal scores in exact arithmetic, but computed ones may differ in the last bits, which depend
on the number of workers.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphtheta.errors import ConfigError, ShapeError

# scores closer than this many roundings of the largest of them tie
TIE = 100
# ranks up to which Hits@k counts
KS = (1, 3, 10)


def confusion(labels: np.ndarray, predicted: np.ndarray, n_classes: int) -> np.ndarray:
    """Confusion matrix.

    Args:
        labels: True classes, [n] integers; negative ones (unlabelled) are left out.
        predicted: Predicted classes, [n] integers in 0..n_classes-1.
        n_classes: Number of classes C.

    Returns:
        [C, C] int64, rows true and columns predicted; adds up over workers.
    """
    same_shape(labels, predicted)
    known = labels >= 0
    flat = labels[known].astype(np.int64) * n_classes + predicted[known]
    return np.bincount(flat, minlength=n_classes * n_classes).reshape(n_classes, n_classes)


def counts_of(matrix: np.ndarray) -> np.ndarray:
    """True positives, false positives and false negatives of each class of a confusion matrix, [C, 3]."""
    true = np.diag(matrix)
    return np.stack((true, matrix.sum(axis=0) - true, matrix.sum(axis=1) - true), axis=1)


def label_counts(labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """True positives, false positives and false negatives of each of several labels a row.

    Args:
        labels: [n, C] of 0 and 1; NaN (unknown) is left out.
        predicted: [n, C], true where a label is predicted (a logit above 0).

    Returns:
        [C, 3] int64; adds up over workers.
    """
    same_shape(labels, predicted)
    yes, no, said = labels == 1, labels == 0, predicted.astype(bool)
    return np.stack([(yes & said).sum(axis=0), (no & said).sum(axis=0), (yes & ~said).sum(axis=0)], axis=1).astype(np.int64)


def class_sums(labels: np.ndarray, out: np.ndarray) -> np.ndarray:
    """:func:`counts_of` the classes whose output is largest, [C, 3] int64; labels [n] as in :func:`confusion`, out [n, C]."""
    return counts_of(confusion(labels, out.argmax(axis=1), out.shape[1]))


def label_sums(labels: np.ndarray, out: np.ndarray) -> np.ndarray:
    """:func:`label_counts` of outputs [n, C], which predict a label where they are above 0."""
    return label_counts(labels, out > 0)


def accuracy(counts: np.ndarray) -> float:
    """Share of rows that are right, of counts [C, 3] of classes."""
    return ratio(float(counts[:, 0].sum()), float(counts[:, [0, 2]].sum()))


def f1(counts: np.ndarray, average: str = "micro") -> float:
    """F1 of counts [C, 3] as :func:`counts_of` and :func:`label_counts` make them.

    Args:
        counts: True positives, false positives, false negatives of each class.
        average: ``"micro"`` pools all classes; ``"macro"`` is the mean over the classes that occur, in truth or prediction.

    Raises:
        ConfigError: Another average.
    """
    if average not in ("micro", "macro"):
        raise ConfigError(f"F1 is averaged 'micro' or 'macro', not {average!r}")
    if average == "micro":
        counts = counts.sum(axis=0, keepdims=True)
    true, wrong = counts[:, 0].astype(np.float64), counts[:, 1:].sum(axis=1)
    occurs = true + wrong > 0
    return float(np.mean(2 * true[occurs] / (2 * true[occurs] + wrong[occurs]))) if occurs.any() else float("nan")


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve: the chance that a positive scores above a negative, ties counting half.

    Needs all rows at once: gather labels and scores first.

    Args:
        labels: [n] or [n, C] of 0 and 1; NaN (unknown) is left out.
        scores: The same shape.

    Returns:
        The mean over the columns that have positives and negatives; NaN if none has or a score is NaN.
    """
    same_shape(labels, scores)
    width = labels.shape[1] if labels.ndim == 2 else 1
    columns = zip(labels.reshape(-1, width).T, scores.reshape(-1, width).T, strict=True)
    areas = [area for area in (one_auc(a, b) for a, b in columns) if area is not None]
    return float(np.mean(areas)) if areas else float("nan")


def one_auc(labels: np.ndarray, scores: np.ndarray) -> float | None:
    """The area of one column, the Mann-Whitney statistic with ties counting half; None without both kinds of rows."""
    known = ~np.isnan(labels) if labels.dtype.kind == "f" else np.ones(len(labels), bool)
    positive, scores = labels[known] == 1, scores[known]
    if positive.all() or not positive.any():
        return None
    if np.isnan(scores).any():
        return float("nan")
    width = TIE * np.finfo(scores.dtype).eps * np.abs(scores).max()
    negative, scores = np.sort(scores[~positive].astype(np.float64)), scores[positive].astype(np.float64)
    below, up_to = np.searchsorted(negative, scores - width, "left"), np.searchsorted(negative, scores + width, "right")
    return float((below + up_to).mean() / 2 / len(negative))


def ranks(positive: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """The rank of each positive among its negatives, counted from 1.

    Args:
        positive: Scores, [n].
        negative: Scores of the negatives of each, [n, k], or [k] if all share them; -inf for one
            that does not count, because it is a true link.

    Returns:
        [n] float64; a negative that ties counts half, so that a constant score gets the middle
        rank. NaN if a score is NaN.
    """
    if negative.ndim == 1:
        negative = np.broadcast_to(negative, (len(positive), len(negative)))
    if len(negative) != len(positive):
        raise ShapeError(f"ranks: {len(positive)} positive scores and {len(negative)} rows of negative scores; give one row "
                         "for each positive")
    wanted, all_ = positive[:, None].astype(np.float64), np.column_stack((positive, negative)).astype(np.float64)
    width = TIE * np.finfo(positive.dtype).eps * np.abs(np.where(np.isinf(all_), 0, all_)).max(axis=1, initial=0)[:, None]
    above, level = (all_ > wanted + width).sum(axis=1), (np.abs(all_ - wanted) <= width).sum(axis=1) - 1
    return np.where(np.isnan(all_).any(axis=1), np.nan, 1.0 + above + 0.5 * level)


def ranking_sums(rank: np.ndarray, ks: Sequence[int] = KS) -> np.ndarray:
    """Number of ranks, sum of their reciprocals, and how many are at most k for each k, [2 + len(ks)] float64; adds up over workers."""
    return np.array([len(rank), np.sum(1.0 / rank), *(np.sum(rank <= k) for k in ks)], np.float64)


def mrr(sums: np.ndarray) -> float:
    """Mean reciprocal rank of :func:`ranking_sums`."""
    return ratio(sums[1], sums[0])


def hits(sums: np.ndarray, k: int, ks: Sequence[int] = KS) -> float:
    """Share of ranks up to k of :func:`ranking_sums` with these ks."""
    return ratio(sums[2 + ks.index(k)], sums[0])


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


def ratio(a: float, b: float) -> float:
    """a / b, NaN if b is zero."""
    return float(a / b) if b else float("nan")


def same_shape(a: np.ndarray, b: np.ndarray) -> None:
    """Check that labels and predictions have the same shape."""
    if a.shape != b.shape:
        raise ShapeError(f"metric: labels have shape {list(a.shape)} and predictions {list(b.shape)}; give one prediction per label")
