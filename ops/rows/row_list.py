"""Rows of an array by number: listed, to be read where they are, or copied."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from graphtheta.base.sparse import is_sparse
from graphtheta.base.typed_rows import TypedRows

from ..parallel.buffers import empty

# bytes a thread copies at a time
_COPY = 1 << 20


def take_rows(x: Any, rows: np.ndarray, out: np.ndarray | None = None) -> Any:
    """Rows of an array or of scipy CSR rows, by number; wide rows are copied on all threads.

    Args:
        x: [n, ...].
        rows: [m] int64, each at least 0 and below n.
        out: [m, ...], contiguous, for the rows of an array; None for a new one.

    Returns:
        [m, ...].
    """
    if isinstance(x, TypedRows):
        return x.taken(rows, take_rows)
    if is_sparse(x) or not x.flags.c_contiguous or prod(x.shape[1:]) <= 1:
        return x[rows] if out is None else np.take(x, rows, axis=0, out=out, mode="clip")
    width = prod(x.shape[1:]) * x.dtype.itemsize
    # numba takes longer to import than many programs to run
    from ..kernels.batch import take
    from ..parallel.pool import run_blocks

    out = empty((len(rows), *x.shape[1:]), x.dtype) if out is None else out
    source, to = (a.reshape(len(a), prod(x.shape[1:])).view(np.uint8) for a in (x, out))
    # one kernel for arrays that may be changed and those that must not
    source.flags.writeable = False
    step = max(1, _COPY // width)
    run_blocks(
        lambda b: take(source, rows[b * step : (b + 1) * step], to[b * step : (b + 1) * step]),
        -(-len(rows) // step),
    )
    return out


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
