"""Packs rows into message buffers, and unpacks them.

A message has the rows of one partner, column after column. Row i of a column belongs to the
partner q with ptr[q] <= i < ptr[q + 1]. It begins at word start[q] + (i - ptr[q]) * width of the
buffer.
"""
from __future__ import annotations

import numpy as np

from ..compile.jit import jit


@jit()
def pack(x, rows, ptr, start, out, begin, end):  # type: ignore[no-untyped-def]
    """Write rows begin to end of a column: row i is x[rows[i]], or x[i] if ``rows`` is empty."""
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
    """``pack`` for the bits of float32 numbers, rounded to their upper 16 (ties to even)."""
    q, width = 0, x.shape[1]
    for i in range(begin, end):
        while ptr[q + 1] <= i:
            q += 1
        r = rows[i] if len(rows) else i
        at = start[q] + (i - ptr[q]) * width
        for j in range(width):
            bits = np.int64(x[r, j])
            # NaN must not be rounded to infinity or to zero
            upper = (bits >> 16) | 64 if bits & 0x7FFFFFFF > 0x7F800000 else (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            out[at + j] = np.uint16(upper)


@jit()
def unpack_rounded(messages, ptr, start, out, begin, end):  # type: ignore[no-untyped-def]
    """Read rows begin to end of a column that ``pack_rounded`` wrote."""
    q, width = 0, out.shape[1]
    for i in range(begin, end):
        while ptr[q + 1] <= i:
            q += 1
        at = start[q] + (i - ptr[q]) * width
        for j in range(width):
            out[i, j] = np.uint32(messages[at + j]) << np.uint32(16)
