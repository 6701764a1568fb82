"""Columns in a memory-mapped file: the operating system reads the rows that are used."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.errors import FormatError

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
        try:
            values = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise FormatError(f"{path}: cannot be mapped as a column ({error}); write it with numpy.save") from error
        kind = getattr(values, "dtype", np.dtype(object)).kind
        if not isinstance(values, np.ndarray) or values.ndim < 1 or kind not in "fiub" or not values.flags.c_contiguous:
            raise FormatError(f"{path}: cannot be mapped as a column; expected an array of numbers with one axis or more, in C order; "
                              "write it with numpy.save(path, numpy.ascontiguousarray(values))")
        # a plain array that keeps the mapping open
        self._values = np.asarray(values)
        self.shape: tuple[int, ...] = values.shape
        self.dtype: np.dtype = values.dtype
        self.sparse = False
        self.nbytes = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # a copy maps the file again
        return MappedColumn, (self.path,)

    def read_begin(self, rows: np.ndarray | None) -> Read:
        return Ready(self._values if rows is None else self._values[rows])
