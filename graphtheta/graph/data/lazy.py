"""Arrays that are computed when they are read, so that changes of a graph in files make no array as
long as its edges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphtheta.base.lazy_array import CHUNK, LazyArray

Read = Callable[[np.ndarray], np.ndarray]


class Extended(LazyArray):
    """An array, and rows behind it that are computed.

    Args:
        first: The first rows, [n, ...].
        more: Number of rows behind it.
        read_more: From their numbers, from 0, to these rows.
        dtype: Of the values; by default that of ``first``.
    """

    def __init__(self, first: Any, more: int, read_more: Read, dtype: Any = None):
        super().__init__(
            (len(first) + more, *first.shape[1:]), first.dtype if dtype is None else dtype
        )
        self._first = first
        self._read_more = read_more

    def read_range(self, begin: int, end: int) -> np.ndarray:
        n = len(self._first)
        first = np.asarray(self._first[begin:end])
        if end <= n:
            # a chunk of the first rows is not copied
            return first.astype(self.dtype, copy=False)
        more = self._read_more(np.arange(max(begin - n, 0), end - n))
        return np.concatenate((first, more), dtype=self.dtype, casting="unsafe")

    def read(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        behind = rows >= len(self._first)
        out[~behind] = self._first[rows[~behind]]
        if behind.any():
            out[behind] = self._read_more(rows[behind] - len(self._first))
        return out


class Without(LazyArray):
    """The numbers 0..n-1 without some.

    Args:
        n: Number of all.
        left_out: Those to leave out, ascending, [m] int64.
    """

    in_files = False

    def __init__(self, n: int, left_out: np.ndarray):
        super().__init__((n - len(left_out),), np.int64)
        self._before = left_out - np.arange(len(left_out))

    def read(self, rows: np.ndarray) -> np.ndarray:
        return rows + np.searchsorted(self._before, rows, side="right")


class MatchingNumbers(LazyArray):
    """The numbers 0..n-1 for which a rule is true, ascending. The rule is evaluated whenever they
    are read.

    Args:
        n: Number of all.
        rule: From the bounds of a range of numbers to a mask, [end - begin] bool.
    """

    in_files = False

    def __init__(self, n: int, rule: Callable[[int, int], np.ndarray]):
        counts = [np.count_nonzero(rule(a, min(a + CHUNK, n))) for a in range(0, n, CHUNK)]
        self._ends = np.cumsum(counts, dtype=np.int64)
        self._n = n
        self._rule = rule
        super().__init__((int(sum(counts)),), np.int64)

    def read(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty(len(rows), np.int64)
        chunk = np.searchsorted(self._ends, rows, side="right")
        for c in np.unique(chunk).tolist():
            here = chunk == c
            begin = c * CHUNK
            before = self._ends[c - 1] if c else 0
            out[here] = (
                begin
                + np.flatnonzero(self._rule(begin, min(begin + CHUNK, self._n)))[
                    rows[here] - before
                ]
            )
        return out


class Selected(LazyArray):
    """Rows of an array by number.

    Args:
        x: The array, [n, ...].
        rows: Numbers of the rows, [m].
    """

    def __init__(self, x: Any, rows: LazyArray):
        super().__init__((len(rows), *x.shape[1:]), x.dtype)
        self._x = x
        self._rows = rows

    def read(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self._x[self._rows.read(rows)])
