"""Rows into messages and out of them.

A message holds the rows of one partner, column after column. Row i of a column is number i - ptr[q] of partner q, the one
with ptr[q] <= i < ptr[q + 1], and begins at word ``start[q]`` of all messages plus its number times the width.
"""
from __future__ import annotations

import numpy as np

from ..compile.jit import jit


@jit()
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


@jit()
def unpack(messages, ptr, start, out, begin, end):  # type: ignore[no-untyped-def]
    """Read rows begin to end of a column."""
    q, width = 0, out.shape[1]
    for i in range(begin, end):
        while ptr[q + 1] <= i:
            q += 1
        at = start[q] + (i - ptr[q]) * width
        for j in range(width):
            out[i, j] = messages[at + j]


@jit()
def add(into, rows, part, begin, end):  # type: ignore[no-untyped-def]
    """into[rows[i]] += part[i] for i from begin to end."""
    for i in range(begin, end):
        r = rows[i]
        for j in range(into.shape[1]):
            into[r, j] += part[i, j]


@jit()
def pack_rounded(x, rows, ptr, start, out, begin, end):  # type: ignore[no-untyped-def]
    """The same for the bits of float32 numbers, of which the upper 16 are sent, rounded to the nearest, to even if two are."""
    q, width = 0, x.shape[1]
    for i in range(begin, end):
        while ptr[q + 1] <= i:
            q += 1
        r = rows[i] if len(rows) else i
        at = start[q] + (i - ptr[q]) * width
        for j in range(width):
            bits = np.int64(x[r, j])
            # what is not a number must not be rounded up to infinity or to zero
            kept = (bits >> 16) | 64 if bits & 0x7FFFFFFF > 0x7F800000 else (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            out[at + j] = np.uint16(kept)


@jit()
def unpack_rounded(messages, ptr, start, out, begin, end):  # type: ignore[no-untyped-def]
    """Read rows begin to end of a column of which the upper 16 bits were sent."""
    q, width = 0, out.shape[1]
    for i in range(begin, end):
        while ptr[q + 1] <= i:
            q += 1
        at = start[q] + (i - ptr[q]) * width
        for j in range(width):
            out[i, j] = np.uint32(messages[at + j]) << np.uint32(16)
