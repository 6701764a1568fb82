"""Rows of another column by number: the part of a column of the whole graph that a worker uses."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.errors import UserFunctionError

from ...ops.rows.row_list import RowList
from .column import Coded, Column, Decoding, Read, coded, listed_rows


class SelectedColumn:
    """A column whose row i is row ``rows[i]`` of another one; values are not copied.

    Args:
        column: The other column.
        rows: [n_rows] row numbers.
        dtype: Type that values are converted to when they are read.
    """

    def __init__(self, column: Column, rows: np.ndarray, dtype: Any):
        self._column = column
        self._rows = rows
        self.shape: tuple[int, ...] = (len(rows), *column.shape[1:])
        self.dtype: np.dtype = np.dtype(dtype)
        self.sparse = column.sparse

    @property
    def nbytes(self) -> int:
        return self._column.nbytes

    @property
    def coded(self) -> Coded | None:
        """The same rows of the narrower form of the other column; None if it has none, and its type
        is this one's.
        """
        if (
            getattr(self._column, "coded", None) is None
            and self._column.dtype.itemsize >= self.dtype.itemsize
        ):
            return None
        inner = coded(self._column)
        return Coded(
            SelectedColumn(inner.column, self._rows, inner.column.dtype),
            lambda rows: self._checked(inner.decode(rows), rows.shape[0]),
        )

    def read_begin(self, rows: np.ndarray | None) -> Read:
        narrow = self.coded
        if narrow is not None:
            return Decoding(narrow.column.read_begin(rows), narrow.decode)
        mine = self._rows if rows is None else self._rows[rows]
        return Decoding(
            self._column.read_begin(mine), lambda values: self._checked(values, len(mine))
        )

    def listed(self, rows: np.ndarray) -> RowList | None:
        if self._column.dtype != self.dtype:
            return None
        listed = listed_rows(self._column, self._rows[rows])
        if listed is None:
            return None
        # a user's column is checked as its reads are
        fits = listed.shape == (len(rows), *self.shape[1:]) and listed.dtype == self.dtype
        return listed if fits else None

    def _checked(self, x: Any, n: int) -> Any:
        """Rows that a user's column returned, n of them; plain arrays writable and in C order.

        Compiled code does not check the shape of what it reads.

        Raises:
            UserFunctionError: They have another format or shape.
        """
        shape = (n, *self.shape[1:])
        form = "csr" if self.sparse else "ndarray"
        kind = "ndarray" if isinstance(x, np.ndarray) else getattr(x, "format", type(x).__name__)
        got = kind, tuple(getattr(x, "shape", ()))
        if got != (form, shape):
            raise UserFunctionError(
                f"{type(self._column).__name__}: a read of {n} rows returned {got[0]}"
                f" {list(got[1])}; expected {form} {list(shape)}, from its attributes shape and"
                " sparse"
            )
        return (
            x.astype(self.dtype, copy=False)
            if self.sparse
            else np.require(np.asarray(x), self.dtype, ["C", "W"])
        )
