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
from ..partition.message import Columns, Layout, MessageBuffer


class Received(NamedTuple):
    """Rows from all workers, one after another.

    Attributes:
        columns: By name, [n, ...] each.
        ptr: Bounds of the rows of each sender, [size + 1].
    """

    columns: Columns
    ptr: np.ndarray


def scatter(comm: Comm, kinds: Sequence[Sequence[Columns]]) -> list[Received]:
    """Send each worker its rows of several kinds.

    Args:
        comm: The workers.
        kinds: For each kind of rows the columns of each worker's rows, [n, ...] each, in the order
            of ranks. Names, types and trailing shapes are the same on all workers.

    Returns:
        What this worker gets, for each kind.

    Collective: all ranks of comm.
    """
    counts = np.array([[_length(part) for part in parts] for parts in kinds], np.int64)
    arriving = np.stack(comm.all_to_all(list(np.ascontiguousarray(counts.T)))).T
    moves = [Move(comm, parts, pointers(list(n))) for parts, n in zip(kinds, arriving, strict=True)]
    return [move.end() for move in moves]


def _length(part: Columns) -> int:
    return len(next(iter(part.values())))


class Move:
    """The started messages of one kind of rows.

    Args:
        comm: The workers.
        parts: The columns of each worker's rows, in the order of ranks; see ``scatter``.
        ptr: Bounds of the rows that each worker sends here, [size + 1].

    Collective: all ranks of comm.
    """

    def __init__(self, comm: Comm, parts: Sequence[Columns], ptr: np.ndarray):
        layout, self._ptr = Layout(parts[0]), ptr
        self._received, sends = MessageBuffer(layout, ptr), []
        for q, part in enumerate(parts):
            # the rows of one worker make up its whole buffer
            sends += MessageBuffer.of(layout, np.where(np.arange(comm.size + 1) > q, _length(part), 0), part).messages()
        own = {q: x for q, x in sends if q == comm.rank}
        for q, room in self._received.messages():
            if q == comm.rank:
                room[...] = own[q]
        self._pending: Pending = comm.move_begin([x for x in sends if x[0] != comm.rank],
                                                 [x for x in self._received.messages() if x[0] != comm.rank], Tag.ALL_TO_ALL)

    def end(self) -> Received:
        """What this worker gets."""
        self._pending.end()
        return Received(self._received.read(), self._ptr)
