"""Lowerings of sums, and of largest and smallest values, over axes."""

from __future__ import annotations

import numpy as np

from ...autodiff.expr import Expr
from ...functions.shape import max_p, min_p, sum_p
from ..source.register_buffer import RegisterBuffer
from .gradients import Gradients
from .lowering import Lowering, register
from .registers import Registers, Text


class SumOverAxes(Lowering):
    """Numbers added at the position to which they are reduced."""

    def forward(self, r: Registers, e: Expr, name: str) -> RegisterBuffer:
        a = e.args[0]
        v = r.values
        return r.fold(reduced(e), a.dims, lambda p: v.text(a, p), r.total(name, e.dims))

    def backward(self, to: Gradients, e: Expr, g: Text) -> None:
        where = reduced(e)
        to.add(e.args[0], e.args[0].dims, lambda p: g(p.through(where)))


class ExtremeOverAxes(Lowering):
    """The first of the largest or smallest numbers, or the first NaN, by a loop.

    Its position is saved for the gradient.

    Args:
        better: The comparison of a number with the best so far, ">" or "<".
    """

    repeats = True
    saves_intermediates = True

    def __init__(self, better: str):
        self.better = better

    def forward(self, r: Registers, e: Expr, name: str) -> RegisterBuffer:
        s = r.source
        v = r.values
        a = e.args[0]
        n = v.number[id(e)]
        buffer = RegisterBuffer.scratch(s, name, e.dims)
        winner = s.buffer(f"w{n}", int(np.prod(e.dims)), "int64")
        values = RegisterBuffer.scratch(s, f"all{n}", a.dims)
        for cell in s.slices(a.dims):
            values.set(cell, v.text(a, cell))
        order = np.argsort(reduced(e), kind="stable")
        size = int(np.prod(e.dims))
        where = s.map(order)
        each = len(order) // max(size, 1)
        with s.block(f"for i in range({size}):"):
            s.put(f"which = {where}[0, i * {each}]")
            s.put(f"best = {values.name}[0, which]")
            with s.block(f"for j in range(1, {each}):"):
                s.put(f"at_j = {where}[0, i * {each} + j]")
                s.put(f"x_j = {values.name}[0, at_j]")
                with s.block(f"if x_j {self.better} best or (x_j != x_j and best == best):"):
                    s.put("best, which = x_j, at_j")
            s.put(f"{name}[0, i] = best")
            s.put(f"{winner}[0, i] = which")
        return buffer

    def backward(self, to: Gradients, e: Expr, g: Text) -> None:
        s = to.source
        v = to.values
        a = e.args[0]
        n = v.number[id(e)]
        size = int(np.prod(e.dims))
        mine = RegisterBuffer.scratch(s, f"gmax{n}", e.dims)
        scattered = RegisterBuffer.scratch(s, f"gall{n}", a.dims)
        scattered.clear()
        for cell in s.slices(e.dims):
            mine.set(cell, g(cell))
        with s.block(f"for i in range({size}):"):
            s.put(f"{scattered.name}[0, w{n}[0, i]] += {mine.name}[0, i]")
        to.add(a, a.dims, scattered.get)


def reduced(e: Expr) -> np.ndarray:
    """Position in the result of each number of the argument."""
    a = e.args[0]
    with_ones = [1 if k - len(a.dims) in e.static["axis"] else d for k, d in enumerate(a.dims)]
    return np.broadcast_to(np.arange(int(np.prod(with_ones))).reshape(with_ones), a.dims).ravel()


register(sum_p, SumOverAxes())
register(max_p, ExtremeOverAxes(">"))
register(min_p, ExtremeOverAxes("<"))
