"""Products with one of several matrices, which an integer of each row chooses: typed linear maps,
grouped products.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from graphtheta.base.sparse import is_sparse
from graphtheta.base.wording import shown
from graphtheta.errors import ShapeError, UserFunctionError

from ..autodiff.expr import Expr
from ..autodiff.primitive import defvjp, primitive
from ..autodiff.refusal import operation
from ..autodiff.traits import Traits
from ..parallel.buffers import empty
from ..rows.products import long_product, product, taken
from .dense import flat
from .embedding import check_range
from .rows import has_rows, same_dtype, same_rows, trailing


def _groups(index: np.ndarray, k: int) -> Iterator[tuple[int, Any]]:
    """Each number below k that occurs, with the rows that have it: a slice where they are adjacent,
    else ascending.
    """
    order = np.argsort(index.astype(np.uint16) if k <= 1 << 16 else index, kind="stable")
    bounds = np.searchsorted(index[order], np.arange(k + 1))
    for i in np.flatnonzero(np.diff(bounds)).tolist():
        rows = order[bounds[i] : bounds[i + 1]]
        adjacent = int(rows[-1]) - int(rows[0]) == len(rows) - 1
        yield i, slice(int(rows[0]), int(rows[-1]) + 1) if adjacent else rows


@primitive(
    "typed_matmul", rowwise=False, sparse=True, traits=Traits(takes="numbers", work="contraction")
)
def typed_matmul_p(x: Any, w: Any, index: Any) -> Any:
    """The last axis of each row of x against the second axis of the matrix that its integer
    chooses.
    """
    check_range(index, len(w), "the index", "the matrices")
    out = empty((*x.shape[:-1], *w.shape[2:]), np.result_type(x.dtype, w.dtype))
    for i, rows in _groups(index, len(w)):
        part = taken(x, rows)
        out[rows] = product(flat(part), w[i].reshape(w.shape[1], prod(w.shape[2:]))).reshape(
            *part.shape[:-1], *w.shape[2:]
        )
    return out


def _typed_matmul_x(g: Any, y: Any, x: Any, w: Any, index: Any) -> Any:
    if is_sparse(x):
        return None
    out = empty(x.shape, g.dtype)
    width = prod(w.shape[2:])
    for i, rows in _groups(index, len(w)):
        part = taken(g, rows)
        lead = (len(part), *x.shape[1:-1])
        out[rows] = product(
            part.reshape(prod(lead), width), w[i].reshape(w.shape[1], width).T
        ).reshape(*lead, x.shape[-1])
    return out


def _typed_matmul_w(g: Any, y: Any, x: Any, w: Any, index: Any) -> Any:
    out = np.zeros_like(w)
    width = prod(w.shape[2:])
    for i, rows in _groups(index, len(w)):
        part = flat(taken(x, rows))
        out[i] = long_product(part, taken(g, rows).reshape(part.shape[0], width)).reshape(
            w.shape[1:]
        )
    return out


# sparse rows are input features: constants
defvjp(typed_matmul_p, x=_typed_matmul_x, w=_typed_matmul_w, index=None)


@operation
def typed_matmul(x: Any, w: Any, index: Any) -> Any:
    """Multiply each row by one of several matrices, such as that of the type of its node.

    Args:
        x: [n, ..., d]; or scipy CSR rows [n, d] (no gradient).
        w: [k, d, ...], rowless: k matrices, each as in ``matmul``.
        index: [n] integers in [0, k), such as ``node.type``.

    Returns:
        [n, ..., *w.shape[2:]].

    Raises:
        ShapeError: Shapes do not fit, or an integer is out of range.
        UserFunctionError: It is used inside gather, w has rows, x or the index has none, the index
            is not of an integer type, or float types differ.

    Cost: that of one product ``matmul(x, w[0])``.
    """
    if isinstance(x, Expr):
        raise UserFunctionError(
            "typed_matmul cannot be used inside gather; compute it in transform"
        )
    if (
        np.dtype(index.dtype).kind not in "iu"
        or not has_rows(index)
        or not has_rows(x)
        or has_rows(w)
    ):
        raise UserFunctionError(
            "typed_matmul(x, w, index) multiplies each row of x by the matrix that an integer of"
            " the row chooses, such as node.type; expected (row values, matrices, integers), got"
            f" {shown(x)}, {shown(w)} and {shown(index)}"
        )
    x, w = same_dtype(x, w)
    if (
        trailing(index)
        or not trailing(x)
        or len(trailing(w)) < 2
        or trailing(x)[-1] != trailing(w)[1]
    ):
        raise ShapeError(
            "typed_matmul: expected x [rows, ..., d], matrices [k, d, ...] and an index [rows],"
            f" got {['rows', *trailing(x)]}, {list(trailing(w))} and {['rows', *trailing(index)]}"
        )
    x, index = same_rows(x, index)
    out = typed_matmul_p(x, w, index)
    out.space = x.space
    return out
