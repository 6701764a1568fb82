"""Rows that wait on disk until all workers have read theirs, because row numbers are known only
then.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from graphtheta.base.atomic import create, remove_new
from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import FormatError

T = TypeVar("T")


class Spool:
    """Blocks of rows of one worker in a file, in the order of the input.

    Args:
        path: The file.

    Attributes:
        at: Position in the order of the input, of each block.
        counts: Rows of each block.
    """

    def __init__(self, path: Path):
        self._path = path
        self._file: Any = None
        self._writer: Any = None
        self.at: list[tuple[int, int]] = []
        self.counts: list[int] = []

    def add(self, at: tuple[int, int], table: pa.Table) -> None:
        """Add a block.

        Raises:
            FormatError: The file cannot be written.
        """
        try:
            if self._writer is None:
                self._file = create(self._path)
                self._writer = pa.ipc.new_stream(self._file, table.schema)
            for batch in table.combine_chunks().to_batches():
                self._writer.write_batch(batch)
        except OSError as error:
            raise FormatError(
                f"{self._path}: cannot be written:"
                f" {os.strerror(error.errno) if error.errno else error}; check the free space"
            ) from None
        self.at.append(at)
        self.counts.append(table.num_rows)

    def close(self) -> None:
        """End the file; nothing is added any more."""
        if self._writer is not None:
            self._writer.close()
            self._file.close()

    def clear(self) -> None:
        """Begin again."""
        self.close()
        if self._writer is not None:
            remove_new(self._path)
        self._writer = None
        self.at = []
        self.counts = []

    def blocks(self) -> Iterator[pa.Table]:
        """The blocks, one after another."""
        if not self.counts:
            return
        with pa.OSFile(os.fsencode(self._path)) as file:
            stream = pa.ipc.open_stream(file)
            for n in self.counts:
                batches = [stream.read_next_batch()]
                while sum(batch.num_rows for batch in batches) < n:
                    batches.append(stream.read_next_batch())
                yield pa.Table.from_batches(batches)


def begins(comm: Comm, at: list[tuple[int, int]], counts: Any) -> tuple[list[int], int]:
    """First row of each block of this worker in the order of the input, and the number of all rows.

    Args:
        comm: The workers.
        at: Positions of the blocks of this worker.
        counts: Rows of each.

    Collective: all ranks of comm.
    """
    positions = np.array(
        [(*where, n) for where, n in zip(at, counts, strict=True)], np.int64
    ).reshape(-1, 3)
    parts = comm.all_gather(positions)
    every = np.concatenate(parts)
    order = np.lexsort((every[:, 1], every[:, 0]))
    ends = np.empty(len(every), np.int64)
    ends[order] = np.cumsum(every[order, 2])
    first = sum(map(len, parts[: comm.rank]))
    mine = slice(first, first + len(positions))
    return (ends[mine] - every[mine, 2]).tolist(), int(every[:, 2].sum())


def in_step(comm: Comm, items: Iterable[T]) -> Iterator[T | None]:
    """Items of each worker, one at a time on all; None on workers that have no more.

    Raises:
        GraphThetaError: An item cannot be made; on all ranks together.

    Collective: all ranks of comm.
    """
    source = iter(items)
    while True:
        with comm.agreed():
            item = next(source, None)
        if not comm.all_max(np.array([item is not None]))[0]:
            return
        yield item
