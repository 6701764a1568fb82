"""What a move puts into messages: the columns of some rows, in one message for each partner.

    message to rank q:   z of its rows | s of its rows | ...

A message has its columns one after another, wide types first, so that each is aligned. What a compiled loop reads must be
contiguous, and a column that travels alone is as it lands, over all partners; so are several columns from one partner. Only
several columns from several partners are copied once more, when all are there: that costs a fraction of reading them
along the edges, while a message for each column would cost a small batch more in latency than copying costs a large one.
"""
from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..ops import bulk
from ..ops.kernels.mail import pack, unpack
from .comm import Send

Columns = dict[str, np.ndarray]

_IN_ORDER = np.zeros(0, np.int64)


class Layout:
    """The columns of a move: their shapes and types, and where each begins in a row's share of a message.

    Attributes:
        columns: Trailing shape, type and first byte by name, wide types first.
        width: Bytes of a row.
        alone: Whether there is no more than one column to send.
    """

    def __init__(self, columns: Columns):
        self.columns: dict[str, tuple[tuple[int, ...], np.dtype, int]] = {}
        self.width = 0
        for name in sorted(columns, key=lambda n: (-columns[n].dtype.itemsize, n)):
            shape, dtype = columns[name].shape[1:], columns[name].dtype
            self.columns[name] = shape, dtype, self.width
            self.width += prod(shape) * dtype.itemsize
        self.alone = sum(prod(shape) > 0 for shape, _, _ in self.columns.values()) <= 1


class Mail:
    """The messages to or from all partners, in one piece of recycled memory.

    Args:
        layout: Of every message.
        ptr: Bounds of the rows of each partner, [size + 1].
        lent: A column to send in place: the only one of the layout, [rows, ...]. It must stay as it is until it is sent.
    """

    def __init__(self, layout: Layout, ptr: np.ndarray, lent: np.ndarray | None = None):
        self._layout, self._ptr = layout, ptr
        counts = np.diff(ptr)
        room = counts * layout.width
        # a column alone has no gaps; otherwise every message begins with a cache line
        room = room if layout.alone else -(-room // bulk.LINE) * bulk.LINE
        self._begin = np.cumsum(room) - room
        self._counts = counts
        size = int(room.sum())
        self._bytes = bulk.empty((size,), np.uint8) if lent is None else np.ascontiguousarray(lent).reshape(-1).view(np.uint8)

    @classmethod
    def of(cls, layout: Layout, ptr: np.ndarray, columns: Columns) -> Mail:
        """Messages of rows in order; a column alone is sent from where it is."""
        lent = next((columns[name] for name, (shape, _, _) in layout.columns.items() if prod(shape)), None)
        if layout.alone and lent is not None:
            return cls(layout, ptr, lent)
        return cls(layout, ptr).write(columns, _IN_ORDER)

    def write(self, columns: Columns, rows: np.ndarray) -> Mail:
        """Fill the messages with columns[name][rows], or with all rows in order if ``rows`` has none."""
        for name, (shape, _, _) in self._layout.columns.items():
            if prod(shape):
                x = _words(np.ascontiguousarray(columns[name]))
                self._by_rows(pack, x.shape[1], x, rows, self._ptr, self._start(name), self._bytes.view(x.dtype))
        return self

    def messages(self) -> list[Send]:
        """What goes to or comes from each partner, if anything does."""
        return [(q, self._bytes[a: a + n * self._layout.width]) for q, (a, n) in enumerate(zip(self._begin, self._counts, strict=True))
                if n * self._layout.width]

    def read(self) -> Columns:
        """The columns of all rows, contiguous."""
        n, partners = int(self._ptr[-1]), np.flatnonzero(self._counts)
        if len(partners) <= 1:
            return self.part(int(partners[0]) if len(partners) else 0)
        found = {}
        for name, (shape, dtype, _) in self._layout.columns.items():
            if self._layout.alone and prod(shape):
                found[name] = self._bytes.view(dtype).reshape(n, *shape)
                continue
            out = found[name] = bulk.empty((n, *shape), dtype)
            if out.size:
                words = _words(out)
                self._by_rows(unpack, words.shape[1], self._bytes.view(words.dtype), self._ptr, self._start(name), words)
        return found

    def part(self, q: int) -> Columns:
        """The columns of one partner's rows, where they are."""
        found, n = {}, int(self._counts[q])
        for name, (shape, dtype, before) in self._layout.columns.items():
            begin = int(self._begin[q]) + n * before
            found[name] = self._bytes[begin: begin + n * prod(shape) * dtype.itemsize].view(dtype).reshape(n, *shape)
        return found

    def _by_rows(self, kernel: Callable[..., None], width: int, *arguments: Any) -> None:
        bulk.by_blocks(lambda b, begin, end: kernel(*arguments, begin, end), int(self._ptr[-1]), width)

    def _start(self, name: str) -> np.ndarray:
        """Where a column begins in each message, in elements."""
        _, dtype, before = self._layout.columns[name]
        start: np.ndarray = (self._begin + self._counts * before) // dtype.itemsize
        return start


def _words(x: np.ndarray) -> np.ndarray:
    """Rows as unsigned numbers of their items' size: what is copied need not be understood."""
    return x.reshape(len(x), prod(x.shape[1:])).view(f"u{x.dtype.itemsize}")
