"""Columns in a memory-mapped file: the operating system reads the rows that are used."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.npy import map_npy

from .column import Read, Ready


class MappedColumn:
    """The rows of a ``.npy`` file, mapped into memory.

    Args:
        path: A file that ``numpy.save`` wrote: [n_rows, ...] numbers in C order. Every worker opens it.

    Raises:
        FormatError: The file cannot be read, or holds something else.
    """

    def __init__(self, path: str | Path):
        self.path = str(path)
        values = self._values = map_npy(path)
        self.shape: tuple[int, ...] = values.shape
        self.dtype: np.dtype = values.dtype
        self.sparse = False
        self.nbytes = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # a copy maps the file again
        return MappedColumn, (self.path,)

    def read_begin(self, rows: np.ndarray | None) -> Read:
        return Ready(self._values if rows is None else self._values[rows])
