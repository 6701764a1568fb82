"""Ordered sums of one phase: their messages, which the phase computes for each edge, taken by the
masters in order.

    forward    messages of edges into mirrors to the masters, with what they are sorted by
               the steps of all rows, block by block
    backward   the messages are computed again, and the steps, whose gradients follow
               gradients of messages of edges into mirrors to their edges

The messages of all edges exist while a phase runs, forward and backward, and are not stored in
between; those that have arrived from other workers are, as halo columns are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from graphtheta.base.rng import Purpose, key

from ...ops.autodiff.tape import Parameter
from ...ops.edge.backend.fused import backend
from ...ops.edge.program import Phase
from ...ops.functions.recurrence import Turns
from ...ops.parallel import buffers
from ...ops.rows.by_number import add_distinct
from ..partition.message import as_integers
from ..view.level import Level
from .arrivals import Arrivals
from .opened import message_of, order_of, part_of
from .ordered import Ordered

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class ExactColumn:
    """A stored column as it was given with the graph, which passes read rounded.

    Attributes:
        end: "edge", or "src" for that of the sender.
        dtype: Its type.
        read: Its values in the order of a level; collective.
    """

    end: str
    dtype: np.dtype
    read: Callable[[], np.ndarray]


# from the end, the name of a column and a level
Exact = Callable[[str, str, Level], ExactColumn | None]


class KeyBytes(NamedTuple):
    """Bytes of what a sum in order sorts by, 0 if that are ids.

    Attributes:
        message: Per edge into a mirror.
        sender: Per mirror of a sender, of a column that is sent as it was given.
    """

    message: int = 0
    sender: int = 0


def turns_of(a: Ordered, name: str, phase: Phase, draws: int = 0) -> Turns:
    """How a sum in order takes the messages of a phase.

    Args:
        a: The sum.
        name: Name of its total.
        draws: Key of its random draws.
    """
    return a.turns(phase.outputs[message_of(name)].dims, phase.dtype, draws)


# copies of a message at a time: as computed, with those that arrive, its gradient, as returned
COPIES = 4
# integers of an edge: its row, its number, what it is sorted by, and its turn, which is sorted
INTEGERS = 6


def width_of_message(name: str, phase: Phase) -> int:
    """Numbers per edge that a sum in order holds at a time."""
    e = phase.outputs[message_of(name)]
    return COPIES * prod(e.dims) + INTEGERS * 8 // e.dtype.itemsize


class InOrder:
    """The ordered sums of a phase, in one execution of it.

    Args:
        sums: By name of the total.
        phase: The phase that computes their messages.
        level: What it runs over.
        draws: Key of the random draws of the pass.
        gid: Global ids of the receiving rows.
        exact: Returns a stored column as ``ActiveGraph.exact`` does.

    Attributes:
        sums: By name of the total.
        key_bytes: Bytes of what they sort by, by name of the total.
        arrivals: The edges at the masters; None without sums.
        parameters: The parameters that they read.

    Collective: all ranks of the level's partition.
    """

    def __init__(
        self,
        sums: dict[str, Ordered],
        phase: Phase,
        level: Level,
        draws: int | None,
        gid: np.ndarray,
        exact: Exact,
    ):
        self.sums = sums
        self._exact = {name: _exact_key(name, phase, level, exact) for name in sums}
        self.key_bytes = {name: _key_bytes(name, phase, self._exact[name]) for name in sums}
        self._ledger = level.passes[0].senders.comm.ledger
        self._phase = phase
        self._compiled = backend() == "fused"
        self._gid = gid
        self.arrivals = Arrivals.of(level) if sums else None
        self._turns = {
            name: turns_of(a, name, phase, 0 if draws is None else key(draws, Purpose.DROPOUT, i))
            for i, (name, a) in enumerate(sums.items())
        }
        self.parameters: list[Parameter] = [p for t in self._turns.values() for p in t.parameters]
        self._blocks: dict[str, Any] = {}
        self._arrived: Arrays = {}

    @property
    def messages(self) -> list[str]:
        """Names of the edge values that they take."""
        return [message_of(name) for name in self.sums]

    def totals(self, outputs: Arrays) -> Arrays:
        """The totals, given the edge values of the phase, from which theirs are removed."""
        totals: Arrays = {}
        for name, turns in self._turns.items():
            assert self.arrivals is not None
            values = {"message": outputs.pop(message_of(name))}
            key = self._key(name, outputs.pop(order_of(name), None))
            if key is not None:
                # moves never round integers
                values["order"] = as_integers(key)
            with self._ledger.stage("move"):
                arriving = self.arrivals.arriving(values)
            joined = {n: self.arrivals.joined(x, arriving[n]) for n, x in values.items()}
            x = joined["message"]
            blocks = self.arrivals.blocks(
                key=None if key is None else joined["order"].view(key.dtype),
                most=self.sums[name].most,
                width=prod(x.shape[1:]),
            )
            ends = {
                part: buffers.full((len(self._gid), *dims), 0, dtype)
                for part, (dims, dtype) in turns.parts.items()
            }
            for block in blocks:
                messages = buffers.taken(x, block.edges)
                last = turns.run(messages, block.turns, self._gid[block.rows], self._compiled)
                for part, rows in last.items():
                    ends[part][block.rows] = rows
            self._blocks[name] = blocks
            self._arrived[name] = arriving["message"]
            totals |= {part_of(name, part): rows for part, rows in ends.items()}
        return totals

    def _key(self, name: str, read: np.ndarray | None) -> np.ndarray | None:
        """What edges are sorted by: a column alone as it was given, since times that are rounded to
        float32 would be equal.
        """
        exact = self._exact[name]
        if exact is None:
            return read
        with self._ledger.stage("move"):
            return exact.read()

    def backward(self, total_grads: Arrays, messages: Arrays) -> tuple[Arrays, list[Any]]:
        """Gradients of the messages, by name, and of ``parameters``.

        Args:
            total_grads: Gradients of totals, as far as there are any.
            messages: The edge values, computed again.
        """
        grads: Arrays = {}
        of_parameters: list[Any] = []
        for name, turns in self._turns.items():
            assert self.arrivals is not None
            of_ends = {
                part: total_grads[part_of(name, part)]
                for part in turns.parts
                if part_of(name, part) in total_grads
            }
            x = self.arrivals.joined(messages[message_of(name)], self._arrived.pop(name))
            back = buffers.full(x.shape, 0, x.dtype)
            sums: list[Any] = [np.zeros(p.shape) for p in turns.parameters]
            for block in self._blocks.pop(name) if of_ends else ():
                g = {part: rows[block.rows] for part, rows in of_ends.items()}
                each, learned = turns.backpropagate(
                    messages=buffers.taken(x, block.edges),
                    turns=block.turns,
                    gid=self._gid[block.rows],
                    gradients=g,
                    compiled=self._compiled,
                )
                add_distinct(back, block.edges, each)
                for total, part in zip(sums, learned, strict=True):
                    if part is not None:
                        total += part
            of_parameters += sums
            if of_ends and self._phase.outputs[message_of(name)].requires_grad:
                with self._ledger.stage("move"):
                    grads[message_of(name)] = self.arrivals.returned(back)
        return grads, of_parameters


def _exact_key(name: str, phase: Phase, level: Level, exact: Exact) -> ExactColumn | None:
    """The column of a graph by which a sum sorts, if passes read it rounded."""
    key = phase.outputs.get(order_of(name))
    end, column = ("", "") if key is None or key.leaf is None else key.leaf
    return exact(end, column, level) if end in ("edge", "src") else None


def _key_bytes(name: str, phase: Phase, exact: ExactColumn | None) -> KeyBytes:
    key = phase.outputs.get(order_of(name))
    if exact is not None:
        return KeyBytes(exact.dtype.itemsize, exact.dtype.itemsize * (exact.end == "src"))
    return KeyBytes() if key is None else KeyBytes(key.dtype.itemsize)
