"""Columns in memory: a plain array or CSR rows."""
from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from graphtheta.sparse import is_sparse

from ...ops.autodiff.buffers import taken
from ...ops.rows.by_number import take_rows
from ...ops.rows.row_list import RowList
from .column import Read, Ready


class MemoryColumn:
    """A column in memory.

    Args:
        values: [n_rows, ...] array, or scipy CSR [n_rows, d].
        order: Row of the array that is row i of the column, [n_rows], each once; None if equal. The
            array is not copied unless all rows are read: then it is, once, and the copy replaces
            it.
    """

    def __init__(self, values: Any, order: np.ndarray | None = None):
        self._held = values, order
        self.shape: tuple[int, ...] = values.shape
        self.dtype: np.dtype = values.dtype
        self.sparse = is_sparse(values)

    @property
    def nbytes(self) -> int:
        x, _ = self._held
        return int(sum(a.nbytes for a in ((x.data, x.indices, x.indptr) if self.sparse else (x,))))

    def read_begin(self, rows: np.ndarray | None) -> Read:
        values, order = self._held
        if rows is not None:
            return Ready(take_rows(values, rows if order is None else order[rows]))
        if order is not None:
            values = taken(values, order)
            self._held = values, None
        return Ready(values)

    def listed(self, rows: np.ndarray) -> RowList | None:
        values, order = self._held
        if self.sparse or not values.flags.c_contiguous or not values.dtype.isnative:
            return None
        return RowList(values, rows if order is None else order[rows])


def empty_column(shape: tuple[int, ...], dtype: np.dtype, sparse: bool) -> MemoryColumn:
    """A column without rows, of the same trailing shape."""
    return MemoryColumn(scipy.sparse.csr_array((0, shape[1]), dtype=dtype) if sparse else np.zeros((0, *shape[1:]), dtype))
