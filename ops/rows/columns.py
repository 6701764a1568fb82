"""Sums over the rows of each column, and batch norm of rows with given statistics, on all threads.

Rows are [n, ...]; marks of rows that count are [n] bool, or None if all of them do. Rows are added in
order, so that results do not depend on the number of threads.
"""
from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from ..autodiff.buffers import by_blocks, empty, run_parts

# columns that a thread sums
_COLUMNS = 128
_ALL = np.zeros(0, bool)


def row_sums(x: np.ndarray, counted: np.ndarray | None, mean: np.ndarray | None = None) -> np.ndarray:
    """Sums of the rows that count, [...] float64; if a mean [...] is given, of the squares of what they are above it."""
    from ..kernels.columns import squares, sums

    rows, marks = _flat(x), _ALL if counted is None else counted
    out = np.zeros(rows.shape[1])
    if mean is None:
        _by_columns(lambda a, b: sums(rows, marks, a, b, out), len(out))
    else:
        _by_columns(lambda a, b: squares(rows, mean.reshape(-1), marks, a, b, out), len(out))
    return out.reshape(x.shape[1:])


def normalised(x: np.ndarray, mean: np.ndarray, inverse: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(x - mean) * inverse, and this times scale plus shift, [n, ...] each; the others [...] of the type of x."""
    from ..kernels.columns import normalise

    rows, unit, out = _flat(x), empty(x.shape, x.dtype), empty(x.shape, x.dtype)
    others = [np.ascontiguousarray(a).reshape(-1) for a in (mean, inverse, scale, shift)]
    by_blocks(lambda _, begin, end: normalise(rows, *others, _flat(unit), _flat(out), begin, end), *rows.shape)
    return unit, out


def row_products(g: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the rows of g, and of g * unit, [...] each of the type of g."""
    from ..kernels.columns import products

    rows, others = _flat(g), _flat(unit)
    found = np.zeros((2, rows.shape[1]), g.dtype)
    _by_columns(lambda a, b: products(rows, others, a, b, found[0], found[1]), rows.shape[1])
    return found[0].reshape(g.shape[1:]), found[1].reshape(g.shape[1:])


def centred_gradient(g: np.ndarray, unit: np.ndarray, means: np.ndarray, factor: np.ndarray, counted: np.ndarray | None) -> np.ndarray:
    """(g - means[0] - unit * means[1]) * factor, [n, ...]; g * factor in rows that do not count.

    Args:
        g, unit: [n, ...].
        means: Of g and of g * unit, [2, ...].
        factor: [...].
        counted: Marks of rows.
    """
    from ..kernels.columns import gradient

    rows, others, out, marks = _flat(g), _flat(unit), empty(g.shape, g.dtype), _ALL if counted is None else counted
    of_g, of_both, times = (np.ascontiguousarray(a).reshape(-1) for a in (means[0], means[1], factor))
    by_blocks(lambda _, begin, end: gradient(rows, others, of_g, of_both, times, marks, _flat(out), begin, end), *rows.shape)
    return out


def _flat(x: np.ndarray) -> np.ndarray:
    """All axes but the first as one."""
    return np.ascontiguousarray(x).reshape(len(x), prod(x.shape[1:]))


def _by_columns(work: Callable[[int, int], object], width: int) -> None:
    """Call work(first column, end) for parts of the columns on all threads."""
    run_parts(lambda b: work(b * _COLUMNS, min(width, (b + 1) * _COLUMNS)), -(-width // _COLUMNS))
