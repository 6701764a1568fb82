"""Items of several views in lists: those of one view after those of another.

Such a list may come in several parts, each with the bounds of the views in it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ...compile.jit import jit

FREE = -1
WORD_BITS, MIX = 64, np.uint64(0x9E3779B97F4A7C15)


@njit(inline="always")
def _slot(table, shift, numbered, begin, item):  # type: ignore[no-untyped-def]
    """Where the number of an item is in a hash table of 2**n numbers, or the free slot where it
    belongs.
    """
    mask = len(table) - 1
    at = np.int64(np.uint64(item) * MIX >> shift)
    while table[at] != FREE and numbered[begin + table[at]] != item:
        at = (at + 1) & mask
    return at


@jit()
def number_by_view(initial, ptr, items, bounds):  # type: ignore[no-untyped-def]
    """Number the different items of each view: the initial ones first, others in the order in which
    they occur.

    Args:
        initial: Items of each view that are numbered first, none twice in a view, [n] int64.
        ptr: Bounds of the views in ``initial``, [views + 1].
        items: Items, possibly repeated, [m] int64, from 0.
        bounds: Bounds of the views in each part of ``items``, [parts, views + 1].

    Returns:
        The items of each view by number, int64; bounds of the views in them, [views + 1]; and the
        number of each of ``items`` in its view, [m] int32.
    """
    views = len(ptr) - 1
    parts = len(bounds)
    total = len(initial)
    most = 0
    for v in range(views):
        n = ptr[v + 1] - ptr[v]
        for s in range(parts):
            n += bounds[s, v + 1] - bounds[s, v]
        total = total + n - (ptr[v + 1] - ptr[v])
        most = max(most, n)
    bits = 1
    while (1 << bits) < 2 * most:
        bits += 1
    shift = np.uint64(WORD_BITS - bits)
    table = np.full(1 << bits, FREE, np.int32)
    used = np.empty(most, np.int32)
    numbered = np.empty(total, np.int64)
    begin = np.empty(views + 1, np.int64)
    number = np.empty(len(items), np.int32)
    begin[0] = 0
    for v in range(views):
        first = begin[v]
        n = 0
        for i in range(ptr[v], ptr[v + 1]):
            at = _slot(table=table, shift=shift, numbered=numbered, begin=first, item=initial[i])
            table[at], used[n], numbered[first + n] = n, at, initial[i]
            n += 1
        for s in range(parts):
            for i in range(bounds[s, v], bounds[s, v + 1]):
                at = _slot(table=table, shift=shift, numbered=numbered, begin=first, item=items[i])
                if table[at] == FREE:
                    table[at], used[n], numbered[first + n] = n, at, items[i]
                    n += 1
                number[i] = table[at]
        for i in range(n):
            table[used[i]] = FREE
        begin[v + 1] = first + n
    return numbered[: begin[views]].copy(), begin, number
