"""Checksums of columns by blocks of rows, so that damage is located.

A block has two. Sums of pages are computed at the speed of memory, so that every read compares
them; ``info --verify`` compares BLAKE2b.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path

import numpy as np

BLOCK_BYTES = 1 << 24
PAGE_BYTES = 4096


def rows_per_block(shape: Sequence[int], dtype: np.dtype) -> int:
    """Rows of a block of about 16 MiB."""
    return max(1, BLOCK_BYTES // max(1, prod(shape[1:]) * dtype.itemsize))


def block_sum(values: np.ndarray) -> str:
    """The checksum of the rows of a block, [n, ...], C-contiguous."""
    return _sum(_bytes(values))


def file_sums(path: Path, begin: int, size: int, blocks: range) -> list[tuple[str, int]]:
    """Both checksums of some blocks of a file, which is read, because pages of a mapped file count
    as memory of the process.

    Args:
        path: The file.
        begin: Where the first block begins, in bytes.
        size: Bytes of a block.
        blocks: Their numbers.

    Raises:
        OSError: It cannot be read.
    """
    out = []
    with path.open("rb") as file:
        for b in blocks:
            file.seek(begin + b * size)
            data = file.read(size)
            out.append((_sum(data), page_sum(data)))
    return out


def page_sum(data: bytes | memoryview) -> int:
    """CRC-32 of the sums of the pages of a block.

    A changed bit, word, page or order of pages changes it; an exchange of two words of one page
    does not.
    """
    whole = len(data) // PAGE_BYTES * PAGE_BYTES
    pages = np.frombuffer(data, "<u8", whole // 8).reshape(-1, PAGE_BYTES // 8)
    return zlib.crc32(data[whole:], zlib.crc32(pages.sum(axis=1, dtype=np.uint64)))


class PageSums:
    """Compares blocks of a column with the sums of their pages when their rows are read first.

    Args:
        values: [n, ...], C-contiguous.
        rows: Rows of a block.
        sums: Of each block.
        damaged: Makes the error for a block that differs.
    """

    def __init__(
        self,
        values: np.ndarray,
        rows: int,
        sums: Sequence[int],
        damaged: Callable[[int], Exception],
    ):
        self._values = values
        self._rows = rows
        self._sums = sums
        self._damaged = damaged
        self._open = np.ones(len(sums), bool)

    def check(self, rows: np.ndarray | slice) -> None:
        """Compare the blocks of some rows that were not compared before.

        Args:
            rows: Row numbers, or a slice of adjacent rows.

        Raises:
            Exception: The one that ``damaged`` makes, for the first block that differs.
        """
        if not self._open.any():
            return
        if isinstance(rows, slice):
            blocks = np.arange(rows.start // self._rows, -(-rows.stop // self._rows))
        else:
            blocks = np.unique(rows // self._rows)
        for b in blocks[self._open[blocks]].tolist():
            if (
                page_sum(_bytes(self._values[b * self._rows : (b + 1) * self._rows]))
                != self._sums[b]
            ):
                raise self._damaged(b)
            self._open[b] = False


def share(n: int, rank: int, size: int) -> range:
    """The part of n items that a rank works on."""
    return range(n * rank // size, n * (rank + 1) // size)


def _sum(data: bytes | memoryview) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _bytes(a: np.ndarray) -> memoryview:
    return a.reshape(-1).view(np.uint8).data if a.size else memoryview(b"")
