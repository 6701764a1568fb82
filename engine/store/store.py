"""The columns of one set of rows, by name and with their roles.

Row i means the same in every column: master row i of a worker, or the edge at storage position i.
A store is immutable; an overlay is a new store that shares the other columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from graphtheta.errors import ShapeError

from ...ops.rows.row_list import ArrayOrList, RowList
from .column import (
    Coded,
    Column,
    Decoding,
    Read,
    Ready,
    Role,
    coded,
    exact_column,
    is_column,
    listed_rows,
)
from .memory import MemoryColumn, empty_column
from .short import ShortColumn, filled_column


class ColumnStore:
    """Columns by name, in order.

    Args:
        n_rows: Rows of every column.
        columns: Role and column by name.

    Raises:
        ShapeError: A column has another number of rows.
    """

    def __init__(self, n_rows: int, columns: Mapping[str, tuple[Role, Column]]):
        for name, (_, column) in columns.items():
            if column.shape[0] != n_rows:
                raise ShapeError(
                    f"column {name!r} has {column.shape[0]} rows, but its store has {n_rows}; give"
                    " one value for each row, in the order of the store"
                )
        self.n_rows = n_rows
        self._columns = dict(columns)
        self._readable = tuple(
            name for name, (role, _) in columns.items() if role in (Role.FEATURE, Role.LEARNED)
        )
        # what reads of all rows returned, as it is stored, while it is in use
        self.every = WeakValueDictionary[str, Any]()

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def names(self, role: Role | None = None) -> tuple[str, ...]:
        """Names of all columns, or of those with a role."""
        return tuple(
            name
            for name, (role_of_column, _) in self._columns.items()
            if role in (None, role_of_column)
        )

    def readable(self) -> tuple[str, ...]:
        """Names of the columns that models may read: features, also learned ones."""
        return self._readable

    def wide(self) -> tuple[str, ...]:
        """Names of the columns whose rows are large, several numbers or sparse, but for targets,
        masks and learned columns.
        """
        return tuple(
            name
            for name, (role, c) in self._columns.items()
            if (c.sparse or len(c.shape) > 1) and role not in (Role.TARGET, Role.MASK, Role.LEARNED)
        )

    def learned(self) -> tuple[str, ...]:
        """Names of the columns that training changes."""
        return self.names(Role.LEARNED)

    def narrow(self) -> tuple[str, ...]:
        """Names of the columns that are neither wide nor learned."""
        wide = self.wide()
        return tuple(
            name
            for name, (role, _) in self._columns.items()
            if name not in wide and role is not Role.LEARNED
        )

    def role(self, name: str) -> Role:
        """The role of a column; KeyError if there is none."""
        return self._columns[name][0]

    def column(self, name: str) -> Column:
        """A column, for its shape and type; KeyError if there is none."""
        return self._columns[name][1]

    def coded(self, name: str) -> Coded:
        """The narrower form of a column; KeyError if there is none."""
        return coded(self._columns[name][1])

    def is_decoded(self, name: str) -> bool:
        """Whether dense values of a column are computed from narrower ones, which ``short`` does
        not return; KeyError if there is none.
        """
        column = self.column(name)
        if column.sparse or self.short(name, None) is not None:
            return False
        return coded(column).column.dtype != column.dtype

    def read_begin(self, names: Iterable[str], rows: np.ndarray | None = None) -> dict[str, Read]:
        """Begin to read some columns; each read must be ended.

        Args:
            names: Of the columns, each once.
            rows: Row numbers in any order, [m]; None for all rows.

        Raises:
            KeyError: There is no such column.
        """
        return {name: self._columns[name][1].read_begin(rows) for name in names}

    def read(self, name: str, rows: np.ndarray | None = None) -> Any:
        """Rows of a column, [m, ...]; do not change those of a read of all rows.

        Raises:
            KeyError: There is no such column.
        """
        return self._columns[name][1].read_begin(rows).end()

    def read_every(self, name: str) -> Read:
        """Begin to read all rows of a column, which are shared with others that still use them.

        Raises:
            KeyError: There is no such column.
        """
        every = self.every.get(name)
        if every is None:
            return self._columns[name][1].read_begin(None)
        read = Ready(every)
        return Decoding(read, self.coded(name).decode) if self.is_decoded(name) else read

    def exact(self, name: str, rows: np.ndarray | None = None) -> Any:
        """Rows of a column as they were given with the graph, also where models read narrower
        floats; otherwise as ``read``.
        """
        return exact_column(self._columns[name][1]).read_begin(rows).end()

    def listed(self, name: str, rows: np.ndarray) -> RowList | None:
        """Rows of a column where they are stored; None if they must be read.

        Raises:
            KeyError: There is no such column.
        """
        return listed_rows(self.column(name), rows)

    def lent(self, name: str) -> RowList | None:
        """All rows of a column where they are in memory, for the first pass that asks; None if they
        must be read.

        Raises:
            KeyError: There is no such column.
        """
        column = self.column(name)
        return column.lent() if isinstance(column, MemoryColumn) else None

    def short(self, name: str, rows: np.ndarray | None) -> ArrayOrList | None:
        """Rows of a column as ``BFLOAT16`` where they are in memory; None if they are stored
        otherwise.

        Raises:
            KeyError: There is no such column.
        """
        column = self.column(name)
        return column.short(rows) if isinstance(column, ShortColumn) else None

    def prefixes(self, rows: np.ndarray | None) -> PrefixReader:
        """A reader of prefixes of these rows; None for all rows."""
        return PrefixReader(self, rows)

    def overlay(self, values: Mapping[str, Any]) -> ColumnStore:
        """A store with additional columns, or with columns that replace those of the same names.

        Args:
            values: Columns or arrays [n_rows, ...] by name, in the order of rows of this store. A
                replacement keeps the role of its column; a new column has the role DERIVED.

        Raises:
            ShapeError: A column has another number of rows.
        """
        added = {
            name: (
                self.role(name) if name in self else Role.DERIVED,
                x if is_column(x) else MemoryColumn(x),
            )
            for name, x in values.items()
        }
        return ColumnStore(self.n_rows, {**self._columns, **added})

    def filled(self, n_rows: int, values: Mapping[str, Any]) -> ColumnStore:
        """Some of the columns, in memory and for other rows.

        Args:
            n_rows: Rows of every column.
            values: Arrays or CSR rows [n_rows, ...] by name; columns that are not named are left
                out.
        """
        columns = [(name, role) for name, (role, _) in self._columns.items() if name in values]
        return ColumnStore(
            n_rows,
            {
                name: (role, filled_column(self.column(name), values[name]))
                for name, role in columns
            },
        )

    def joined(self, other: ColumnStore) -> ColumnStore:
        """The columns of this store and those of another one with the same rows, which replace
        columns of the same names.
        """
        return ColumnStore(self.n_rows, {**self._columns, **other._columns})

    def empty(self) -> ColumnStore:
        """The same columns without rows."""
        return ColumnStore(
            0,
            {name: (role, empty_column(column)) for name, (role, column) in self._columns.items()},
        )

    @property
    def nbytes(self) -> int:
        """Bytes of memory that all columns hold."""
        return sum(column.nbytes for _, column in self._columns.values())


class _Rows(NamedTuple):
    """Rows that were read.

    Attributes:
        rows: The values, or narrower ones.
        decode: Function from rows of these to the values; None for the values.
    """

    rows: Any
    decode: Callable[[Any], Any] | None = None


class PrefixReader:
    """Reads prefixes of some rows, as each layer of a batch needs a prefix of the rows of the layer
    before; the longest is read once and sliced for shorter ones.

    Rows that can be read where they are stored are copied only when ``read`` is called, and
    narrower ones are decoded only then.

    Args:
        store: Has the columns.
        rows: Row numbers, [n]; None for all rows, which are read again each time unless ``holds``.

    Attributes:
        holds: Whether what was read of all rows is held, for passes that follow each other.
    """

    def __init__(self, store: ColumnStore, rows: np.ndarray | None):
        self._store = store
        self._rows = rows
        self.holds = False
        self._lists: dict[str, RowList | None] = {}
        self._begun: dict[str, tuple[int, Read]] = {}
        self._read: dict[str, _Rows] = {}

    def read_begin(self, names: Iterable[str], n: int) -> None:
        """Begin to read the first n rows of columns, but for those that can be read where they are
        stored, and of which so many were read or begun before.

        Raises:
            KeyError: There is no such column.
        """
        for name in names:
            if self.listed(name, n) is None and self.short(name, 0) is None:
                self._begin(name, n)

    def read(self, name: str, n: int) -> Any:
        """The first n rows of a column, [n, ...]; KeyError if there is none."""
        rows = self._ended(name, n)
        if rows.decode is not None:
            rows = _Rows(rows.decode(rows.rows))
            # all rows are shared as they are stored
            if self._rows is not None:
                self._read[name] = rows
        return rows.rows if rows.rows.shape[0] == n else rows.rows[:n]

    def decoding(self, name: str, n: int) -> Callable[[int, int], np.ndarray] | None:
        """A function from two bounds of the first n rows of a column to the values between them,
        which it decodes; None if the values are stored, or were decoded; KeyError if there is no
        such column.
        """
        if not self._store.is_decoded(name):
            return None
        rows = self._ended(name, n)
        decode = rows.decode
        return None if decode is None else lambda begin, end: decode(rows.rows[begin:end])

    def _ended(self, name: str, n: int) -> _Rows:
        """The first n rows or more as a read returns them, which is begun if it was not."""
        rows = self._read.get(name)
        if rows is not None and rows.rows.shape[0] >= n:
            return rows
        self._begin(name, n)
        read = self._begun.pop(name)[1]
        if isinstance(read, Decoding) and self._store.is_decoded(name):
            rows = _Rows(read.read.end(), read.decode)
        else:
            rows = _Rows(read.end())
        if self._rows is None:
            self._store.every[name] = rows.rows
        if self.holds or self._rows is not None:
            self._read[name] = rows
        return rows

    def listed(self, name: str, n: int) -> RowList | None:
        """The first n rows of a column where they are stored; None if they must be copied, or were;
        KeyError if there is none.
        """
        if self._rows is None or self._reach(name) >= n:
            return None
        if name not in self._lists:
            self._lists[name] = self._store.listed(name, self._rows)
        rows = self._lists[name]
        return None if rows is None else rows.first(n)

    def lent(self, name: str, n: int) -> RowList | None:
        """The first n rows of a column where they are in memory, if they are all rows, for the
        first pass that asks; otherwise None; KeyError if there is none.
        """
        every = self._rows is None and n == self._store.n_rows
        return self._store.lent(name) if every else None

    def short(self, name: str, n: int) -> ArrayOrList | None:
        """The first n rows of a column as ``BFLOAT16`` where they are in memory; None if they are
        stored otherwise; KeyError if there is none.
        """
        rows = self._store.short(name, None if self._rows is None else self._rows[:n])
        return rows[:n] if isinstance(rows, np.ndarray) else rows

    def _begin(self, name: str, n: int) -> None:
        if self._reach(name) >= n:
            return
        # every started read is ended, even if it is too short
        if name in self._begun:
            self._begun.pop(name)[1].end()
        if self._rows is not None:
            read = self._store.column(name).read_begin(self._rows[:n])
        else:
            read = self._store.read_every(name)
        self._begun[name] = n, read

    def _reach(self, name: str) -> int:
        """How many rows were read or begun; -1 if none were."""
        if name in self._begun:
            return self._begun[name][0]
        return self._read[name].rows.shape[0] if name in self._read else -1
