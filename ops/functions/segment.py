"""Reductions of consecutive rows: values sorted by segment, with bounds ``indptr``.

Empty segments give 0, never NaN. Sums run in the order of the rows: of floats in float64, because
there may be millions of rows, and of integers and masks exactly, as int64 or uint64 as in NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.errors import ShapeError, UserFunctionError

from ..autodiff.expr import Expr, tracing
from ..autodiff.primitive import defvjp, primitive
from ..autodiff.tape import Var, current, space_of
from .rows import as_floats


def _reduce(ufunc: np.ufunc, values: Any, indptr: Any, dtype: Any = None) -> Any:
    """Reduce each segment, in a type if one is given; 0 where it is empty."""
    out = np.zeros((len(indptr) - 1, *values.shape[1:]), dtype or values.dtype)
    some = indptr[1:] > indptr[:-1]
    if some.any():
        # reduceat would read a row for an empty segment too, so these are left out
        out[some] = ufunc.reduceat(values, indptr[:-1][some], axis=0, dtype=dtype)
    return out


def _exact_sum(values: Any, indptr: Any) -> Any:
    """The sum of each segment, before it is rounded to the type of the result."""
    exact = np.float64 if values.dtype.kind == "f" else np.sum(values[:0]).dtype
    return _reduce(np.add, values, indptr, exact)


def _sum(values: Any, indptr: Any) -> Any:
    """The sum of each segment in the type of the result."""
    total = _exact_sum(values, indptr)
    return total.astype(values.dtype) if values.dtype.kind == "f" else total


def _repeat(x: Any, indptr: Any) -> Any:
    """The row of its segment for each row of the values."""
    return np.repeat(x, np.diff(indptr), axis=0)


def _counts(values: Any, indptr: Any) -> Any:
    return np.maximum(np.diff(indptr), 1).reshape(-1, *[1] * (values.ndim - 1))


def _winner(values: Any, y: Any, indptr: Any) -> Any:
    """Whether each element is the first of its segment that equals the result, also where that is
    NaN.
    """
    position = np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1))
    best = _repeat(y, indptr)
    equal = (values == best) | ((values != values) & (best != best))
    candidate = np.where(equal, position, len(values))
    return candidate == _repeat(_reduce(np.minimum, candidate, indptr), indptr)


@primitive("segment_sum", rowwise=False)
def _segment_sum(values: Any, indptr: Any) -> Any:
    return _sum(values, indptr)


@primitive("segment_mean", rowwise=False)
def _segment_mean(values: Any, indptr: Any) -> Any:
    dtype = values.dtype if values.dtype.kind == "f" else current().dtype
    return (_exact_sum(values, indptr) / _counts(values, indptr)).astype(dtype)


@primitive("segment_max", rowwise=False)
def _segment_max(values: Any, indptr: Any) -> Any:
    return _reduce(np.maximum, values, indptr)


@primitive("segment_min", rowwise=False)
def _segment_min(values: Any, indptr: Any) -> Any:
    return _reduce(np.minimum, values, indptr)


@primitive("segment_softmax", rowwise=False)
def _segment_softmax(values: Any, indptr: Any) -> Any:
    weight = np.exp(values - _repeat(_reduce(np.maximum, values, indptr), indptr))
    return weight / _repeat(_sum(weight, indptr), indptr)


def _segment_softmax_vjp(g: Any, y: Any, values: Any, indptr: Any) -> Any:
    return y * (g - _repeat(_sum(g * y, indptr), indptr))


defvjp(_segment_sum, values=lambda g, y, values, indptr: _repeat(g, indptr), indptr=None)
defvjp(
    _segment_mean,
    indptr=None,
    values=lambda g, y, values, indptr: _repeat(
        (g / _counts(values, indptr)).astype(g.dtype), indptr
    ),
)
defvjp(
    _segment_max,
    values=lambda g, y, values, indptr: np.where(_winner(values, y, indptr), _repeat(g, indptr), 0),
    indptr=None,
)
defvjp(
    _segment_min,
    values=lambda g, y, values, indptr: np.where(_winner(values, y, indptr), _repeat(g, indptr), 0),
    indptr=None,
)
defvjp(_segment_softmax, values=_segment_softmax_vjp, indptr=None)


def segment_sum(values: Any, indptr: np.ndarray) -> Any:
    """Sum the rows of each segment.

    Args:
        values: [n, ...], sorted by segment.
        indptr: Segment bounds, [n_segments + 1], from 0 to n, non-decreasing.

    Returns:
        [n_segments, ...]; 0 where a segment is empty. Of the type of the values; sums of integers
        and masks are int64 or uint64.

    Raises:
        ShapeError: The bounds do not fit the values.
    """
    return _segment_sum(values, _checked("segment_sum", values, indptr))


def segment_mean(values: Any, indptr: np.ndarray) -> Any:
    """Mean of the rows of each segment, a float; arguments as for ``segment_sum``."""
    return _segment_mean(values, _checked("segment_mean", values, indptr))


def segment_max(values: Any, indptr: np.ndarray) -> Any:
    """Largest of each segment; the gradient goes to the first of equal ones. Arguments as for
    ``segment_sum``.
    """
    return _segment_max(values, _checked("segment_max", values, indptr))


def segment_min(values: Any, indptr: np.ndarray) -> Any:
    """Smallest of each segment; ties as in ``segment_max``. Arguments as for ``segment_sum``."""
    return _segment_min(values, _checked("segment_min", values, indptr))


def segment_softmax(values: Any, indptr: np.ndarray) -> Any:
    """Softmax over the rows of each segment, for every column by itself; [n, ...]. Arguments as for
    ``segment_sum``.
    """
    out = _segment_softmax(as_floats(values), _checked("segment_softmax", values, indptr))
    if isinstance(out, Var):
        out.space = space_of(values)
    return out


def _checked(function: str, values: Any, indptr: Any) -> np.ndarray:
    if isinstance(values, Expr) or tracing():
        raise UserFunctionError(
            f"{function} mixes edges and cannot be used inside gather; the engine sums messages,"
            " see the layer's sum"
        )
    bounds = np.asarray(indptr)
    if bounds.ndim != 1 or len(bounds) == 0 or bounds[0] != 0 or np.any(bounds[1:] < bounds[:-1]):
        raise ShapeError(
            f"{function}: indptr must rise from 0, one more entry than there are segments"
        )
    if bounds[-1] != values.shape[0]:
        raise ShapeError(
            f"{function}: indptr ends at {bounds[-1]}, values has {values.shape[0]} rows; sort the"
            " values by segment and count again"
        )
    return bounds
