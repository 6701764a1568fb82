"""Neighbour sampling by hashes: the edges of a row that drew lowest.

Draws are made again where they are needed twice: a hash costs less than its way to memory and back. Rows of the
sketches are numbered apart from the groups of edges, because edges of one row may lie in several blocks.
"""
from __future__ import annotations

import numpy as np
from numba import njit

from .hash import COLUMN, draw, mix


@njit(nogil=True, cache=True)
def lowest(ptr, place, ids, key, low, degree):  # type: ignore[no-untyped-def]
    """Merge the draws of edges into the lowest draws of their rows.

    Args:
        ptr, place: Groups of edges, and the sketch row of each.
        ids: Global id of each edge.
        key: Key of the draws, uint64.
        low: The lowest draws of each sketch row, ascending, [n, fanout] uint64; changed.
        degree: Edges of each sketch row so far, [n]; changed.
    """
    last = low.shape[1] - 1
    for g in range(len(place)):
        if ptr[g] == ptr[g + 1]:
            continue
        mine = low[place[g]]
        degree[place[g]] += ptr[g + 1] - ptr[g]
        for e in range(ptr[g], ptr[g + 1]):
            h = draw(key, ids[e])
            if h < mine[last]:
                k = last
                while k > 0 and mine[k - 1] > h:
                    mine[k] = mine[k - 1]
                    k -= 1
                mine[k] = h


@njit(nogil=True, cache=True)
def times_low(ptr, place, ids, key, last):  # type: ignore[no-untyped-def]
    """How often each edge is chosen without replacement, 0 or 1: whether its draw is at most last[sketch row]."""
    times = np.empty(len(ids), np.int32)
    for g in range(len(place)):
        for e in range(ptr[g], ptr[g + 1]):
            times[e] = draw(key, ids[e]) <= last[place[g]]
    return times


@njit(nogil=True, cache=True)
def lowest_each(ptr, place, ids, key, low, degree):  # type: ignore[no-untyped-def]
    """As ``lowest``, with one draw per edge and column, and the lowest of each column kept."""
    for g in range(len(place)):
        if ptr[g] == ptr[g + 1]:
            continue
        mine = low[place[g]]
        degree[place[g]] += ptr[g + 1] - ptr[g]
        for e in range(ptr[g], ptr[g + 1]):
            h = draw(key, ids[e])
            for column in range(len(mine)):
                mine[column] = min(mine[column], mix(h + np.uint64(column + 1) * COLUMN))


@njit(nogil=True, cache=True)
def times_each(ptr, place, ids, key, low):  # type: ignore[no-untyped-def]
    """How often each edge is chosen with replacement: in how many columns its draw is the lowest of its row."""
    times = np.zeros(len(ids), np.int32)
    for g in range(len(place)):
        for e in range(ptr[g], ptr[g + 1]):
            h = draw(key, ids[e])
            for column in range(low.shape[1]):
                times[e] += mix(h + np.uint64(column + 1) * COLUMN) == low[place[g], column]
    return times


@njit(nogil=True, cache=True)
def keep(ptr, times, edges, others):  # type: ignore[no-untyped-def]
    """The edges chosen at least once, in the same groups.

    Returns:
        New bounds, positions, other ends, and how often each was chosen.
    """
    n = 0
    for t in times:
        n += t > 0
    bounds = np.zeros(len(ptr), np.int64)
    at, end, often = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    k = 0
    for g in range(len(ptr) - 1):
        for e in range(ptr[g], ptr[g + 1]):
            if times[e]:
                at[k], end[k], often[k] = edges[e], others[e], times[e]
                k += 1
        bounds[g + 1] = k
    return bounds, at, end, often
