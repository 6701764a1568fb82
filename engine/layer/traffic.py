"""What a superstep moves, in bytes: predicted from its plans and the widths of what its phases read.

A column travels once for each (master, mirror) pair of a plan, whatever the number of edges:

    forward    to mirrors: columns read at the sending end, columns read at the receiving end; to masters: partial sums
    backward   to mirrors: the spread of the totals' gradients; to masters: gradients of the columns read

The ledger counts what is sent, and finds the same.
"""
from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from ...ops.autodiff.tape import needs_grad
from ...ops.edge.program import Phase
from ..partition.message import Layout, halo_mode
from ..view.level import Level
from .edge_stage import Inputs


@dataclass(frozen=True)
class Widths:
    """Bytes that one pair of master and mirror takes in a phase.

    Attributes:
        src, dst: Of the columns read at the sending and at the receiving end.
        partial: Of a partial sum.
        spread: Of what edges need of the totals' gradients.
        src_grad, dst_grad: Of the gradients of ``src`` and ``dst``.
    """

    src: int
    dst: int
    partial: int
    spread: int
    src_grad: int
    dst_grad: int

    @classmethod
    def of(cls, phase: Phase, learned: Collection[str]) -> Widths:
        """Of a phase; ``learned`` are the node columns whose gradients are wanted."""
        dtype, shapes = phase.dtype, [e.dims for e in phase.message]
        partial = spread = 0
        for aggregator in phase.aggregators.values():
            state = aggregator.start(0, shapes, dtype)
            total = aggregator.finish(state)
            partial += Layout(state).width
            spread += Layout(aggregator.backward_state(state, total, total)).width
        src, dst = (_read(phase, end, None) for end in ("src", "dst"))
        return cls(src, dst, partial, spread, *(_read(phase, end, learned) for end in ("src", "dst")))


@dataclass(frozen=True)
class Traffic:
    """What one phase of a superstep makes this worker send, over all passes.

    Attributes:
        widths: Of one pair of master and mirror.
        forward, backward: Bytes sent; backward if all totals have a gradient, none if nothing that is read wants one.
    """

    widths: Widths
    forward: int
    backward: int

    @classmethod
    def of(cls, phase: Phase, level: Level, inputs: Inputs) -> Traffic:
        """Of a phase over the passes of a level."""
        learned = frozenset(n for n, x in inputs.nodes.items() if needs_grad(x))
        known: dict[tuple[str, frozenset[str]], Widths] = phase.__dict__.setdefault("_widths", {})
        key = halo_mode(), learned
        if key not in known:
            known[key] = Widths.of(phase, learned)
        w, forward, backward = known[key], 0, 0
        for p in level.passes:
            senders, receivers = p.senders.plan, p.receivers.plan
            forward += len(senders.rows) * w.src + len(receivers.rows) * w.dst + receivers.n_halo * w.partial
            backward += len(receivers.rows) * w.spread + senders.n_halo * w.src_grad + receivers.n_halo * w.dst_grad
        walked = learned or any(needs_grad(x) for x in (*inputs.edges.values(), *inputs.operands.values()))
        return cls(w, forward, backward if walked else 0)


def _read(phase: Phase, end: str, only: Collection[str] | None) -> int:
    """Bytes of the columns read at an end, of all or of some."""
    found = {e.leaf[1]: e for e in phase.order if e.leaf is not None and e.leaf[0] == end and e.leaf[1] != "gid"}
    return Layout({name: np.empty((0, *e.dims), e.dtype) for name, e in found.items() if only is None or name in only}).width
