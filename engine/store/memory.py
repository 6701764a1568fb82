"""Columns in memory: a plain array or CSR rows."""
from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from graphtheta.sparse import is_sparse

from ...ops.functions.index import take_rows
from .column import Read, Ready


class MemoryColumn:
    """A column in memory.

    Args:
        values: [n_rows, ...] array, or scipy CSR [n_rows, d].
    """

    def __init__(self, values: Any):
        self._values = values
        self.shape: tuple[int, ...] = values.shape
        self.dtype: np.dtype = values.dtype
        self.sparse = is_sparse(values)

    @property
    def nbytes(self) -> int:
        x = self._values
        return int(sum(a.nbytes for a in ((x.data, x.indices, x.indptr) if self.sparse else (x,))))

    def read_begin(self, rows: np.ndarray | None) -> Read:
        return Ready(self._values if rows is None else take_rows(self._values, rows))


def empty_column(shape: tuple[int, ...], dtype: np.dtype, sparse: bool) -> MemoryColumn:
    """A column without rows, of the same trailing shape."""
    return MemoryColumn(scipy.sparse.csr_array((0, shape[1]), dtype=dtype) if sparse else np.zeros((0, *shape[1:]), dtype))
