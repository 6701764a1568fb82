"""Dense products: one two-dimensional BLAS product after reshaping."""
from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from scipy.sparse import issparse

from graphtheta.errors import ShapeError, UserFunctionError

from .elementwise import add
from .primitive import defvjp, primitive
from .rows import has_rows, same_dtype, trailing


@primitive("matmul", sparse=True)
def _matmul(x: Any, w: Any) -> Any:
    flat = w.reshape(w.shape[0], prod(w.shape[1:]))
    return (_flat(x) @ flat).reshape(x.shape[:-1] + w.shape[1:])


def _flat(x: Any) -> Any:
    """All axes but the last as one; sparse rows have no more than two."""
    return x if issparse(x) else x.reshape(prod(x.shape[:-1]), x.shape[-1])


def _matmul_x(g: Any, y: Any, x: Any, w: Any) -> Any:
    if issparse(x):
        return None
    width = prod(w.shape[1:])
    return (g.reshape(prod(x.shape[:-1]), width) @ w.reshape(w.shape[0], width).T).reshape(x.shape)


def _matmul_w(g: Any, y: Any, x: Any, w: Any) -> Any:
    return (_flat(x).T @ g.reshape(prod(x.shape[:-1]), prod(w.shape[1:]))).reshape(w.shape)


# sparse rows are input features: constants
defvjp(_matmul, x=_matmul_x, w=_matmul_w)


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
        raise UserFunctionError("matmul: the second factor has one row per node or edge; multiply elementwise and sum instead")
    if not trailing(x) or not trailing(w):
        raise ShapeError(f"matmul contracts the last axis of x with the first of w, got x {_shown(x)} and w {_shown(w)}")
    if trailing(x)[-1] != trailing(w)[0]:
        raise ShapeError(f"matmul: the last axis of x {_shown(x)} must be as long as the first of w {_shown(w)}")
    return _matmul(x, w)


@primitive("to_dense", sparse=True)
def to_dense(x: Any) -> Any:
    """Sparse rows as an ordinary array, [n, d]; anything else as it is. Layers that move raw features need it."""
    return x.toarray() if issparse(x) else x


# sparse rows are input features: constants
defvjp(to_dense, x=lambda g, y, x: None if issparse(x) else g)


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


@primitive("embedding")
def _embedding(table: Any, index: Any) -> Any:
    return table[index]


def _embedding_table(g: Any, y: Any, table: Any, index: Any) -> Any:
    out = np.zeros_like(table)
    np.add.at(out, index, g)
    return out


defvjp(_embedding, table=_embedding_table, index=None)


def embedding(table: Any, index: Any) -> Any:
    """Rows of a parameter chosen by an integer value of each node or edge, such as its type.

    Args:
        table: [k, ...], rowless.
        index: [n] or [n, ...] integers in [0, k).

    Returns:
        [*index.shape, *table.shape[1:]].

    Raises:
        UserFunctionError: The index is not of an integer type, or the table has rows.
        ShapeError: An index is out of range.
    """
    if has_rows(table) or np.dtype(index.dtype).kind not in "iu":
        raise UserFunctionError("embedding looks up rows of a parameter by an integer value; expected (parameter, integers), "
                                f"got {table!r} and {index!r}")
    return _embedding(table, index)
