"""Lowerings of operations that move, join or reduce the numbers of a value."""

from __future__ import annotations

from math import prod

import numpy as np

from ...autodiff.expr import Expr
from ...functions.dense import to_dense_p
from ...functions.rows import expand_last_p
from ...functions.shape import concat_p, cumsum_p, max_p, min_p, repeat_rows_p, sum_p
from ..source.register_buffer import RegisterBuffer
from .gradients import GradientCode
from .lowering import Lowering, Structural, register
from .registers import Registers, Text

for _operation in (expand_last_p, to_dense_p, repeat_rows_p):
    register(_operation, Structural(repeats=False))


class Concat(Lowering):
    """Parts written side by side into scratch space."""

    repeats = True

    def forward(self, r: Registers, e: Expr, name: str) -> RegisterBuffer:
        s = r.source
        v = r.values
        buffer = RegisterBuffer.scratch(s, name, e.dims)
        array, row = buffer.memory()
        for a, where in zip(e.args, joined(e), strict=True):
            for cell in s.slices(a.dims):
                q = cell.through(where)
                if q.run is not None:
                    buffer.set(q, v.text(a, cell))
                    continue
                x = s.scratch(v.text(a, cell), cell.active)
                i = s.name("i")
                with s.block(f"for {i} in range({cell.active}):"):
                    s.put(f"{array}[{row}, {s.map(q.at)}[0, {cell.start} + {i}]] = {x}[0, {i}]")
        return buffer

    def backward(self, to: GradientCode, e: Expr, g: Text) -> None:
        for part, where in zip(e.args, joined(e), strict=True):
            to.add(part, part.dims, lambda p, at=where: g(p.through(at)))  # type: ignore[misc]


def joined(e: Expr) -> list[np.ndarray]:
    """Position in a joined value of each number of its parts."""
    axis = len(e.dims) + e.static["axis"]
    cuts = np.cumsum([a.dims[axis] for a in e.args])[:-1]
    return [
        part.ravel()
        for part in np.split(np.arange(int(np.prod(e.dims))).reshape(e.dims), cuts, axis)
    ]


register(concat_p, Concat())


class Cumulative(Lowering):
    """Numbers in scratch space, to each of which a loop adds the one before it; the gradient is
    summed in the other direction.
    """

    repeats = True

    def forward(self, r: Registers, e: Expr, name: str) -> RegisterBuffer:
        text: Text = lambda p: r.values.text(e.args[0], p)
        return _summed(r, e, name, text, forwards=True)

    def backward(self, to: GradientCode, e: Expr, g: Text) -> None:
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


class SumOverAxes(Lowering):
    """Numbers added at the position to which they are reduced."""

    def forward(self, r: Registers, e: Expr, name: str) -> RegisterBuffer:
        a = e.args[0]
        v = r.values
        return r.fold(reduced(e), a.dims, lambda p: v.text(a, p), r.total(name, e.dims))

    def backward(self, to: GradientCode, e: Expr, g: Text) -> None:
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

    def backward(self, to: GradientCode, e: Expr, g: Text) -> None:
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
