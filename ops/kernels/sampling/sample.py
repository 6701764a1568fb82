"""Bottom-k sampling: the edges of each row with the lowest ranks.

All edges of a row are read once, for a shortlist; later steps read shortlists only. Random ranks
are computed again where they are needed again: a hash costs less than a store and a load.

``ranks`` is a tuple (edges, gid, index, values, key, drawn, high, rates) of

    edges, gid      position of each edge, empty if edge e is at e; global id of each position
    index, values   where the value of each edge is, empty if at e; the values, int64
    key, drawn      key of the draws, uint64; whether values are ids to draw for, or ranks
                    themselves (as int64)
    high            mask, uint64: a rank has these bits; the others are those of the edge's global
                    id, so that ranks differ
    rates           positive rate of each position, by which drawn ranks are divided
                    (``rate.py``); empty for none
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ...compile.jit import jit
from ..hash import COLUMN, draw, mix
from ..heap_sort import sort
from .rate import quotient, race

LAST, NONE, UNRATED = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0), 0.0


@njit(inline="always")
def _value(index, values, key, drawn, e):  # type: ignore[no-untyped-def]
    value = values[index[e] if len(index) else e]
    return draw(key, value) if drawn else np.uint64(value)


@njit(inline="always")
def _tie(edges, gid, high, e):  # type: ignore[no-untyped-def]
    return np.uint64(gid[edges[e] if len(edges) else e]) & ~high if high != LAST else NONE


@njit(inline="always")
def _rate(edges, rates, e):  # type: ignore[no-untyped-def]
    return np.float64(rates[edges[e] if len(edges) else e]) if len(rates) else UNRATED


@njit(inline="always")
def _rank(h, rate, high, tie):  # type: ignore[no-untyped-def]
    return ((h if rate == UNRATED else quotient(h, rate)) & high) | tie


@njit(inline="always")
def _rank_of_column(h, column, rate, high, tie):  # type: ignore[no-untyped-def]
    x = mix(h + np.uint64(column + 1) * COLUMN)
    return ((x if rate == UNRATED else race(x, rate)) & high) | tie


@jit()
def shortlist(begin, end, others, ranks, fanout, each):  # type: ignore[no-untyped-def]
    """The edges of each group that may be chosen, in order, found in one pass over all edges.

    Args:
        begin, end, others: Groups of edges, as for ``expand``.
        ranks: Ranks of the edges in the lists.
        fanout: Edges to choose.
        each: True for sampling with replacement: every edge draws ``fanout`` ranks, and the lowest
            of each column is chosen. False: the edges of the ``fanout`` lowest ranks are chosen.

    Returns:
        Bounds of the groups, positions and other ends of their edges, at most ``fanout`` per group,
        and how often each is chosen if there are no other edges of its row.
    """
    edges, gid, index, values, key, drawn, high, rates = ranks
    ptr = np.zeros(len(begin) + 1, np.int64)
    for g in range(len(begin)):
        ptr[g + 1] = ptr[g] + min(end[g] - begin[g], fanout)
    at = np.empty(ptr[-1], np.int32)
    far = np.empty(ptr[-1], np.int32)
    often = np.empty(ptr[-1], np.int32)
    low = np.empty(fanout, np.uint64)
    which = np.empty(fanout, np.int64)
    n = 0
    for g in range(len(begin)):
        low[:], which[:] = LAST, end[g]
        if not each and end[g] - begin[g] <= fanout:
            # all are chosen, whatever their ranks
            which[: end[g] - begin[g]] = np.arange(begin[g], end[g])
        else:
            for e in range(begin[g], end[g]):
                h = _value(index=index, values=values, key=key, drawn=drawn, e=e)
                rate = _rate(edges, rates, e)
                tie = _tie(edges, gid, high, e)
                if each:
                    _put_each(low=low, which=which, h=h, rate=rate, high=high, tie=tie, e=e)
                    continue
                rank = _rank(h, rate, high, tie)
                if rank < low[-1]:
                    _put(low, which, rank, e)
        sort(which, which)
        ptr[g] = n
        for k in range(fanout):
            if which[k] == end[g]:
                break
            if k and which[k] == which[k - 1]:
                often[n - 1] += 1
                continue
            at[n] = edges[which[k]] if len(edges) else which[k]
            far[n] = others[which[k]]
            often[n] = 1
            n += 1
    ptr[-1] = n
    return ptr, at[:n], far[:n], often[:n]


@njit(inline="always")
def _put(low, which, h, e):  # type: ignore[no-untyped-def]
    k = len(low) - 1
    while k > 0 and low[k - 1] > h:
        low[k], which[k] = low[k - 1], which[k - 1]
        k -= 1
    low[k], which[k] = h, e


@njit(inline="always")
def _put_each(low, which, h, rate, high, tie, e):  # type: ignore[no-untyped-def]
    for column in range(len(low)):
        x = _rank_of_column(h=h, column=column, rate=rate, high=high, tie=tie)
        if x < low[column]:
            low[column], which[column] = x, e


@jit()
def lowest(ptr, ranks, low):  # type: ignore[no-untyped-def]
    """Merge the ranks of edges into the lowest ranks of their rows.

    Args:
        ptr: Bounds of the edges of each row.
        ranks: Ranks of the edges.
        low: The lowest ranks of each row, ascending, [n, fanout] uint64; changed.
    """
    edges, gid, index, values, key, drawn, high, rates = ranks
    last = low.shape[1] - 1
    for g in range(len(ptr) - 1):
        for e in range(ptr[g], ptr[g + 1]):
            h = _value(index=index, values=values, key=key, drawn=drawn, e=e)
            k = last
            h = _rank(h, _rate(edges, rates, e), high, _tie(edges, gid, high, e))
            if h >= low[g, last]:
                continue
            while k > 0 and low[g, k - 1] > h:
                low[g, k] = low[g, k - 1]
                k -= 1
            low[g, k] = h


@jit()
def times_low(ptr, ranks, last):  # type: ignore[no-untyped-def]
    """How often each edge is chosen without replacement, 0 or 1: whether its rank is at most that
    of its row in ``last``.
    """
    edges, gid, index, values, key, drawn, high, rates = ranks
    times = np.empty(ptr[-1], np.int32)
    for g in range(len(ptr) - 1):
        for e in range(ptr[g], ptr[g + 1]):
            h = _value(index=index, values=values, key=key, drawn=drawn, e=e)
            times[e] = _rank(h, _rate(edges, rates, e), high, _tie(edges, gid, high, e)) <= last[g]
    return times


@jit()
def lowest_each(ptr, ranks, low):  # type: ignore[no-untyped-def]
    """As ``lowest``, with one rank per edge and column: the minimum of each column."""
    edges, gid, index, values, key, drawn, high, rates = ranks
    for g in range(len(ptr) - 1):
        for e in range(ptr[g], ptr[g + 1]):
            h = _value(index=index, values=values, key=key, drawn=drawn, e=e)
            rate = _rate(edges, rates, e)
            tie = _tie(edges, gid, high, e)
            for column in range(low.shape[1]):
                low[g, column] = min(
                    low[g, column],
                    _rank_of_column(h=h, column=column, rate=rate, high=high, tie=tie),
                )


@jit()
def times_each(ptr, ranks, low):  # type: ignore[no-untyped-def]
    """How often each edge is chosen with replacement: in how many columns its rank is the lowest of
    its row.
    """
    edges, gid, index, values, key, drawn, high, rates = ranks
    times = np.zeros(ptr[-1], np.int32)
    for g in range(len(ptr) - 1):
        for e in range(ptr[g], ptr[g + 1]):
            h = _value(index=index, values=values, key=key, drawn=drawn, e=e)
            rate = _rate(edges, rates, e)
            tie = _tie(edges, gid, high, e)
            for column in range(low.shape[1]):
                times[e] += (
                    _rank_of_column(h=h, column=column, rate=rate, high=high, tie=tie)
                    == low[g, column]
                )
    return times


@jit()
def keep(ptr, times, edges, others):  # type: ignore[no-untyped-def]
    """The edges chosen at least once, in the same groups.

    Returns:
        New bounds, positions, other ends, and how often each was chosen.
    """
    n = 0
    for t in times:
        n += t > 0
    bounds = np.zeros(len(ptr), np.int64)
    at = np.empty(n, np.int32)
    end = np.empty(n, np.int32)
    often = np.empty(n, np.int32)
    k = 0
    for g in range(len(ptr) - 1):
        for e in range(ptr[g], ptr[g + 1]):
            if times[e]:
                at[k], end[k], often[k] = edges[e], others[e], times[e]
                k += 1
        bounds[g + 1] = k
    return bounds, at, end, often
