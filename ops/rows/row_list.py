"""Row lists: rows of an array that are read where they are, and not copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .by_number import take_rows


@dataclass(frozen=True, eq=False)
class RowList:
    """Row i is ``array[rows[i]]``; indexing copies rows as for an array.

    Attributes:
        array: [m, ...], in C order; it must not change.
        rows: [n] int64, each at least 0 and below m.
    """

    array: np.ndarray
    rows: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.rows), *self.array.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def __getitem__(self, key: Any) -> np.ndarray:
        copied: np.ndarray = take_rows(self.array, self.rows[key])
        return copied

    def first(self, n: int) -> RowList:
        """The first n rows."""
        return self if n == len(self.rows) else RowList(self.array, self.rows[:n])

    def at(self, rows: np.ndarray) -> RowList:
        """Row i is row ``rows[i]`` of this list."""
        return RowList(self.array, self.rows[rows])


# rows [n, ...], copied together or listed
ArrayOrList = np.ndarray | RowList


def located(x: ArrayOrList, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An array, and the numbers of its rows that are ``rows`` of x."""
    return (x.array, x.rows[rows]) if isinstance(x, RowList) else (x, rows)
