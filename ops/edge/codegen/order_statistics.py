"""Lowerings of the k largest messages and of the median."""

from __future__ import annotations

from ...autodiff.expr import Expr
from ..order_statistics import MEDIAN, NAN, TopK
from .aggregate import AggregateLowering, register_aggregate, register_aggregates
from .messages import Messages


class TopKLowering(AggregateLowering):
    """The best messages so far and their edges; one that wins a place moves the one that had it on.

    Args:
        k: How many.
    """

    ties = True

    def __init__(self, k: int):
        self.k = k

    def forward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        s = m.source
        x = parts[0]
        places = [
            (m.state(name, f"best{i}", x.dims), m.state(name, f"edge{i}", x.dims))
            for i in range(self.k)
        ]
        for cell in s.slices(x.dims):
            mine = s.name("x")
            at = "tie"
            s.put(f"{mine} = {m.values.text(x, cell)}")
            for best, edge in places:
                wins = s.name("w")
                next_ = s.name("x")
                next_at = s.name("e")
                s.put(f"{wins} = beats({mine}, {best.get(cell)}, {at}, {edge.get(cell)})")
                s.put(f"{next_} = where({wins}, {best.get(cell)}, {mine})")
                s.put(f"{next_at} = where({wins}, {edge.get(cell)}, {at})")
                best.set(cell, f"where({wins}, {mine}, {best.get(cell)})")
                edge.set(cell, f"where({wins}, {at}, {edge.get(cell)})")
                mine, at = next_, next_at

    def backward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        for i in range(self.k):
            g, edge = m.column(name, f"g{i}"), m.column(name, f"edge{i}")
            m.gradients.add(
                parts[0],
                parts[0].dims,
                lambda p, g=g, edge=edge: (  # type: ignore[misc]
                    f"where(same({edge(p)}, tie), {g(p)}, single(ZERO))"
                ),
            )


class MedianLowering(AggregateLowering):
    """Messages, those below the pivot, and the first edge whose message is the pivot."""

    ties = True

    def forward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        s = m.source
        x = parts[0]
        count, below, edge, pivot = (
            m.state(name, column, x.dims) for column in ("count", "below", "edge", "pivot")
        )
        for cell in s.slices(x.dims):
            mine = s.name("x")
            wins = s.name("w")
            s.put(f"{mine} = {m.values.text(x, cell)}")
            # a number is equal to itself
            count.add(cell, f"where(equal({mine}, {mine}), np.int64(1), np.int64({1 + NAN}))")
            below.add(cell, f"where(less({mine}, {pivot.get(cell)}), np.int64(1), np.int64(0))")
            s.put(
                f"{wins} = beats(equal({mine}, {pivot.get(cell)}), single(ONE), tie,"
                f" {edge.get(cell)})"
            )
            edge.set(cell, f"where({wins}, tie, {edge.get(cell)})")

    def backward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        g, edge = m.column(name, "g"), m.column(name, "edge")
        m.gradients.add(
            parts[0], parts[0].dims, lambda p: f"where(same({edge(p)}, tie), {g(p)}, single(ZERO))"
        )


register_aggregates(TopK, lambda aggregator: TopKLowering(aggregator.k))
register_aggregate(MEDIAN, MedianLowering())
