"""Lowerings of sums, means, variances, extremes, the k largest messages, and the median."""

from __future__ import annotations

from ...autodiff.expr import Expr
from ..aggregator import MAX, MEAN, MIN, SUM
from ..order_statistics import MEDIAN, MOST, NAN, TopK
from ..variance import DEVIATION, VARIANCE
from .aggregate import AggregateLowering, register_aggregate
from .messages import Messages


class SumLowering(AggregateLowering):
    """Messages added in the order of edges."""

    def forward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        s = m.source
        v = m.values
        x = parts[0]
        state = m.state(name, "sum", x.dims, additive=True)
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
            each = m.weighted("single(ONE)")
            total = weight.get(cell)
            weight.add(cell, each)
            # edges of weight 0 count as none
            s.put(
                f"{share} = where({total}, {each} / {total}, single(ZERO))"
                if v.variant.weighted
                else f"{share} = {each} / {total}"
            )
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


class EdgeLowering(AggregateLowering):
    """A total that is the message of an edge, which gets the gradient."""

    ties = True

    def backward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        self.to_edge(m, name, parts[0])

    @staticmethod
    def to_edge(m: Messages, name: str, x: Expr, place: str = "") -> None:
        """Add the gradient of a total to the message of its edge.

        Args:
            place: Of the total among several.
        """
        g, edge = m.column(name, f"g{place}"), m.column(name, f"edge{place}")
        m.gradients.add(x, x.dims, lambda p: f"where(same({edge(p)}, tie), {g(p)}, single(ZERO))")


class ExtremeLowering(EdgeLowering):
    """The best message so far, and the edge it came from.

    Args:
        sign: What makes the best message the largest number.
    """

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


register_aggregate(MAX, ExtremeLowering(""))
register_aggregate(MIN, ExtremeLowering("-"))


class TopKLowering(EdgeLowering):
    """The best messages so far and their edges; one that wins a place moves the one that had it on.

    Args:
        k: How many.
    """

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
            self.to_edge(m, name, parts[0], str(i))


class MedianLowering(EdgeLowering):
    """Messages, those below the pivot, and the first edge whose message is the pivot."""

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


for _k in range(1, MOST + 1):
    register_aggregate(TopK(_k), TopKLowering(_k))
register_aggregate(MEDIAN, MedianLowering())
