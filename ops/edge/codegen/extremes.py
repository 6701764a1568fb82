"""Lowerings of the largest and the smallest message."""

from __future__ import annotations

from ...autodiff.expr import Expr
from ..aggregator import MAX, MIN
from .aggregate import AggregateLowering, register_aggregate
from .messages import Messages


class ExtremeLowering(AggregateLowering):
    """The best message so far, and the edge it came from.

    Args:
        sign: What makes the best message the largest number.
    """

    ties = True

    def __init__(self, sign: str):
        self.sign = sign

    def forward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        s = m.source
        v = m.values
        x = parts[0]
        best = m.state(name, "best", x.dims)
        edge = m.state(name, "edge", x.dims)
        for cell in s.slices(x.dims):
            mine = s.name("x")
            wins = s.name("w")
            s.put(f"{mine} = {self.sign}({v.text(x, cell)})")
            s.put(f"{wins} = beats({mine}, {best.get(cell)}, tie, {edge.get(cell)})")
            best.set(cell, f"where({wins}, {mine}, {best.get(cell)})")
            edge.set(cell, f"where({wins}, tie, {edge.get(cell)})")

    def backward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        g, edge = m.column(name, "g"), m.column(name, "edge")
        m.gradients.add(
            parts[0], parts[0].dims, lambda p: f"where(same({edge(p)}, tie), {g(p)}, single(ZERO))"
        )


register_aggregate(MAX, ExtremeLowering(""))
register_aggregate(MIN, ExtremeLowering("-"))
