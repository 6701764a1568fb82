"""Gradients of an edge: from the message back to what the kernel wants, each expression's own after those of its uses."""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..autodiff.expr import Expr
from ..compile.scalar import Scalar
from .boundary import Boundary, paths
from .lane_slice import LaneSlice, Shape, broadcast
from .lowering import lowering_of
from .register_buffer import RegisterBuffer
from .registers import MOST_STEPS, Registers, Text


class Gradients:
    """Passes gradients on as text where they are used once, and through register buffers where they meet others.

    Attributes:
        on_path: Expressions, by id, through which a gradient reaches what the kernel wants.
        met: Gradients in register buffers, by number.
        weights: Softmax weights, by number of the score.
    """

    def __init__(self, registers: Registers):
        self.registers, self.values, self.source = registers, registers.values, registers.source
        self.inline: dict[int, list[tuple[Text, int]]] = {}
        self.met: dict[int, RegisterBuffer] = {}
        self.steps = 0
        self.on_path = paths(self.values)
        # gradients that are read from where they were saved, or saved for another kernel
        self.given: set[int] = set()
        variant = self.values.variant
        self.left = {n for kind, n in variant.residuals if kind == "gradient"} if variant.mode == "receiver" else set()
        self.weights: dict[int, RegisterBuffer] = {}

    # ---- what one kernel saves for another

    def residuals(self) -> Iterator[tuple[str, Expr, RegisterBuffer]]:
        """What is saved of an edge: the kind, the expression, and where it is in the row."""
        first = 0
        for kind, n in self.values.variant.residuals:
            e = self.values.phase.order[n]
            yield kind, e, RegisterBuffer(self.source, f"kept{n}", e.dims, (self.source.arg("kept"), "en"), first)
            first += int(np.prod(e.dims))

    def take(self) -> list[Expr]:
        """Start from what was saved; returns the values that are to be worked out."""
        boundary = Boundary(self.values, self.on_path)
        self.on_path = boundary.path
        known = {"value": self.values.saved, "weight": self.weights, "gradient": self.met}
        for kind, e, kept in self.residuals():
            n = self.values.number[id(e)]
            known[kind][n] = held = RegisterBuffer.best(self.source, f"{kind}{n}", e.dims)
            for cell in self.source.slices(e.dims):
                held.set(cell, kept.get(cell))
                held.filled.add(int(cell.at[0]))
            if kind == "gradient":
                self.given.add(n)
        return boundary.values

    def leave(self) -> None:
        """Write what is saved, once all gradients are known."""
        for kind, e, held in self.residuals():
            n = self.values.number[id(e)]
            if kind == "gradient":
                self.met.setdefault(n, self.registers.total(f"g{n}", e.dims)).fill_up()
            for cell in self.source.slices(e.dims):
                text = self.values.text(e, cell) if kind == "value" else (self.met if kind == "gradient" else self.weights)[n].get(cell)
                held.set(cell, text)

    # ---- where gradients go

    def wants(self, e: Expr) -> bool:
        """Whether the gradient of e is to be worked out."""
        return id(e) in self.on_path and self.values.number[id(e)] not in self.given

    def give(self, a: Expr, shape: Shape, text: Text, where: np.ndarray | None = None) -> None:
        """A gradient for a: ``text`` over the positions of ``shape``, whose numbers stand at positions ``where`` of a."""
        if not self.wants(a):
            return
        straight = where is None and shape == a.dims
        if straight and a.rows and a.leaf is None:
            self.inline.setdefault(id(a), []).append((text, self.steps + 1))
            return
        if not straight:
            where = broadcast(a.dims, shape) if where is None else where
            text = self.registers.fold(where, shape, text, self.registers.total(self.source.name("s"), a.dims)).get
        target = self.target(a)
        for cell in self.source.slices(a.dims):
            target.add(cell, text(cell))

    def target(self, a: Expr) -> RegisterBuffer:
        """What the gradient of a is added to."""
        n = self.values.number[id(a)]
        if not a.rows:
            return self.registers.summed(f"gc{n}", a.dims)
        if a.leaf is not None and n not in self.left:
            name = self.source.arg(f"g{a.leaf[0]}{n}")
            if a.leaf[0] == self.values.fixed_end:
                return self.registers.over_the_row(name, a.dims)
            return RegisterBuffer(self.source, name, a.dims, (name, self.values.row(a)))
        if n not in self.met:
            self.met[n] = self.registers.total(f"g{n}", a.dims)
        return self.met[n]

    # ---- the way back

    def flow(self, e: Expr) -> Text | None:
        """The gradient of e once all its uses have given theirs; None if there is none."""
        n, parts = self.values.number[id(e)], self.inline.pop(id(e), [])
        if n not in self.met and not parts:
            return None
        lowering = lowering_of(e)
        once = sum(id(a) in self.on_path for a in e.args) == 1 and not (lowering is not None and lowering.repeats)
        self.steps = max((steps for _, steps in parts), default=0)
        if n not in self.met and len(parts) == 1 and once and n not in self.left and self.steps < MOST_STEPS:
            return parts[0][0]
        self.steps = 0
        if parts:
            held = self.target(e)
            for cell in self.source.slices(e.dims):
                held.add(cell, " + ".join(text(cell) for text, _ in parts))
        self.met[n].fill_up()
        return self.met[n].get

    def backpropagate(self) -> None:
        """Pass gradients from every expression to its arguments, uses first."""
        for e in self.values.phase.order:
            n = self.values.number[id(e)]
            if e.leaf is not None and n in self.given:
                target = self.target(e)
                for cell in self.source.slices(e.dims):
                    target.add(cell, self.met[n].get(cell))
        for e in reversed(self.values.phase.order):
            if not e.rows or e.prim is None or id(e) not in self.on_path:
                continue
            g = self.flow(e)
            if g is not None:
                self.pass_on(e, g)

    def pass_on(self, e: Expr, g: Text) -> None:
        """Give the arguments of e their gradients."""
        form, lowering = self.values.form(e), lowering_of(e)
        if form is not None:
            self.pass_through(e, form, g)
        else:
            assert lowering is not None, e
            lowering.backward(self, e, g)

    def pass_through(self, e: Expr, form: Scalar, g: Text) -> None:
        """The same for an elementwise operation."""
        for a, rule in zip(e.args, form.grads, strict=True):
            if rule is None or id(a) not in self.on_path:
                continue

            def text(p: LaneSlice, rule: str = rule) -> str:
                y = self.values.text(e, p) if "{y}" in rule else ""
                return "(" + rule.format(*self.values.arguments_of(rule, e, p), g=g(p), y=y) + ")"

            self.give(a, e.dims, text)
