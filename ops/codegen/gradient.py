"""Gradients of an edge: from the message back to what the kernel wants, each expression's own after those of its uses."""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..autodiff.expr import Expr
from ..autodiff.operation import Operation
from ..autodiff.scalar import Scalar
from ..edge.program import Phase
from .frontier import Frontier
from .held import Held
from .keep import MOST_STEPS, KeepWriter, Text
from .place import Place, Shape, broadcast, cells
from .text import Variant

# primitives whose rule reads the gradient several times, or at places of its own
REPEATS = ("matmul", "reshape", "getitem", "broadcast_to", "concat", "max", "standardise", "embedding")
# vectors of a gradient of all edges that are held in variables
MOST_SUMMED = 16


def _passes(e: Expr, prim: Operation, path: set[int]) -> bool:
    """Whether a gradient of e reaches something on the path."""
    return any(id(a) in path and prim.rule(k) is not None for k, a in enumerate(e.args))


class GradientWriter(KeepWriter):
    """Passes gradients on as text where they are used once, and through variables where they meet others."""

    def __init__(self, phase: Phase, variant: Variant):
        super().__init__(phase, variant)
        self.inline: dict[int, list[tuple[Text, int]]] = {}
        self.met: dict[int, Held] = {}
        self.sums: dict[str, Held] = {}
        self.steps = 0
        self.on_path = self._paths()
        # gradients that are read from where they were kept, or kept for another kernel
        self.given: set[int] = set()
        self.left = {n for kind, n in self.v.kept if kind == "gradient"} if variant.mode == "receiver" else set()
        self.weights: dict[int, Held] = {}

    def _paths(self) -> set[int]:
        """Expressions through which a gradient reaches a wanted leaf."""
        path: set[int] = set()
        for e in self.phase.order:
            n = self.number[id(e)]
            wanted = e.leaf in self.v.wanted or ("gradient", n) in self.v.kept if e.rows else e.live and ("const", n) in self.v.wanted
            if wanted or (e.rows and e.prim is not None and _passes(e, e.prim, path)):
                path.add(id(e))
        return path

    # ---- what one kernel leaves for another

    def columns_kept(self) -> Iterator[tuple[str, Expr, Held]]:
        """What is kept of an edge: the kind, the expression, and its place in the row."""
        first = 0
        for kind, n in self.v.kept:
            e = self.phase.order[n]
            yield kind, e, Held(self, f"kept{n}", e.dims, (self.arg("kept"), "en"), first)
            first += int(np.prod(e.dims))

    def take(self) -> list[Expr]:
        """Start from what was kept; returns the values that are to be worked out."""
        frontier = Frontier(self)
        self.on_path = frontier.path
        known = {"value": self.kept, "weight": self.weights, "gradient": self.met}
        for kind, e, kept in self.columns_kept():
            n = self.number[id(e)]
            known[kind][n] = held = Held.best(self, f"{kind}{n}", e.dims)
            for place in self.cells(e.dims):
                held.set(place, kept.get(place))
                held.filled.add(int(place.at[0]))
            if kind == "gradient":
                self.given.add(n)
        return frontier.values

    def leave(self) -> None:
        """Write what is kept, once all gradients are known."""
        for kind, e, held in self.columns_kept():
            n = self.number[id(e)]
            if kind == "gradient":
                self.met.setdefault(n, self.total(f"g{n}", e.dims)).fill_up()
            for place in self.cells(e.dims):
                text = self.value(e, place) if kind == "value" else (self.met if kind == "gradient" else self.weights)[n].get(place)
                held.set(place, text)

    # ---- where gradients go

    def wants(self, e: Expr) -> bool:
        """Whether the gradient of e is to be worked out."""
        return id(e) in self.on_path and self.number[id(e)] not in self.given

    def give(self, a: Expr, shape: Shape, text: Text, where: np.ndarray | None = None) -> None:
        """A gradient for a: ``text`` over the places of ``shape``, whose numbers stand at positions ``where`` of a."""
        if not self.wants(a):
            return
        straight = where is None and shape == a.dims
        if straight and a.rows and a.leaf is None:
            self.inline.setdefault(id(a), []).append((text, self.steps + 1))
            return
        if not straight:
            where = broadcast(a.dims, shape) if where is None else where
            text = self.fold(where, shape, text, self.total(self.name("s"), a.dims)).get
        target = self.target(a)
        for place in self.cells(a.dims):
            target.add(place, text(place))

    def target(self, a: Expr) -> Held:
        """What the gradient of a is added to."""
        n = self.number[id(a)]
        if not a.rows:
            return self.summed(f"gc{n}", a.dims)
        if a.leaf is not None and n not in self.left:
            name = self.arg(f"g{a.leaf[0]}{n}")
            return self.over_the_row(name, a.dims) if a.leaf[0] == self.fixed_end else Held(self, name, a.dims, (name, self.row(a)))
        if n not in self.met:
            self.met[n] = self.total(f"g{n}", a.dims)
        return self.met[n]

    def over_the_row(self, array: str, shape: Shape) -> Held:
        """What the edges of the row add up to: in variables while they are worked on, then in the row's own place."""
        if self.rolled:
            return Held(self, array, shape, (array, "tr"))
        if array not in self.sums:
            held = self.sums[array] = Held(self, f"sum_{array}", shape)
            for place in cells(shape, self.lanes):
                held.filled.add(int(place.at[0]))
                with self.within("row"):
                    held.set(place, self.read(array, "tr", place))
                with self.within("end"):
                    self.write(array, "tr", place, held.get(place))
        return self.sums[array]

    def summed(self, name: str, shape: Shape) -> Held:
        """The gradient of a value without rows, over all edges of the block."""
        self.arg(name)
        if self.rolled or len(cells(shape, self.lanes)) > MOST_SUMMED:
            return Held(self, name, shape, (name, "0"))
        if name not in self.sums:
            held = self.sums[name] = Held(self, f"sum_{name}", shape)
            for place in cells(shape, self.lanes):
                held.filled.add(int(place.at[0]))
                with self.within("top"):
                    held.set(place, self.zeros(place))
                with self.within("bottom"):
                    self.write(name, "0", place, f"{self.read(name, '0', place)} + {held.get(place)}")
        return self.sums[name]

    # ---- the way back

    def flow(self, e: Expr) -> Text | None:
        """The gradient of e once all its uses have given theirs; None if there is none."""
        n, parts = self.number[id(e)], self.inline.pop(id(e), [])
        if n not in self.met and not parts:
            return None
        assert e.prim is not None
        once = sum(id(a) in self.on_path for a in e.args) == 1 and e.prim.name not in REPEATS
        self.steps = max((steps for _, steps in parts), default=0)
        if n not in self.met and len(parts) == 1 and once and n not in self.left and self.steps < MOST_STEPS:
            return parts[0][0]
        self.steps = 0
        if parts:
            held = self.target(e)
            for place in self.cells(e.dims):
                held.add(place, " + ".join(text(place) for text, _ in parts))
        self.met[n].fill_up()
        return self.met[n].get

    def walk_back(self) -> None:
        for e in self.phase.order:
            n = self.number[id(e)]
            if e.leaf is not None and n in self.given:
                target = self.target(e)
                for place in self.cells(e.dims):
                    target.add(place, self.met[n].get(place))
        for e in reversed(self.phase.order):
            if not e.rows or e.prim is None or id(e) not in self.on_path:
                continue
            g = self.flow(e)
            if g is not None:
                self.back(e, g)

    def back(self, e: Expr, g: Text) -> None:
        assert e.prim is not None
        name, code, a = e.prim.name, self.code(e), e.args[0]
        if code is not None:
            self.back_scalar(e, code, g)
        elif name == "sum":
            where = self.reduced(e)
            self.give(a, a.dims, lambda p: g(p.through(where)))
        elif name == "max":
            self.back_max(e, g)
        elif name == "matmul":
            self.back_matmul(e, g)
        elif name == "dropout":
            n = self.number[id(e)]
            self.give(a, e.dims, (lambda p: f"({g(p)} * {self.aside[n].get(p)})") if self.v.training else g)
        elif name == "concat":
            for part, where in zip(e.args, self.joined(e), strict=True):
                self.give(part, part.dims, lambda p, to=where: g(p.through(to)))  # type: ignore[misc]
        elif name == "standardise":
            self.back_standardise(e, g)
        elif name == "embedding":
            self.back_embedding(e, g)
        else:
            self.give(a, e.dims, g, self.where(e))

    def back_scalar(self, e: Expr, code: Scalar, g: Text) -> None:
        for a, rule in zip(e.args, code.grads, strict=True):
            if rule is None or id(a) not in self.on_path:
                continue

            def text(p: Place, rule: str = rule) -> str:
                y = self.value(e, p) if "{y}" in rule else ""
                return "(" + rule.format(*self.arguments_of(rule, e, p), g=g(p), y=y) + ")"

            self.give(a, e.dims, text)

    def back_max(self, e: Expr, g: Text) -> None:
        a, n, size = e.args[0], self.number[id(e)], int(np.prod(e.dims))
        mine, spread = Held.scratch(self, f"gmax{n}", e.dims), Held.scratch(self, f"gall{n}", a.dims)
        spread.clear()
        for place in self.cells(e.dims):
            mine.set(place, g(place))
        with self.block(f"for i in range({size}):"):
            self.put(f"{spread.name}[0, w{n}[0, i]] += {mine.name}[0, i]")
        self.give(a, a.dims, spread.get)

    def back_matmul(self, e: Expr, g: Text) -> None:
        x, w = e.args
        if self.turned(e):
            self.back_turned(e, g)
            return
        if id(x) in self.on_path:
            self.back_left(e, g)
        if id(w) in self.on_path:
            (lead, inner, k), name = self.product_shape(e), self.arg(f"gc{self.number[id(w)]}")
            array, source = self.memory(x)
            held = Held(self, name, (inner,), (name, f"k_{name}"))
            with self.block(f"for k_{name} in range({k}):"):
                for line in range(lead):
                    self.put(f"x_{name} = {self.loads(1)}({array}, {source}, {line * k} + k_{name})")
                    for place in self.cells((inner,)):
                        held.add(place, f"x_{name} * {g(place.through(np.arange(inner) + line * inner))}")

    def back_turned(self, e: Expr, g: Text) -> None:
        (x, w), (lead, inner, k) = e.args, self.product_shape(e)
        n = self.number[id(w)]
        line, at = np.divmod(np.arange(lead * k), k)

        def text(p: Place) -> str:
            matrix = self.arg(f"ct{n}")
            terms = [f"{g(p.through(line * inner + j))} * {self.read(matrix, '0', p.through(j * k + at))}" for j in range(inner)]
            return f"({' + '.join(terms)})"

        self.give(x, x.dims, text)
        if id(w) not in self.on_path:
            return
        target = self.summed(f"gct{n}", (inner, k))
        column, along = np.divmod(np.arange(inner * k), k)
        for row in range(lead):
            for place in self.cells((inner, k)):
                target.add(place, f"{g(place.through(row * inner + column))} * {self.value(x, place.through(row * k + along))}")

    def back_left(self, e: Expr, g: Text) -> None:
        """The gradient of the left factor: an inner product with each row of the matrix."""
        (x, w), (lead, inner, k) = e.args, self.product_shape(e)
        matrix, name = self.arg(f"c{self.number[id(w)]}"), f"gx{self.number[id(e)]}"
        held = Held.scratch(self, name, x.dims)
        one = self.function("totals1", "lane_tools.totals(1)")
        for line in range(lead):
            with self.block(f"for k_{name} in range({k}):"):
                self.put(f"d_{name} = {self.cut(1, self.lanes)}(single(ZERO))")
                for place in self.cells((inner,)):
                    text = f"{g(place.through(np.arange(inner) + line * inner))} * {self.read(matrix, f'k_{name}', place)}"
                    self.put(f"d_{name} = d_{name} + {self.cut(place.active, self.lanes)}({text})")
                self.put(f"{held.name}[0, {line * k} + k_{name}] = number({one}(d_{name}))")
        self.give(x, x.dims, held.get)

    def back_standardise(self, e: Expr, g: Text) -> None:
        """(g - mean(g) - y mean(g y)) / deviation, over the last axis."""
        n, d = self.number[id(e)], e.dims[-1]
        lead = np.repeat(np.arange(int(np.prod(e.dims[:-1]))), d)
        mean = self.fold(lead, e.dims, lambda p: f"{g(p)} * T({1 / d!r})", self.total(f"ga{n}", e.dims[:-1]))
        slope = self.fold(lead, e.dims, lambda p: f"{g(p)} * {self.value(e, p)} * T({1 / d!r})", self.total(f"gb{n}", e.dims[:-1]))

        def text(p: Place) -> str:
            q = p.through(lead)
            return f"(({g(p)} - {mean.get(q)} - {self.value(e, p)} * {slope.get(q)}) * {self.aside[n].get(q)})"

        self.give(e.args[0], e.dims, text)

    def back_embedding(self, e: Expr, g: Text) -> None:
        table = e.args[0]
        if id(table) not in self.on_path:
            return
        name, width = self.arg(f"gc{self.number[id(table)]}"), int(np.prod(table.dims[1:]))
        for p, row in enumerate(self.rows_of(e)):
            held = Held(self, name, (width,), (name, row))
            for place in self.cells((width,)):
                held.add(place, g(place.through(np.arange(width) + p * width)))
