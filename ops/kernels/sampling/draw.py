"""Uniform draws from the edges of rows, in time proportional to the edges drawn.

A row with d edges over all workers draws numbers below d, its positions. They depend on the key,
the global id of the row and d, so that every worker draws the same positions.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ...compile.jit import jit
from ..hash import COLUMN, draw, mix
from ..heap_sort import sort
from ..prefetch import prefetch

FREE = -1
# up to so many draws are compared one by one, more through a hash table
FEW = 32
# an edge is read when so many others have been drawn after it, and its line has come from memory
LATER = 128
HALF, LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


@jit()
def sort_rows(ptr, values, order, first, last):  # type: ignore[no-untyped-def]
    """order[ptr[r]:ptr[r + 1]] = the numbers of the edges of row r by ascending value, for some
    rows.

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
        a = ptr[r]
        b = ptr[r + 1]
        in_order = True
        for e in range(a + 1, b):
            in_order &= values[e - 1] < values[e]
        for e in range(a, b):
            order[e] = e
        if not in_order:
            ascending = False
            sort(values[a:b].copy(), order[a:b])
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
    """Draw j of a row, 0 to d - 1, for d up to 2**31: the upper half of 64 bits times d."""
    x = mix(h + np.uint64(j + 1) * COLUMN)
    d = np.uint64(d)
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
    """k of d positions, k < d, by Floyd's algorithm: https://doi.org/10.1145/30401.315746.

    ``table`` has at least 2 * k numbers, or none if k is at most FEW.
    """
    if not len(table):
        _few(h, k, d, drawn)
        return k
    table[:] = FREE
    for j in range(k):
        top = d - k + j
        x = _below(h, j, top + 1)
        at = _slot(table, x)
        if table[at] != FREE:
            x = top
            at = _slot(table, top)
        table[at] = drawn[j] = x
    return k


@njit(inline="always")
def _few(h, k, d, drawn):  # type: ignore[no-untyped-def]
    """As ``_without``; every number is compared with all others, several at a time, since the loop
    has no early exit.
    """
    for j in range(k):
        top = d - k + j
        x = _below(h, j, top + 1)
        repeated = False
        for i in range(j):
            repeated |= drawn[i] == x
        drawn[j] = top if repeated else x


@njit(inline="always")
def _with(h, k, d, drawn, times, table, number):  # type: ignore[no-untyped-def]
    """k draws of d positions: the different ones, and how often each is drawn."""
    table[:] = FREE
    n = 0
    for j in range(k):
        x = _below(h, j, d)
        at = _slot(table, x)
        if table[at] == FREE:
            table[at] = x
            number[at] = n
            drawn[n] = x
            times[n] = 1
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


@njit(inline="always")
def _room_for(k, replace):  # type: ignore[no-untyped-def]
    """Arrays for k draws: the draws, how often each is drawn, and a hash table with numbers of
    draws, empty where none is needed.
    """
    size = 1 if replace or k > FEW else 0
    while 0 < size < 2 * k:
        size *= 2
    return (
        np.empty(k, np.int64),
        np.ones(k, np.int32),
        np.empty(size, np.int64),
        np.empty(size, np.int32),
    )


@njit(inline="always")
def _read(listed, i, stop, at, far):  # type: ignore[no-untyped-def]
    """Number and other end of the edges i to ``stop``, whose place in ``listed`` is in ``at``;
    returns where it stopped.
    """
    while i < stop:
        e = at[i]
        at[i], far[i] = listed[e, 0], listed[e, 1]
        i += 1
    return i


@njit(inline="always")
def _view_of(g, views, v):  # type: ignore[no-untyped-def]
    """The view of a group, which is v or a later one."""
    while g >= views[v + 1]:
        v += 1
    return v


@jit()
def choose(  # type: ignore[no-untyped-def]
    groups, places, rows, keys, views, k, replace, out, first, last
):
    """Draw edges of some groups.

    Args:
        groups: (begin, end, edges, others): groups of edges, as for ``expand``.
        places: (listed, position): the numbers of the edges of each row by ascending position and
            their other ends, [n_edges, 2], empty if ``edges`` and ``others`` are in this order; the
            position of each edge, empty if each row has all its edges here.
        rows: (row of each group, global ids of the rows, edges of each row over all workers).
        keys, views: Key of the draws of each view, uint64, and bounds of the views in the groups.
        k: Number of edges to draw.
        replace: Draw with replacement.
        out: (bounds, counts, positions, other ends, weights): ``bounds`` is the result of ``room``;
            the others are changed. An edge weighs the number of edges it represents.
        first, last: The groups. Their edges are written one after another from ``bounds[first]``
            on.

    Returns:
        The end of the edges that are written.
    """
    (begin, end, edges, others), (listed, position) = groups, places
    (row_of, ids, degree), (bounds, count, at, far, weight) = rows, out
    draws = view = 0
    for g in range(first, last):
        if replace or (degree[row_of[g]] if len(position) else end[g] - begin[g]) > k:
            draws = k
    drawn, times, table, number = _room_for(draws, replace)
    n = read = bounds[first]
    for g in range(first, last):
        view = _view_of(g, views, view)
        start, stop = begin[g], end[g]
        size = degree[row_of[g]] if len(position) else stop - start
        before = n
        if start < stop and (replace or size > k):
            stream = draw(keys[view], ids[row_of[g]])
            n_drawn = (
                _with(h=stream, k=k, d=size, drawn=drawn, times=times, table=table, number=number)
                if replace
                else _without(h=stream, k=k, d=size, drawn=drawn, table=table)
            )
            each = size / k
            for i in range(n_drawn):
                e = (
                    start + drawn[i]
                    if size == stop - start
                    else _find(position, start, stop, drawn[i])
                )
                if e >= 0:
                    if len(listed):
                        prefetch(listed, e, 0)  # type: ignore[call-arg]
                    at[n], weight[n] = e, times[i] * each
                    n += 1
        else:
            for e in range(start, stop):
                at[n] = e
                weight[n] = 1.0
                n += 1
        count[g] = n - before
        if len(listed):
            read = _read(listed=listed, i=read, stop=n - LATER, at=at, far=far)
    if len(listed):
        _read(listed=listed, i=read, stop=n, at=at, far=far)
        return n
    # loops of their own, so that many reads are under way at a time
    for i in range(bounds[first], n):
        far[i] = others[at[i]]
    if len(edges):
        for i in range(bounds[first], n):
            at[i] = edges[at[i]]
    return n
