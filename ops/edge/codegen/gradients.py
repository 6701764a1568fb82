"""Backpropagation for one edge, from the message to the gradients that the kernel computes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...autodiff.expr import Expr
from ...compile.scalar import Scalar
from ..source.lane_slice import LaneSlice, Shape, broadcast
from ..source.register_buffer import RegisterBuffer
from .boundary import Boundary, paths
from .lowering import lowering_of
from .registers import MOST_STEPS, Registers, Text


class GradientCode:
    """Gradients are text where they are used once, and register buffers where several are added.

    Attributes:
        on_path: Expressions, by id, through which a gradient reaches what the kernel computes.
        buffers: Gradients in register buffers, by number.
        weights: Softmax weights, by number of the score.
    """

    def __init__(self, registers: Registers):
        self.registers = registers
        self.values = registers.values
        self.source = registers.source
        self.inline: dict[int, list[tuple[Text, int]]] = {}
        self.buffers: dict[int, RegisterBuffer] = {}
        self.steps = 0
        self.on_path = paths(self.values)
        # gradients that are saved residuals, by number: read by this kernel, or written by it
        self.loaded: set[int] = set()
        variant = self.values.variant
        self.stored = (
            {n for kind, n in variant.residuals if kind == "gradient"} if variant.saves else set()
        )
        self.weights: dict[int, RegisterBuffer] = {}

    # ---- saved residuals

    def residuals(self) -> Iterator[tuple[str, Expr, RegisterBuffer]]:
        """Saved residuals of an edge: the kind, the expression, and its position in the row."""
        first = 0
        for kind, n in self.values.variant.residuals:
            e = self.values.phase.order[n]
            yield (
                kind,
                e,
                RegisterBuffer(
                    source=self.source,
                    name=f"kept{n}",
                    shape=e.dims,
                    backing=(self.source.arg("kept"), "en"),
                    first=first,
                ),
            )
            first += int(np.prod(e.dims))

    def load_residuals(self) -> list[Expr]:
        """Load the saved residuals; returns the values that remain to be computed."""
        boundary = Boundary(self.values, self.on_path)
        self.on_path = boundary.path
        buffers_of = {"value": self.values.saved, "weight": self.weights, "gradient": self.buffers}
        for kind, e, saved in self.residuals():
            n = self.values.number[id(e)]
            buffers_of[kind][n] = buffer = RegisterBuffer.best(self.source, f"{kind}{n}", e.dims)
            for cell in self.source.slices(e.dims):
                buffer.set(cell, saved.get(cell))
                buffer.filled.add(int(cell.at[0]))
            if kind == "gradient":
                self.loaded.add(n)
        return boundary.values

    def store_residuals(self) -> None:
        """Store the saved residuals, once all gradients are known."""
        for kind, e, saved in self.residuals():
            n = self.values.number[id(e)]
            if kind == "gradient":
                self.buffer(e).fill_up()
            for cell in self.source.slices(e.dims):
                text = (
                    self.values.text(e, cell)
                    if kind == "value"
                    else (self.buffers if kind == "gradient" else self.weights)[n].get(cell)
                )
                saved.set(cell, text)

    # ---- where gradients go

    def needs_gradient(self, e: Expr) -> bool:
        """Whether the gradient of e is to be computed."""
        return id(e) in self.on_path and self.values.number[id(e)] not in self.loaded

    def add(self, a: Expr, shape: Shape, text: Text, where: np.ndarray | None = None) -> None:
        """Add a gradient of a: ``text`` over ``shape``, the positions ``where`` of a."""
        if not self.needs_gradient(a):
            return
        straight = where is None and shape == a.dims
        if straight and a.rows and a.leaf is None:
            self.inline.setdefault(id(a), []).append((text, self.steps + 1))
            return
        if not straight:
            where = broadcast(a.dims, shape) if where is None else where
            text = self.registers.fold(
                where, shape, text, self.registers.total(self.source.name("s"), a.dims)
            ).get
        target = self.target(a)
        for cell in self.source.slices(a.dims):
            target.add(cell, text(cell))

    def target(self, a: Expr) -> RegisterBuffer:
        """Where the gradient of a is added."""
        n = self.values.number[id(a)]
        if not a.rows:
            return self.registers.block_sum(f"gc{n}", a.dims)
        if a.leaf is not None and n not in self.stored:
            name = self.source.arg(f"g{a.leaf[0]}{n}")
            if a.leaf[0] != self.values.fixed_end:
                return RegisterBuffer(self.source, name, a.dims, (name, self.values.row(a)))
            # rows of tables are added in memory
            return (
                RegisterBuffer(self.source, name, a.dims, (name, "tr"))
                if id(a) in self.values.tables
                else self.registers.row_sum(name, a.dims, additive=True)
            )
        return self.buffer(a)

    def buffer(self, e: Expr) -> RegisterBuffer:
        """The register buffer of the gradient of e, zeros to begin with."""
        n = self.values.number[id(e)]
        # a total is cleared when it is made, so it is made once
        if n not in self.buffers:
            self.buffers[n] = self.registers.total(f"g{n}", e.dims)
        return self.buffers[n]

    # ---- the traversal

    def gradient_of(self, e: Expr) -> Text | None:
        """The gradient of e, after those of all its uses; None if there is none."""
        n = self.values.number[id(e)]
        parts = self.inline.pop(id(e), [])
        if n not in self.buffers and not parts:
            return None
        lowering = lowering_of(e)
        once = sum(id(a) in self.on_path for a in e.args) == 1 and not (
            lowering is not None and lowering.repeats
        )
        self.steps = max((steps for _, steps in parts), default=0)
        if (
            n not in self.buffers
            and len(parts) == 1
            and once
            and n not in self.stored
            and self.steps < MOST_STEPS
        ):
            return parts[0][0]
        self.steps = 0
        if parts:
            buffer = self.target(e)
            for cell in self.source.slices(e.dims):
                buffer.add(cell, " + ".join(text(cell) for text, _ in parts))
        self.buffers[n].fill_up()
        return self.buffers[n].get

    def backpropagate(self) -> None:
        """Pass gradients from every expression to its arguments, uses first."""
        for e in self.values.phase.order:
            n = self.values.number[id(e)]
            if e.leaf is not None and n in self.loaded:
                target = self.target(e)
                for cell in self.source.slices(e.dims):
                    target.add(cell, self.buffers[n].get(cell))
        for e in reversed(self.values.phase.order):
            if not e.rows or e.prim is None or id(e) not in self.on_path:
                continue
            g = self.gradient_of(e)
            if g is not None:
                self.pass_on(e, g)

    def pass_on(self, e: Expr, g: Text) -> None:
        """Add the gradients of the arguments of e."""
        form = self.values.form(e)
        lowering = lowering_of(e)
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

            self.add(a, e.dims, text)
