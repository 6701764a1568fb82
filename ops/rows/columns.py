"""Sums over the rows of each column, and gradients that flow through them, on all threads.

Rows are [n, ...]; marks of rows that count are [n] bool, or None if all of them do. Rows are added
in float64, because single precision loses 4 % of a sum over millions of them; they are added in
order in blocks of a fixed size, so that results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from ..parallel.buffers import LEAST_BLOCK, by_blocks, empty, row_blocks

# narrow rows are added side by side, as rows of about so many numbers, for which loops are compiled
_WIDE = 64
# rows that may be added in order in single precision
_FEW = 1024
_ALL = np.zeros(0, bool)


def row_sums(
    x: np.ndarray, counted: np.ndarray | None = None, mean: np.ndarray | None = None
) -> np.ndarray:
    """Sums of the rows that count, [...] float64; with a mean [...], of squares of what is above
    it.
    """
    width = prod(x.shape[1:])
    if (mean is None and x.size < LEAST_BLOCK) or not x.size:
        # a kernel would not be faster, and numba takes longer to import than many programs to run
        return np.asarray((x if counted is None else x[counted]).sum(axis=0, dtype=np.float64))
    from ..kernels.columns import squares, sums

    side = max(1, _WIDE // width) if counted is None else 1
    wide = side * width
    numbers = None if mean is None else np.tile(np.ascontiguousarray(mean).reshape(-1), side)
    parts = np.zeros((row_blocks(len(x) // side, wide)[0] + 1, wide))

    def add(part: np.ndarray, begin: int, end: int, columns: int) -> None:
        rows = _flat(x[begin:end]).reshape(-1, columns)
        # one kernel for arrays that may be changed and those that must not
        rows.flags.writeable = False
        marks = _ALL if counted is None else counted[begin:end]
        if numbers is None:
            sums(rows, marks, part)
        else:
            squares(rows, numbers, marks, part)

    whole = len(x) // side
    by_blocks(lambda b, begin, end: add(parts[b], begin * side, end * side, wide), whole, wide)
    # rows that are left over
    add(parts[-1, :width], whole * side, len(x), width)
    return parts.reshape(-1, width).sum(axis=0).reshape(x.shape[1:])


def sums_by_number(x: np.ndarray, numbers: np.ndarray, k: int) -> np.ndarray:
    """Sums of the rows that have each number below k, [k, ...] float64.

    Args:
        x: [n, ...].
        numbers: [n] integers in [0, k).
        k: How many numbers there are.
    """
    from ..kernels.columns import sums_by_number as add

    width = prod(x.shape[1:])
    # a block has a table of its own, which is no larger than its rows
    parts = np.zeros((max(1, row_blocks(len(x), width, k)[0]), k, width))
    numbers = np.ascontiguousarray(numbers, np.int64)

    def block(b: int, begin: int, end: int) -> None:
        rows = _flat(x[begin:end])
        of_rows = numbers[begin:end]
        # one kernel for arrays that may be changed and those that must not
        rows.flags.writeable = of_rows.flags.writeable = False
        add(rows, of_rows, parts[b])

    by_blocks(block, len(x), width, least=k)
    return (parts.sum(axis=0) if len(parts) > 1 else parts[0]).reshape(k, *x.shape[1:])


def sum_over(x: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
    """Sum over some axes, in the type of x, as accurate for many rows as for few.

    NumPy adds a last axis in pairs, but the rows of an array in order.

    Args:
        x: [...]; rows are its first axis.
        axis: Axes, none twice.
    """
    if x.ndim < 2 or len(x) < _FEW or x.dtype.kind != "f":
        return np.asarray(x.sum(axis=axis))
    axes = {k % x.ndim for k in axis}
    if 0 not in axes:
        return np.asarray(x.sum(axis=axis))
    return row_sums(x).sum(axis=tuple(k - 1 for k in axes if k)).astype(x.dtype)


def unbroadcast(g: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Sum a gradient over the axes along which x was repeated; the adjoint of broadcasting."""
    shape = np.shape(x)
    if g.shape == shape:
        return g
    lead = g.ndim - len(shape)
    repeated = tuple(range(lead)) + tuple(
        i + lead for i, d in enumerate(shape) if d == 1 and g.shape[i + lead] != 1
    )
    return sum_over(g, repeated).reshape(shape)


def statistics(
    x: np.ndarray, counted: np.ndarray | None, all_sum: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and biased variance of the rows of all workers, [...] float64 each, and the number of
    these rows.

    Sums are float64 and the second pass is centred, so that a large mean does not cancel the
    variance.

    Args:
        x: This worker's rows, [n, ...].
        counted: Marks of those that count.
        all_sum: Sums an array over the workers.

    Collective: two sums.
    """
    n = len(x) if counted is None else np.count_nonzero(counted)
    sums = all_sum(np.concatenate([[n], row_sums(x, counted).ravel()]))
    total = float(sums[0])
    mean = (sums[1:] / max(total, 1)).reshape(x.shape[1:])
    squares = all_sum(row_sums(x, counted, mean.astype(x.dtype)))
    return mean, squares / max(total, 1), total


def through_statistics(
    g: np.ndarray,
    x: np.ndarray,
    mean: np.ndarray,
    shift: np.ndarray,
    slope: np.ndarray,
    counted: np.ndarray | None,
) -> np.ndarray:
    """g + shift + (x - mean) * slope, [n, ...]; g in rows that do not count.

    Args:
        g, x: [n, ...].
        mean, shift, slope: [...], of the type of g.
        counted: Marks of rows.
    """
    from ..kernels.columns import moved

    rows = _flat(g)
    others = _flat(x)
    out = empty(g.shape, g.dtype)
    marks = _ALL if counted is None else counted
    numbers = [np.ascontiguousarray(a).reshape(-1) for a in (mean, shift, slope)]
    by_blocks(
        lambda _, begin, end: moved(rows, others, *numbers, marks, _flat(out), begin, end),
        *rows.shape,
    )
    return out


def _flat(x: np.ndarray) -> np.ndarray:
    """All axes but the first as one."""
    return np.ascontiguousarray(x).reshape(len(x), prod(x.shape[1:]))
