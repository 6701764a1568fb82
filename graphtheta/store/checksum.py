"""Checksums of columns by blocks of rows, so that damage is located."""
from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np

BLOCK_BYTES = 1 << 24


def rows_per_block(shape: Sequence[int], dtype: np.dtype) -> int:
    """Rows of a block of about 16 MiB."""
    return max(1, BLOCK_BYTES // max(1, prod(shape[1:]) * dtype.itemsize))


def block_sums(values: np.ndarray, rows: int, blocks: range) -> list[str]:
    """The checksums of some blocks.

    Args:
        values: [n, ...], C-contiguous.
        rows: Rows of a block.
        blocks: Their numbers.
    """
    return [_sum(_bytes(values[b * rows: (b + 1) * rows])) for b in blocks]


def file_sums(path: Path, begin: int, size: int, blocks: range) -> list[str]:
    """The checksums of some blocks of a file, which is read, because pages of a mapped file count as memory of the process.

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
            out.append(_sum(file.read(size)))
    return out


def share(n: int, rank: int, size: int) -> range:
    """The part of n items that a rank works on."""
    return range(n * rank // size, n * (rank + 1) // size)


def _sum(data: bytes | memoryview) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _bytes(a: np.ndarray) -> memoryview:
    return a.reshape(-1).view(np.uint8).data if a.size else memoryview(b"")
