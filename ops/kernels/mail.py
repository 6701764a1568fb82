"""Rows into messages and out of them.

A message holds the rows of one partner, column after column. Row i of a column is number i - ptr[q] of partner q, the one
with ptr[q] <= i < ptr[q + 1], and begins at word ``start[q]`` of all messages plus its number times the width.
"""
from __future__ import annotations

from numba import njit


@njit(nogil=True, cache=True)
def pack(x, rows, ptr, start, out, begin, end):  # type: ignore[no-untyped-def]
    """Write rows begin to end of a column: row i is x[rows[i]], or x[i] if there are no ``rows``."""
    q, width = 0, x.shape[1]
    for i in range(begin, end):
        while ptr[q + 1] <= i:
            q += 1
        r = rows[i] if len(rows) else i
        at = start[q] + (i - ptr[q]) * width
        for j in range(width):
            out[at + j] = x[r, j]


@njit(nogil=True, cache=True)
def unpack(messages, ptr, start, out, begin, end):  # type: ignore[no-untyped-def]
    """Read rows begin to end of a column."""
    q, width = 0, out.shape[1]
    for i in range(begin, end):
        while ptr[q + 1] <= i:
            q += 1
        at = start[q] + (i - ptr[q]) * width
        for j in range(width):
            out[i, j] = messages[at + j]


@njit(nogil=True, cache=True)
def add(into, rows, part, begin, end):  # type: ignore[no-untyped-def]
    """into[rows[i]] += part[i] for i from begin to end."""
    for i in range(begin, end):
        r = rows[i]
        for j in range(into.shape[1]):
            into[r, j] += part[i, j]
