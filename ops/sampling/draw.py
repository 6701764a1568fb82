"""Uniform draws from the edges of rows, in time proportional to the edges drawn.

A row with d edges over all workers draws numbers below d, its positions. They depend on the key,
the global id of the row and d, so that every worker draws the same positions.
"""
from __future__ import annotations

import numpy as np
from numba import njit

from ..compile.jit import jit
from ..kernels.hash import COLUMN, draw, mix

FREE = -1
HALF, LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


@jit()
def sort_rows(ptr, values, order, first, last):  # type: ignore[no-untyped-def]
    """order[ptr[r]:ptr[r + 1]] = the numbers of the edges of row r by ascending value, for some rows.

    Args:
        ptr: Bounds of the edges of each row.
        values: Value of each edge, all different within a row.
        order: [n_edges] int32; changed.
        first, last: The rows.

    Returns:
        Whether the values of these rows are in ascending order.
    """
    ascending = True
    for r in range(first, last):
        a, b = ptr[r], ptr[r + 1]
        in_order = True
        for e in range(a + 1, b):
            in_order &= values[e - 1] < values[e]
        if in_order:
            for e in range(a, b):
                order[e] = e
        else:
            ascending = False
            for i, e in enumerate(np.argsort(values[a:b])):
                order[a + i] = a + e
    return ascending


@jit()
def room(begin, end, k):  # type: ignore[no-untyped-def]
    """Bounds of min(edges of the row, k) edges for each row, [n + 1] int64."""
    bounds = np.empty(len(begin) + 1, np.int64)
    bounds[0] = 0
    for g in range(len(begin)):
        bounds[g + 1] = bounds[g] + min(end[g] - begin[g], k)
    return bounds


@njit(inline="always")
def _below(h, j, d):  # type: ignore[no-untyped-def]
    """Draw j of a row, 0 to d - 1, for d up to 2**31: the upper half of a product of 64 bits and d."""
    x, d = mix(h + np.uint64(j + 1) * COLUMN), np.uint64(d)
    return np.int64(((x >> HALF) * d + ((x & LOW) * d >> HALF)) >> HALF)


@njit(inline="always")
def _slot(table, key):  # type: ignore[no-untyped-def]
    """Where a number is in a hash table of 2**n numbers, or the free slot where it belongs."""
    mask = len(table) - 1
    at = key & mask
    while table[at] != FREE and table[at] != key:
        at = (at + 1) & mask
    return at


@njit(inline="always")
def _without(h, k, d, drawn, table):  # type: ignore[no-untyped-def]
    """k of d positions, k < d, by Floyd's algorithm: https://doi.org/10.1145/30401.315746."""
    table[:] = FREE
    for j in range(k):
        top = d - k + j
        x = _below(h, j, top + 1)
        at = _slot(table, x)
        if table[at] != FREE:
            x, at = top, _slot(table, top)
        table[at] = drawn[j] = x
    return k


@njit(inline="always")
def _with(h, k, d, drawn, times, table, number):  # type: ignore[no-untyped-def]
    """k draws of d positions: the different ones, and how often each is drawn."""
    table[:] = FREE
    n = 0
    for j in range(k):
        x = _below(h, j, d)
        at = _slot(table, x)
        if table[at] == FREE:
            table[at], number[at], drawn[n], times[n] = x, n, x, 1
            n += 1
        else:
            times[number[at]] += 1
    return n


@njit(inline="always")
def _find(position, a, b, x):  # type: ignore[no-untyped-def]
    """Number of the edge of position x among edges a to b, or -1 if it is not one of these."""
    last = b
    while a < b:
        middle = (a + b) >> 1
        if position[middle] < x:
            a = middle + 1
        else:
            b = middle
    return a if a < last and position[a] == x else -1


@jit()
def choose(groups, places, rows, key, k, replace, out, first, last):  # type: ignore[no-untyped-def]
    """Draw edges of some groups.

    Args:
        groups: (begin, end, edges, others): groups of edges, as for ``expand``.
        places: (order, position): the edges of each row by ascending position, empty if in order;
            the position of each edge in this order, empty if each row has all its edges here.
        rows: (row of each group, global ids of the rows, edges of each row over all workers).
        key: Key of the draws, uint64.
        k: Number of edges to draw.
        replace: Draw with replacement.
        out: (bounds, counts, positions, other ends, weights): ``bounds`` is the result of ``room``;
            the others are changed. An edge weighs the number of edges it represents.
        first, last: The groups. Their edges are written one after another from ``bounds[first]`` on.

    Returns:
        The end of the edges that are written.
    """
    begin, end, edges, others = groups
    order, position = places
    row_of, ids, degree = rows
    bounds, count, at, far, weight = out
    draws = 0
    for g in range(first, last):
        if replace or (degree[row_of[g]] if len(position) else end[g] - begin[g]) > k:
            draws = k
    size = 1
    while size < 2 * draws:
        size *= 2
    drawn, times = np.empty(draws, np.int64), np.ones(draws, np.int32)
    table, number = np.empty(size, np.int64), np.empty(size, np.int32)
    n = bounds[first]
    for g in range(first, last):
        a, b = begin[g], end[g]
        d = degree[row_of[g]] if len(position) else b - a
        before = n
        if a < b and (replace or d > k):
            h = draw(key, ids[row_of[g]])
            m = _with(h, k, d, drawn, times, table, number) if replace else _without(h, k, d, drawn, table)
            for i in range(m):
                e = a + drawn[i] if d == b - a else _find(position, a, b, drawn[i])
                if e >= 0:
                    at[n], weight[n] = e, times[i] * (d / k)
                    n += 1
        else:
            for e in range(a, b):
                at[n], weight[n] = e, 1.0
                n += 1
        count[g] = n - before
    # loops of their own, so that many reads are under way at a time
    if len(order):
        for i in range(bounds[first], n):
            at[i] = order[at[i]]
    for i in range(bounds[first], n):
        far[i] = others[at[i]]
    if len(edges):
        for i in range(bounds[first], n):
            at[i] = edges[at[i]]
    return n
