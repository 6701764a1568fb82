"""Functions for user-defined losses: an entry of each row, and logarithms of probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.errors import ShapeError, UserFunctionError

from ...autodiff.expr import Expr
from ...autodiff.primitive import defvjp, primitive
from ...autodiff.refusal import operation
from ...autodiff.tape import space_of, value_of
from ..elementwise import exp, log
from ..rows import as_floats, same_rows
from ..shape import max, sum


@primitive("pick", rowwise=False)
def _pick(x: Any, index: Any) -> Any:
    return np.take_along_axis(x, index[..., None], -1)[..., 0]


def _pick_vjp(g: Any, y: Any, x: Any, index: Any) -> Any:
    out = np.zeros_like(x)
    np.put_along_axis(out, index[..., None], g[..., None], -1)
    return out


defvjp(_pick, x=_pick_vjp, index=None)


@operation
def pick(x: Any, index: Any) -> Any:
    """The entry of the last axis that an integer chooses, such as the output for the label of each
    row.

    Args:
        x: [n, ..., k].
        index: [n, ...] integers in [0, k).

    Returns:
        [n, ...].

    Raises:
        ShapeError: Shapes do not fit, the index is not of an integer type, or is out of range.
        UserFunctionError: It is used inside gather.
    """
    if isinstance(x, Expr) or isinstance(index, Expr):
        raise UserFunctionError(
            "pick cannot be used inside gather; index with constants, or look up with gt.embedding"
        )
    x, index = same_rows(x, index)
    rows = np.asarray(value_of(index))
    if rows.dtype.kind not in "iu" or rows.shape != tuple(x.shape[:-1]):
        raise ShapeError(
            f"pick: expected integers of shape {list(x.shape[:-1])} for values of shape"
            f" {list(x.shape)}, got {rows.dtype} {list(rows.shape)}"
        )
    if rows.size and not 0 <= rows.min() <= rows.max() < x.shape[-1]:
        raise ShapeError(
            f"pick: the index holds numbers from {rows.min()} to {rows.max()}; expected 0 to"
            f" {x.shape[-1] - 1}"
        )
    out = _pick(x, rows)
    if space_of(x) is not None:
        out.space = x.space
    return out


@operation
def log_softmax(x: Any) -> Any:
    """Logarithms of the probabilities whose logits are the last axis, [n, ..., k] -> the same
    shape; not for gather.
    """
    if isinstance(x, Expr):
        raise UserFunctionError(
            "log_softmax cannot be used inside gather; gt.softmax normalises over the neighbours"
            " there"
        )
    x = as_floats(x)
    z = x - _last(max(x), x)
    return z - _last(log(sum(exp(z))), x)


def _last(x: Any, like: Any) -> Any:
    """x with the last axis of ``like`` again, of length 1."""
    return x.reshape(*x.shape[1:], 1) if space_of(like) is not None else x.reshape(*x.shape, 1)
