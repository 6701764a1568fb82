"""Edges of rows split by a code of theirs, and lists of edges of the same rows joined."""

from __future__ import annotations

import numpy as np

from ...compile.jit import jit


@jit()
def split(begin, end, edges, others, codes, n_codes):  # type: ignore[no-untyped-def]
    """The edges of each code, by row and in the order that they had.

    Args:
        begin, end, edges, others: Groups of edges as for ``batch.expand``.
        codes: Code of each position, -1 to n_codes - 1.
        n_codes: Number of codes from 0.

    Returns:
        Bounds [n_codes + 1, n_groups + 1], positions and other ends of the edges, by code and then
        by group; those of code -1 come last.
    """
    n = len(begin)
    ptr = np.zeros((n_codes + 1, n + 1), np.int64)
    for g in range(n):
        for e in range(begin[g], end[g]):
            # -1 is the last row
            ptr[codes[edges[e] if len(edges) else e], g + 1] += 1
    total = 0
    for c in range(n_codes + 1):
        ptr[c, 0] = total
        for g in range(n):
            total += ptr[c, g + 1]
            ptr[c, g + 1] = total
    at = np.empty(total, np.int32)
    far = np.empty(total, np.int32)
    free = ptr[:, :-1].copy()
    for g in range(n):
        for e in range(begin[g], end[g]):
            position = edges[e] if len(edges) else e
            k = free[codes[position], g]
            free[codes[position], g] += 1
            at[k], far[k] = position, others[e]
    return ptr, at, far


@jit()
def join(ptr, at, far, weight):  # type: ignore[no-untyped-def]
    """Several lists of edges of the same rows as one, by row.

    Args:
        ptr: Bounds of the groups of each list, [n_lists, n_groups + 1].
        at, far, weight: Positions, other ends and weights of all edges, one list after another.

    Returns:
        Bounds [n_groups + 1], positions, other ends and weights.
    """
    n_lists = ptr.shape[0]
    n = ptr.shape[1] - 1
    bounds = np.zeros(n + 1, np.int64)
    first = np.zeros(n_lists, np.int64)
    for c in range(1, n_lists):
        first[c] = first[c - 1] + ptr[c - 1, n]
    out_at = np.empty(len(at), np.int32)
    out_far = np.empty(len(at), np.int32)
    out_weight = np.empty(len(at), np.float64)
    k = 0
    for g in range(n):
        for c in range(n_lists):
            for e in range(first[c] + ptr[c, g], first[c] + ptr[c, g + 1]):
                out_at[k], out_far[k], out_weight[k] = at[e], far[e], weight[e]
                k += 1
        bounds[g + 1] = k
    return bounds, out_at, out_far, out_weight
