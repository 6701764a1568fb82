"""Lowerings of sums and means."""

from __future__ import annotations

from ...autodiff.expr import Expr
from ..aggregator import MEAN, SUM
from .aggregate import AggregateLowering, register_aggregate
from .messages import Messages


class SumLowering(AggregateLowering):
    """Messages added in the order of edges."""

    def forward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        s = m.source
        v = m.values
        x = parts[0]
        state = m.state(name, "sum", parts[0].dims, additive=True)
        for cell in s.slices(x.dims):
            state.add(cell, m.weighted(v.text(x, cell)))

    def backward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        g = m.column(name, "g")
        m.gradients.add(parts[0], parts[0].dims, lambda p: m.weighted(g(p)))


class MeanLowering(SumLowering):
    """A sum of messages and one of importance weights; the backward state is divided already."""

    def forward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        s = m.source
        super().forward(m, name, parts)
        state = m.state(name, "weight", (), additive=True)
        for cell in s.slices(()):
            state.add(cell, m.weighted("single(ONE)"))


register_aggregate(SUM, SumLowering())
register_aggregate(MEAN, MeanLowering())
