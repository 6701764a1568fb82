"""Bytes that a superstep sends, predicted from its plans and the widths of what its phases read.

A column is sent once for each (master, mirror) pair of a plan, whatever the number of edges:

    forward    to mirrors: columns read at the sending and at the receiving end
               to masters: partial sums
    backward   to mirrors: the backward state of the totals
               to masters: gradients of the columns read

A sum in order is sent no partial sums but messages, and returns their gradients, for each edge into
a mirror.

The ledger counts the bytes that are sent; both numbers are equal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from graphtheta.base.bfloat16 import is_wide

from ...ops.autodiff.expr import COMPUTED, Expr
from ...ops.autodiff.tape import needs_grad
from ...ops.edge.program import Phase
from ...ops.rows.bfloat16 import rounded
from ..partition.message import Columns, MessageLayout, as_integers, halo_mode
from ..view.level import Level
from .edge_stage import Inputs
from .in_order import InOrder, KeyBytes
from .opened import message_of

# a number of rows or bytes, or one for each worker
Rows = TypeVar("Rows", int, np.ndarray)


@dataclass(frozen=True)
class Widths:
    """Bytes per pair of master and mirror in a phase.

    Attributes:
        src, dst: Columns read at the sending and at the receiving end.
        partial: A partial sum.
        backward_state: What edges need to compute the gradients of their messages.
        src_grad, dst_grad: Gradients of ``src`` and ``dst``.
        shared, returned: What all further passes of aggregators send to mirrors and to masters.
        passes: Number of these passes.
        message, message_grad: Per edge into a mirror, what sums in order take and return.
        exact: Columns of senders by which these sums sort, as they were given.
        in_order: Number of these sums, of those that return gradients, and of these columns.
    """

    src: int
    dst: int
    partial: int
    backward_state: int
    src_grad: int
    dst_grad: int
    shared: int = 0
    returned: int = 0
    passes: int = 0
    message: int = 0
    message_grad: int = 0
    exact: int = 0
    in_order: tuple[int, int, int] = (0, 0, 0)

    @classmethod
    def of(
        cls,
        phase: Phase,
        learned: Collection[str],
        ordered: Mapping[str, KeyBytes],
        short: bool,
    ) -> Widths:
        """The widths of a phase.

        Args:
            learned: The node columns whose gradients are wanted.
            ordered: What its sums in order sort by, by name of the total.
            short: As of ``Inputs``.
        """
        # see ``edge_stage``: these phases read float32
        short = short and not phase.grouped
        dtype = phase.dtype
        partial = backward_state = 0
        for name, aggregator in phase.aggregators.items():
            state = aggregator.start(0, phase.shapes(name), dtype)
            total = aggregator.finish(state)
            partial += MessageLayout(aggregator.returned(state)).width
            at_masters = aggregator.backward_state(state, total, total)
            backward_state += MessageLayout(_stored(at_masters, short)).width
        src, dst = (_read(phase, end, None, short) for end in ("src", "dst"))
        src_grad, dst_grad = (_read(phase, end, learned) for end in ("src", "dst"))
        shared, returned, passes = _further(phase)
        messages = [phase.outputs[message_of(name)] for name in ordered]
        learned_messages = [e for e in messages if e.requires_grad]
        return cls(
            src=src,
            dst=dst,
            partial=partial,
            backward_state=backward_state,
            src_grad=src_grad,
            dst_grad=dst_grad,
            shared=shared,
            returned=returned,
            passes=passes,
            message=sum(map(_width, messages)) + sum(key.message for key in ordered.values()),
            message_grad=sum(map(_width, learned_messages)),
            exact=sum(key.sender for key in ordered.values()),
            in_order=(
                len(messages),
                len(learned_messages),
                sum(key.sender > 0 for key in ordered.values()),
            ),
        )

    @property
    def messages(self) -> Widths:
        """What ``moved`` takes to count messages: 1 for every width that is not 0, and one for each
        further pass.
        """
        widths = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "in_order"}
        return replace(
            Widths(**{name: min(width, 1) for name, width in widths.items()}),
            shared=self.passes,
            returned=self.passes,
            message=self.in_order[0],
            message_grad=self.in_order[1],
            exact=self.in_order[2],
        )

    def sent(self, level: Level, arriving: int | None = None) -> tuple[int, int]:
        """Bytes that this worker sends over the passes of a level, forward and backward.

        Args:
            arriving: Edges whose messages arrive here, for sums in order; by default as many as
                leave, as it is over all workers.
        """
        leaving = level.n_leaving
        forward, backward = self.in_turn(leaving, leaving if arriving is None else arriving)
        for p in level.passes:
            senders, receivers = p.senders.plan, p.receivers.plan
            f, b = self.moved(
                len(senders.rows), senders.n_halo, len(receivers.rows), receivers.n_halo
            )
            forward, backward = forward + f, backward + b
        return forward, backward

    def in_turn(self, leaving: Rows, arriving: Rows) -> tuple[Rows, Rows]:
        """Bytes sent for sums in order, forward and backward, of one worker or of an array of
        workers.

        Args:
            leaving: Edges here into mirrors.
            arriving: Edges into masters here that are elsewhere.
        """
        return leaving * self.message, arriving * self.message_grad

    def moved(
        self, sent: Rows, send_halo: Rows, received: Rows, receive_halo: Rows
    ) -> tuple[Rows, Rows]:
        """Bytes sent over a pass, forward and backward, of one worker or of an array of workers.

        Args:
            sent, send_halo: Master rows of the sending end that others read, and halo rows here.
            received, receive_halo: The same of the receiving end.
        """
        return (
            sent * (self.src + self.exact)
            + received * (self.dst + self.shared)
            + receive_halo * (self.partial + self.returned),
            received * self.backward_state
            + send_halo * self.src_grad
            + receive_halo * self.dst_grad,
        )


@dataclass(frozen=True)
class Traffic:
    """Bytes that this worker sends in one phase of a superstep, over all passes.

    Attributes:
        widths: Bytes per pair of master and mirror.
        forward, backward: Bytes sent; backward if all totals have a gradient, 0 if no input needs
            one.
        learned: Whether an input needs a gradient.
        superstep: Number of the superstep in the pass.
    """

    widths: Widths
    forward: int
    backward: int
    learned: bool
    superstep: int

    @classmethod
    def of(
        cls, phase: Phase, level: Level, inputs: Inputs, in_order: InOrder, superstep: int
    ) -> Traffic:
        """The traffic of a phase of a superstep over the passes of a level."""
        learned = frozenset(n for n, x in inputs.nodes.items() if needs_grad(x))
        widths: dict[tuple[Any, ...], Widths] = phase.__dict__.setdefault("_widths", {})
        key = halo_mode(), inputs.short, learned, tuple(in_order.key_bytes.items())
        if key not in widths:
            widths[key] = Widths.of(phase, learned, in_order.key_bytes, inputs.short)
        arriving = None if in_order.arrivals is None else in_order.arrivals.received
        forward, backward = widths[key].sent(level, arriving)
        differentiated = bool(learned or in_order.parameters) or any(
            needs_grad(x) for x in (*inputs.edges.values(), *inputs.operands.values())
        )
        return cls(
            widths[key], forward, backward if differentiated else 0, differentiated, superstep
        )


def _width(e: Expr) -> int:
    """Bytes of a value in a message."""
    return MessageLayout({"": np.empty((0, *e.dims), e.dtype)}).width


def _further(phase: Phase) -> tuple[int, int, int]:
    """Bytes to mirrors and to masters in the further passes of a phase, and the number of these."""
    shared = returned = passes = 0
    for one in phase.further:
        ((name, aggregator),) = one.aggregators.items()
        state = aggregator.start(0, one.shapes(name), one.dtype)
        again = aggregator.passes(one.dtype) - 1
        shared += again * MessageLayout({c: as_integers(state[c]) for c in aggregator.shared}).width
        returned += again * MessageLayout(aggregator.returned(state)).width
        passes += again
    return shared, returned, passes


def _stored(columns: Columns, short: bool) -> Columns:
    """Columns as they are sent, wide ones of float32 as bfloat16 if ``short``."""
    return {
        name: rounded(x) if short and is_wide(x.shape[1:], x.dtype) else x
        for name, x in columns.items()
    }


def _read(phase: Phase, end: str, only: Collection[str] | None, short: bool = False) -> int:
    """Bytes of the columns read at an end, of all or of some."""
    columns = {
        e.leaf[1]: e
        for e in phase.order
        if e.leaf is not None and e.leaf[0] == end and e.leaf[1] not in COMPUTED
    }
    rows = {
        name: np.empty((0, *e.dims), e.dtype)
        for name, e in columns.items()
        if only is None or name in only
    }
    return MessageLayout(_stored(rows, short)).width
