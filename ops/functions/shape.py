"""Reductions over trailing axes and changes of shape.

The row axis belongs to the engine: axes of row values are negative and do not include it. Values
without rows are treated like numpy arrays.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from math import prod
from operator import index
from typing import Any

import numpy as np

from graphtheta.errors import ShapeError

from ..autodiff.primitive import defvjp, primitive
from ..autodiff.refusal import operation
from ..autodiff.traits import Shape, Traits, always, first
from ..rows.columns import sum_over, unbroadcast
from .comparison import less_equal, where
from .constant import stop_gradient
from .elementwise import div, exp, mul, sqrt, square, sub
from .rows import as_floats, has_rows, same_dtype, same_rows, trailing

Axis = int | tuple[int, ...] | None


@primitive(
    "sum",
    traits=Traits(
        work="argument",
        linear=(0,),
        kept_axes=lambda x, y, static: len(x) + builtins.min(static["axis"]),
        lazy="total",
    ),
)
def sum_p(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Sum over axes."""
    y = sum_over(x, axis)
    return _restored(y, x, axis, False) if keepdims else y


def _restored(g: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Bring a gradient of a reduction back to the axes of x, of length 1 where reduced."""
    with_ones = [1 if i - x.ndim in axis else d for i, d in enumerate(x.shape)]
    return g if keepdims else g.reshape(with_ones)


def _sum_vjp(g: Any, y: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    return np.broadcast_to(_restored(g, x, axis, keepdims), x.shape)


@primitive("max", threaded=True, traits=Traits(work="argument"))
def max_p(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Largest value over axes, NaN if there is one."""
    return np.max(x, axis=axis, keepdims=keepdims)


@primitive("min", threaded=True, traits=Traits(work="argument"))
def min_p(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Smallest value over axes, NaN if there is one."""
    return np.min(x, axis=axis, keepdims=keepdims)


def _to_the_first(which: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient rule of a largest or smallest number, whose position ``which`` returns."""

    def rule(g: Any, y: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        last = tuple(range(-len(axis), 0))
        moved = np.moveaxis(x, axis, last)
        lead = moved.shape[: x.ndim - len(axis)]
        # of equal ones the first, and the first NaN
        first = which(moved.reshape(*lead, prod(moved.shape[len(lead) :])), axis=-1)
        out = np.zeros((*lead, prod(moved.shape[len(lead) :])), g.dtype)
        np.put_along_axis(out, first[..., None], g.reshape(*lead, 1), axis=-1)
        return np.moveaxis(out.reshape(moved.shape), last, axis)

    return rule


defvjp(sum_p, x=_sum_vjp)
defvjp(max_p, x=_to_the_first(np.argmax))
defvjp(min_p, x=_to_the_first(np.argmin))


@operation
def sum(x: Any, axis: Axis = -1, keepdims: bool = False) -> Any:
    """Sum over trailing axes.

    Args:
        x: [..., d].
        axis: Negative axis or axes; for a value without rows any, None for all.
        keepdims: Keep the axes with length 1.

    Raises:
        ShapeError: An axis is the row axis or does not exist.
    """
    axes = _axes("sum", x, axis)
    return sum_p(x, axis=axes, keepdims=keepdims) if axes else x


@operation
def mean(x: Any, axis: Axis = -1, keepdims: bool = False) -> Any:
    """Mean over trailing axes; arguments as for ``sum``."""
    axes = _axes("mean", x, axis)
    return div(sum(x, axis, keepdims), prod(trailing(x)[a] for a in axes))


@operation
def max(x: Any, axis: Axis = -1, keepdims: bool = False) -> Any:
    """Largest value over trailing axes, NaN if one is; arguments as for ``sum``.

    The gradient goes to the first of equal ones.
    """
    axes = _axes("max", x, axis)
    return max_p(x, axis=axes, keepdims=keepdims) if axes else x


@operation
def min(x: Any, axis: Axis = -1, keepdims: bool = False) -> Any:
    """Smallest value over trailing axes; NaN, ties and arguments as for ``max``."""
    axes = _axes("min", x, axis)
    return min_p(x, axis=axes, keepdims=keepdims) if axes else x


@primitive(
    "cumsum",
    threaded=True,
    traits=Traits(linear=(0,), kept_axes=lambda x, y, static: len(x) + static["axis"]),
)
def cumsum_p(x: Any, *, axis: int) -> Any:
    """Sums of each number along an axis and of those before it."""
    return np.cumsum(x, axis=axis)


defvjp(
    cumsum_p,
    x=lambda g, y, x, axis: np.flip(np.cumsum(np.flip(g, axis), axis=axis), axis),
)


@operation
def cumsum(x: Any, axis: int = -1) -> Any:
    """Sums of each number of a row along a trailing axis and of those before it, as in NumPy.

    Args:
        x: [..., d].
        axis: One negative axis; for a value without rows any.

    Returns:
        [..., d]; of integers and masks exact counts, in 64 bits.

    Raises:
        ShapeError: The axis is the row axis or does not exist.
    """
    (at,) = _axes("cumsum", x, index(axis))
    return cumsum_p(x, axis=at)


# how many units in the last place of its mean a deviation may have that is rounding error
_ROUNDING = 16


@operation
def std(x: Any, axis: Axis = -1, keepdims: bool = False) -> Any:
    """Standard deviation over trailing axes, the root of the mean of squared deviations as in
    NumPy; arguments as for ``sum``.

    Where the numbers are equal up to rounding it is 0, and so is its gradient, as for the
    aggregator "std".
    """
    x = as_floats(x)
    axes = _axes("std", x, axis)
    middle = mean(x, axis, keepdims=True)
    variance = mean(square(sub(x, middle)), axis, keepdims)
    middle = middle if keepdims else reshape(middle, *_without(trailing(x), axes))
    noise = mul(stop_gradient(middle), _ROUNDING * float(np.finfo(x.dtype).eps))
    equal = less_equal(variance, square(noise))
    return where(equal, 0.0, sqrt(where(equal, 1.0, variance)))


def _without(shape: Shape, axes: tuple[int, ...]) -> list[int]:
    """A shape without some of its axes, which are negative."""
    return [d for i, d in enumerate(shape, -len(shape)) if i not in axes]


def softmax_over(x: Any, axis: Any = -1) -> Any:
    """Softmax over trailing axes; a number of -inf gets 0, and where all are -inf the result is
    NaN.
    """
    x = as_floats(x)
    e = exp(sub(x, stop_gradient(max(x, axis, keepdims=True))))
    return div(e, sum(e, axis, keepdims=True))


def _axes(function: str, x: Any, axis: Axis) -> tuple[int, ...]:
    """Axes as negative numbers in ascending order, checked."""
    width = len(trailing(x))
    rows = has_rows(x)
    if axis is None and not rows:
        return tuple(range(-width, 0))
    given = axis if isinstance(axis, tuple) else (axis,)
    axes = {a if rows or a < 0 else a - width for a in given if a is not None}
    if axis is None or any(not -width <= a < 0 for a in axes):
        what = (
            f"a value with {width} ax{'i' if width == 1 else 'e'}s after the rows"
            if rows
            else f"a value of shape {list(trailing(x))}"
        )
        choices = {0: "it has none to reduce", 1: "use axis -1"}
        allowed = choices.get(width, f"use axis -{width} to -1")
        raise ShapeError(
            f"{function}: axis {axis} of {what}: {allowed}"
            + (", the row axis belongs to the engine" if rows else "")
        )
    return tuple(sorted(axes))


def _leading(argument: Shape, result: Shape, static: dict[str, Any]) -> int:
    """How many leading axes are alike."""
    alike = [a == b for a, b in zip(argument, result, strict=False)]
    return alike.index(False) if False in alike else len(alike)


def _outer(inner: dict[str, Any], outer: dict[str, Any]) -> dict[str, Any]:
    return outer


@primitive(
    "reshape",
    traits=Traits(
        work="none",
        structural=True,
        linear=(0,),
        kept_axes=_leading,
        identity=always,
        joined=_outer,
    ),
)
def reshape_p(x: Any, *, keep: int, shape: tuple[int, ...]) -> Any:
    """The same numbers in other axes, after the first ``keep``."""
    return x.reshape(x.shape[:keep] + shape)


defvjp(reshape_p, x=lambda g, y, x, keep, shape: g.reshape(x.shape))


@operation
def reshape(x: Any, *shape: int) -> Any:
    """Change the trailing shape; rows stay. A value without rows gets the whole shape.

    Args:
        x: [n, ...] or rowless.
        *shape: New trailing axes, at most one of them -1.

    Raises:
        ShapeError: The sizes differ.
    """
    old = trailing(x)
    new = list(shape)
    if new.count(-1) == 1:
        # with no rows numpy could not infer it
        rest = -prod(new)
        new[new.index(-1)] = prod(old) // rest if rest > 0 else 0
    if prod(new) != prod(old) or builtins.min(new, default=0) < 0:
        raise ShapeError(
            f"reshape: {list(old)} holds {prod(old)} numbers and cannot become {list(shape)}"
        )
    return reshape_p(x, keep=int(has_rows(x)), shape=tuple(new))


@operation
def flatten(x: Any) -> Any:
    """All trailing axes as one, [n, a, b] -> [n, a * b]."""
    return reshape(x, prod(trailing(x)))


@primitive("concat", traits=Traits(work="none", free=True))
def concat_p(*xs: Any, axis: int) -> Any:
    """Values joined along an axis."""
    return np.concatenate(xs, axis=axis)


def _concat_vjp(position: int, g: Any, y: Any, *xs: Any, axis: int) -> Any:
    start = builtins.sum(x.shape[axis] for x in xs[:position])
    at: list[Any] = [slice(None)] * g.ndim
    at[axis] = slice(start, start + xs[position].shape[axis])
    return g[tuple(at)]


defvjp(concat_p, xs=_concat_vjp)


@primitive("repeat_rows", traits=Traits(work="none", structural=True, written=first))
def repeat_rows_p(x: Any, like: Any) -> Any:
    """x for every row of ``like``."""
    return np.broadcast_to(x, like.shape[:1] + np.shape(x))


defvjp(repeat_rows_p, x=lambda g, y, x, like: sum_over(g, (0,)), like=None)


def repeat_rows(x: Any, like: Any) -> Any:
    """A value without rows, repeated for every row of another: [d] and [n, ...] -> [n, d].

    Raises:
        ShapeError: x has rows already, or ``like`` has none.
    """
    if has_rows(x) or not has_rows(like):
        raise ShapeError("repeat_rows: expected a value without rows and one with rows")
    return repeat_rows_p(x, like)


@primitive(
    "broadcast_to", traits=Traits(work="none", structural=True, identity=always, joined=_outer)
)
def broadcast_to_p(x: Any, *, keep: int, shape: tuple[int, ...]) -> Any:
    """Axes of length 1 repeated, after the first ``keep``."""
    return np.broadcast_to(x, x.shape[:keep] + shape)


defvjp(broadcast_to_p, x=lambda g, y, x, keep, shape: unbroadcast(g, x))


def broadcast_to(x: Any, *shape: int) -> Any:
    """Repeat trailing axes of length 1, [n, 1, d] -> [n, h, d]; a value without rows may also gain
    axes at the left.

    Raises:
        ShapeError: An axis longer than 1 differs, or a row value has another number of trailing
            axes.
    """
    if has_rows(x) and len(trailing(x)) != len(shape):
        raise ShapeError(
            f"broadcast_to: trailing axes {list(trailing(x))} cannot become {list(shape)}; add axes"
            " with expand_last first"
        )
    return broadcast_to_p(x, keep=int(has_rows(x)), shape=tuple(shape))


@operation
def concat(values: list[Any] | tuple[Any, ...], axis: int = -1) -> Any:
    """Join values along a trailing axis.

    Args:
        values: Each [..., d_i], equal in the other axes; rows of earlier layers are cut to those of
            the latest, and values without rows are repeated for every row if any other has rows.
        axis: Negative axis.

    Returns:
        [..., sum of d_i].

    Raises:
        ShapeError: The axis is the row axis or does not exist, or other axes differ.
    """
    if not values:
        raise ShapeError("concat needs at least one value")
    parts = _alike(values)
    row = next((p for p in parts if has_rows(p)), None)
    if row is not None:
        parts = [p if has_rows(p) else repeat_rows(p, row) for p in parts]
    shapes = [trailing(p) for p in parts]
    at = _axes("concat", parts[0], axis)[0]
    if len({(len(s), s[:at], s[at:][1:]) for s in shapes}) > 1:
        raise ShapeError(
            f"concat along axis {axis}: the other trailing axes must agree, got"
            f" {', '.join(str(list(s)) for s in shapes)}"
        )
    return concat_p(*parts, axis=at) if len(parts) > 1 else parts[0]


def _alike(values: list[Any] | tuple[Any, ...]) -> list[Any]:
    """Values of the same rows and type; numbers as arrays of that type."""
    parts = same_dtype(*same_rows(*values))
    dtype = next((p.dtype for p in parts if hasattr(p, "dtype")), None)
    return [p if hasattr(p, "dtype") else np.asarray(p, dtype) for p in parts]


@operation
def stack(values: list[Any] | tuple[Any, ...], axis: int = -1) -> Any:
    """Join values of equal trailing shape along a new trailing axis, [n, d] k times -> [n, d, k].

    Rows are cut, and values without rows repeated, as in ``concat``; a number has no axes.

    Raises:
        ShapeError: The shapes differ, or the axis is not negative.
    """
    parts = []
    for v in _alike(values):
        shape = trailing(v)
        if not -len(shape) - 1 <= axis < 0:
            raise ShapeError(
                f"stack: axis {axis} of values of trailing shape {list(shape)}; use"
                f" -{len(shape) + 1} to -1"
            )
        cut = len(shape) + 1 + axis
        parts.append(reshape(v, *shape[:cut], 1, *shape[cut:]))
    return concat(parts, axis)
