"""Edge lists of a batch, in time and memory linear in the rows and edges it reads.

Arguments are arrays of the caller; rows and positions are int32, bounds int64. Edges come in
groups: those of group g are ``ptr[g]`` to ``ptr[g + 1]``.
"""
from __future__ import annotations

import numpy as np

from ..compile.jit import jit

# bits that numbers are sorted by at a time
DIGIT = 11
LAST_DIGIT = (1 << DIGIT) - 1


@jit()
def expand(begin, end, edges, others):  # type: ignore[no-untyped-def]
    """Copy groups of edges from anywhere in two lists, one after another.

    Args:
        begin, end: Bounds of each group in the lists, [n_groups] int64.
        edges: Position of each edge; empty if edge k has position k.
        others: Row at the other end of each edge.

    Returns:
        Bounds of the groups [n_groups + 1], positions and other ends of their edges.
    """
    ptr = np.zeros(len(begin) + 1, np.int64)
    for g in range(len(begin)):
        ptr[g + 1] = ptr[g] + end[g] - begin[g]
    at, far = np.empty(ptr[-1], np.int32), np.empty(ptr[-1], np.int32)
    for g in range(len(begin)):
        k = ptr[g]
        for e in range(begin[g], end[g]):
            at[k] = edges[e] if len(edges) else e
            far[k] = others[e]
            k += 1
    return ptr, at, far


@jit()
def number(found, number_of, rows, n):  # type: ignore[no-untyped-def]
    """Number rows without a number: number_of[row] = n, n + 1, ..., and rows[number_of[row]] = row.

    Args:
        found: Rows, possibly repeated, [m] int32.
        number_of: Number of each row, below 0 for none; changed.
        rows: Row of each number, with room for m more; changed.
        n: How many rows have a number.

    Returns:
        How many rows have a number now.
    """
    for row in found:
        if number_of[row] < 0:
            number_of[row] = n
            rows[n] = row
            n += 1
    return n


@jit()
def ascending(numbers, end):  # type: ignore[no-untyped-def]
    """Radix sort of numbers from 0 to below ``end``; several times faster than ``sort``.

    It overwrites its argument.
    """
    there, shift = np.empty_like(numbers), 0
    while (end - 1) >> shift > 0:
        free = np.zeros((1 << DIGIT) + 1, np.int64)
        for x in numbers:
            free[((x >> shift) & LAST_DIGIT) + 1] += 1
        for d in range(LAST_DIGIT):
            free[d + 1] += free[d]
        for x in numbers:
            d = (x >> shift) & LAST_DIGIT
            there[free[d]] = x
            free[d] += 1
        numbers, there = there, numbers
        shift += DIGIT
    return numbers


@jit()
def group(ptr, row, other, n):  # type: ignore[no-untyped-def]
    """Regroup edges, grouped by one end, by the other end: a stable counting sort.

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


@jit()
def take(x, rows, out):  # type: ignore[no-untyped-def]
    """out[i] = x[rows[i]], for rows of bytes."""
    for i in range(len(rows)):
        # read once: the compiler cannot know that out and rows are apart, and would copy byte by byte
        r = rows[i]
        for j in range(x.shape[1]):
            out[i, j] = x[r, j]
