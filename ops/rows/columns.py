"""Sums over the rows of each column, and gradients that flow through them, on all threads.

Rows are [n, ...]; marks of rows that count are [n] bool, or None if all of them do. Rows are added in
order, so that results do not depend on the number of threads.
"""
from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from ..autodiff.buffers import PER_NUMBER, by_blocks, empty, run_parts

# columns that a thread sums
_COLUMNS = 128
_ALL = np.zeros(0, bool)


def row_sums(x: np.ndarray, counted: np.ndarray | None, mean: np.ndarray | None = None) -> np.ndarray:
    """Sums of the rows that count, [...] float64; if a mean [...] is given, of the squares of what they are above it."""
    from ..kernels.columns import squares, sums

    rows, marks = _flat(x), _ALL if counted is None else counted
    out = np.zeros(rows.shape[1])
    if mean is None:
        _by_columns(lambda a, b: sums(rows, marks, a, b, out), rows)
    else:
        _by_columns(lambda a, b: squares(rows, mean.reshape(-1), marks, a, b, out), rows)
    return out.reshape(x.shape[1:])


def statistics(x: np.ndarray, counted: np.ndarray | None,
               all_sum: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and biased variance of the rows of all workers, [...] float64 each, and the number of these rows.

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


def through_statistics(g: np.ndarray, x: np.ndarray, mean: np.ndarray, shift: np.ndarray, slope: np.ndarray,
                       counted: np.ndarray | None) -> np.ndarray:
    """g + shift + (x - mean) * slope, [n, ...]; g in rows that do not count.

    Args:
        g, x: [n, ...].
        mean, shift, slope: [...], of the type of g.
        counted: Marks of rows.
    """
    from ..kernels.columns import moved

    rows, others, out, marks = _flat(g), _flat(x), empty(g.shape, g.dtype), _ALL if counted is None else counted
    numbers = [np.ascontiguousarray(a).reshape(-1) for a in (mean, shift, slope)]
    by_blocks(lambda _, begin, end: moved(rows, others, *numbers, marks, _flat(out), begin, end), *rows.shape)
    return out


def _flat(x: np.ndarray) -> np.ndarray:
    """All axes but the first as one."""
    return np.ascontiguousarray(x).reshape(len(x), prod(x.shape[1:]))


def _by_columns(work: Callable[[int, int], object], rows: np.ndarray) -> None:
    """Call work(first column, end) for parts of the columns of some rows on all threads."""
    width = rows.shape[1]
    run_parts(lambda b: work(b * _COLUMNS, min(width, (b + 1) * _COLUMNS)), -(-width // _COLUMNS), rows.size * PER_NUMBER)
