"""Columns of float32 rows that are stored, sent and read by products and edges as bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.base.bfloat16 import BFLOAT16

from ...ops.rows.bfloat16 import expanded, rounded
from ...ops.rows.row_list import ArrayOrList, RowList
from .cached import CachedColumn
from .column import Coded, Column, Decoding, Read
from .memory import MemoryColumn


class ShortColumn:
    """A column of float32 rows, which are rounded to bfloat16.

    Args:
        given: The rows before they are rounded, float32, or after, ``BFLOAT16``; not sparse.
    """

    sparse = False

    def __init__(self, given: Column):
        self._given = given
        self.shape: tuple[int, ...] = given.shape
        self.dtype: np.dtype = np.dtype(np.float32)

    @property
    def nbytes(self) -> int:
        return self._given.nbytes

    @property
    def coded(self) -> Coded:
        """The narrower form of the given column if it has one, else the rounded rows."""
        narrow: Coded | None = getattr(self._given, "coded", None)
        if narrow is None:
            return Coded(_Rounded(self._given), expanded)
        return Coded(narrow.column, lambda rows: expanded(rounded(narrow.decode(rows))))

    def read_begin(self, rows: np.ndarray | None) -> Read:
        narrow = self.coded
        return Decoding(narrow.column.read_begin(rows), narrow.decode)

    def short(self, rows: np.ndarray | None) -> ArrayOrList | None:
        """Rows of ``BFLOAT16``, [n, ...], where they are in memory; None if they are not.

        Args:
            rows: Row numbers in any order; None for all rows in order.
        """
        if not isinstance(self._given, MemoryColumn):
            return None
        return RowList(self._given.whole(), rows) if rows is not None else self._given.whole()


class _Rounded:
    """A column as ``BFLOAT16``, to which it is rounded unless it is of this type."""

    sparse = False

    def __init__(self, given: Column):
        self._given = given
        self.shape = given.shape
        self.dtype = BFLOAT16

    @property
    def nbytes(self) -> int:
        return self._given.nbytes

    def read_begin(self, rows: np.ndarray | None) -> Read:
        read = self._given.read_begin(rows)
        return read if self._given.dtype == BFLOAT16 else Decoding(read, rounded)


def short_column(column: Column) -> ShortColumn:
    """A column of float32 rows, rounded to bfloat16; at once if it is in memory."""
    return ShortColumn(column.changed(rounded) if isinstance(column, MemoryColumn) else column)


def filled_column(like: Column, rows: Any) -> Column:
    """A column in memory, which is short if another one is.

    Args:
        like: The other column.
        rows: [n, ...], an array or CSR rows.
    """
    column = MemoryColumn(rows)
    return short_column(column) if is_short(like) else column


def is_short(column: Column) -> bool:
    """Whether a column gives rounded rows, also behind a cache."""
    stored = column.column if isinstance(column, CachedColumn) else column
    return isinstance(stored, ShortColumn)
