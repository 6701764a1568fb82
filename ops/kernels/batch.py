"""Edge lists of a batch, in time and memory linear in the rows and edges it touches.

Everything is an array that the caller owns; rows and positions are int32, bounds int64. Edges come in groups: those
of group g are ``ptr[g]`` to ``ptr[g + 1]``.
"""
from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def expand(rows, indptr, ends, edge_of):  # type: ignore[no-untyped-def]
    """The edges of some rows of a compressed block.

    Args:
        rows: Rows, [n] int64.
        indptr, ends: Bounds of the edges of every row, and the rows at their other ends.
        edge_of: Position of each edge; empty if edges stand in order.

    Returns:
        Bounds of the groups [n + 1], positions and other ends of their edges.
    """
    ptr = np.empty(len(rows) + 1, np.int64)
    ptr[0] = 0
    for g in range(len(rows)):
        ptr[g + 1] = ptr[g] + indptr[rows[g] + 1] - indptr[rows[g]]
    edges, others = np.empty(ptr[-1], np.int32), np.empty(ptr[-1], np.int32)
    k = 0
    for row in rows:
        for e in range(indptr[row], indptr[row + 1]):
            edges[k] = edge_of[e] if len(edge_of) else e
            others[k] = ends[e]
            k += 1
    return ptr, edges, others


@njit(nogil=True, cache=True)
def number(found, place, rows, n):  # type: ignore[no-untyped-def]
    """Give rows that have no number the next ones: place[row] = n, n + 1, ..., and rows[n], rows[n + 1], ... = row.

    Args:
        found: Rows, repeated or not, [m] int32.
        place: Number of each row, below 0 for none; changed.
        rows: Row of each number, with room for m more; changed.
        n: How many rows have a number.

    Returns:
        How many rows have one now.
    """
    for row in found:
        if place[row] < 0:
            place[row] = n
            rows[n] = row
            n += 1
    return n


@njit(nogil=True, cache=True)
def group(ptr, row, other, n):  # type: ignore[no-untyped-def]
    """Edges in groups by one end, grouped by the other: a stable counting sort.

    Args:
        ptr, row: Groups and the row of each, [n_groups + 1] and [n_groups].
        other: Row at the other end of each edge, [n_edges], below n.
        n: Number of new groups.

    Returns:
        Bounds of the new groups [n + 1], the row at the first end of each edge, and the number each edge had before.
    """
    bounds = np.zeros(n + 1, np.int64)
    for r in other:
        bounds[r + 1] += 1
    for r in range(n):
        bounds[r + 1] += bounds[r]
    free = bounds[:-1].copy()
    first, at = np.empty(len(other), np.int32), np.empty(len(other), np.int32)
    for g in range(len(row)):
        for e in range(ptr[g], ptr[g + 1]):
            k = free[other[e]]
            free[other[e]] += 1
            first[k] = row[g]
            at[k] = e
    return bounds, first, at
