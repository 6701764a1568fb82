"""Dense products: one two-dimensional BLAS product after reshaping."""

from __future__ import annotations

from math import prod
from typing import Any

from graphtheta.base.bfloat16 import BFLOAT16
from graphtheta.base.sparse import is_sparse
from graphtheta.errors import ShapeError, UserFunctionError

from ..autodiff.primitive import defvjp, primitive
from ..autodiff.refusal import operation
from ..autodiff.stored import StoredRows
from ..autodiff.traits import Traits
from ..rows.bfloat16 import rounded
from ..rows.computed import ComputedRows
from ..rows.products import long_product, product
from ..rows.row_list import RowList
from .elementwise import add
from .rows import has_rows, same_dtype, trailing


@primitive(
    "matmul",
    sparse=True,
    short=True,
    traits=Traits(
        takes="numbers",
        work="contraction",
        contraction=True,
        linear=(0, 1),
        kept_axes=lambda x, y, static: len(x) - 1,
        sign="@",
    ),
)
def matmul_p(x: Any, w: Any) -> Any:
    """The last axis of x against the first of w."""
    matrix = w.reshape(w.shape[0], prod(w.shape[1:]))
    return product(flat(x), matrix).reshape(x.shape[:-1] + w.shape[1:])


def flat(x: Any) -> Any:
    """All axes but the last as one; sparse rows have no more than two."""
    if is_sparse(x) or isinstance(x, ComputedRows):
        return x
    if isinstance(x, RowList):
        if len(x.shape) == 2:
            return x
        x = x[:]
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])


def _matmul_x(g: Any, y: Any, x: Any, w: Any) -> Any:
    if is_sparse(x):
        return None
    width = prod(w.shape[1:])
    rows = g.reshape(prod(x.shape[:-1]), width)
    # where values are rounded, so are the gradients that are multiplied
    rows = rounded(rows) if x.dtype == BFLOAT16 else rows
    return product(rows, w.reshape(w.shape[0], width).T).reshape(x.shape)


def _matmul_w(g: Any, y: Any, x: Any, w: Any) -> Any:
    g = g.reshape(prod(x.shape[:-1]), prod(w.shape[1:]))
    return long_product(flat(x), g).reshape(w.shape)


# sparse rows are input features: constants
defvjp(matmul_p, x=_matmul_x, w=_matmul_w)


@operation
def matmul(x: Any, w: Any) -> Any:
    """Contract the last axis of x with the first axis of w.

    Args:
        x: [..., d]; a row value, scipy CSR rows [n, d] (no gradient), or rowless.
        w: [d, ...], rowless; heads are further axes: ``[d, heads, d_out]``.

    Returns:
        [..., *w.shape[1:]].

    Raises:
        ShapeError: The two axes differ, or x has no axis to contract.
        UserFunctionError: w has rows, or the float types differ.

    Cost: prod(x.shape) * prod(w.shape[1:]) multiplications; stored entries only for sparse x.
    """
    x, w = same_dtype(x, w)
    if has_rows(w):
        raise UserFunctionError(
            "matmul: the second factor has one row per node or edge; multiply elementwise and sum"
            " instead"
        )
    inner = trailing(x)
    outer = trailing(w)
    if not inner or not outer:
        raise ShapeError(
            f"matmul contracts the last axis of x with the first of w, got x {_shown(x)} and w"
            f" {_shown(w)}"
        )
    if inner[-1] != outer[0]:
        raise ShapeError(
            f"matmul: the last axis of x {_shown(x)} must be as long as the first of w {_shown(w)}"
        )
    return matmul_p(x, w)


@primitive("to_dense", sparse=True, traits=Traits(work="none", structural=True))
def to_dense_p(x: Any) -> Any:
    """Sparse rows as a dense array."""
    return x.toarray() if is_sparse(x) else x


# sparse rows are input features: constants
defvjp(to_dense_p, x=lambda g, y, x: None if is_sparse(x) else g)


@operation
def to_dense(x: Any) -> Any:
    """Sparse rows as a dense array, [n, d]; anything else as it is.

    Edges read dense values, so layers whose gather reads raw features need it.
    """
    # stored rows are dense, and edges read them where they are
    return x if isinstance(x, StoredRows) else to_dense_p(x)


@operation
def linear(x: Any, w: Any, b: Any = None) -> Any:
    """matmul(x, w) + b.

    Args:
        x: [..., d].
        w: [d, ...].
        b: w.shape[1:], or None for no bias.
    """
    y = matmul(x, w)
    return y if b is None else add(y, b)


def _shown(x: Any) -> str:
    return "[" + ", ".join(["rows"] * has_rows(x) + [str(d) for d in trailing(x)]) + "]"
