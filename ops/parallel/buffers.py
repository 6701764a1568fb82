"""Large arrays: recycled memory, and elementwise passes that run in several threads.

The operating system provides fresh memory page by page, at the first touch of each page, which
costs more than the arithmetic of an elementwise pass. When the last view of a large array is gone,
its memory is therefore reused for the next array of about its size.
"""

from __future__ import annotations

import ctypes
import mmap
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf, prod
from threading import Lock
from typing import Any

import numpy as np

# least bytes of an array that is recycled, bytes of a cache line
LARGE = 1 << 20
LINE = 64
# elements a thread takes at a time; a fixed number, so that results do not depend on the number of
# threads
BLOCK = 1 << 17
# blocks that a smaller array is divided into, and least elements of each
FEW_BLOCKS = 8
LEAST_BLOCK = 1 << 15
# seconds that an elementwise pass takes for each number on one thread, as measured: it reads two
# and writes one
PER_NUMBER = 3e-10
# memory in use and free ranges may be this much more than the most that was in use at once: with
# less, ranges go to the system that the next step needs again
SLACK = 1.1
# a free range serves an array of at least this part of its size: small arrays that stay would leave
# too little of large ranges
LEAST_PART = 8


class _Range:
    """Bytes begin ... end of a block of memory."""

    __slots__ = ("begin", "block", "end")

    def __init__(self, block: np.ndarray, begin: int, end: int):
        self.block = block
        self.begin = begin
        self.end = end

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.end - self.begin

    @property
    def whole(self) -> bool:
        """Whether it is all of its block."""
        return self.size == len(self.block)

    def joins(self, other: _Range) -> bool:
        """Whether both are one range of a block."""
        return self.block is other.block and (self.end == other.begin or other.end == self.begin)


class _Lease:
    """Owns a range of memory until the array made from it, and every view of that, are gone."""

    __slots__ = ("__array_interface__", "_range", "_store")

    def __init__(self, store: Store, part: _Range):
        self._store = store
        self._range = part
        self.__array_interface__ = part.block[part.begin : part.end].__array_interface__

    def __del__(self) -> None:
        # the garbage collector calls it at any moment and in any thread: one atomic step
        self._store.returned.append(self._range)


class Store:
    """Ranges of memory that are free, oldest first, and how much is in use.

    An array takes the smallest free range that it fits into, and leaves the rest of it free. Ranges
    of a block that are free side by side are one. So the steps of a training, whose arrays have
    other sizes in forward than in backward, use the same blocks.
    """

    def __init__(self) -> None:
        self.returned: deque[_Range] = deque()
        self._free: list[_Range] = []
        self._lock = Lock()
        self._unused = self._used = self._most = 0

    def take(self, size: int) -> np.ndarray:
        """An array of ``size`` bytes; its memory returns here when its last view is gone."""
        # in steps of an eighth, so that arrays of nearly the same size share ranges
        step = min(1 << max(size.bit_length() - 4, 12), LARGE)
        room = -(-size // step) * step
        with self._lock:
            self._collect()
            part = self._cut(room) or _Range(_block(room), 0, room)
            self._used += room
            self._most = max(self._most, self._used)
            self._shrink(SLACK * self._most)
        return np.asarray(_Lease(self, part))[:size]

    def release(self) -> None:
        """Return free blocks to the system; ranges are kept again as if none had been in use
        before.
        """
        with self._lock:
            self._collect()
            self._shrink(0)
            self._most = self._used

    def _cut(self, room: int) -> _Range | None:
        """``room`` bytes of the smallest free range that fits, of equal ones the newest; None if
        none does.
        """
        fitting = [p for p in self._free if room <= p.size <= LEAST_PART * room]
        if not fitting:
            return None
        best = min(reversed(fitting), key=lambda p: p.size)
        part = _Range(best.block, best.begin, best.begin + room)
        best.begin += room
        if not best.size:
            self._free.remove(best)
        self._unused -= room
        return part

    def _shrink(self, limit: float) -> None:
        """Return free blocks to the system, oldest first, as long as there is more than a limit."""
        for part in [p for p in self._free if p.whole]:
            if self._used + self._unused <= limit:
                break
            self._free.remove(part)
            self._unused -= part.size

    def _collect(self) -> None:
        while self.returned:
            part = self.returned.popleft()
            self._used -= part.size
            self._unused += part.size
            for other in [p for p in self._free if p.joins(part)]:
                self._free.remove(other)
                part = _Range(part.block, min(part.begin, other.begin), max(part.end, other.end))
            self._free.append(part)


def _block(size: int) -> np.ndarray:
    """Fresh bytes in pages of their own, which return to the system when the array is gone."""
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)
    except OSError as error:
        raise MemoryError(f"{size} bytes: {error}") from None
    # as NumPy's own arrays are; some systems have none
    with suppress(AttributeError, OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


_STORE = Store()


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of any content, as ``numpy.empty``; a large one is in recycled memory."""
    size = prod(shape) * np.dtype(dtype).itemsize
    return np.empty(shape, dtype) if size < LARGE else _STORE.take(size).view(dtype).reshape(shape)


def release() -> None:
    """Return the memory of arrays that are gone to the system, also of small ones where it can."""
    _STORE.release()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def full(shape: tuple[int, ...], value: float, dtype: Any) -> np.ndarray:
    """An array of one value, as ``numpy.full``; a large one is in recycled memory."""
    out = empty(shape, dtype)
    if out.nbytes < LARGE:
        out[...] = value
    else:
        flat = out.reshape(-1)
        by_blocks(lambda b, begin, end: flat[begin:end].fill(value), out.size, 1)
    return out


def taken(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows of an array, x[rows], on all threads; a large result begins with a cache line."""
    out = empty((len(rows), *x.shape[1:]), x.dtype)
    by_blocks(
        lambda b, begin, end: np.take(x, rows[begin:end], axis=0, out=out[begin:end], mode="clip"),
        len(rows),
        prod(x.shape[1:]),
    )
    return out


def by_blocks(
    work: Callable[[int, int, int], object],
    n: int,
    width: int,
    per_number: float = PER_NUMBER,
    least: int = 1,
) -> int:
    """Call work(number, first row, end) for blocks of n rows on all threads; returns their number.

    Args:
        work: What is called.
        n: Number of rows.
        width: Numbers of each.
        per_number: Seconds that a number takes on one thread, roughly.
        least: As for ``row_blocks``.
    """
    blocks, step = row_blocks(n, width, least)
    if blocks == 1:
        work(0, 0, n)
    else:
        run_parts(
            lambda b: work(b, b * step, min(n, (b + 1) * step)),
            blocks,
            n * max(1, width) * per_number,
        )
    return blocks


def run_parts(work: Callable[[int], object], n: int, seconds: float = inf) -> None:
    """Call work(0) ... work(n - 1), each once, on all threads; ``seconds`` is what all take on one
    thread, roughly.
    """
    if n <= 1:
        # numba takes longer to import than many programs to run
        for b in range(n):
            work(b)
        return
    from .pool import run_blocks

    run_blocks(work, n, seconds)


def row_blocks(n: int, width: int, least: int = 1) -> tuple[int, int]:
    """Number of blocks and rows of each (the last may have fewer) for n rows of a width, about
    ``least`` rows or more in each.
    """
    size = n * max(1, width)
    # some blocks also of smaller arrays, and equally long ones: threads begin at different times
    blocks = max(-(-n // max(1, BLOCK // max(1, width))), min(FEW_BLOCKS, size // LEAST_BLOCK, n))
    blocks = min(blocks, max(1, n // least))
    step = -(-n // max(1, blocks))
    return -(-n // max(1, step)), max(1, step)


def rowwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a function by blocks of rows in several threads.

    Each row of its result must depend on the same row of its arrays only.
    """

    def threaded(*arrays: Any, **static: Any) -> Any:
        if (
            min(np.ndim(a) for a in arrays) == 0
            or max(a.nbytes for a in arrays) < LARGE
            or len({len(a) for a in arrays}) > 1
        ):
            return function(*arrays, **static)
        n = len(arrays[0])
        form = function(*(a[:0] for a in arrays), **static)
        out = empty((n, *form.shape[1:]), form.dtype)

        def work(b: int, begin: int, end: int) -> None:
            out[begin:end] = function(*(a[begin:end] for a in arrays), **static)

        by_blocks(work, n, max(a.size for a in arrays) // n)
        return out

    return threaded


def add(x: np.ndarray, y: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """x + y of equal shape and type; in ``out`` if given, which may be x or y."""
    if x.nbytes < LARGE:
        # without axes NumPy returns a number, to which nothing can be added in place
        return np.asarray(np.add(x, y, out=out))
    out = empty(x.shape, x.dtype) if out is None else out
    parts = [x, y, out]
    if all(a.flags.c_contiguous for a in parts):
        parts = [a.reshape(-1) for a in parts]
    by_blocks(
        lambda b, begin, end: np.add(
            parts[0][begin:end], parts[1][begin:end], out=parts[2][begin:end]
        ),
        len(parts[2]),
        parts[2][:1].size,
    )
    return out
