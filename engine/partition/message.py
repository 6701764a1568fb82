"""What a move puts into messages: the columns of some rows, in one message for each partner.

    message to rank q:   z of its rows | s of its rows | ...

A message has its columns one after another, wide types first, so that each is aligned. What a compiled loop reads must be
contiguous, and a column that travels alone is as it lands, over all partners; so are several columns from one partner. Only
several columns from several partners are copied once more, when all are there: that costs a fraction of reading them
along the edges, while a message for each column would cost a small batch more in latency than copying costs a large one.

Under ``halo_scope("bf16")`` wide float32 columns travel as the upper 16 bits of their numbers and are float32 at both ends, so that
everything is added up in float32.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...ops.autodiff import buffers
from ...ops.kernels.message_buffer import pack, pack_rounded, unpack, unpack_rounded
from ..comm.channel import Send

Columns = dict[str, np.ndarray]

_IN_ORDER = np.zeros(0, np.int64)
_HALO: ContextVar[str] = ContextVar("graphtheta_halo", default="exact")
# Columns of fewer numbers are scores, maxima and normalisers, whose rounding exponentials would enlarge; they are few bytes.
WIDE = 16


@contextmanager
def halo_scope(mode: str) -> Iterator[None]:
    """Send wide float32 columns as they are ("exact") or in 16 bits ("bf16") inside the block; alike on all ranks."""
    token = _HALO.set(mode)
    try:
        yield
    finally:
        _HALO.reset(token)


def halo_mode() -> str:
    """The mode of the block we are in."""
    return _HALO.get()


class Slot(NamedTuple):
    """A column in a message.

    Attributes:
        shape, dtype: Of its rows.
        sent: Type in which it travels; uint16 for the upper half of float32 numbers.
        begin, width: First byte of a row's share, and how many there are.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sent: np.dtype[Any]
    begin: int
    width: int

    @property
    def rounded(self) -> bool:
        return self.sent != self.dtype


class Layout:
    """The columns of a move.

    Attributes:
        slots: By name, wide types first.
        width: Bytes of a row.
        alone: Whether there is no more than one column to send, and that as it is.
    """

    def __init__(self, columns: Columns):
        sent = {name: _sent_as(x) for name, x in columns.items()}
        self.slots: dict[str, Slot] = {}
        self.width = 0
        for name in sorted(columns, key=lambda n: (-sent[n].itemsize, n)):
            shape = columns[name].shape[1:]
            self.slots[name] = Slot(shape, columns[name].dtype, sent[name], self.width, prod(shape) * sent[name].itemsize)
            self.width += self.slots[name].width
        full = [slot for slot in self.slots.values() if slot.width]
        self.alone = len(full) <= 1 and not any(slot.rounded for slot in full)


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
        room = room if layout.alone else -(-room // buffers.LINE) * buffers.LINE
        self._begin = np.cumsum(room) - room
        self._counts = counts
        size = int(room.sum())
        self._bytes = buffers.empty((size,), np.uint8) if lent is None else np.ascontiguousarray(lent).reshape(-1).view(np.uint8)

    @classmethod
    def of(cls, layout: Layout, ptr: np.ndarray, columns: Columns) -> Mail:
        """Messages of rows in order; a column alone is sent from where it is."""
        lent = next((columns[name] for name, slot in layout.slots.items() if slot.width), None)
        if layout.alone and lent is not None:
            return cls(layout, ptr, lent)
        return cls(layout, ptr).write(columns, _IN_ORDER)

    def write(self, columns: Columns, rows: np.ndarray) -> Mail:
        """Fill the messages with columns[name][rows], or with all rows in order if ``rows`` has none."""
        for name, slot in self._layout.slots.items():
            if slot.width:
                x = _words(np.ascontiguousarray(columns[name]))
                kernel = pack_rounded if slot.rounded else pack
                self._by_rows(kernel, x.shape[1], x, rows, self._ptr, self._start(slot), self._items(slot))
        return self

    def messages(self) -> list[Send]:
        """What goes to or comes from each partner, if anything does."""
        return [(q, self._bytes[a: a + n * self._layout.width]) for q, (a, n) in enumerate(zip(self._begin, self._counts, strict=True))
                if n * self._layout.width]

    def read(self) -> Columns:
        """The columns of all rows, contiguous."""
        partners = np.flatnonzero(self._counts)
        if len(partners) <= 1:
            return self.part(int(partners[0]) if len(partners) else 0)
        return {name: self._joined(slot) for name, slot in self._layout.slots.items()}

    def part(self, q: int) -> Columns:
        """The columns of one partner's rows, where they are; rounded ones as float32."""
        found, n = {}, int(self._counts[q])
        for name, slot in self._layout.slots.items():
            begin = int(self._begin[q]) + n * slot.begin
            found[name] = self._bytes[begin: begin + n * slot.width].view(slot.sent).reshape(n, *slot.shape)
            if slot.rounded:
                found[name] = _widened(found[name])
        return found

    def _joined(self, slot: Slot) -> np.ndarray:
        """A column over all partners."""
        n = int(self._ptr[-1])
        if self._layout.alone and slot.width:
            return self._bytes.view(slot.dtype).reshape(n, *slot.shape)
        out = buffers.empty((n, *slot.shape), slot.dtype)
        if slot.width:
            words = _words(out)
            kernel = unpack_rounded if slot.rounded else unpack
            self._by_rows(kernel, words.shape[1], self._items(slot), self._ptr, self._start(slot), words)
        return out

    def _by_rows(self, kernel: Callable[..., None], width: int, *arguments: Any) -> None:
        buffers.by_blocks(lambda b, begin, end: kernel(*arguments, begin, end), int(self._ptr[-1]), width)

    def _items(self, slot: Slot) -> np.ndarray:
        """All messages as words of a column's size."""
        return self._bytes.view(f"u{slot.sent.itemsize}")

    def _start(self, slot: Slot) -> np.ndarray:
        """Where a column begins in each message, in elements."""
        start: np.ndarray = (self._begin + self._counts * slot.begin) // slot.sent.itemsize
        return start


def _sent_as(x: np.ndarray) -> np.dtype[Any]:
    rounded = halo_mode() == "bf16" and x.dtype == np.float32 and prod(x.shape[1:]) >= WIDE
    return np.dtype(np.uint16) if rounded else x.dtype


def _widened(x: np.ndarray) -> np.ndarray:
    """Rows of upper halves as float32."""
    out = buffers.empty(x.shape, np.float32)
    words, ptr, start = _words(out), np.array([0, len(x)]), np.zeros(1, np.int64)
    buffers.by_blocks(lambda b, begin, end: unpack_rounded(x.reshape(-1), ptr, start, words, begin, end), len(x), words.shape[1])
    return out


def _words(x: np.ndarray) -> np.ndarray:
    """Rows as unsigned numbers of their items' size: what is copied need not be understood."""
    return x.reshape(len(x), prod(x.shape[1:])).view(f"u{x.dtype.itemsize}")
