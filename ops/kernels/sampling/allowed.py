"""Edges that a sampler may choose: those with a positive value, or with one up to a limit of their
row.

``begin``, ``end``, ``edges`` and ``others`` are groups of edges as for ``batch.expand``; ``values``
has a number for each position.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ...compile.jit import jit


@njit(inline="always")
def _allowed(value, limits, g):  # type: ignore[no-untyped-def]
    return value <= limits[g] if len(limits) else value > 0


@jit()
def allowed(begin, end, edges, others, values, limits):  # type: ignore[no-untyped-def]
    """The edges of each group whose value is at most the group's limit.

    Args:
        limits: [n_groups]; empty to select edges of positive values.

    Returns:
        Bounds of the groups, positions and other ends of their edges.
    """
    ptr = np.zeros(len(begin) + 1, np.int64)
    for g in range(len(begin)):
        n = 0
        for e in range(begin[g], end[g]):
            n += _allowed(values[edges[e] if len(edges) else e], limits, g)
        ptr[g + 1] = ptr[g] + n
    at = np.empty(ptr[-1], np.int32)
    far = np.empty(ptr[-1], np.int32)
    k = 0
    for g in range(len(begin)):
        for e in range(begin[g], end[g]):
            position = edges[e] if len(edges) else e
            if _allowed(values[position], limits, g):
                at[k], far[k] = position, others[e]
                k += 1
    return ptr, at, far


@jit()
def all_positive(begin, end, edges, values):  # type: ignore[no-untyped-def]
    """Whether the values of all edges are positive."""
    for g in range(len(begin)):
        for e in range(begin[g], end[g]):
            if not values[edges[e] if len(edges) else e] > 0:
                return False
    return True


@jit()
def lower(ptr, limits, rows, out):  # type: ignore[no-untyped-def]
    """out[rows[e]] = min(out[rows[e]], limits[g]) for each edge e of each group g.

    Args:
        ptr: Bounds of the edges of each group.
        limits: [n_groups].
        rows: [n_edges].
        out: Changed.
    """
    for g in range(len(ptr) - 1):
        for e in range(ptr[g], ptr[g + 1]):
            out[rows[e]] = min(out[rows[e]], limits[g])
