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
from math import prod
from typing import Any

import numpy as np

from graphtheta.base.rng import Purpose, key

from ...ops.autodiff.tape import Parameter
from ...ops.edge.program import Phase
from ...ops.functions.recurrence import Turns
from ...ops.parallel import buffers
from ..partition.message import as_integers
from ..view.level import Level
from .arrivals import Arrivals
from .opened import message_of, order_of, part_of
from .ordered import Ordered

Arrays = dict[str, np.ndarray]
# from the end, the name of a column and a level
Exact = Callable[[str, str, Level], np.ndarray | None]


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
        self._level = level
        self._exact = exact
        self._ledger = level.passes[0].senders.comm.ledger
        self._phase = phase
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
                None if key is None else joined["order"].view(key.dtype), self.sums[name].most
            )
            ends = {
                part: buffers.full((len(self._gid), *dims), 0, x.dtype)
                for part, dims in turns.shapes.items()
            }
            for block in blocks:
                messages = buffers.taken(x, block.edges)
                last = turns.run(messages, block.turns, self._gid[block.rows])
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
        if read is None:
            return None
        end, column = self._phase.outputs[order_of(name)].leaf or ("", "")
        exact = self._exact(end, column, self._level) if end in ("edge", "src") else None
        return read if exact is None else exact

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
                for part in turns.shapes
                if part_of(name, part) in total_grads
            }
            x = self.arrivals.joined(messages[message_of(name)], self._arrived.pop(name))
            back = buffers.full(x.shape, 0, x.dtype)
            sums: list[Any] = [np.zeros(p.shape) for p in turns.parameters]
            for block in self._blocks.pop(name) if of_ends else ():
                g = {part: rows[block.rows] for part, rows in of_ends.items()}
                each, learned = turns.backpropagate(
                    buffers.taken(x, block.edges), block.turns, self._gid[block.rows], g
                )
                back[block.edges] = each
                for total, part in zip(sums, learned, strict=True):
                    if part is not None:
                        total += part
            of_parameters += sums
            if of_ends and self._phase.outputs[message_of(name)].requires_grad:
                with self._ledger.stage("move"):
                    grads[message_of(name)] = self.arrivals.returned(back)
        return grads, of_parameters
