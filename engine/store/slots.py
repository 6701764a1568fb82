"""Slots: room for a fixed number of rows of some columns, in which rows are replaced one by one.

A slot has a fixed number of bytes. A row of a sparse column is stored with its length, and with
room for as many entries as the longest row that the slots take.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from ...ops.rows.row_list import take_rows
from .column import Column

# arrays begin at multiples of so many bytes
ALIGNED = 64
# of the length of a sparse row, and of the column of one of its entries
INDEX = np.dtype(np.int32)
# the arrays of a sparse column
LENGTH = "length"
ENTRY = "entry"
VALUE = "value"


class Slots:
    """Rows of some columns by slot.

    Args:
        capacity: Number of slots.
        columns: The columns, for their shapes and types.
        longest: Most entries of a row of each sparse column that a slot takes.
        memory: ``room`` bytes that hold the rows, uint8; None for memory of its own.
    """

    def __init__(
        self,
        capacity: int,
        columns: Mapping[str, Column],
        longest: Mapping[str, int] | None = None,
        memory: np.ndarray | None = None,
    ):
        self._columns = dict(columns)
        self._longest = dict(longest or {})
        arrays, total = _layout(capacity, columns, self._longest)
        memory = np.empty(total, np.uint8) if memory is None else memory
        self.nbytes = total
        self._arrays = {
            key: memory[begin : begin + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
            for key, (begin, shape, dtype) in arrays.items()
        }

    @staticmethod
    def room(
        capacity: int, columns: Mapping[str, Column], longest: Mapping[str, int] | None = None
    ) -> int:
        """Bytes of so many slots."""
        return _layout(capacity, columns, longest or {})[1]

    @staticmethod
    def row_bytes(columns: Mapping[str, Column], longest: Mapping[str, int] | None = None) -> int:
        """Bytes of a slot."""
        return sum(
            (
                INDEX.itemsize + (longest or {})[name] * (INDEX.itemsize + column.dtype.itemsize)
                if column.sparse
                else prod(column.shape[1:]) * column.dtype.itemsize
            )
            for name, column in columns.items()
        )

    def read(self, slots: np.ndarray) -> dict[str, Any]:
        """Copies of the rows in some slots, [n, ...] by name; ``slots`` is [n] int."""
        return {
            name: (
                self._sparse(name, slots)
                if column.sparse
                else take_rows(self._arrays[name, ""], slots.astype(np.int64))
            )
            for name, column in self._columns.items()
        }

    def fit(self, rows: Mapping[str, Any], n: int) -> np.ndarray:
        """Whether rows are short enough for a slot, [n] bool."""
        fits = np.ones(n, bool)
        for name, most in self._longest.items():
            fits &= np.diff(rows[name].indptr) <= most
        return fits

    def write(self, slots: np.ndarray, rows: Mapping[str, Any], at: np.ndarray) -> None:
        """Store rows.

        Args:
            slots: Different ones, [n] int.
            rows: By name.
            at: The rows of these to store, which ``fit``, [n] int.
        """
        for name, column in self._columns.items():
            if not column.sparse:
                self._arrays[name, ""][slots] = rows[name][at]
                continue
            x = rows[name][at]
            length = np.diff(x.indptr).astype(INDEX)
            filled = np.arange(self._longest[name]) < length[:, None]
            self._arrays[name, LENGTH][slots] = length
            for part, values in ((ENTRY, x.indices), (VALUE, x.data)):
                padded = np.zeros(filled.shape, self._arrays[name, part].dtype)
                padded[filled] = values
                self._arrays[name, part][slots] = padded

    def _sparse(self, name: str, slots: np.ndarray) -> Any:
        import scipy.sparse as sp

        length, entry, value = (self._arrays[name, part][slots] for part in (LENGTH, ENTRY, VALUE))
        filled = np.arange(self._longest[name]) < length[:, None]
        return sp.csr_array(
            (value[filled], entry[filled], np.append(0, np.cumsum(length, dtype=np.int64))),
            shape=(len(slots), self._columns[name].shape[1]),
        )


def _layout(
    capacity: int, columns: Mapping[str, Column], longest: Mapping[str, int]
) -> tuple[dict[Any, Any], int]:
    """Beginning, shape and type of each array, and the bytes of all."""
    layout: dict[tuple[str, str], tuple[int, tuple[int, ...], np.dtype]] = {}
    begin = 0
    for name, column in columns.items():
        shapes = (
            {"": (capacity, *column.shape[1:])}
            if not column.sparse
            else {
                LENGTH: (capacity,),
                ENTRY: (capacity, longest[name]),
                VALUE: (capacity, longest[name]),
            }
        )
        for part, shape in shapes.items():
            dtype = np.dtype(column.dtype if part in ("", VALUE) else INDEX)
            layout[name, part] = begin, shape, dtype
            begin += -(-prod(shape) * dtype.itemsize // ALIGNED) * ALIGNED
    return layout, begin
