"""Ranks of links among their negatives: MRR and Hits@k."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphtheta.errors import ShapeError

from .shared import TIE, ratio

# ranks up to which Hits@k counts
KS = (1, 3, 10)


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
