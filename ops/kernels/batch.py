"""Edge lists of a batch, in time and memory linear in the rows and edges it reads.

Arguments are arrays of the caller; rows and positions are int32, bounds int64. Edges come in
groups: those of group g are ``ptr[g]`` to ``ptr[g + 1]``.
"""
from __future__ import annotations

import numpy as np

from ..compile.jit import jit

# numbers of rows that have none, and of marked rows
NONE, NEW = -1, -2
# a line of 16 numbers is a line of the processor's cache
LINE_BITS = 4
LINE = 1 << LINE_BITS


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
def mark(found, number_of, lines, first, last):  # type: ignore[no-untyped-def]
    """Mark rows without a number. Threads may mark at the same time, since all write the same values.

    Args:
        found: Rows, possibly repeated, [m] int32.
        number_of: Number of each row, NEW for a marked row, NONE for any other; changed.
        lines: Which lines of LINE rows have marked rows, uint8; changed.
        first, last: Which rows of ``found``.
    """
    for i in range(first, last):
        row = found[i]
        if number_of[row] == NONE:
            number_of[row] = NEW
            lines[row >> LINE_BITS] = 1


@jit()
def marked(number_of, lines, first, last):  # type: ignore[no-untyped-def]
    """Number of marked rows in some lines."""
    n = 0
    for line in range(first, last):
        if lines[line]:
            for row in range(line << LINE_BITS, min((line + 1) << LINE_BITS, len(number_of))):
                n += number_of[row] == NEW
    return n


@jit()
def number(number_of, lines, rows, n, first, last):  # type: ignore[no-untyped-def]
    """Number the marked rows of some lines n, n + 1, ... in ascending order, and unmark the lines.

    Args:
        number_of, lines: As for ``mark``; changed.
        rows: Row of each number; changed.
        n: The lowest new number.
        first, last: The lines.
    """
    for line in range(first, last):
        if lines[line]:
            lines[line] = 0
            for row in range(line << LINE_BITS, min((line + 1) << LINE_BITS, len(number_of))):
                if number_of[row] == NEW:
                    number_of[row] = n
                    rows[n] = row
                    n += 1


@jit()
def numbers(number_of, found, out, first, last):  # type: ignore[no-untyped-def]
    """out[i] = number_of[found[i]] for some i."""
    for i in range(first, last):
        out[i] = number_of[found[i]]


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
