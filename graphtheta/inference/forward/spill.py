"""Values of a worker's rows in files, for arrays that do not fit into its memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from mmap import ACCESS_READ, ACCESS_WRITE, mmap
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Protocol

import numpy as np

from graphtheta.base.atomic import create, remove_temporary, reopen, temporary_folder
from graphtheta.errors import FormatError
from graphtheta.ops.parallel.buffers import empty
from graphtheta.ops.rows.row_list import take_rows

# bytes that are copied at a time, so that few pages of a file are mapped at once
COPIED = 1 << 25


class RowValues(Protocol):
    """Values of rows by name, such as those of layers."""

    def __contains__(self, name: str) -> bool:
        """Whether there is such an array."""

    def create(self, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        """Make an array."""

    def write(self, name: str, rows: np.ndarray, values: np.ndarray) -> None:
        """Set some rows, [n] int64, to values [n, ...]."""

    def read(self, name: str, rows: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Some rows, [n] int64, not to be changed; a copy in ``out``, [n, ...], contiguous, if it
        is given.
        """


class ArrayFiles:
    """Arrays in files of a folder.

    A file is mapped only while it is read or written, so that its pages do not stay in the memory
    of the process.

    Args:
        folder: The folder.
        arrays: Shape and type of the arrays that it has already.
        remedy: What helps if there is no space, for messages.
    """

    def __init__(
        self,
        folder: Path,
        arrays: Mapping[str, tuple[tuple[int, ...], np.dtype]] | None = None,
        remedy: str = "choose a folder on a larger disk",
    ):
        self._folder = folder
        self._arrays = dict(arrays or {})
        self._remedy = remedy

    def _about(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and type of an array.

        Raises:
            FormatError: The folder has no such array.
        """
        if name not in self._arrays:
            raise FormatError(
                f"{self._folder}: the array '{name}' is missing; compute the values of layers again"
            )
        return self._arrays[name]

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in self._arrays.values())

    def create(self, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        """Make an array of zeros. Its space is reserved, so that no later write runs out of it.

        Raises:
            FormatError: There is no space for it.
        """
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        try:
            with create(self._folder / name) as file:
                if size:
                    os.posix_fallocate(file.fileno(), 0, size)
        except OSError as e:
            raise FormatError(
                f"{self._folder}: values of a layer need {size / 2**30:.2f} GiB beside the"
                f" {self.nbytes / 2**30:.2f} GiB of others: {e.strerror or e}; {self._remedy}"
            ) from None
        self._arrays[name] = shape, np.dtype(dtype)

    def write(self, name: str, rows: np.ndarray, values: np.ndarray) -> None:
        """Set some rows, [n] int64, to values [n, ...]."""
        shape, dtype = self._about(name)
        step = self._step(name)
        first = int(rows[0]) if len(rows) else 0
        if not np.array_equal(rows, np.arange(first, first + len(rows))):
            for a in range(0, len(rows), step):
                self._mapped(name, writes=True)[rows[a : a + step]] = values[a : a + step]
            return
        # the system keeps what is written as a whole in large pages, which are mapped in a quarter
        # of the time
        with reopen(f"{self._folder}/{name}") as file:
            file.seek(first * prod(shape[1:]) * dtype.itemsize)
            for a in range(0, len(rows), step):
                file.write(
                    np.ascontiguousarray(values[a : a + step], dtype)
                    .reshape(-1)
                    .view(np.uint8)
                    .data
                )

    def read(self, name: str, rows: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """A copy of some rows, [n] int64; in ``out``, [n, ...], contiguous, if it is given."""
        shape, dtype = self._about(name)
        step = self._step(name)
        out = empty((len(rows), *shape[1:]), dtype) if out is None else out
        for a in range(0, len(rows), step):
            self._copy(name, rows[a : a + step], out[a : a + step])
        return out

    def _copy(self, name: str, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy some rows."""
        take_rows(self._mapped(name), rows, out)

    def _step(self, name: str) -> int:
        """Rows of an array that are copied at a time."""
        shape, dtype = self._about(name)
        return max(1, COPIED // max(1, prod(shape[1:]) * dtype.itemsize))

    def _mapped(self, name: str, writes: bool = False) -> np.ndarray:
        """An array, mapped until its last view is gone."""
        shape, dtype = self._about(name)
        if not prod(shape):
            return np.empty(shape, dtype)
        # np.memmap takes twice as long, which a read of a few rows notices
        path = f"{self._folder}/{name}"
        with reopen(path) if writes else open(path, "rb") as file:
            pages = mmap(file.fileno(), 0, access=ACCESS_WRITE if writes else ACCESS_READ)
        return np.frombuffer(pages, dtype).reshape(shape)


class Spill(ArrayFiles):
    """Arrays in files of a temporary folder; a context manager that removes them.

    Args:
        folder: The folder is made inside this one; empty for that of the system (``TMPDIR``).

    Raises:
        FormatError: The folder cannot be made.
    """

    def __init__(self, folder: str | Path = ""):
        try:
            path = temporary_folder(folder)
        except OSError as e:
            raise FormatError(
                f"{folder or gettempdir()}: values of layers cannot be written: {e.strerror or e};"
                " make the folder writable, or set TMPDIR to another one"
            ) from None
        super().__init__(path, remedy="set TMPDIR to a folder on a larger disk")

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, *_: object) -> None:
        remove_temporary(self._folder)
