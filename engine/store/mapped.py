"""Columns in a memory-mapped file: the operating system reads the rows that are used.

Rows are read in ascending order, so that each page is read once and adjacent rows in one run, and
then put into the order asked for. Threads of their own read the parts of a list of rows at the
same time, while the engine computes: a page that is not in memory stops only the thread that
reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.binding import unbind
from graphtheta.base.lazy_array import LazyArray
from graphtheta.base.npy import map_npy

from .column import Read, Ready

# reads that a disk is given at the same time
READERS = 4
# bytes that a thread reads at a time
_PART = 1 << 20


class Sums(Protocol):
    """Checksums of a column."""

    def check(self, rows: np.ndarray | slice) -> None:
        """Compare the bytes of rows that were not compared before; any thread calls it.

        Args:
            rows: Row numbers, or a slice of adjacent rows.

        Raises:
            FormatError: They differ.
        """


class MappedColumn(LazyArray):
    """The rows of a ``.npy`` file, mapped into memory. It is an array, too, and a column.

    Args:
        path: A file that ``numpy.save`` wrote: [n_rows, ...] numbers in C order. Every worker opens
            it. It must not be changed while it is in use.
        sums_of: Makes of the mapped values an object that compares their bytes with checksums; none
            if None.

    Raises:
        FormatError: The file cannot be read, or holds something else.
    """

    sparse = False

    @checked
    def __init__(self, path: str | Path, sums_of: Callable[[np.ndarray], Sums] | None = None):
        self.path = str(path)
        # a plain array that keeps the mapping open
        self._values = map_npy(path)
        super().__init__(self._values.shape, self._values.dtype)
        self._sums_of = sums_of
        self._sums = None if sums_of is None else sums_of(self._values)

    def __reduce__(self) -> tuple[Any, ...]:
        # a copy maps the file again
        return MappedColumn, (self.path, self._sums_of)

    def read(self, rows: np.ndarray) -> np.ndarray:
        self._check(rows)
        return self._values[rows]

    def read_range(self, begin: int, end: int) -> np.ndarray:
        self._check(slice(begin, end))
        return self._values[begin:end]

    def read_begin(self, rows: np.ndarray | None) -> Read:
        if rows is not None:
            return _RowRead(self._values, rows, self._sums)
        self._check(slice(0, len(self._values)))
        return Ready(self._values)

    def _check(self, rows: np.ndarray | slice) -> None:
        if self._sums is not None:
            self._sums.check(rows)


class _RowRead:
    """A read of rows by threads that wait for the disk.

    Raises:
        IndexError: There is no such row.
    """

    def __init__(self, values: np.ndarray, rows: np.ndarray, sums: Sums | None):
        # ops take longer to import than a graph to open
        from ...ops.parallel.buffers import empty

        self._values = values
        self._sums = sums
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        if len(rows) and not 0 <= ascending[0] <= ascending[-1] < len(values):
            raise IndexError(
                f"rows {int(ascending[0])} to {int(ascending[-1])} were asked for, of a column of"
                f" {len(values)} rows"
            )
        self._out = empty((len(rows), *values.shape[1:]), values.dtype)
        step = max(1, _PART // max(1, prod(values.shape[1:]) * values.dtype.itemsize))
        self._parts: list[Future[None]] = [
            _readers().submit(self._read, order[a : a + step], ascending[a : a + step])
            for a in range(0, len(rows), step)
        ]

    def end(self) -> np.ndarray:
        for part in self._parts:
            part.result()
        return self._out

    def _read(self, at: np.ndarray, rows: np.ndarray) -> None:
        """Write rows, ascending, to their places in the result."""
        if self._sums is not None:
            self._sums.check(rows)
        first = int(rows[0])
        end = int(rows[-1]) + 1
        adjacent = end - first == len(rows) and bool((rows[1:] > rows[:-1]).all())
        # both release the interpreter lock; checked indices need no second check
        self._out[at] = (
            self._values[first:end]
            if adjacent
            else np.take(self._values, rows, axis=0, mode="clip")
        )


@cache
def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(READERS, "graphtheta-read", initializer=unbind)
