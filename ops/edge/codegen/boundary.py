"""The recompute boundary: which residuals the kernel by receivers saves for the one by senders.

The backward kernel by senders needs, for each edge, softmax weights, gates and gradients of
scores. To recompute them it would read columns and edge values at scattered rows. The kernel by
receivers, which runs before it, has them in registers; one row per edge with these saved residuals
replaces several scattered reads.

Of graph attention, ``softmax(leaky_relu(edge.src.s + edge.dst.t)) * edge.src.z``, the residuals are
the softmax weight and the gradient of ``edge.src.s``, two numbers for each head. The kernel by
senders then reads no score: the gradient of z is the weight times the gradient of the total, and
that of s is a sum of what was saved.
"""

from __future__ import annotations

import numpy as np

from ...autodiff.expr import Expr
from ...autodiff.operation import Operation
from ..program import Phase
from .aggregate import compiled_form
from .lowering import lowering_of
from .values import Values
from .variant import Residuals

# numbers saved per edge at most
MOST_SAVED = 16


def numbers(phase: Phase, residuals: Residuals) -> int:
    """How many numbers are saved for each edge."""
    return sum(_size(phase.order[n]) for _, n in residuals)


def paths(values: Values) -> set[int]:
    """Expressions, by id, through which a gradient reaches a wanted leaf or a saved residual."""
    variant = values.variant
    path = set[int]()
    for e in values.phase.order:
        n = values.number[id(e)]
        wanted = (
            e.leaf in variant.wanted or ("gradient", n) in variant.residuals
            if e.rows
            else e.requires_grad and ("const", n) in variant.wanted
        )
        # no gradient flows into integers and masks
        if wanted or (
            e.rows and e.prim is not None and e.dtype.kind == "f" and _passes(e, e.prim, path)
        ):
            path.add(id(e))
    return path


def _passes(e: Expr, prim: Operation, path: set[int]) -> bool:
    """Whether a gradient of e reaches something on the path."""
    return any(id(a) in path and prim.rule(k) is not None for k, a in enumerate(e.args))


class Boundary:
    """Finds the boundary: from the gradients of a kernel to what they read, up to narrow values.

    Args:
        values: Values of a kernel that reads no residuals.
        on_path: Expressions, by id, through which a gradient reaches what the kernel computes.

    Attributes:
        path: Expressions, by id, whose gradients are computed or saved.
        values: Expressions that are evaluated.
        residuals: What is saved; nothing if it were more than MOST_SAVED numbers.
    """

    def __init__(self, values: Values, on_path: set[int]):
        self._v = values
        self._on_path = on_path
        self._order = values.phase.order
        self._users: dict[int, list[Expr]] = {}
        for e in self._order:
            for a in dict.fromkeys(e.args):
                self._users.setdefault(id(a), []).append(e)
        self._widest = max((_size(e) for e in values.phase.message), default=0)
        self.path: set[int] = set()
        self.values: list[Expr] = []
        residuals: dict[tuple[str, int], None] = {}
        self._residuals = residuals
        for e in self._order:
            if e.leaf is not None and e.leaf in values.variant.wanted:
                self._gradient(e)
        evaluated = {values.number[id(e)] for e in self.values}
        saved = tuple(
            (kind, n) for kind, n in sorted(residuals) if kind != "value" or n not in evaluated
        )
        self.residuals: Residuals = saved if numbers(values.phase, saved) <= MOST_SAVED else ()

    def _narrow(self, e: Expr) -> bool:
        # integers would be rounded, and are read from their columns
        return e.dtype.kind == "f" and 0 < 2 * _size(e) <= min(self._widest, MOST_SAVED)

    def _save(self, kind: str, e: Expr) -> None:
        self._residuals[kind, self._v.number[id(e)]] = None

    def _gradient(self, e: Expr) -> None:
        if id(e) in self.path:
            return
        self.path.add(id(e))
        # a gradient of a table is added to the row that an edge reads, and that of the row is saved
        if self._narrow(e) and id(e) not in self._v.tables:
            self._save("gradient", e)
            return
        for u in self._users.get(id(e), []):
            assert u.prim is not None
            if id(u) in self._on_path and any(
                a is e and u.prim.rule(k) is not None for k, a in enumerate(u.args)
            ):
                self._gradient(u)
                self._rule(u, e)
        self._seed(e)

    def _rule(self, u: Expr, e: Expr) -> None:
        """Add what the gradient rules of u read to compute the gradient of e."""
        form = self._v.form(u)
        lowering = lowering_of(u)
        if form is None:
            assert lowering is not None, u
            if lowering.saves_intermediates and not self._v.is_alias(u):
                self._value(u, here=True)
            for i in lowering.gradient_reads:
                self._value(u.args[i])
            return
        for a, rule in zip(u.args, form.grads, strict=True):
            if a is e and rule is not None:
                for i, b in enumerate((*u.args, u)):
                    if ("{y}" if b is u else f"{{{i}}}") in rule:
                        self._value(b)

    def _seed(self, e: Expr) -> None:
        """Add what the gradient of a part of the message reads."""
        phase = self._v.phase
        for name in self._v.variant.totals[0]:
            parts = phase.parts[name]
            lowering = compiled_form(phase.aggregators[name])
            if not any(e is part for part in parts):
                continue
            if lowering.softmax:
                if self._narrow(parts[0]):
                    self._save("weight", parts[0])
                else:
                    self._value(parts[0])
                if e is parts[0]:
                    self._value(parts[-1])
            elif lowering.reads_message:
                self._value(e, here=True)

    def _value(self, e: Expr, here: bool = False) -> None:
        if not e.rows or e.prim is None:
            return
        if self._v.is_alias(e) or (
            not here and e.traits.structural and _size(e) == _size(e.args[0])
        ):
            self._value(e.args[0])
            return
        free = e.traits.constant is not None or self._v.fixed(e)
        if self._narrow(e) and not here and not free:
            self._save("value", e)
        elif not any(e is evaluated for evaluated in self.values):
            self.values.append(e)
            for a in () if free else e.args:
                self._value(a)


def _size(e: Expr) -> int:
    return int(np.prod(e.dims))
