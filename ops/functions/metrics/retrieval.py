"""Quality of the first k of a ranking with several relevant items: recall@k and NDCG@k."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .shared import ratio

# places that are looked at
TOPS = (10, 20, 50)


def gains(
    rank: np.ndarray, group: np.ndarray, n: int, ks: Sequence[int] = TOPS
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Relevant items of each group, those among the first k, and their discounted gain; adds up
    over workers.

    Args:
        rank: Rank of each relevant item in its group, from 1, [m] float64; the mean of those that a
            tie leaves open.
        group: Group of each, [m] int.
        n: Number of groups.
        ks: The places.

    Returns:
        Counts [n], hits [n, len(ks)] and gains [n, len(ks)], float64; NaN where a rank is.
    """
    totals = np.zeros((1 + 2 * len(ks), n))
    np.add.at(totals[0], group, 1)
    for i, k in enumerate(ks):
        # not "at most k", so that NaN propagates
        inside = np.where(rank > k, 0, 1 + 0 * rank)
        np.add.at(totals[1 + i], group, inside)
        np.add.at(totals[1 + len(ks) + i], group, inside / np.log2(1 + rank))
    return totals[0], totals[1 : 1 + len(ks)].T, totals[1 + len(ks) :].T


def retrieved(
    counts: np.ndarray, hits: np.ndarray, gain: np.ndarray, ks: Sequence[int] = TOPS
) -> tuple[np.ndarray, np.ndarray]:
    """Recall and NDCG of each group at each k, [n, len(ks)]; arguments as :func:`gains` returns
    them, counts above 0.

    Recall is the share of the relevant items among the first k. NDCG divides the gain by that of
    the best order, in which min(k, count) items are relevant.

    Source: Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, 2002.
    """
    best = np.concatenate(([0], np.cumsum(1 / np.log2(2 + np.arange(max(ks))))))
    ideal = best[np.minimum(counts[:, None].astype(np.int64), np.array(ks))]
    return hits / counts[:, None], gain / ideal


def retrieval_sums(recall: np.ndarray, ndcg: np.ndarray) -> np.ndarray:
    """Number of sources, and the sums of their recalls and NDCGs, [1 + 2 len(ks)] float64; adds up
    over workers.
    """
    return np.concatenate(([len(recall)], recall.sum(axis=0), ndcg.sum(axis=0)))


def retrieval_mean(sums: np.ndarray, at: int) -> float:
    """A mean of :func:`retrieval_sums`: recall at k number ``at``, or, beyond these, NDCG."""
    return ratio(sums[1 + at], sums[0])
