"""Products of rows by blocks, on all threads: of arrays, sparse rows, and rows of types with
columns of their own.

Large products are computed by tiles (``ops.kernels.products``). Each output is then added up in an
order that depends on nothing but the length of the inner axis, so that rows are equal to the bit
wherever they are cut into blocks. Small and narrow products are left to BLAS, with one thread for
each block; their blocks do not depend on the number of threads. A row of a small product and the
same row of a large one may differ by rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from graphtheta.base.bfloat16 import BFLOAT16
from graphtheta.base.costs import (
    MULTIPLIED,
    SPARSE_MULTIPLIED,
    TILED_COLUMNS,
    TILED_INNER,
    TILED_MULTIPLICATIONS,
)
from graphtheta.base.sparse import is_sparse
from graphtheta.base.typed_rows import TypedRows

from ..parallel.buffers import by_blocks, empty, run_parts
from .bfloat16 import as_float, rounded
from .computed import ComputedRows
from .row_list import ArrayOrList, RowList, take_rows

if TYPE_CHECKING:
    from ..kernels.products.loops import Rows

# a weight gradient is summed over parts of the rows: their number, least and most rows of a part,
# and least entries per column of sparse rows
_PARTS = 32
_ROWS = 512
_MOST_ROWS = 1 << 16
_ENTRIES = 20
# most rows whose entries of a column are added one by one in single precision
_MOST_ENTRIES = 1 << 12
# rows that BLAS adds in order, in single precision, where one factor is a vector
_ADDED = 1024
# least rows of a block of a product: BLAS copies the second factor for each block
_LEAST = 128
# blocks of a product by tiles for each thread, and parts of a weight gradient by tiles
_BLOCKS, _TILED_PARTS = 4, 16


def is_tiled(rows: int, inner: int, columns: int, dtype: Any) -> bool:
    """Whether tiles compute a product [rows, inner] @ [inner, columns], or its transposed product.

    BLAS computes it otherwise, and everything on a processor without fused multiply-adds.
    """
    return not why_not_tiled(rows, inner, columns, dtype)


def why_not_tiled(rows: int, inner: int, columns: int, dtype: Any) -> str:
    """Why BLAS computes a product, in words; empty if tiles do. Arguments as for ``is_tiled``."""
    if np.dtype(dtype) not in (np.float32, np.float64, BFLOAT16):
        return "not of float32, float64 or bfloat16"
    if rows * inner * columns < TILED_MULTIPLICATIONS:
        return f"fewer than {TILED_MULTIPLICATIONS:,} multiplications"
    if inner < TILED_INNER:
        return f"an inner axis below {TILED_INNER}"
    if columns < TILED_COLUMNS:
        return f"fewer than {TILED_COLUMNS} columns"
    from ..kernels.products.shapes import registers

    return "" if registers().rows else "a processor without fused multiply-adds"


def multiplied_by(rows: int, inner: int, columns: int, dtype: Any) -> str:
    """What computes a product, in words. Arguments as for ``is_tiled``."""
    why = why_not_tiled(rows, inner, columns, dtype)
    if why:
        return f"BLAS, {why}"
    if np.dtype(dtype) != BFLOAT16:
        return "tiles"
    from ..kernels.products.shapes import registers

    how = "multiplied in pairs" if registers().pairs else "expanded a block of rows at a time"
    return f"tiles, bfloat16 {how}"


def _in_blocks(
    x: ArrayOrList | ComputedRows,
) -> Callable[[int, int], Iterable[tuple[int, int, Rows]]]:
    """A function from two bounds of rows to the blocks between them: first row, end, and the rows
    of x.
    """
    from ..kernels.products.loops import Rows

    if isinstance(x, ComputedRows):
        blocks = x.blocks
        return lambda begin, end: (
            (first, last, Rows(block, first=first)) for first, last, block in blocks(begin, end)
        )
    rows = Rows(*_adjacent(x))
    return lambda begin, end: [(begin, end, rows)]


def _adjacent(x: ArrayOrList) -> tuple[np.ndarray, np.ndarray | None]:
    """An array in which the numbers of a row are adjacent, and which of its rows are those of x;
    None for all.
    """
    array, numbers = (x.array, x.rows) if isinstance(x, RowList) else (x, None)
    return array if array.strides[1] == array.itemsize else np.ascontiguousarray(array), numbers


def _sums(x: Any, w: Any) -> Any:
    """The type of a product."""
    return np.dtype(np.float32) if x.dtype == BFLOAT16 else np.result_type(x.dtype, w.dtype)


def product(x: Any, w: Any) -> Any:
    """x @ w of two axes each, by blocks of rows.

    If x is ``BFLOAT16``, w is rounded to it, and the product is float32.
    """
    if isinstance(x, TypedRows):
        return _typed_product(x, w)
    out = empty((x.shape[0], w.shape[1]), _sums(x, w))
    if x.dtype == BFLOAT16:
        w = rounded(w)
    if is_sparse(x):
        from ..kernels.sparse import rows_times

        w = np.ascontiguousarray(w)
        by_blocks(
            lambda b, begin, end: rows_times(
                begin=begin, end=end, indptr=x.indptr, indices=x.indices, data=x.data, w=w, out=out
            ),
            x.shape[0],
            w.shape[1],
            SPARSE_MULTIPLIED * x.nnz / max(1, x.shape[0]),
        )
    elif x.dtype == w.dtype and is_tiled(x.shape[0], x.shape[1], w.shape[1], x.dtype):
        from ..kernels.products.loops import Factor
        from ..parallel.pool import threads

        factor = Factor(w)
        blocks = _in_blocks(x)

        def work(_: int, begin: int, end: int) -> None:
            for first, last, rows in blocks(begin, end):
                factor.times(first, last, rows, out)

        # a few blocks for each thread, since rows do not depend on where they are cut
        by_blocks(
            work=work,
            n=x.shape[0],
            width=w.shape[1],
            per_number=MULTIPLIED * w.shape[0],
            least=max(_LEAST, x.shape[0] // (_BLOCKS * threads())),
        )
    else:
        w = as_float(w)
        by_blocks(
            work=lambda b, begin, end: np.matmul(as_float(x[begin:end]), w, out=out[begin:end]),
            n=x.shape[0],
            width=w.shape[1],
            per_number=MULTIPLIED * w.shape[0],
            least=_LEAST,
        )
    return out


def long_product(x: Any, g: Any) -> Any:
    """x.T @ g of two axes each: products of parts of the long axis, added in order.

    If x is ``BFLOAT16``, g is rounded to it, and the product is float32.
    """
    if isinstance(x, TypedRows):
        return np.concatenate(
            [long_product(block, taken(g, rows_of_type)) for block, _, rows_of_type in x.types()]
        )
    if is_sparse(x):
        return _sparse_long_product(x, g)
    dtype = _sums(x, g)
    if x.dtype == BFLOAT16 != g.dtype:
        g = rounded(g)
    tiled = x.dtype == g.dtype and is_tiled(x.shape[0], x.shape[1], g.shape[1], x.dtype)
    most = _TILED_PARTS if tiled else _PARTS
    count = max(min(most, x.shape[0] // _ROWS), x.shape[0] // _MOST_ROWS)
    if count <= 1:
        # no part is worth a thread, but rows of the result may be
        rows = as_float(x[0 : x.shape[0]])
        side = as_float(g)
        out = empty((x.shape[1], g.shape[1]), dtype)
        by_blocks(
            work=lambda b, begin, end: np.matmul(rows[:, begin:end].T, side, out=out[begin:end]),
            n=x.shape[1],
            width=g.shape[1],
            per_number=MULTIPLIED * x.shape[0],
            least=_LEAST,
        )
        return out
    ends = np.arange(count + 1) * x.shape[0] // count
    if tiled:
        return _tiled_long_product(x, g, ends, dtype)
    parts = empty((count, g.shape[1], x.shape[1]), dtype)
    by_part = _long_vector_product if 1 in (x.shape[1], g.shape[1]) else _plain_product
    # BLAS is faster with the narrow factor in front, and that is g more often than not
    run_parts(
        lambda b: by_part(
            as_float(g[ends[b] : ends[b + 1]]), as_float(x[ends[b] : ends[b + 1]]), parts[b]
        ),
        count,
        MULTIPLIED * x.shape[0] * x.shape[1] * g.shape[1],
    )
    # in order, since optimisers and messages read it so
    return np.ascontiguousarray(parts.sum(axis=0, dtype=np.float64).T.astype(dtype))


def _tiled_long_product(x: ArrayOrList, g: Any, ends: np.ndarray, dtype: Any) -> np.ndarray:
    """x.T @ g by tiles: products of the rows between two ends, added in order, in a type."""
    from ..kernels.columns import sum_of_parts
    from ..kernels.products.loops import LongProduct

    count = len(ends) - 1
    tiled = LongProduct(x.shape[1], _adjacent(g)[0])
    blocks = _in_blocks(x)
    parts = empty((count, x.shape[1], tiled.columns), dtype)

    def work(b: int) -> None:
        parts[b] = 0
        for first, last, rows in blocks(ends[b], ends[b + 1]):
            tiled.add(first, last, rows, parts[b])

    run_parts(work, count, MULTIPLIED * x.shape[0] * x.shape[1] * g.shape[1])
    out = empty((x.shape[1], g.shape[1]), dtype)
    by_blocks(
        work=lambda b, begin, end: sum_of_parts(parts, out, begin, end),
        n=x.shape[1],
        width=count * g.shape[1],
    )
    return out


def _plain_product(g: Any, x: Any, out: Any) -> None:
    np.matmul(g.T, x, out=out)


def _long_vector_product(g: Any, x: Any, out: Any) -> None:
    """g.T @ x where one of them has a single column."""
    count = len(g) // _ADDED
    whole = count * _ADDED
    left, right = (a[:whole].reshape(count, _ADDED, a.shape[1]) for a in (g, x))
    out[...] = np.matmul(left.transpose(0, 2, 1), right).sum(axis=0, dtype=np.float64)
    out += g[whole:].T @ x[whole:]


def _sparse_long_product(x: Any, g: Any) -> Any:
    """The same for sparse rows, in parts of about equally many entries."""
    from ..kernels.sparse import rows_onto

    g = np.ascontiguousarray(g)
    count = max(1, min(_PARTS, x.nnz // max(1, _ENTRIES * x.shape[1])))
    ends = np.searchsorted(x.indptr, np.linspace(0, x.nnz, count + 1))
    ends[0] = 0
    ends[-1] = x.shape[0]
    dtype = np.result_type(x.dtype, g.dtype)
    exact = np.float64 if x.shape[0] > count * _MOST_ENTRIES else dtype
    parts = np.zeros((count, x.shape[1], g.shape[1]), exact)
    run_parts(
        lambda b: rows_onto(
            begin=ends[b],
            end=ends[b + 1],
            indptr=x.indptr,
            indices=x.indices,
            data=x.data,
            g=g,
            out=parts[b],
        ),
        count,
        SPARSE_MULTIPLIED * x.nnz * g.shape[1],
    )
    return (parts.sum(axis=0) if count > 1 else parts[0]).astype(dtype, copy=False)


def _typed_product(x: TypedRows, w: Any) -> Any:
    """The rows of each type against the rows of w that belong to its columns."""
    out = empty((x.shape[0], w.shape[1]), _sums(x, w))
    for block, columns, rows in x.types():
        out[rows] = product(block, w[columns])
    return out


def taken(x: Any, rows: Any) -> Any:
    """Rows of x by number, or adjacent ones, which are not copied."""
    return x[rows] if isinstance(rows, slice) else take_rows(x, rows)
