"""Packs rows into message buffers, and unpacks them.

A message has the rows of one partner, column after column. Row i of a column belongs to the
partner q with ptr[q] <= i < ptr[q + 1]. It begins at word start[q] + (i - ptr[q]) * width of the
buffer. Rows in order are contiguous in a message, and copied as one run.

Numbers are copied as unsigned integers of their size. In a buffer of half this size they are the
upper 16 bits of float32 numbers, rounded (ties to even).
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from ..compile.jit import jit
from .bfloat16 import upper_half


def _in_type(number, like):  # type: ignore[no-untyped-def]
    """A number in the type of an array."""


@overload(_in_type, inline="always")
def _form(number, like):  # type: ignore[no-untyped-def]
    if number == types.uint32 and like.dtype == types.uint16:
        return lambda number, like: np.uint16(upper_half(number))
    if number == types.uint16 and like.dtype == types.uint32:
        return lambda number, like: np.uint32(number) << np.uint32(16)
    return lambda number, like: number


@jit()
def pack(x, rows, ptr, start, out, begin, end):  # type: ignore[no-untyped-def]
    """Write rows begin to end of a contiguous column: row i is x[rows[i]], or x[i] if ``rows`` is
    empty.
    """
    width = x.shape[1]
    flat = x.reshape(-1)
    q = 0
    i = begin
    while i < end:
        while ptr[q + 1] <= i:
            q += 1
        n = min(ptr[q + 1], end) - i
        into = out[start[q] + (i - ptr[q]) * width :]
        if len(rows):
            for k in range(n):
                r = rows[i + k]
                for j in range(width):
                    into[k * width + j] = _in_type(x[r, j], into)
        else:
            run = flat[i * width : (i + n) * width]
            for k in range(len(run)):
                into[k] = _in_type(run[k], into)
        i += n


@jit()
def unpack(messages, ptr, start, out, begin, end):  # type: ignore[no-untyped-def]
    """Read rows begin to end of a contiguous column."""
    width = out.shape[1]
    flat = out.reshape(-1)
    q = 0
    i = begin
    while i < end:
        while ptr[q + 1] <= i:
            q += 1
        n = min(ptr[q + 1], end) - i
        message = messages[start[q] + (i - ptr[q]) * width :]
        run = flat[i * width : (i + n) * width]
        for k in range(len(run)):
            run[k] = _in_type(message[k], run)
        i += n


@jit()
def add(into, rows, part, begin, end):  # type: ignore[no-untyped-def]
    """into[rows[i]] += part[i] for i from begin to end."""
    for i in range(begin, end):
        r = rows[i]
        for j in range(into.shape[1]):
            into[r, j] += part[i, j]
