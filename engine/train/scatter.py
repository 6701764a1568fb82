"""Sends rows to workers that cannot ask for them: each worker decides what the others get.

A kind of rows, such as nodes or edges, travels in one message for each pair of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..comm.channel import Pending, Tag
from ..comm.communicator import Comm
from ..partition.exchange import pointers
from ..partition.message import Columns, MessageBuffer, MessageLayout


class Received(NamedTuple):
    """Rows from all workers, one after another.

    Attributes:
        columns: By name, [n, ...] each.
        ptr: Bounds of the rows of each sender, [size + 1].
    """

    columns: Columns
    ptr: np.ndarray


def scatter(comm: Comm, kinds: Sequence[Columns], bounds: Sequence[np.ndarray]) -> list[Received]:
    """Send each worker its rows of several kinds.

    Args:
        comm: The workers.
        kinds: The columns of each kind of rows, [n, ...] each, the rows of one worker after those
            of another. Names, types and trailing shapes are the same on all workers.
        bounds: Bounds of the workers' rows in each kind, [size + 1].

    Returns:
        What this worker gets, for each kind.

    Collective: all ranks of comm.
    """
    arriving = comm.swap(np.stack([np.diff(ptr) for ptr in bounds], axis=1))
    moves = [
        Move(comm, columns, ptr, pointers(n.tolist()))
        for columns, ptr, n in zip(kinds, bounds, arriving.T, strict=True)
    ]
    return [move.end() for move in moves]


class Move:
    """The started messages of one kind of rows.

    Args:
        comm: The workers.
        columns: See ``scatter``.
        bounds: Bounds of the rows of each worker, [size + 1].
        ptr: Bounds of the rows that each worker sends here, [size + 1].

    Collective: all ranks of comm.
    """

    def __init__(self, comm: Comm, columns: Columns, bounds: np.ndarray, ptr: np.ndarray):
        layout = MessageLayout(columns)
        self._ptr = ptr
        self._received = MessageBuffer(layout, ptr)
        sends = MessageBuffer.of(layout, bounds, columns).messages()
        to_itself = {q: x for q, x in sends if q == comm.rank}
        for q, room in self._received.messages():
            if q == comm.rank:
                room[...] = to_itself[q]
        self._pending: Pending = comm.move_begin(
            [x for x in sends if x[0] != comm.rank],
            [x for x in self._received.messages() if x[0] != comm.rank],
            Tag.ALL_TO_ALL,
        )

    def end(self) -> Received:
        """What this worker gets."""
        self._pending.end()
        return Received(self._received.read(), self._ptr)
