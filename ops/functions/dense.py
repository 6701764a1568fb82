"""Dense products: one two-dimensional BLAS product after reshaping."""
from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from graphtheta.errors import ShapeError, UserFunctionError
from graphtheta.sparse import is_sparse
from graphtheta.typed_rows import TypedRows

from ..autodiff.buffers import by_blocks, empty, run_parts
from ..autodiff.primitive import defvjp, primitive
from ..autodiff.traits import Traits
from ..rows.by_number import take_rows
from ..rows.row_list import RowList
from ..rows.stored import StoredRows, in_blocks
from .elementwise import add
from .rows import has_rows, same_dtype, trailing

# a weight gradient is summed over parts of the rows: most parts, least rows of a part, and least
# entries per column of sparse rows; fixed, so that results do not depend on the number of threads
_PARTS, _ROWS, _ENTRIES = 32, 512, 20
# least rows of a block of a product: BLAS copies the second factor for each block
_LEAST = 128
# seconds that a multiplication takes on one thread, as measured: in BLAS, and with an entry of sparse rows
_MULTIPLIED, _SPARSE = 3e-11, 3e-10


@primitive("matmul", sparse=True, traits=Traits(
    work="contraction", contraction=True, linear=(0, 1), kept_axes=lambda x, y, static: len(x) - 1, sign="@"))
def matmul_p(x: Any, w: Any) -> Any:
    """The last axis of x against the first of w."""
    matrix = w.reshape(w.shape[0], prod(w.shape[1:]))
    return product(flat(x), matrix).reshape(x.shape[:-1] + w.shape[1:])


def product(x: Any, w: Any) -> Any:
    """x @ w of two axes each, by blocks of rows; each thread runs BLAS with one thread."""
    if isinstance(x, TypedRows):
        return _typed_product(x, w)
    out = empty((x.shape[0], w.shape[1]), np.result_type(x.dtype, w.dtype))
    if is_sparse(x):
        from ..kernels.sparse import rows_times

        w = np.ascontiguousarray(w)
        by_blocks(lambda b, begin, end: rows_times(begin, end, x.indptr, x.indices, x.data, w, out), x.shape[0], w.shape[1],
                  _SPARSE * x.nnz / max(1, x.shape[0]))
    else:
        by_blocks(lambda b, begin, end: np.matmul(x[begin:end], w, out=out[begin:end]), x.shape[0], w.shape[1],
                  _MULTIPLIED * w.shape[0], _LEAST)
    return out


def long_product(x: Any, g: Any) -> Any:
    """x.T @ g of two axes each: products of parts of the long axis, added in order."""
    if isinstance(x, TypedRows):
        return np.concatenate([long_product(block, taken(g, own)) for block, _, own in x.types()])
    if is_sparse(x):
        return _sparse_long_product(x, g)
    count = min(_PARTS, x.shape[0] // _ROWS)
    if count <= 1:
        # no part is worth a thread, but rows of the result may be
        rows, out = x[0:x.shape[0]], empty((x.shape[1], g.shape[1]), np.result_type(x.dtype, g.dtype))
        by_blocks(lambda b, begin, end: np.matmul(rows[:, begin:end].T, g, out=out[begin:end]), x.shape[1], g.shape[1],
                  _MULTIPLIED * x.shape[0], _LEAST)
        return out
    ends, parts = np.arange(count + 1) * x.shape[0] // count, empty((count, g.shape[1], x.shape[1]), g.dtype)
    # BLAS is faster with the narrow factor in front, and that is g more often than not
    run_parts(lambda b: np.matmul(g[ends[b]:ends[b + 1]].T, x[ends[b]:ends[b + 1]], out=parts[b]), count,
              _MULTIPLIED * x.shape[0] * x.shape[1] * g.shape[1])
    # in order, since optimisers and messages read it so
    return np.ascontiguousarray(parts.sum(axis=0).T)


def _sparse_long_product(x: Any, g: Any) -> Any:
    """The same for sparse rows, in parts of about equally many entries."""
    from ..kernels.sparse import rows_onto

    g, count = np.ascontiguousarray(g), max(1, min(_PARTS, x.nnz // max(1, _ENTRIES * x.shape[1])))
    ends = np.searchsorted(x.indptr, np.linspace(0, x.nnz, count + 1))
    ends[0], ends[-1] = 0, x.shape[0]
    parts = np.zeros((count, x.shape[1], g.shape[1]), np.result_type(x.dtype, g.dtype))
    run_parts(lambda b: rows_onto(ends[b], ends[b + 1], x.indptr, x.indices, x.data, g, parts[b]), count,
              _SPARSE * x.nnz * g.shape[1])
    return parts.sum(axis=0) if count > 1 else parts[0]


def _typed_product(x: TypedRows, w: Any) -> Any:
    """The rows of each type against the rows of w that belong to its columns."""
    out = empty((x.shape[0], w.shape[1]), np.result_type(x.dtype, w.dtype))
    for block, columns, own in x.types():
        out[own] = product(block, w[columns])
    return out


def taken(x: Any, rows: Any) -> Any:
    """Rows of x by number, or adjacent ones, which are not copied."""
    return x[rows] if isinstance(rows, slice) else take_rows(x, rows)


def flat(x: Any) -> Any:
    """All axes but the last as one; sparse rows have no more than two, and so have lists of rows here."""
    return x if is_sparse(x) or isinstance(x, RowList) else x.reshape(prod(x.shape[:-1]), x.shape[-1])


def _matmul_x(g: Any, y: Any, x: Any, w: Any) -> Any:
    if is_sparse(x):
        return None
    width = prod(w.shape[1:])
    return product(g.reshape(prod(x.shape[:-1]), width), w.reshape(w.shape[0], width).T).reshape(x.shape)


def _matmul_w(g: Any, y: Any, x: Any, w: Any) -> Any:
    g = g.reshape(prod(x.shape[:-1]), prod(w.shape[1:]))
    return long_product(flat(x), g).reshape(w.shape)


# sparse rows are input features: constants
defvjp(matmul_p, x=_matmul_x, w=_matmul_w)


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
    inner, outer = trailing(x), trailing(w)
    if not inner or not outer:
        raise ShapeError(f"matmul contracts the last axis of x with the first of w, got x {_shown(x)} and w {_shown(w)}")
    if inner[-1] != outer[0]:
        raise ShapeError(f"matmul: the last axis of x {_shown(x)} must be as long as the first of w {_shown(w)}")
    return matmul_p(in_blocks(x) if len(inner) == 1 else x, w)


@primitive("to_dense", sparse=True, traits=Traits(work="none", structural=True))
def to_dense_p(x: Any) -> Any:
    """Sparse rows as a dense array."""
    return x.toarray() if is_sparse(x) else x


# sparse rows are input features: constants
defvjp(to_dense_p, x=lambda g, y, x: None if is_sparse(x) else g)


def to_dense(x: Any) -> Any:
    """Sparse rows as a dense array, [n, d]; anything else as it is.

    Edges read dense values, so layers whose gather reads raw features need it.
    """
    # stored rows are dense, and edges read them where they are
    return x if isinstance(x, StoredRows) else to_dense_p(x)


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
