"""The edges of a level at their receiving masters, for sums that need all edges of a row in order.

Most sums merge partial sums of the mirrors of a row. A sum that depends on the order of its
messages cannot, so the values of edges into mirrors are sent to the masters, edge by edge, and
their gradients are sent back: two moves, each the adjoint of the other. Where all edges are stored
with the masters of their receivers, as with one worker or the placement 1d-dst, nothing is sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...ops.edge.turns import TurnBlock, blocks_of
from ...ops.parallel import buffers
from ..partition.exchange import Exchange, MovePlan
from ..partition.message import Columns
from ..partition.partition import MASTER, MIRROR
from ..view.level import Level, Pass


class Crossing(NamedTuple):
    """The edges of a pass into mirrors.

    Attributes:
        edges: Their positions in the order of the level, by the worker that has the master.
        exchange: Moves a row of each of them to the master and back.
    """

    edges: np.ndarray
    exchange: Exchange


@dataclass
class Arrivals:
    """The in-edges of this worker's masters: first those stored here, then those that arrive.

    Attributes:
        n_edges: Number of edges of the level.
        stored: Positions in the order of the level of those stored here.
        crossings: The edges into mirrors, of each pass.
        row: Receiving row of each in-edge, [n].
        tie: The number of each that is the same on any number of workers, [n] int64.
    """

    n_edges: int
    stored: np.ndarray
    crossings: list[Crossing]
    row: np.ndarray
    tie: np.ndarray
    _blocks: dict[tuple[int | None, int], list[TurnBlock]] = field(default_factory=dict)

    @classmethod
    def of(cls, level: Level) -> Arrivals:
        """The arrivals of a level, made once.

        Collective: all ranks of its partition.
        """
        if "_arrivals" not in level.__dict__:
            with level.passes[0].senders.comm.ledger.stage("batch"):
                level.__dict__["_arrivals"] = cls._first(level)
        arrivals: Arrivals = level.__dict__["_arrivals"]
        return arrivals

    @classmethod
    def _first(cls, level: Level) -> Arrivals:
        row, stored = _of_selections(level.passes, MASTER)
        crossings, rows = zip(*map(_crossing, level.passes), strict=True)
        arrivals = cls(
            n_edges=level.n_edges,
            stored=stored,
            crossings=[*crossings],
            row=np.concatenate((row, *rows)),
            tie=np.zeros(0, np.int64),
        )
        arrivals.tie = arrivals.brought({"": level.tie})[""]
        return arrivals

    @property
    def received(self) -> int:
        """Number of edges whose values this worker receives."""
        return len(self.row) - len(self.stored)

    def brought(self, values: Columns) -> Columns:
        """Values of edges at the masters, [n, ...], given in the order of the level.

        Collective: all ranks of the partition.
        """
        arriving = self.arriving(values)
        return {name: self.joined(x, arriving[name]) for name, x in values.items()}

    def arriving(self, values: Columns) -> Columns:
        """Of ``brought`` the rows of the edges that arrive.

        Collective: all ranks of the partition.
        """
        moves = [
            c.exchange.to_masters_begin(
                {name: buffers.taken(x, c.edges) for name, x in values.items()}
            )
            for c in self.crossings
        ]
        arrived = {
            name: buffers.empty((self.received, *x.shape[1:]), x.dtype)
            for name, x in values.items()
        }
        at = 0
        for c, move in zip(self.crossings, moves, strict=True):

            def put(rows: np.ndarray, part: Columns, begin: int = at) -> None:
                for name, x in part.items():
                    arrived[name][begin + rows] = x

            move.end(put)
            at += c.exchange.plan.n_rows
        return arrived

    def joined(self, x: np.ndarray, arriving: np.ndarray) -> np.ndarray:
        """A value of the edges in the order of the level, followed by its rows that arrive."""
        if len(self.stored) < self.n_edges:
            x = buffers.taken(x, self.stored)
        return np.concatenate((x, arriving)) if len(arriving) else x

    def returned(self, x: np.ndarray) -> np.ndarray:
        """Values of the in-edges of masters, [n, ...], at the edges, in the order of the level.

        Collective: all ranks of the partition.
        """
        at = len(self.stored)
        moves = []
        for c in self.crossings:
            n = c.exchange.plan.n_rows
            moves.append(c.exchange.to_mirrors_begin({"": x[at : at + n]}))
            at += n
        in_order = x[: len(self.stored)]
        if len(self.stored) < self.n_edges:
            in_order = buffers.empty((self.n_edges, *x.shape[1:]), x.dtype)
            in_order[self.stored] = x[: len(self.stored)]
        for c, move in zip(self.crossings, moves, strict=True):
            in_order[c.edges] = move.end()[""]
        return in_order

    def blocks(self, key: np.ndarray | None, most: int | None, width: int) -> list[TurnBlock]:
        """The in-edges of each row, one after another.

        Args:
            key: What the edges of a row are sorted by, [n]; by default by their ids, which also
                decide between equal keys.
            most: Number of edges that a row takes at most; None for all.
            width: Numbers of a message.
        """
        if key is not None:
            return blocks_of(self.row, (key, self.tie), most, width)
        if (most, width) not in self._blocks:
            self._blocks[most, width] = blocks_of(self.row, (self.tie,), most, width)
        return self._blocks[most, width]


def _of_selections(passes: list[Pass], kind: int) -> tuple[np.ndarray, np.ndarray]:
    """Receiving row, and position in the order of the level, of the edges into rows of a kind."""
    chosen = [s for p in passes for s in p.selections if s.kinds[1] == kind]
    none = np.zeros(0, np.int64)
    return (
        np.concatenate([none, *(np.repeat(s.row, np.diff(s.ptr)) for s in chosen)]),
        np.concatenate([none, *(np.arange(s.offset, s.offset + s.n_edges) for s in chosen)]),
    )


def _crossing(p: Pass) -> tuple[Crossing, np.ndarray]:
    """The edges of a pass into mirrors, and the master rows of those that arrive here."""
    # a policy of stale moves changes those of the pass; edges are moved as they are
    receivers = Exchange(p.receivers.comm, p.receivers.plan)
    plan = receivers.plan
    halo, edges = _of_selections([p], MIRROR)
    # the rows of a halo are sorted by owner
    order = np.argsort(halo, kind="stable")
    leaving = p.leaving
    parts = [np.zeros(0, np.int64)]
    receivers.to_masters_begin({"": leaving}).end(lambda rows, part: parts.append(part[""].copy()))
    arriving = np.concatenate(parts)
    n = int(arriving.sum())
    each = MovePlan(
        n_rows=n,
        rows=np.arange(n),
        send_ptr=np.append(0, np.cumsum(arriving))[plan.send_ptr],
        recv_ptr=np.append(0, np.cumsum(leaving))[plan.recv_ptr],
        anywhere=plan.anywhere,
    )
    return Crossing(edges[order], Exchange(receivers.comm, each)), np.repeat(plan.rows, arriving)
