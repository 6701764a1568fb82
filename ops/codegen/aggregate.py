"""What aggregators do with a message, and the gradient they give it."""
from __future__ import annotations

import numpy as np

from ..autodiff.expr import Expr
from ..edge.aggregator import SURE
from .gradient import GradientWriter
from .held import Held
from .keep import Text
from .place import Shape


class AggregateWriter(GradientWriter):
    """One method for each aggregator's name, forward and backward."""

    def accumulate(self) -> None:
        parts = self.phase.message
        for name, agg in self.phase.aggregators.items():
            getattr(self, "take_" + agg.name.replace("-", "_"))(name, parts)
        for name, e in self.phase.outputs.items():
            for place in self.cells(e.dims):
                self.write(self.arg(f"out_{name}"), "ce", place, self.value(e, place))

    def state(self, name: str, column: str, shape: Shape) -> Held:
        """A column of the state of the row being worked on."""
        array = self.arg(f"state_{name}_{column}")
        return self.over_the_row(array, shape)

    def weighted(self, text: str) -> str:
        return f"{text} * as_float({self.arg('scale')}[en])" if self.v.scaled else text

    def take_sum(self, name: str, parts: list[Expr]) -> None:
        x, state = parts[0], self.state(name, "sum", parts[0].dims)
        for place in self.cells(x.dims):
            state.add(place, self.weighted(self.value(x, place)))

    def take_mean(self, name: str, parts: list[Expr]) -> None:
        self.take_sum(name, parts)
        state = self.state(name, "weight", ())
        for place in self.cells(()):
            state.add(place, self.weighted("single(ONE)"))

    def take_max(self, name: str, parts: list[Expr], sign: str = "") -> None:
        x = parts[0]
        best, edge = self.state(name, "best", x.dims), self.state(name, "edge", x.dims)
        for place in self.cells(x.dims):
            mine, wins = self.name("x"), self.name("w")
            self.put(f"{mine} = {sign}({self.value(x, place)})")
            self.put(f"{wins} = beats({mine}, {best.get(place)}, tie, {edge.get(place)})")
            best.set(place, f"where({wins}, {mine}, {best.get(place)})")
            edge.set(place, f"where({wins}, tie, {edge.get(place)})")

    def take_min(self, name: str, parts: list[Expr]) -> None:
        self.take_max(name, parts, "-")

    def take_logsumexp(self, name: str, parts: list[Expr]) -> None:
        self.take_softmax(name, parts[0], None)

    def take_softmax_sum(self, name: str, parts: list[Expr]) -> None:
        self.take_softmax(name, parts[0], parts[1])

    def score(self, z: Expr) -> Held:
        """The scores, with the weight of edges that stand for several: exp(z + log n) = n exp(z)."""
        held = Held.best(self, self.name("z"), z.dims)
        for place in self.cells(z.dims):
            scale = f" + log(as_float({self.arg('scale')}[en]))" if self.v.scaled else ""
            held.set(place, self.value(z, place) + scale)
        return held

    def take_softmax(self, name: str, z: Expr, x: Expr | None) -> None:
        """Running maximum: what was summed so far is brought to a new maximum when one comes."""
        scores, top, sums = self.score(z), self.state(name, "max", z.dims), self.state(name, "sum", z.dims)
        totals = None if x is None else self.state(name, "total", x.dims)
        weights, shrink = Held.best(self, self.name("e"), z.dims), Held.scratch(self, self.name("f"), z.dims)
        heads = None if x is None else np.repeat(np.arange(int(np.prod(z.dims))), int(np.prod(x.dims[len(z.dims):])))
        new = self.name("new")
        self.put(f"{new} = False")
        for place in self.cells(z.dims):
            self.put(f"{new} = {new} or some({scores.get(place)}, {top.get(place)})")
        with self.block(f"if {new}:"):
            for place in self.cells(z.dims):
                higher, factor = self.name("m"), self.name("f")
                self.put(f"{higher} = raised({top.get(place)}, {scores.get(place)})")
                self.put(f"{factor} = softmax_weight({top.get(place)}, {higher})")
                sums.set(place, f"{sums.get(place)} * {factor}")
                top.set(place, higher)
                if totals is not None:
                    shrink.set(place, factor)
            for place in self.cells(x.dims) if x is not None else ():
                assert totals is not None and heads is not None
                totals.set(place, f"{totals.get(place)} * {shrink.get(place.through(heads))}")
        for place in self.cells(z.dims):
            weights.set(place, f"softmax_weight({scores.get(place)}, {top.get(place)})")
            sums.add(place, weights.get(place))
        for place in self.cells(x.dims) if x is not None else ():
            assert totals is not None and heads is not None and x is not None
            totals.add(place, f"{weights.get(place.through(heads))} * {self.value(x, place)}")

    # ---- gradients

    def seed(self) -> None:
        """Gradients of the message parts and outputs."""
        totals, outputs = self.v.spreads
        for name in totals:
            getattr(self, "seed_" + self.phase.aggregators[name].name.replace("-", "_"))(name, self.phase.message)
        for name in outputs:
            e, array = self.phase.outputs[name], self.arg(f"gout_{name}")
            self.give(e, e.dims, lambda p, array=array: self.read(array, "ce", p))  # type: ignore[misc]

    def spread(self, name: str, column: str) -> Text:
        """What a destination tells its edges."""
        array = self.arg(f"spread_{name}_{column}")
        return lambda p: self.once(self.read(array, "dr", p), "row" if self.fixed_end == "dst" and p.start == "0" else "")

    def seed_sum(self, name: str, parts: list[Expr]) -> None:
        g = self.spread(name, "g")
        self.give(parts[0], parts[0].dims, lambda p: self.weighted(g(p)))

    seed_mean = seed_sum

    def seed_max(self, name: str, parts: list[Expr]) -> None:
        g, edge = self.spread(name, "g"), self.spread(name, "edge")
        self.give(parts[0], parts[0].dims, lambda p: f"where(same({edge(p)}, tie), {g(p)}, single(ZERO))")

    seed_min = seed_max

    def attention(self, name: str, z: Expr) -> Held:
        """The softmax weights, once more."""
        n = self.number[id(z)]
        if n in self.weights:
            return self.weights[n]
        scores, normaliser = self.score(z), self.spread(name, "lse")
        held, sure = Held.best(self, self.name("p"), z.dims), SURE * float(np.finfo(self.v.dtype).eps)
        for place in self.cells(z.dims):
            held.set(place, f"softmax_share({scores.get(place)}, {normaliser(place)}, T({sure!r}))")
        self.weights[n] = held
        return held

    def seed_logsumexp(self, name: str, parts: list[Expr]) -> None:
        if not self.wants(parts[0]):
            return
        weights, g = self.attention(name, parts[0]), self.spread(name, "g")
        self.give(parts[0], parts[0].dims, lambda p: f"({g(p)} * {weights.get(p)})")

    def seed_softmax_sum(self, name: str, parts: list[Expr]) -> None:
        z, x = parts
        if not (self.wants(z) or self.wants(x) or ("weight", self.number[id(z)]) in self.v.kept):
            return
        weights, g = self.attention(name, z), self.spread(name, "g")
        heads = np.repeat(np.arange(int(np.prod(z.dims))), int(np.prod(x.dims[len(z.dims):])))
        if self.wants(z):
            inner, products = self.spread(name, "inner"), self.total(self.name("q"), z.dims)
            self.fold(heads, x.dims, lambda p: f"{g(p)} * {self.value(x, p)}", products)
            score_grad = Held.best(self, self.name("q"), z.dims)
            for place in self.cells(z.dims):
                weight = weights.get(place)
                score_grad.set(place, f"unless_one({weight}, {weight} * ({products.get(place)} - {inner(place)}))")
            self.give(z, z.dims, score_grad.get)
        self.give(x, x.dims, lambda p: f"({weights.get(p.through(heads))} * {g(p)})")
