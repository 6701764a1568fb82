"""Edge lists of a batch, in time and memory linear in the rows and edges it reads.

Arguments are arrays of the caller; rows and positions are int32, bounds int64. Edges come in
groups: those of group g are ``ptr[g]`` to ``ptr[g + 1]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..compile.jit import jit

# number of rows that have none
NONE = -1
WORD_BITS = 6
WORD, FIRST = 1 << WORD_BITS, np.uint64(1)


@intrinsic
def lowest_bit(typing: Any, word: Any) -> Any:
    """Number of the lowest bit that is set in a word, uint64; undefined for 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


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
    at = np.empty(ptr[-1], np.int32)
    far = np.empty(ptr[-1], np.int32)
    for g in range(len(begin)):
        k = ptr[g]
        for e in range(begin[g], end[g]):
            at[k] = edges[e] if len(edges) else e
            far[k] = others[e]
            k += 1
    return ptr, at, far


@jit()
def mark(rows, words):  # type: ignore[no-untyped-def]
    """Set the bits of some rows, possibly repeated, [m] int32; bit r is in word r >> 6 of
    ``words``, uint64.
    """
    for row in rows:
        words[row >> WORD_BITS] |= FIRST << np.uint64(row & (WORD - 1))


@jit()
def number(number_of, words, rows, n):  # type: ignore[no-untyped-def]
    """Number the marked rows that have no number yet n, n + 1, ... in ascending order, and unmark
    all.

    Args:
        number_of: Number of each row, NONE for any other; changed.
        words: As for ``mark``; changed.
        rows: Row of each number, with room for one more than there may be; changed.
        n: The lowest new number.

    Returns:
        The number of rows that have a number.
    """
    for w in range(len(words)):
        left = words[w]
        words[w] = 0
        while left:
            row = (w << WORD_BITS) + np.int64(lowest_bit(left))  # type: ignore[call-arg]
            left &= left - FIRST
            # without a branch, which the processor could not predict
            earlier = number_of[row]
            rows[n] = row
            number_of[row] = n if earlier == NONE else earlier
            n += earlier == NONE
    return n


@jit()
def numbers(number_of, rows, out, first, last):  # type: ignore[no-untyped-def]
    """out[i] = number_of[rows[i]] for some i."""
    for i in range(first, last):
        out[i] = number_of[rows[i]]


@jit()
def group(ptr, row, other, n):  # type: ignore[no-untyped-def]
    """Regroup edges, grouped by one end, by the other end: a stable counting sort.

    Args:
        ptr, row: Groups and the row of each, [n_groups + 1] and [n_groups].
        other: Row at the other end of each edge, [n_edges], below n.
        n: Number of new groups.

    Returns:
        Bounds of the new groups [n + 1], the row at the first end of each edge, and the number each
        edge had before.
    """
    bounds = np.zeros(n + 1, np.int64)
    for r in other:
        bounds[r + 1] += 1
    for r in range(n):
        bounds[r + 1] += bounds[r]
    free = bounds[:-1].copy()
    first = np.empty(len(other), np.int32)
    at = np.empty(len(other), np.int32)
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
        # read once: the compiler cannot know that out and rows are apart, and would copy byte by
        # byte
        r = rows[i]
        for j in range(x.shape[1]):
            out[i, j] = x[r, j]


@jit()
def split(ptr, row, visit, codes, at, k):  # type: ignore[no-untyped-def]
    """Split groups of edges by a code, and order them by code: a stable counting sort.

    Args:
        ptr, row: Groups and the row of each, [n_groups + 1] and [n_groups].
        visit: The groups in ascending order of their rows; empty if they are.
        codes: Code of each edge, [n_edges], below k.
        at: Position of each edge in ``codes``; empty if they are in this order.
        k: Number of codes.

    Returns:
        Bounds of the new groups [n_pairs + 1] and the row of each; bounds of the new groups of each
        code [k + 1]; and the number each edge had before. Rows ascend within a code.
    """
    free = np.zeros(k + 1, np.int64)
    for c in codes:
        free[c + 1] += 1
    for c in range(k):
        free[c + 1] += free[c]
    order = np.empty(len(codes), np.int32)
    rows = np.empty(len(codes), np.int32)
    # the last row of each code, to count the pairs
    last = np.full(k, NONE)
    pairs = np.zeros(k + 1, np.int64)
    for i in range(len(row)):
        g = visit[i] if len(visit) else i
        for e in range(ptr[g], ptr[g + 1]):
            c = codes[at[e]] if len(at) else codes[e]
            order[free[c]], rows[free[c]] = e, row[g]
            free[c] += 1
            pairs[c + 1] += last[c] != row[g]
            last[c] = row[g]
    for c in range(k):
        pairs[c + 1] += pairs[c]
    bounds = np.empty(pairs[k] + 1, np.int64)
    pair_row = np.empty(pairs[k], np.int32)
    p = 0
    begin = 0
    for c in range(k):
        # after the loop above, free[c] is the end of the code
        for e in range(begin, free[c]):
            if e == begin or rows[e] != rows[e - 1]:
                bounds[p], pair_row[p] = e, rows[e]
                p += 1
        begin = free[c]
    bounds[p] = len(codes)
    return bounds, pair_row, pairs, order
