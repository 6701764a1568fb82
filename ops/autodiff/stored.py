"""Values of a stored column, which are copied into the order of a view when they are read as an
array, and how operations, products and edges read any value.

Edges and products read such rows where they are stored (``in_place``, ``lent``), and the copy is
not made. Products also read, a block at a time, rows that are decoded from narrower values.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from graphtheta.base.bfloat16 import BFLOAT16
from graphtheta.base.sparse import is_sparse

from ..rows.bfloat16 import as_float, round_rows, rounded
from ..rows.computed import ComputedRows
from ..rows.row_list import ArrayOrList, RowList
from .space import RowSpace
from .tape import Var, is_rounded, value_of

# least bytes of a listed row that a product and the gradient of its weight read where it is: two
# reads of narrower rows, which begin in another page each, take as long as a copy saves
WIDE = 512


class StoredRows(Var):
    """The first rows of a stored column, dense and constant.

    Args:
        read: Returns the first n rows as an array; not called if they are listed.
        shape, dtype: Of the rows, [n, ...].
        listed: The same rows where they are stored, for edges, and for products if they are wide;
            None if they must be copied.
        space: The rows.
        name: Name of the column, for messages.
        lent: The same rows where they are in memory, for products only, which copy a block at a
            time: edges read each row many times, for which one copy is better.
        short: Returns the first n rows as ``BFLOAT16`` where they are in memory, or None where
            they are read, and then rounded once more, which changes nothing; None for rows that
            are not stored so.
        decoding: Given n, returns a function from two bounds of the first n rows to the rows
            between them, which it decodes from narrower values; None if these rows are stored.
    """

    __slots__ = ("_decode", "_decoding", "_dtype", "_lent", "_listed", "_read", "_shape", "_short")

    def __init__(
        self,
        read: Callable[[int], np.ndarray],
        shape: tuple[int, ...],
        dtype: Any,
        listed: RowList | None,
        space: RowSpace,
        name: str,
        lent: RowList | None = None,
        short: Callable[[int], ArrayOrList | None] | None = None,
        decoding: Callable[[int], Callable[[int, int], np.ndarray] | None] | None = None,
    ):
        self._short = short
        self._decoding = decoding
        self._decode: Callable[[int, int], np.ndarray] | None = None
        self._stored: Any = None
        self._lent = lent
        self._read = read
        self._shape = shape
        self._dtype = np.dtype(dtype)
        self._listed = listed
        self.space = space
        self.needs_grad = False
        self.name = name
        self.made_in = None

    # nobody sets it
    @property  # type: ignore[misc]
    def value(self) -> Any:
        return as_float(self._rows())

    def _rows(self) -> Any:
        """The rows as they are in memory, or as they were read."""
        if self._stored is None:
            rows = None if self._short is None else self._short(self._shape[0])
            self._stored = self._copy() if rows is None else rows
        return self._stored

    def _copy(self) -> Any:
        """The rows as an array, from where they are stored or as they are read."""
        return self._read(self._shape[0]) if self._listed is None else self._listed[:]

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> np.dtype:
        return self._dtype

    @property
    def in_place(self) -> RowList | None:
        """The rows where they are stored; None if they were copied or must be, or are read as
        ``BFLOAT16``.
        """
        return self._listed if self._stored is None and not self._is_short else None

    @property
    def _is_short(self) -> bool:
        """Whether operations read the rows as ``BFLOAT16``."""
        return self._short is not None or is_rounded(self)

    def lent(self) -> RowList | ComputedRows | None:
        if self._stored is not None:
            return None
        is_short = self._is_short
        wide = prod(self._shape[1:]) * self._dtype.itemsize >= WIDE
        listed = self._listed if self._lent is None and wide else self._lent
        if listed is not None and not is_short:
            return listed
        if self._decode is None and self._decoding is not None:
            self._decode = self._decoding(self._shape[0])
        decode = self._decode
        if decode is None:
            return None

        def fill(begin: int, end: int, out: np.ndarray) -> None:
            if is_short:
                round_rows(decode(begin, end), out)
            else:
                out[...] = decode(begin, end)

        dtype = np.dtype(BFLOAT16) if is_short else self._dtype
        return ComputedRows(fill, lambda: self._stored, self._shape, dtype)

    @property
    def short(self) -> ArrayOrList | None:
        if not self._is_short:
            return None
        rows = self._rows()
        if rows.dtype != BFLOAT16:
            self._stored = rows = rounded(rows)
        return rows

    @property
    def sparse(self) -> bool:
        return False

    def cut(self, space: RowSpace) -> StoredRows:
        """The first rows, those of a space nested in this one."""
        listed = None if self._listed is None else self._listed.first(space.n)
        first = StoredRows(
            read=self._read,
            shape=(space.n, *self._shape[1:]),
            dtype=self._dtype,
            listed=listed,
            space=space,
            name=self.name,
            short=self._short,
            decoding=self._decoding,
        )
        if isinstance(self._stored, np.ndarray):
            first._stored = self._stored[: space.n]
        return first


def operand_of(x: Any) -> Any:
    """The value of x as an operation reads it and the tape keeps it: ``BFLOAT16`` if it is stored
    so, otherwise as ``value_of``.
    """
    if not isinstance(x, Var):
        return value_of(x)
    rows = x.short
    return x.value if rows is None else rows


def blocks_of(x: Any) -> Any:
    """The value of x as a product reads it, a block of rows at a time: a ``RowList`` or
    ``ComputedRows`` for rows that are not in memory, otherwise as ``operand_of``.
    """
    rows = x.lent() if isinstance(x, Var) and len(x.shape) == 2 else None
    return operand_of(x) if rows is None else rows


def rows_of(x: Any) -> Any:
    """The values of x as edges read them: ``BFLOAT16`` or a ``RowList`` if possible, otherwise as
    ``value_of``.
    """
    rows = x.in_place if isinstance(x, StoredRows) else None
    return operand_of(x) if rows is None else rows


def holds_sparse(x: Any) -> bool:
    """Whether x has sparse rows, without reading those of a stored column."""
    return x.sparse if isinstance(x, Var) else is_sparse(value_of(x))
