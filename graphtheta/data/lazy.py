"""Arrays that are computed when they are read, so that changes of a graph in files make no array as long as its edges."""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

# numbers that are read at a time to find those that are kept
CHUNK = 1 << 20

Read = Callable[[np.ndarray], np.ndarray]


class LazyArray(NDArrayOperatorsMixin, ABC):
    """An array whose rows are computed. NumPy's functions and operators take it, and read all of it.

    Args:
        shape: Of the whole array.
        dtype: Of its values.
        in_files: Whether its values come from mapped files.
    """

    nbytes = 0

    def __init__(self, shape: tuple[int, ...], dtype: Any, in_files: bool = True):
        self.shape, self.dtype, self.ndim, self.in_files = shape, np.dtype(dtype), len(shape), in_files

    @abstractmethod
    def read(self, rows: np.ndarray) -> np.ndarray:
        """Some rows, [n, ...]; rows are integers from 0, [n] int64."""

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Rows by a slice, by numbers, or by a mask; one row by a number."""
        if isinstance(rows, slice):
            return self.read(np.arange(*rows.indices(len(self))))
        at = np.asarray(rows)
        at = np.flatnonzero(at) if at.dtype.kind == "b" else at
        found = self.read(at.reshape(-1).astype(np.int64, copy=False))
        return found.reshape(at.shape + self.shape[1:])

    def max(self, initial: Any) -> Any:
        """The largest of all values and ``initial``, read a chunk at a time."""
        return max([initial, *(self[a: a + CHUNK].max(initial=initial) for a in range(0, len(self), CHUNK))])

    def tolist(self) -> list[Any]:
        found: list[Any] = self[:].tolist()
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*(np.asarray(x) if isinstance(x, LazyArray) else x for x in inputs), **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return np.asarray, (self[:],)


class Extended(LazyArray):
    """An array, and rows behind it that are computed.

    Args:
        first: The first rows, [n, ...].
        more: Number of rows behind it.
        read_more: From their numbers, from 0, to these rows.
        dtype: Of the values; by default that of ``first``.
    """

    def __init__(self, first: Any, more: int, read_more: Read, dtype: Any = None):
        super().__init__((len(first) + more, *first.shape[1:]), first.dtype if dtype is None else dtype)
        self._first, self._read_more = first, read_more

    def __getitem__(self, rows: Any) -> np.ndarray:
        # a chunk of the first rows is not copied
        if isinstance(rows, slice) and rows.indices(len(self))[1] <= len(self._first):
            return np.asarray(self._first[rows])
        return super().__getitem__(rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        more = len(self) - len(self._first)
        out = np.concatenate((self._first, self._read_more(np.arange(more))), dtype=self.dtype, casting="unsafe")
        return out if dtype is None else out.astype(dtype, copy=False)

    def read(self, rows: np.ndarray) -> np.ndarray:
        out, behind = np.empty((len(rows), *self.shape[1:]), self.dtype), rows >= len(self._first)
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

    def __init__(self, n: int, left_out: np.ndarray):
        super().__init__((n - len(left_out),), np.int64, False)
        self._before = left_out - np.arange(len(left_out))

    def read(self, rows: np.ndarray) -> np.ndarray:
        return rows + np.searchsorted(self._before, rows, side="right")


class Kept(LazyArray):
    """The numbers 0..n-1 for which a rule is true, ascending. The rule is evaluated whenever they are read.

    Args:
        n: Number of all.
        rule: From the bounds of a range of numbers to a mask, [end - begin] bool.
    """

    def __init__(self, n: int, rule: Callable[[int, int], np.ndarray]):
        counts = [np.count_nonzero(rule(a, min(a + CHUNK, n))) for a in range(0, n, CHUNK)]
        self._ends, self._n, self._rule = np.cumsum(counts, dtype=np.int64), n, rule
        super().__init__((int(sum(counts)),), np.int64, False)

    def read(self, rows: np.ndarray) -> np.ndarray:
        out, chunk = np.empty(len(rows), np.int64), np.searchsorted(self._ends, rows, side="right")
        for c in np.unique(chunk).tolist():
            here, begin = chunk == c, c * CHUNK
            before = self._ends[c - 1] if c else 0
            out[here] = begin + np.flatnonzero(self._rule(begin, min(begin + CHUNK, self._n)))[rows[here] - before]
        return out


class Selected(LazyArray):
    """Rows of an array by number.

    Args:
        x: The array, [n, ...].
        rows: Numbers of the rows, [m].
    """

    def __init__(self, x: Any, rows: LazyArray):
        super().__init__((len(rows), *x.shape[1:]), x.dtype)
        self._x, self._rows = x, rows

    def read(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self._x[self._rows.read(rows)])
