"""Arrays whose rows are read or computed when they are used: in every other respect arrays as NumPy
has them.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

# rows that are read at a time by what looks at all of them one after another
CHUNK = 1 << 20


class LazyArray(NDArrayOperatorsMixin, ABC):
    """A read-only array whose rows are read when they are used.

    It is indexed as NumPy's arrays are, and only the rows that an index names are read. NumPy's
    functions, operators and the methods of arrays take it, and read all of it.

    Args:
        shape: Of the whole array, at least one axis.
        dtype: Of its values.

    Attributes:
        nbytes: Bytes of memory that it holds.
        in_files: Whether its values come from mapped files.
    """

    in_files = True

    def __init__(self, shape: tuple[int, ...], dtype: Any):
        self.shape = shape
        self.dtype: np.dtype = np.dtype(dtype)

    @abstractmethod
    def read(self, rows: np.ndarray) -> np.ndarray:
        """Some rows, [m, ...]; rows are integers from 0, [m] int64."""

    def read_range(self, begin: int, end: int) -> np.ndarray:
        """Consecutive rows, [end - begin, ...]; perhaps a view."""
        return self.read(np.arange(begin, end))

    @property
    def nbytes(self) -> int:
        return 0

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __contains__(self, value: Any) -> bool:
        return value in np.asarray(self)

    def __iter__(self) -> Iterator[Any]:
        for begin in range(0, len(self), CHUNK):
            yield from self.read_range(begin, min(begin + CHUNK, len(self)))

    def __getitem__(self, key: Any) -> Any:
        """What NumPy gives for this index of the whole array.

        Raises:
            IndexError: There are no such rows or axes, or the key is no index.
        """
        entries = [_entry(part) for part in (key if isinstance(key, tuple) else (key,))]
        place = _place_of_rows(entries, self.ndim)
        if place is None:
            return self.read_range(0, len(self))[tuple(entries)]
        chosen = entries[place]
        if isinstance(chosen, slice):
            begin, end, step = chosen.indices(len(self))
            rows = (
                self.read_range(begin, max(begin, end))
                if step == 1
                else self.read(np.arange(begin, end, step))
            )
            entries[place] = slice(None)
            return rows[tuple(entries)]
        numbers, *others = self._numbers(chosen)
        rows = self.read(numbers.reshape(-1))
        if len(entries) == 1 and not others:
            # the empty index makes a number of an array without axes
            return rows.reshape(numbers.shape + self.shape[1:])[()]
        entries[place : place + 1] = [np.arange(numbers.size).reshape(numbers.shape), *others]
        return rows[tuple(entries)]

    def _numbers(self, chosen: Any) -> tuple[np.ndarray, ...]:
        """Row numbers from 0 of an integer, an array of integers, or a mask; a mask of more axes
        also gives numbers of these.
        """
        numbers = np.asarray(chosen)
        if numbers.dtype.kind == "b":
            if numbers.shape != self.shape[: numbers.ndim]:
                raise IndexError(
                    f"a mask of shape {numbers.shape} does not fit an array of shape {self.shape}"
                )
            return np.nonzero(numbers)
        n = len(self)
        wrong = (numbers < -n) | (numbers >= n)
        if wrong.any():
            raise IndexError(
                f"index {numbers[wrong].flat[0]} is out of bounds for axis 0 with size {n}"
            )
        return (np.where(numbers < 0, numbers + n, numbers).astype(np.int64, copy=False),)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise ValueError("assignment destination is read-only")

    def max(self, axis: Any = None, out: Any = None, **options: Any) -> Any:
        """As of NumPy's arrays; without an axis but with an ``initial`` value, a chunk is read at a
        time.
        """
        if axis is None and out is None and options.keys() == {"initial"}:
            chunks = (self[begin : begin + CHUNK] for begin in range(0, len(self), CHUNK))
            return max([options["initial"], *(chunk.max(**options) for chunk in chunks)])
        return np.asarray(self).max(axis, out, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        values = np.asarray(self).view()
        values.flags.writeable = False
        return getattr(values, name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self.read_range(0, len(self))
        return values.astype(self.dtype if dtype is None else dtype, copy=bool(copy))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(
            *(np.asarray(x) if isinstance(x, LazyArray) else x for x in inputs), **options
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        return np.asarray, (np.asarray(self),)


def _entry(part: Any) -> Any:
    """An entry of an index: None, Ellipsis, a slice, or an array of integers or of a mask."""
    if part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if isinstance(part, (bool, np.bool_)):
        return np.asarray(part)
    try:
        return operator.index(part)
    except TypeError:
        index = np.asarray(part)
    if not index.size and not isinstance(part, np.ndarray):
        index = index.astype(np.intp)
    if index.dtype.kind not in "iub":
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or"
            " boolean arrays are valid indices"
        )
    return index


def _axes(entry: Any) -> int:
    """How many axes of the array an entry of an index is for; the ellipsis counts as none."""
    if entry is None or entry is Ellipsis:
        return 0
    return entry.ndim if isinstance(entry, np.ndarray) and entry.dtype.kind == "b" else 1


def _place_of_rows(entries: list[Any], ndim: int) -> int | None:
    """Which entry of an index is for the first axis; None if all rows are meant."""
    for place, entry in enumerate(entries):
        if entry is Ellipsis and sum(map(_axes, entries)) < ndim:
            return None
        if _axes(entry):
            return place
    return None
