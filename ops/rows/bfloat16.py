"""Values that are stored as bfloat16: rounding, and back to float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.base.bfloat16 import BFLOAT16, is_wide

from ..parallel.buffers import by_blocks, empty
from .row_list import ArrayOrList, RowList


def rounded(x: np.ndarray) -> np.ndarray:
    """The bfloat16 numbers nearest to float32 numbers, ties to even; those beyond the largest,
    3.39e38, are infinite, and subnormal ones remain.

    Args:
        x: [...], float32; other numbers are converted to it first.

    Returns:
        [...], ``BFLOAT16``, in C order.
    """
    from ..kernels.bfloat16 import round_bits

    out = empty(x.shape, BFLOAT16)
    bits = np.ascontiguousarray(x, np.float32).reshape(-1).view(np.uint32)
    into = out.reshape(-1).view(np.uint16)
    by_blocks(
        lambda _, begin, end: round_bits(bits[begin:end], into[begin:end]), n=bits.size, width=1
    )
    return out


def expanded(x: np.ndarray) -> np.ndarray:
    """The same numbers in float32.

    Args:
        x: [...], ``BFLOAT16``.

    Returns:
        [...], float32, in C order.
    """
    from ..kernels.bfloat16 import expand_bits

    out = empty(x.shape, np.float32)
    bits = np.ascontiguousarray(x).reshape(-1).view(np.uint16)
    into = out.reshape(-1).view(np.uint32)
    by_blocks(
        lambda _, begin, end: expand_bits(bits[begin:end], into[begin:end]), n=bits.size, width=1
    )
    return out


def as_float(x: Any) -> Any:
    """Expanded numbers of ``BFLOAT16``, which may be listed; anything else as it is."""
    if x.dtype != BFLOAT16:
        return x
    return expanded(x[:] if isinstance(x, RowList) else x)


def expanded_rows(x: Any, begin: int, end: int) -> np.ndarray:
    """Some rows in float32, by the thread that calls.

    Args:
        x: [n, d], ``BFLOAT16``, of which slices are rows.
        begin, end: The rows.
    """
    from ..kernels.bfloat16 import expand_bits

    rows = np.ascontiguousarray(x[begin:end])
    out = np.empty(rows.shape, np.float32)
    expand_bits(rows.reshape(-1).view(np.uint16), out.reshape(-1).view(np.uint32))
    return out


def round_rows(x: np.ndarray, out: np.ndarray) -> None:
    """Round rows into rows of ``BFLOAT16`` of the same shape, in C order, by the thread that calls;
    numbers that are not float32 are converted to it first.
    """
    from ..kernels.bfloat16 import round_bits

    bits = np.ascontiguousarray(x, np.float32).reshape(-1).view(np.uint32)
    round_bits(bits, out.reshape(-1).view(np.uint16))


def shortened(x: ArrayOrList) -> ArrayOrList:
    """Wide float32 rows, rounded; anything else as it is."""
    return rounded(x[:]) if is_wide(x.shape[1:], x.dtype) else x
