"""Comparisons, which give masks, and the choice between two values by a mask.

A mask is a Boolean value: it has no gradient, ``&``, ``|`` and ``~`` combine masks, and in
arithmetic True counts as 1. Kernels hold masks as 0 and 1 in their float type. Integers are
compared as integers, also with a number that has a fraction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphtheta.base.wording import shown
from graphtheta.errors import UserFunctionError

from ..autodiff.primitive import primitive
from ..autodiff.refusal import operation
from ..autodiff.traits import Traits
from ..compile.scalar import Scalar
from .rows import same_axes, same_dtype, same_rows


@primitive("less", scalar=Scalar("less({0}, {1})", (None, None)), traits=Traits(integers=True))
def _less(x: Any, y: Any) -> Any:
    return np.less(x, y)


@primitive(
    "less_equal", scalar=Scalar("less_equal({0}, {1})", (None, None)), traits=Traits(integers=True)
)
def _less_equal(x: Any, y: Any) -> Any:
    return np.less_equal(x, y)


@primitive("equal", scalar=Scalar("equal({0}, {1})", (None, None)), traits=Traits(integers=True))
def _equal(x: Any, y: Any) -> Any:
    return np.equal(x, y)


@primitive("logical_and", scalar=Scalar("({0} * {1})", (None, None)))
def _and(x: Any, y: Any) -> Any:
    return np.logical_and(x, y)


@primitive("logical_not", scalar=Scalar("(T(1) - {0})", (None,)))
def _not(x: Any) -> Any:
    return np.logical_not(x)


@primitive(
    "where",
    scalar=Scalar("where({0}, {1}, {2})", (None, "where({0}, {g}, T(0))", "where({0}, T(0), {g})")),
    traits=Traits(integers=True),
)
def _where(mask: Any, x: Any, y: Any) -> Any:
    return np.where(mask, x, y)


def less(x: Any, y: Any) -> Any:
    """x < y, aligned; a mask."""
    x, y = _whole(math.floor, x, y), _whole(math.ceil, y, x)
    return _less(*same_axes(*same_dtype(*same_rows(x, y))))


def less_equal(x: Any, y: Any) -> Any:
    """x <= y, aligned; a mask."""
    x, y = _whole(math.ceil, x, y), _whole(math.floor, y, x)
    return _less_equal(*same_axes(*same_dtype(*same_rows(x, y))))


def equal(x: Any, y: Any) -> Any:
    """x == y, aligned; a mask."""
    return _equal(*same_axes(*same_dtype(*same_rows(x, y))))


def logical_and(x: Any, y: Any) -> Any:
    """Where both masks hold, aligned.

    Raises:
        UserFunctionError: One of them is no mask.
    """
    return _and(*same_axes(*same_rows(_mask("&", x), _mask("&", y))))


def logical_or(x: Any, y: Any) -> Any:
    """Where at least one of two masks holds; as ``logical_and``."""
    return logical_not(logical_and(logical_not(_mask("|", x)), logical_not(_mask("|", y))))


def logical_not(x: Any) -> Any:
    """Where a mask does not hold; as ``logical_and``."""
    return _not(_mask("~", x))


@operation
def where(mask: Any, x: Any, y: Any) -> Any:
    """x where the mask holds, y elsewhere, aligned.

    The gradient goes to the value that was chosen. A value that is not chosen may be infinite or
    NaN, but the gradient of what made it must be finite: instead of
    ``where(x > 0, log(x), 0)`` write ``log(where(x > 0, x, 1))``.

    Args:
        mask: A comparison, or an integer value such as a named column, where 0 is False.
        x, y: Values or numbers, not two numbers.

    Raises:
        UserFunctionError: The mask is made of floats, or both x and y are numbers, whose type would
            be unknown.
    """
    if np.dtype(getattr(mask, "dtype", type(mask))).kind not in "biu":
        raise UserFunctionError(
            f"where: the mask {shown(mask)} is no comparison; expected one, such as x > 0, or an"
            " integer value"
        )
    if not hasattr(x, "dtype") and not hasattr(y, "dtype"):
        raise UserFunctionError(
            "where: both values are numbers, whose float type is not known; give one of them as a"
            " value, or convert the mask with gt.cast(mask, x.dtype)"
        )
    mask, x, y = same_rows(mask, x, y)
    return _where(*same_axes(mask, *same_dtype(x, y)))


def _whole(rounded: Callable[[float], int], number: Any, other: Any) -> Any:
    """A number that integers are compared with as an integer, by which the comparison is exact: i <
    2.5 as i < 3.
    """
    if (
        isinstance(number, (float, np.floating))
        and np.isfinite(number)
        and np.dtype(getattr(other, "dtype", type(other))).kind in "iu"
    ):
        return rounded(float(number))
    return number


def _mask(sign: str, x: Any) -> Any:
    if np.dtype(getattr(x, "dtype", type(x))).kind != "b":
        raise UserFunctionError(
            f"{sign} combines masks, but one value is {x!r}; compare it with a number first, as in"
            " x > 0 or code == 1"
        )
    return x
