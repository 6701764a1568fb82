"""Rows of bfloat16 numbers, as tiles of transposed products read them.

Where the processor multiplies pairs, two neighbours along the inner axis share 32 bits, the first
in the lower half. Elsewhere numbers are expanded to float32.
"""

# kernels take addresses and numbers
# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.np.numpy_support import carray

from ..lanes import intrinsic_with


def _as_pointer(typing: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


_pointer = intrinsic_with(["address"], _as_pointer)


@njit(inline="always")
def _place(numbers, i):
    """Which row of the array is row i."""
    return carray(_pointer(numbers + 8 * i), (1,), np.int64)[0] if numbers else i


@njit(inline="always")
def _numbers(base, stride, numbers, i, width):
    """Row i."""
    return carray(_pointer(base + _place(numbers, i) * stride), (width,), np.uint16)


@njit
def pair_rows(base, stride, numbers, begin, end, width, out, out_stride):
    """out[i, :] = the pairs of rows begin + 2 i and begin + 2 i + 1; 0 takes the place of the row
    after the last.

    Args:
        base, stride, numbers: The rows: address, bytes between two, and address of their numbers or
            0.
        begin, end: Bounds of the rows.
        width: Numbers of a row.
        out, out_stride: Address of the pairs, and bytes between two rows of them.

    Returns:
        Rows of pairs.
    """
    for i in range(begin, end, 2):
        lower = _numbers(base, stride, numbers, i, width)
        into = carray(_pointer(out + (i - begin) // 2 * out_stride), (width,), np.uint32)
        if i + 1 < end:
            upper = _numbers(base, stride, numbers, i + 1, width)
            for k in range(width):
                into[k] = np.uint32(lower[k]) | np.uint32(upper[k]) << np.uint32(16)
        else:
            for k in range(width):
                into[k] = lower[k]
    return (end - begin + 1) // 2


@njit
def expand_rows(base, stride, numbers, begin, end, width, out, out_stride):
    """out[i, :] = row begin + i in float32; arguments and result as for ``pair_rows``."""
    for i in range(begin, end):
        row = _numbers(base, stride, numbers, i, width)
        into = carray(_pointer(out + (i - begin) * out_stride), (width,), np.uint32)
        for k in range(width):
            into[k] = np.uint32(row[k]) << np.uint32(16)
    return end - begin
