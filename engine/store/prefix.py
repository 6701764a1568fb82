"""Reads of prefixes: each layer of a batch needs a prefix of the rows of the layer before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...ops.rows.row_list import RowList
from .column import Read

Begin = Callable[[Iterable[str], np.ndarray | None], dict[str, Read]]
Listed = Callable[[str, np.ndarray], RowList | None]


class PrefixReader:
    """Reads prefixes of some rows; the longest is read once and sliced for shorter ones.

    Rows that can be read where they are stored are copied only when ``read`` is called.

    Args:
        read_begin, listed: ``ColumnStore.read_begin`` and ``ColumnStore.listed`` of the store.
        rows: Row numbers, [n]; None for all rows, which are read again each time.
    """

    def __init__(self, read_begin: Begin, listed: Listed, rows: np.ndarray | None):
        self._store_begin = read_begin
        self._store_listed = listed
        self._rows = rows
        self._lists: dict[str, RowList | None] = {}
        self._begun: dict[str, tuple[int, Read]] = {}
        self._read: dict[str, Any] = {}

    def read_begin(self, names: Iterable[str], n: int) -> None:
        """Begin to read the first n rows of columns, unless so many were read or begun before.

        Raises:
            KeyError: There is no such column.
        """
        self._begin([name for name in dict.fromkeys(names) if self.listed(name, n) is None], n)

    def _begin(self, names: Iterable[str], n: int) -> None:
        wanted = [name for name in names if self._reach(name) < n]
        for name in wanted:
            # every started read is ended, even if it is too short
            if name in self._begun:
                self._begun.pop(name)[1].end()
        if wanted:
            reads = self._store_begin(wanted, None if self._rows is None else self._rows[:n])
            self._begun.update((name, (n, read)) for name, read in reads.items())

    def read(self, name: str, n: int) -> Any:
        """The first n rows of a column, [n, ...]; KeyError if there is none."""
        values = self._read.get(name)
        if values is None or values.shape[0] < n:
            self._begin((name,), n)
            values = self._begun.pop(name)[1].end()
            if self._rows is not None:
                self._read[name] = values
        return values if values.shape[0] == n else values[:n]

    def listed(self, name: str, n: int) -> RowList | None:
        """The first n rows of a column where they are stored; None if they must be copied, or were;
        KeyError if there is none.
        """
        if self._rows is None or self._reach(name) >= n:
            return None
        if name not in self._lists:
            self._lists[name] = self._store_listed(name, self._rows)
        rows = self._lists[name]
        return None if rows is None else rows.first(n)

    def _reach(self, name: str) -> int:
        """How many rows were read or begun; -1 if none were."""
        if name in self._begun:
            return self._begun[name][0]
        return self._read[name].shape[0] if name in self._read else -1
