"""Ranks of links among their negatives: MRR and Hits@k."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphtheta.errors import ShapeError

from .shared import ratio

# ranks up to which Hits@k counts
KS = (1, 3, 10)
# in place of the rank of a link that has no negative to be ranked among
NO_RANK = 0.0


def ranks(
    positive: np.ndarray, negative: np.ndarray, counts: np.ndarray | None = None
) -> np.ndarray:
    """The rank of each positive among its negatives, counted from 1.

    Args:
        positive: Scores, [n].
        negative: Scores of the negatives of each, [n, k], or [k] if all share them.
        counts: Which negatives count, bool of the same shape; by default those above -inf.

    Returns:
        [n] float64; a negative with the same score counts half, so that a constant score gets the
        middle rank. ``NO_RANK`` if no negative counts. NaN if the positive or a negative that
        counts scores NaN.
    """
    if negative.ndim == 1:
        negative = np.broadcast_to(negative, (len(positive), len(negative)))
    if len(negative) != len(positive):
        raise ShapeError(
            f"ranks: {len(positive)} positive scores and {len(negative)} rows of negative scores;"
            " give one row for each positive"
        )
    counts = negative != -np.inf if counts is None else np.broadcast_to(counts, negative.shape)
    wanted = positive[:, None]
    above = ((negative > wanted) & counts).sum(axis=1)
    level = ((negative == wanted) & counts).sum(axis=1)
    rank = np.where(counts.any(axis=1), 1.0 + above + 0.5 * level, NO_RANK)
    broken = np.isnan(positive) | (np.isnan(negative) & counts).any(axis=1)
    return np.where(broken, np.nan, rank)


def ranking_sums(rank: np.ndarray, ks: Sequence[int] = KS) -> np.ndarray:
    """Number of ranks, sum of their reciprocals, and how many are at most k for each k.

    Args:
        rank: Of each link, [n] float64; those that are ``NO_RANK`` do not count.
        ks: The k.

    Returns:
        [2 + len(ks)] float64, adds up over workers; all but the number are NaN if a rank is.
    """
    rank = rank[rank != NO_RANK]
    sums = np.array([len(rank), np.sum(1.0 / rank), *(np.sum(rank <= k) for k in ks)], np.float64)
    if np.isnan(sums[1]):
        sums[2:] = np.nan
    return sums


def mrr(sums: np.ndarray) -> float:
    """Mean reciprocal rank of :func:`ranking_sums`; NaN without ranks."""
    return ratio(sums[1], sums[0])


def hits(sums: np.ndarray, k: int, ks: Sequence[int] = KS) -> float:
    """Share of ranks up to k of :func:`ranking_sums` with these ks; NaN without ranks."""
    return ratio(sums[2 + ks.index(k)], sums[0])
