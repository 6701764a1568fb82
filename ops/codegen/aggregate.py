"""What aggregators do with a message, and the gradient they give it."""
from __future__ import annotations

import numpy as np

from ..expr import Expr
from .gradient import GradientWriter
from .text import Index


class AggregateWriter(GradientWriter):
    """One method for each aggregator's name, forward and backward."""

    def accumulate(self) -> None:
        parts = self.phase.message
        for name, agg in self.phase.aggregators.items():
            getattr(self, "take_" + agg.name.replace("-", "_"))(name, parts)
        for name, e in self.phase.outputs.items():
            with self.loops(e.shape, "i") as index:
                self.put(f"{self.arg(f'out_{name}')}[ce, {self.flat(e.shape, index)}] = {self.value(e, index)}")

    def state(self, name: str, column: str, at: str) -> str:
        return f"{self.arg(f'state_{name}_{column}')}[dr, {at}]"

    def weight(self) -> str:
        return f" * T({self.arg('scale')}[en])" if self.v.scaled else ""

    def take_sum(self, name: str, parts: list[Expr]) -> None:
        x = parts[0]
        with self.loops(x.shape, "i") as index:
            self.put(f"{self.state(name, 'sum', self.flat(x.shape, index))} += {self.value(x, index)}{self.weight()}")

    def take_mean(self, name: str, parts: list[Expr]) -> None:
        self.take_sum(name, parts)
        self.put(f"{self.state(name, 'weight', '0')} += T(1){self.weight()}")

    def take_max(self, name: str, parts: list[Expr], sign: str = "") -> None:
        x = parts[0]
        with self.loops(x.shape, "i") as index:
            at = self.flat(x.shape, index)
            best, edge = self.state(name, "best", at), self.state(name, "edge", at)
            self.put(f"x = {sign}({self.value(x, index)})")
            self.put(f"if x > {best} or (x == {best} and tie < {edge}) or (x != x and {best} == {best}):")
            self.put(f"    {best} = x")
            self.put(f"    {edge} = tie")

    def take_min(self, name: str, parts: list[Expr]) -> None:
        self.take_max(name, parts, "-")

    def take_logsumexp(self, name: str, parts: list[Expr]) -> None:
        self.take_softmax(name, parts[0], None)

    def take_softmax_sum(self, name: str, parts: list[Expr]) -> None:
        self.take_softmax(name, parts[0], parts[1])

    def take_softmax(self, name: str, z: Expr, x: Expr | None) -> None:
        """Running maximum: what was summed so far is brought to a new maximum when one comes."""
        with self.loops(z.shape, "i") as outer:
            at = self.flat(z.shape, outer)
            top, total = self.state(name, "max", at), self.state(name, "sum", at)
            log_scale = f" + T(math.log({self.arg('scale')}[en]))" if self.v.scaled else ""
            self.put(f"z = {self.value(z, outer)}{log_scale}")
            rest = () if x is None else x.shape[len(z.shape):]
            self.put(f"if z > {top}:")
            self.depth += 1
            self.put(f"f = T(math.exp({top} - z))")
            self.put(f"{top} = z")
            self.put(f"{total} *= f")
            if x is not None:
                with self.loops(rest, "j") as inner:
                    self.put(f"{self.state(name, 'total', self.flat(x.shape, outer + inner))} *= f")
            self.depth -= 1
            # NaN passes, so that it shows in the total
            self.put("if z != T(-np.inf):")
            self.depth += 1
            self.put(f"e = T(math.exp(z - {top}))")
            self.put(f"{total} += e")
            if x is not None:
                with self.loops(rest, "j") as inner:
                    self.put(f"{self.state(name, 'total', self.flat(x.shape, outer + inner))} += e * {self.value(x, outer + inner)}")
            self.depth -= 1

    def seed(self) -> None:
        """Gradients of the message parts and outputs."""
        totals, outputs = self.v.spreads
        for name in totals:
            getattr(self, "seed_" + self.phase.aggregators[name].name.replace("-", "_"))(name, self.phase.message)
        for name in outputs:
            self.seed_output(name, self.phase.outputs[name])

    def seed_output(self, name: str, e: Expr) -> None:
        self.give(e, e.shape, lambda i: f"{self.arg(f'gout_{name}')}[ce, {self.flat(e.shape, i)}]")

    def spread(self, name: str, column: str, at: str) -> str:
        return f"{self.arg(f'spread_{name}_{column}')}[dr, {at}]"

    def seed_sum(self, name: str, parts: list[Expr]) -> None:
        x, weight = parts[0], self.weight()
        self.give(x, x.shape, lambda i: self.spread(name, "g", self.flat(x.shape, i)) + weight)

    seed_mean = seed_sum

    def seed_max(self, name: str, parts: list[Expr]) -> None:
        x = parts[0]

        def text(i: Index) -> str:
            at = self.flat(x.shape, i)
            return f"({self.spread(name, 'g', at)} if {self.spread(name, 'edge', at)} == tie else T(0))"

        self.give(x, x.shape, text)

    seed_min = seed_max

    def attention(self, name: str, z: Expr, index: Index) -> str:
        log_scale = f" + T(math.log({self.arg('scale')}[en]))" if self.v.scaled else ""
        return f"T(math.exp({self.value(z, index)}{log_scale} - {self.spread(name, 'lse', self.flat(z.shape, index))}))"

    def seed_logsumexp(self, name: str, parts: list[Expr]) -> None:
        z = parts[0]
        self.give(z, z.shape, lambda i: f"({self.spread(name, 'g', self.flat(z.shape, i))} * {self.attention(name, z, i)})")

    def seed_softmax_sum(self, name: str, parts: list[Expr]) -> None:
        z, x = parts
        tag = self.number[id(z)]
        self.buffer(f"p{tag}", int(np.prod(z.shape)))
        with self.loops(z.shape, "i") as index:
            self.put(f"p{tag}[{self.flat(z.shape, index)}] = {self.attention(name, z, index)}")
        rest, width = x.shape[len(z.shape):], len(z.shape)

        def g(i: Index) -> str:
            return self.spread(name, "g", self.flat(x.shape, i))

        if id(z) in self.on_path:
            self.buffer(f"q{tag}", int(np.prod(z.shape)))
            with self.loops(z.shape, "i") as outer:
                at = self.flat(z.shape, outer)
                self.put("gsum = T(0)")
                with self.loops(rest, "j") as inner:
                    self.put(f"gsum += {g(outer + inner)} * {self.value(x, outer + inner)}")
                self.put(f"q{tag}[{at}] = p{tag}[{at}] * (gsum - {self.spread(name, 'inner', at)})")
            self.give(z, z.shape, lambda i: f"q{tag}[{self.flat(z.shape, i)}]")
        self.give(x, x.shape, lambda i: f"(p{tag}[{self.flat(z.shape, i[:width])}] * {g(i)})")
