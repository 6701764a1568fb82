"""Lowering of the variance and the standard deviation of messages."""

from __future__ import annotations

from ...autodiff.expr import Expr
from ..variance import DEVIATION, VARIANCE
from .aggregate import AggregateLowering, register_aggregate
from .messages import Messages


class VarianceLowering(AggregateLowering):
    """Running mean and sum of squared deviations (B. P. Welford, Note on a Method for Calculating
    Corrected Sums of Squares, 1962).
    """

    reads_message = True

    def forward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        s = m.source
        v = m.values
        x = parts[0]
        weight = m.state(name, "weight", ())
        mean = m.state(name, "mean", x.dims)
        squares = m.state(name, "squares", x.dims)
        share = s.name("v")
        for cell in s.slices(()):
            weight.add(cell, m.weighted("single(ONE)"))
            s.put(f"{share} = {m.weighted('single(ONE)')} / {weight.get(cell)}")
        for cell in s.slices(x.dims):
            mine = s.name("x")
            gap = s.name("d")
            s.put(f"{mine} = {v.text(x, cell)}")
            s.put(f"{gap} = {mine} - {mean.get(cell)}")
            mean.add(cell, f"{gap} * {share}")
            squares.add(cell, m.weighted(f"{gap} * ({mine} - {mean.get(cell)})"))

    def backward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        v = m.values
        x = parts[0]
        g, mean = m.column(name, "g"), m.column(name, "mean")
        m.gradients.add(x, x.dims, lambda p: m.weighted(f"({g(p)} * ({v.text(x, p)} - {mean(p)}))"))


register_aggregate(VARIANCE, VarianceLowering())
register_aggregate(DEVIATION, VarianceLowering())
