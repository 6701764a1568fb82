"""Some rows of another column, in another order: how a worker sees a column of the whole graph."""
from __future__ import annotations

from typing import Any

import numpy as np

from .column import Column, Read


class SelectedColumn:
    """A column whose row i is row ``rows[i]`` of another one; its values stay where they are.

    Args:
        column: The other column.
        rows: [n_rows] row numbers.
        dtype: Type that values are converted to when they are read.
    """

    def __init__(self, column: Column, rows: np.ndarray, dtype: Any):
        self._column, self._rows = column, rows
        self.shape: tuple[int, ...] = (len(rows), *column.shape[1:])
        self.dtype: np.dtype = np.dtype(dtype)
        self.sparse = column.sparse

    @property
    def nbytes(self) -> int:
        return self._column.nbytes

    def read_begin(self, rows: np.ndarray | None) -> Read:
        return _Converted(self._column.read_begin(self._rows if rows is None else self._rows[rows]), self.dtype)


class _Converted:
    """A read whose values are given another type."""

    def __init__(self, read: Read, dtype: np.dtype):
        self._read, self._dtype = read, dtype

    def end(self) -> Any:
        return self._read.end().astype(self._dtype, copy=False)
