"""The two moves: ``to_mirrors`` copies master rows to mirrors, ``to_masters`` combines mirror rows
into masters.

Rank 1 owns b, c; rank 0 owns a and reads b and c through the mirrors b', c':

        rank 0                                rank 1
    masters  a                            masters  b  c
    halo     b' c'   <--- to_mirrors ---           |  |
                     ---- to_masters --->          +  +

A ``MovePlan`` lists the rows that each worker sends and is immutable; an ``Exchange`` binds it to
a communicator. Both moves use the same lists, so each is exactly the adjoint of the other:
<to_mirrors x, y> = <x, to_masters y>. ``to_masters`` combines workers in rank order, so results
are repeatable to the bit.

All columns of a move travel in one message per pair of workers (``message.py``). The blocking call
is begin() followed by end().
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...ops.rows.by_number import add_distinct
from ..comm.channel import Tag
from ..comm.communicator import Comm
from .message import Columns, MessageBuffer, MessageLayout

NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True)
class MovePlan:
    """The rows that a worker sends and receives.

    Attributes:
        n_rows: Master rows of the frame the plan works on.
        rows: Master rows read by other workers, grouped by reader, [n_sent] int64.
        send_ptr: Bounds of the groups, [size + 1].
        recv_ptr: Bounds of the halo rows of each owner, [size + 1].
        anywhere: Whether any worker has a halo row; if none has, moves send nothing.
    """

    n_rows: int
    rows: np.ndarray
    send_ptr: np.ndarray
    recv_ptr: np.ndarray
    anywhere: bool

    @property
    def n_halo(self) -> int:
        return int(self.recv_ptr[-1])

    def restrict(self, comm: Comm, wanted: np.ndarray) -> MovePlan:
        """The plan for some of the halo rows, which are reported to their owners.

        Args:
            wanted: Halo rows to keep, [n], ascending.

        Collective: all ranks of comm.
        """
        return self.subset(self.reported(comm, wanted), wanted) if self.anywhere else self

    def reported(self, comm: Comm, halo: np.ndarray) -> np.ndarray:
        """Report halo rows to their owners; returns the positions in ``rows`` that were reported
        here, ascending.

        Args:
            halo: Halo rows, ascending, [n].

        Collective: all ranks of comm.
        """
        return _swap_rows(comm, halo, self.recv_ptr, self.send_ptr)

    def narrow(self, comm: Comm, active: np.ndarray) -> tuple[MovePlan, np.ndarray]:
        """The plan for some of the master rows; readers receive the halo rows that remain.

        Args:
            active: Mask of the master rows, [n_rows] bool.

        Returns:
            The new plan, and the halo rows of this plan that it contains, ascending.

        Collective: all ranks of comm.
        """
        if not self.anywhere:
            return self, NOTHING
        sent = np.flatnonzero(active[self.rows])
        halo = _swap_rows(comm, sent, self.send_ptr, self.recv_ptr)
        return self.subset(sent, halo), halo

    def subset(self, sent: np.ndarray, halo: np.ndarray) -> MovePlan:
        """The part of the plan with these rows, which both sides know; no message is sent.

        Args:
            sent: Positions in ``rows``, ascending.
            halo: Halo rows, ascending.
        """
        return MovePlan(
            n_rows=self.n_rows,
            rows=self.rows[sent],
            send_ptr=np.searchsorted(sent, self.send_ptr),
            recv_ptr=np.searchsorted(halo, self.recv_ptr),
            anywhere=True,
        )

    def renumbered(self, position: np.ndarray, n_rows: int) -> MovePlan:
        """The same plan over a frame in which master row r is row position[r]."""
        return MovePlan(
            n_rows=n_rows,
            # kernels are compiled for one type of rows
            rows=position[self.rows].astype(np.int64, copy=False),
            send_ptr=self.send_ptr,
            recv_ptr=self.recv_ptr,
            anywhere=self.anywhere,
        )


def _swap_rows(
    comm: Comm, chosen: np.ndarray, ptr: np.ndarray, their_ptr: np.ndarray
) -> np.ndarray:
    """Send each partner the rows chosen from its group, and receive the rows that it has chosen.

    Both sides know the size of a group, which bounds the length of a list; a message starts with
    the length.

    Args:
        chosen: Chosen rows, ascending.
        ptr: Bounds of the group of each partner.
        their_ptr: Bounds of the groups from which partners choose.

    Returns:
        The rows that partners have chosen, ascending.
    """
    bounds = np.searchsorted(chosen, ptr)
    # only partners with a group take part, so that the time does not grow with the number of
    # workers
    sends = []
    for q in np.flatnonzero(np.diff(ptr)).tolist():
        group = chosen[bounds[q] : bounds[q + 1]] - ptr[q]
        sends.append((q, np.append(len(group), group).astype(np.int32)))
    received = [
        (q, np.empty(1 + their_ptr[q + 1] - their_ptr[q], np.int32))
        for q in np.flatnonzero(np.diff(their_ptr)).tolist()
    ]
    comm.move_begin(sends, received, Tag.ROWS, at_most=True).end()
    return np.concatenate([NOTHING, *(their_ptr[q] + x[1 : 1 + x[0]] for q, x in received)])


def pointers(counts: list[int]) -> np.ndarray:
    """Bounds of consecutive groups of these sizes, [n + 1] int64."""
    return (
        np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        if len(counts)
        else np.zeros(1, np.int64)
    )


def plan_requests(comm: Comm, n_masters: int, wanted: list[np.ndarray]) -> MovePlan:
    """The plan that brings wanted[q] (master rows of worker q) to this worker, in that order.

    Collective: all ranks of comm.
    """
    rows = comm.all_to_all([w.astype(np.int64) for w in wanted])
    anywhere = bool(comm.all_sum(np.array(sum(len(w) for w in wanted))) > 0)
    return MovePlan(
        n_rows=n_masters,
        rows=np.concatenate(rows),
        send_ptr=pointers([len(r) for r in rows]),
        recv_ptr=pointers([len(w) for w in wanted]),
        anywhere=anywhere,
    )


class Exchange:
    """A plan bound to a communicator. Stateless: each begun move owns its buffers."""

    def __init__(self, comm: Comm, plan: MovePlan):
        self.comm = comm
        self.plan = plan

    def to_mirrors_begin(self, columns: Columns) -> ToMirrors:
        """Start copying master rows ([n_rows, ...] per column) to the workers that read them."""
        return ToMirrors(self, columns)

    def to_mirrors(self, columns: Columns) -> Columns:
        """Copy master rows to mirrors; returns the halo rows, [n_halo, ...] per column."""
        return self.to_mirrors_begin(columns).end()

    def to_masters_begin(self, columns: Columns) -> ToMasters:
        """Start sending halo rows ([n_halo, ...] per column) to their owners."""
        return ToMasters(self, columns)

    def to_masters_add(self, columns: Columns, into: Columns) -> None:
        """Add halo rows to the master rows of ``into``."""
        self.to_masters_begin(columns).end(lambda rows, part: add_into(into, rows, part))


def add_into(into: Columns, rows: np.ndarray, part: Columns) -> None:
    """into[rows] += part, column by column; no row twice."""
    for name, x in part.items():
        add_distinct(into[name], rows, x)


class ToMirrors:
    """A started ``to_mirrors``."""

    def __init__(self, exchange: Exchange, columns: Columns):
        plan = exchange.plan
        self._columns = columns
        self._pending = None
        if plan.anywhere:
            layout = MessageLayout(columns)
            self._received = MessageBuffer(layout, plan.recv_ptr)
            out = MessageBuffer(layout, plan.send_ptr).write(columns, plan.rows)
            self._pending = exchange.comm.move_begin(
                out.messages(), self._received.messages(), Tag.TO_MIRRORS
            )

    def end(self) -> Columns:
        """Wait for the messages; returns the halo rows, contiguous."""
        if self._pending is None:
            return {name: x[:0] for name, x in self._columns.items()}
        self._pending.end()
        return self._received.read()


class ToMasters:
    """A started ``to_masters``. Columns must not change until ``end``: one alone is not copied."""

    def __init__(self, exchange: Exchange, columns: Columns):
        plan = self._plan = exchange.plan
        self._pending = None
        if plan.anywhere:
            layout = MessageLayout(columns)
            self._received = MessageBuffer(layout, plan.send_ptr)
            out = MessageBuffer.of(layout, plan.recv_ptr, columns)
            self._pending = exchange.comm.move_begin(
                out.messages(), self._received.messages(), Tag.TO_MASTERS
            )

    def end(self, merge: Callable[[np.ndarray, Columns], None]) -> None:
        """Wait, then call merge(master rows, columns) for each sender in rank order."""
        if self._pending is None:
            return
        self._pending.end()
        for q in np.flatnonzero(np.diff(ptr := self._plan.send_ptr)).tolist():
            merge(self._plan.rows[ptr[q] : ptr[q + 1]], self._received.part(q))
