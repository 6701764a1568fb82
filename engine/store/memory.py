"""Columns in memory: a plain array, CSR rows, or rows of several types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import scipy

from graphtheta.base.sparse import is_sparse
from graphtheta.base.typed_rows import TypedRows

from ...ops.parallel.buffers import taken
from ...ops.rows.row_list import RowList, take_rows
from .column import Coded, Column, Read, Ready, RoundedColumn, exact_column


class MemoryColumn:
    """A column in memory.

    Args:
        values: [n_rows, ...] array, or scipy CSR or ``TypedRows`` [n_rows, d].
        order: Row of the array that is row i of the column, [n_rows], each once; None if equal. The
            array is not copied unless all rows are read: then it is, once, and the copy replaces
            it. Products of the first pass over all rows read them where they are (``lent``): a
            copy takes as long as three passes gain by it, and evaluation is one pass.
    """

    def __init__(self, values: Any, order: np.ndarray | None = None):
        self._values_and_order = values, order
        self._lent = False
        self.shape: tuple[int, ...] = values.shape
        self.dtype: np.dtype = values.dtype
        self.sparse = is_sparse(values)

    @property
    def widths(self) -> list[int] | None:
        """Number of columns of each type of rows of several types; None for other values."""
        x, _ = self._values_and_order
        return x.widths if isinstance(x, TypedRows) else None

    @property
    def nbytes(self) -> int:
        x, _ = self._values_and_order
        if isinstance(x, TypedRows):
            return x.nbytes
        return int(sum(a.nbytes for a in ((x.data, x.indices, x.indptr) if self.sparse else (x,))))

    @property
    def coded(self) -> Coded | None:
        """Rows of several types as rows of an array, for messages and caches; None for other
        values.
        """
        x, _ = self._values_and_order
        return Coded(_Padded(self, x), x[:0].unpadded) if isinstance(x, TypedRows) else None

    def read_begin(self, rows: np.ndarray | None) -> Read:
        values, order = self._values_and_order
        if rows is not None:
            return Ready(take_rows(values, rows if order is None else order[rows]))
        return Ready(values) if order is None else _Whole(self)

    def changed(self, change: Callable[[Any], Any]) -> MemoryColumn:
        """The column whose values are change(values), row by row."""
        values, order = self._values_and_order
        return MemoryColumn(change(values), order)

    def whole(self) -> Any:
        """All rows in order; the copy replaces rows in another order."""
        values, order = self._values_and_order
        if order is not None:
            values = taken(values, order)
            self._values_and_order = values, None
        return values

    def lent(self) -> RowList | None:
        """All rows where they are, for the first pass that asks; None if they are in order, and for
        later passes.
        """
        values, order = self._values_and_order
        first = not self._lent
        self._lent = True
        return RowList(values, order) if first and order is not None else None

    def listed(self, rows: np.ndarray) -> RowList | None:
        values, order = self._values_and_order
        if self.sparse or not values.flags.c_contiguous or not values.dtype.isnative:
            return None
        return RowList(values, rows if order is None else order[rows])


@dataclass(frozen=True)
class _Whole:
    """A read of all rows, which are copied when it ends."""

    column: MemoryColumn

    def end(self) -> Any:
        return self.column.whole()


class _Padded:
    """Rows of several types with their types, filled up to equal widths."""

    sparse = False

    def __init__(self, column: MemoryColumn, like: TypedRows):
        self._column = column
        self.shape = (column.shape[0], like[:0].padded().shape[1])
        self.dtype = column.dtype
        # of rows in memory
        self.nbytes = prod(self.shape) * self.dtype.itemsize

    def read_begin(self, rows: np.ndarray | None) -> Read:
        return Ready(self._column.read_begin(rows).end().padded())


def empty_column(like: Column) -> Column:
    """A column without rows, of the same trailing shape and types as another one; of rows of
    several types with these.
    """
    exact = exact_column(like)
    if exact is not like:
        return RoundedColumn(empty_column(exact), like.dtype)
    if isinstance(like, MemoryColumn) and like.widths is not None:
        return MemoryColumn(like.read_begin(np.zeros(0, np.int64)).end())
    return MemoryColumn(
        scipy.sparse.csr_array((0, like.shape[1]), dtype=like.dtype)
        if like.sparse
        else np.zeros((0, *like.shape[1:]), like.dtype)
    )
