"""Message buffers of a move: the columns of some rows, in one message for each partner.

    message to rank q:   z of its rows | s of its rows | ...

A message contains its columns one after another, wide types first, so that each is aligned.
Compiled loops read contiguous columns. A single column is contiguous as received, over all
partners; so are several columns from one partner. Several columns from several partners are copied
once more after all have arrived. This copy costs a fraction of reading the columns along the
edges; a message for each column would cost small batches more in latency than the copy costs large
ones.

Under ``halo_scope("bf16")`` wide float32 columns are sent as the upper 16 bits of their numbers.
They are float32 at both ends, so all sums are made in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any, NamedTuple

import numpy as np

from graphtheta.base.bfloat16 import BFLOAT16, is_wide

from ...ops.kernels.message_buffer import pack, unpack
from ...ops.parallel import buffers
from ...ops.rows.bfloat16 import expanded
from ...ops.rows.row_list import located
from ..comm.channel import Send

Columns = dict[str, np.ndarray]

_IN_ORDER = np.zeros(0, np.int64)
_HALO: ContextVar[str] = ContextVar("graphtheta_halo", default="exact")


@contextmanager
def halo_scope(mode: str) -> Iterator[None]:
    """Send wide float32 columns in full ("exact") or in 16 bits ("bf16"); equal on all ranks."""
    token = _HALO.set(mode)
    try:
        yield
    finally:
        _HALO.reset(token)


def halo_mode() -> str:
    """The mode of the current ``halo_scope``."""
    return _HALO.get()


def as_integers(x: np.ndarray) -> np.ndarray:
    """The bits of floats as integers, which moves never round."""
    return x.view(f"i{x.itemsize}") if x.dtype.kind == "f" else x


class Slot(NamedTuple):
    """A column in a message.

    Attributes:
        shape, dtype: Shape and type of a row.
        sent: Type in the message; uint16 for the upper half of float32 numbers.
        begin, width: Bytes per row of the columns before it, and of the column itself.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sent: np.dtype[Any]
    begin: int
    width: int

    @property
    def rounded(self) -> bool:
        return self.sent != self.dtype


class MessageLayout:
    """The columns of a move.

    Attributes:
        slots: By name, wide types first.
        width: Bytes of a row.
        alone: Whether at most one column is sent, and not rounded.
    """

    def __init__(self, columns: Columns):
        sent = {name: _sent_as(x) for name, x in columns.items()}
        self.slots: dict[str, Slot] = {}
        self.width = 0
        for name in sorted(columns, key=lambda n: (-sent[n].itemsize, n)):
            shape = columns[name].shape[1:]
            self.slots[name] = Slot(
                shape=shape,
                dtype=columns[name].dtype,
                sent=sent[name],
                begin=self.width,
                width=prod(shape) * sent[name].itemsize,
            )
            self.width += self.slots[name].width
        full = [slot for slot in self.slots.values() if slot.width]
        self.alone = len(full) <= 1 and not any(slot.rounded for slot in full)


class MessageBuffer:
    """The messages to or from all partners, in one recycled buffer.

    Args:
        layout: Layout of every message.
        ptr: Bounds of the rows of each partner, [size + 1].
        in_place: The only column of the layout, [rows, ...], to send without a copy. It must not
            change until it is sent.
    """

    def __init__(self, layout: MessageLayout, ptr: np.ndarray, in_place: np.ndarray | None = None):
        self._layout = layout
        # bounds of sparse rows have 32 bits, of which bytes of long messages take more
        self._ptr = ptr.astype(np.int64, copy=False)
        counts = np.diff(self._ptr)
        room = counts * layout.width
        # a single column has no gaps; otherwise every message begins on a cache line
        room = room if layout.alone else -(-room // buffers.LINE) * buffers.LINE
        self._begin = np.cumsum(room) - room
        self._counts = counts
        size = int(room.sum())
        self._bytes = buffers.empty((size,), np.uint8) if in_place is None else _raw(in_place)

    @classmethod
    def of(cls, layout: MessageLayout, ptr: np.ndarray, columns: Columns) -> MessageBuffer:
        """Messages with all rows in order; a single column is sent in place."""
        single = next((columns[name] for name, slot in layout.slots.items() if slot.width), None)
        if layout.alone and single is not None:
            return cls(layout, ptr, single)
        return cls(layout, ptr).write(columns, _IN_ORDER)

    def write(self, columns: Columns, rows: np.ndarray) -> MessageBuffer:
        """Fill the messages with columns[name][rows]; empty ``rows`` are all rows in order."""
        for name, slot in self._layout.slots.items():
            if slot.width:
                array, at = located(columns[name], rows)
                x = _words(np.ascontiguousarray(array))
                arrays = (x, at, self._ptr, self._start(slot), self._items(slot))
                self._by_rows(pack, arrays, x.shape[1])
        return self

    def messages(self) -> list[Send]:
        """The messages that are not empty, with their partners."""
        width = self._layout.width
        begin = self._begin
        return [
            (q, self._bytes[begin[q] : begin[q] + self._counts[q] * width])
            for q in np.flatnonzero(self._counts).tolist()
            if width
        ]

    def read(self) -> Columns:
        """The columns of all rows, contiguous."""
        partners = np.flatnonzero(self._counts)
        if len(partners) <= 1:
            return self.part(int(partners[0]) if len(partners) else 0)
        return {name: self._joined(slot) for name, slot in self._layout.slots.items()}

    def part(self, q: int) -> Columns:
        """The columns of one partner's rows, without a copy; rounded ones as float32."""
        columns = {}
        n = int(self._counts[q])
        for name, slot in self._layout.slots.items():
            begin = int(self._begin[q]) + n * slot.begin
            columns[name] = (
                self._bytes[begin : begin + n * slot.width].view(slot.sent).reshape(n, *slot.shape)
            )
            if slot.rounded:
                columns[name] = expanded(columns[name].view(BFLOAT16))
        return columns

    def _joined(self, slot: Slot) -> np.ndarray:
        """One column over all partners, contiguous."""
        n = int(self._ptr[-1])
        if self._layout.alone and slot.width:
            return self._bytes.view(slot.dtype).reshape(n, *slot.shape)
        out = buffers.empty((n, *slot.shape), slot.dtype)
        if slot.width:
            words = _words(out)
            arrays = (self._items(slot), self._ptr, self._start(slot), words)
            self._by_rows(unpack, arrays, words.shape[1])
        return out

    def _by_rows(
        self, kernel: Callable[..., None], arrays: tuple[np.ndarray, ...], width: int
    ) -> None:
        """Call kernel(*arrays, begin, end) for blocks of the rows of all messages."""
        # by position: names take Numba longer to sort out than a short message to be copied
        buffers.by_blocks(
            lambda _, begin, end: kernel(*arrays, begin, end), int(self._ptr[-1]), width
        )

    def _items(self, slot: Slot) -> np.ndarray:
        """All messages as unsigned integers of the size of a column's items."""
        return self._bytes.view(f"u{slot.sent.itemsize}")

    def _start(self, slot: Slot) -> np.ndarray:
        """Where a column begins in each message, in elements."""
        start: np.ndarray = (self._begin + self._counts * slot.begin) // slot.sent.itemsize
        return start


def _sent_as(x: np.ndarray) -> np.dtype[Any]:
    rounded = halo_mode() == "bf16" and is_wide(x.shape[1:], x.dtype)
    return np.dtype(np.uint16) if rounded else x.dtype


def _raw(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


def _words(x: np.ndarray) -> np.ndarray:
    """Rows as unsigned integers of their item size, so one kernel copies all types of a size."""
    return x.reshape(len(x), prod(x.shape[1:])).view(f"u{x.dtype.itemsize}")
