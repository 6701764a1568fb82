"""Rows that are computed a block at a time whenever a product reads them, and need no memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..parallel.buffers import empty
from .row_list import ArrayOrList

# bytes of the rows that are computed together, which stay in the cache until they are multiplied;
# their number is a multiple of BLOCK, so that sums over rows are cut as those of an array
NEAR, BLOCK = 1 << 20, 128


@dataclass(frozen=True, eq=False)
class ComputedRows:
    """Rows as an array that a function fills; slices are computed.

    Attributes:
        fill: Called with the first row, the end, and an array of these rows, [end - first, d],
            which it fills, in the thread that calls.
        stored: Returns all rows, if they have been stored since then, perhaps in another type:
            values that are rounded are in full while somebody reads them so.
        shape: [n, d].
        dtype: Of the rows.
    """

    fill: Callable[[int, int, np.ndarray], None]
    stored: Callable[[], ArrayOrList | None]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, rows: slice) -> np.ndarray:
        stored = self._in_memory()
        if stored is not None:
            return stored[rows]
        begin, end, _ = rows.indices(self.shape[0])
        out = empty((end - begin, self.shape[1]), self.dtype)
        self.fill(begin, end, out)
        return out

    def _in_memory(self) -> ArrayOrList | None:
        """All rows, if they have been stored in this type."""
        stored = self.stored()
        return stored if stored is not None and stored.dtype == self.dtype else None

    def blocks(self, begin: int, end: int) -> Iterator[tuple[int, int, np.ndarray]]:
        """First row, end and rows of each block between two bounds; the next block overwrites the
        array.
        """
        stored = self._in_memory()
        if stored is not None:
            yield begin, end, stored[begin:end]
            return
        bytes_of_row = max(1, self.shape[1] * self.dtype.itemsize)
        step = BLOCK * max(1, NEAR // (BLOCK * bytes_of_row))
        block = np.empty((min(step, end - begin), self.shape[1]), self.dtype)
        for first in range(begin, end, step):
            last = min(first + step, end)
            self.fill(first, last, block[: last - first])
            yield first, last, block[: last - first]
