"""Wide columns of a worker's masters and of some mirrors, whose values a batch was given."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from graphtheta.engine.store.column import Column, Read, Role
from graphtheta.engine.store.store import ColumnStore


class _LeafRead(NamedTuple):
    """A started read of rows of both kinds."""

    read: Read
    given: np.ndarray
    masters: np.ndarray

    def end(self) -> np.ndarray:
        """The rows, [m, ...]."""
        own = self.read.end()
        if self.masters.all():
            rows: np.ndarray = own
            return rows
        out = np.empty((len(self.masters), *own.shape[1:]), own.dtype)
        out[self.masters] = own
        out[~self.masters] = self.given
        return out


class LeafColumn:
    """A column whose first rows are those of another one; of the rows after them some have values.

    Args:
        own: The first rows.
        n_rows: Number of all rows.
        rows: Rows after the first ones that have values, ascending, [n]; no others are read.
        values: Their values, [n, ...].
    """

    sparse = False

    def __init__(self, own: Column, n_rows: int, rows: np.ndarray, values: np.ndarray):
        self._own = own
        self._rows = rows
        self._values = values
        self.shape = (n_rows, *own.shape[1:])
        self.dtype = own.dtype

    @property
    def nbytes(self) -> int:
        return self._own.nbytes + self._values.nbytes

    def read_begin(self, rows: np.ndarray | None) -> Read:
        rows = np.arange(self.shape[0]) if rows is None else rows
        masters = rows < self._own.shape[0]
        return _LeafRead(
            self._own.read_begin(rows[masters]),
            self._values[np.searchsorted(self._rows, rows[~masters])],
            masters,
        )


def packed(store: ColumnStore, rows: np.ndarray) -> np.ndarray:
    """Rows of all wide columns as bytes, [n, bytes of a row] uint8."""
    reads = store.read_begin(store.wide(), rows)
    columns = [np.ascontiguousarray(read.end()) for read in reads.values()]
    parts = [x.reshape(len(rows), prod(x.shape[1:])).view(np.uint8) for x in columns]
    return np.concatenate([np.zeros((len(rows), 0), np.uint8), *parts], axis=1)


def with_leaves(
    store: ColumnStore, own: ColumnStore, rows: np.ndarray, values: np.ndarray
) -> ColumnStore:
    """A store with the wide columns of the masters and of some leaves.

    Args:
        store: Narrow columns of masters and mirrors.
        own: All columns of the masters.
        rows: Rows of the leaves in ``store``, in any order, [n].
        values: Their values, as ``packed`` returns them.
    """
    order = np.argsort(rows)
    begin = 0
    columns: dict[str, tuple[Role, Any]] = {}
    for name in own.wide():
        column = own.column(name)
        end = begin + prod(column.shape[1:]) * column.dtype.itemsize
        its = (
            np.ascontiguousarray(values[order, begin:end])
            .view(column.dtype)
            .reshape(len(rows), *column.shape[1:])
        )
        columns[name] = (own.role(name), LeafColumn(column, store.n_rows, rows[order], its))
        begin = end
    return store.joined(ColumnStore(store.n_rows, columns))
