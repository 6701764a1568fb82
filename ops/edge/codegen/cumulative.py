"""Lowering of sums along an axis."""

from __future__ import annotations

from math import prod

from ...autodiff.expr import Expr
from ...functions.shape import cumsum_p
from ..source.register_buffer import RegisterBuffer
from .gradients import Gradients
from .lowering import Lowering, register
from .registers import Registers, Text


class Cumulative(Lowering):
    """Numbers in scratch space, to each of which a loop adds the one before it; the gradient is
    summed in the other direction.
    """

    repeats = True

    def forward(self, r: Registers, e: Expr, name: str) -> RegisterBuffer:
        text: Text = lambda p: r.values.text(e.args[0], p)
        return _summed(r, e, name, text, forwards=True)

    def backward(self, to: Gradients, e: Expr, g: Text) -> None:
        name = f"cumulated{to.values.number[id(e)]}"
        buffer = _summed(to.registers, e, name, g, forwards=False)
        to.add(e.args[0], e.dims, buffer.get)


def _summed(r: Registers, e: Expr, name: str, text: Text, *, forwards: bool) -> RegisterBuffer:
    """Sums along the axis, from its first number or from its last one."""
    s = r.source
    buffer = RegisterBuffer.scratch(s, name, e.dims)
    for cell in s.slices(e.dims):
        buffer.set(cell, text(cell))
    array, row = buffer.memory()
    axis = len(e.dims) + e.static["axis"]
    length = e.dims[axis]
    step = prod(e.dims[axis + 1 :])
    turns = f"1, {length}" if forwards else f"{length - 2}, -1, -1"
    before = -step if forwards else step
    i = s.name("i")
    j = s.name("j")
    k = s.name("k")
    with (
        s.block(f"for {i} in range({prod(e.dims[:axis])}):"),
        s.block(f"for {j} in range({turns}):"),
        s.block(f"for {k} in range({step}):"),
    ):
        at = f"({i} * {length} + {j}) * {step} + {k}"
        s.put(f"{array}[{row}, {at}] += {array}[{row}, {at} + {before}]")
    return buffer


register(cumsum_p, Cumulative())
