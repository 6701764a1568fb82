"""The two moves: ``to_mirrors`` copies master rows to mirrors, ``to_masters`` combines mirror rows into masters.

Rank 1 owns b, c; rank 0 owns a and reads b and c through the mirrors b', c':

        rank 0                                rank 1
    masters  a                            masters  b  c
    halo     b' c'   <--- to_mirrors ---           |  |
                     ---- to_masters --->          +  +

A plan says who sends which rows and is immutable; an ``Exchange`` binds it to a communicator. Both directions use the
same row lists, so each move is exactly the adjoint of the other: <to_mirrors x, y> = <x, to_masters y>. ``to_masters``
takes workers in rank order, so that a result repeats bit for bit.

All columns of a move travel in one message per pair of workers. A message is rows of packed columns; a receive lands
in its slice of the halo, because halo rows are sorted by owner. The blocking call is begin() followed by end().
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .channel import Pending, Tag
from .comm import Comm

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class MovePlan:
    """Who sends which rows.

    Attributes:
        n_rows: Master rows of the frame the plan works on.
        rows: Master rows read by other workers, grouped by reader, [n_sent].
        send_ptr: Bounds of the groups, [size + 1].
        recv_ptr: Bounds of the halo rows of each owner, [size + 1].
        anywhere: Whether any worker has a halo row at all; if not, a move is nothing on all of them.
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
        """The plan that serves only some halo rows; owners learn which.

        Args:
            wanted: Halo rows to keep, [n], ascending.

        Collective: all ranks of comm.
        """
        if not self.anywhere:
            return self
        bounds = np.searchsorted(wanted, self.recv_ptr)
        asked = comm.all_to_all([(wanted[a:b] - start).astype(np.int32)
                                 for a, b, start in zip(bounds[:-1], bounds[1:], self.recv_ptr[:-1], strict=True)])
        rows = [self.rows[start + a] for start, a in zip(self.send_ptr[:-1], asked, strict=True)]
        return MovePlan(self.n_rows, np.concatenate(rows), pointers([len(r) for r in rows]), bounds, True)

    def renumbered(self, position: np.ndarray, n_rows: int) -> MovePlan:
        """The same plan over a frame in which master row r stands at position[r]."""
        return MovePlan(n_rows, position[self.rows], self.send_ptr, self.recv_ptr, self.anywhere)


def pointers(counts: list[int]) -> np.ndarray:
    """Bounds of consecutive groups of these sizes, [n + 1] int64."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64))) if len(counts) else np.zeros(1, np.int64)


def plan_requests(comm: Comm, n_masters: int, wanted: list[np.ndarray]) -> MovePlan:
    """The plan that brings wanted[q] (master rows of worker q) to this worker, in that order.

    Collective: all ranks of comm.
    """
    rows = comm.all_to_all([w.astype(np.int64) for w in wanted])
    anywhere = bool(comm.all_sum(np.array(sum(len(w) for w in wanted))) > 0)
    return MovePlan(n_masters, np.concatenate(rows), pointers([len(r) for r in rows]), pointers([len(w) for w in wanted]), anywhere)


class Layout:
    """How columns are packed into the bytes of a row: wide types first, so that every column is aligned."""

    def __init__(self, columns: Columns):
        self.columns = {n: (columns[n].shape[1:], columns[n].dtype)
                        for n in sorted(columns, key=lambda n: (-columns[n].dtype.itemsize, n))}
        self.width = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in self.columns.values())
        # rows start on the widest type's boundary
        self.width += -self.width % max((d.itemsize for _, d in self.columns.values()), default=1)

    def buffer(self, n: int) -> np.ndarray:
        """Room for n rows, [n, width] bytes."""
        return np.empty((n, self.width), np.uint8)

    def views(self, buffer: np.ndarray) -> Columns:
        """The columns inside a buffer, without copying."""
        views, at = {}, 0
        for name, (shape, dtype) in self.columns.items():
            width = int(np.prod(shape)) * dtype.itemsize
            if width == 0:
                views[name] = np.empty((len(buffer), *shape), dtype)
                continue
            raw = buffer[:, at: at + width].view(dtype)
            views[name] = np.lib.stride_tricks.as_strided(raw, (len(buffer), *shape), (buffer.strides[0], *_strides(shape, dtype)))
            at += width
        return views


def _strides(shape: tuple[int, ...], dtype: np.dtype) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[i + 1:])) * dtype.itemsize for i in range(len(shape)))


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
        into[name][rows] += x


class ToMirrors:
    """A copy under way."""

    def __init__(self, exchange: Exchange, columns: Columns):
        plan = exchange.plan
        self._columns = columns
        self._pending = None
        if not plan.anywhere:
            return
        layout = Layout(columns)
        self._layout = layout
        self._halo = layout.buffer(plan.n_halo)
        out = layout.buffer(len(plan.rows))
        for name, view in layout.views(out).items():
            view[...] = columns[name][plan.rows]
        self._pending = _post(exchange.comm, out, plan.send_ptr, self._halo, plan.recv_ptr, Tag.TO_MIRRORS)

    def end(self) -> Columns:
        """Wait; returns the halo rows."""
        if self._pending is None:
            return {name: x[:0] for name, x in self._columns.items()}
        self._pending.end()
        return self._layout.views(self._halo)


class ToMasters:
    """A combination under way."""

    def __init__(self, exchange: Exchange, columns: Columns):
        plan = self._plan = exchange.plan
        self._pending = None
        if not plan.anywhere:
            return
        self._layout = Layout(columns)
        out = self._layout.buffer(plan.n_halo)
        for name, view in self._layout.views(out).items():
            view[...] = columns[name]
        self._inbox = self._layout.buffer(len(plan.rows))
        self._pending = _post(exchange.comm, out, plan.recv_ptr, self._inbox, plan.send_ptr, Tag.TO_MASTERS)

    def end(self, merge: Callable[[np.ndarray, Columns], None]) -> None:
        """Wait, then merge(master rows, columns) for each sender in rank order."""
        if self._pending is None:
            return
        self._pending.end()
        for a, b in pairwise(self._plan.send_ptr):
            if b > a:
                merge(self._plan.rows[a:b], self._layout.views(self._inbox[a:b]))


def _post(comm: Comm, out: np.ndarray, out_ptr: np.ndarray, into: np.ndarray, into_ptr: np.ndarray, tag: Tag) -> Pending:
    def slices(buffer: np.ndarray, ptr: np.ndarray) -> list[tuple[int, np.ndarray]]:
        return [(q, buffer[ptr[q]: ptr[q + 1]]) for q in range(comm.size) if ptr[q + 1] > ptr[q] and buffer.shape[1]]

    return comm.move_begin(slices(out, out_ptr), slices(into, into_ptr), tag)
