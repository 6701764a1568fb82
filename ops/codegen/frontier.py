"""What the walk by receivers leaves for the walk by senders: a few numbers an edge, between scores and features.

Walking back by senders needs, for each edge, softmax weights, gates and gradients of scores. They follow from columns and
edge values at places nobody can foresee, by exponentials and inner products. The walk by receivers, which comes before,
has all of them in registers; one row per edge with these numbers takes the place of several scattered reads.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..autodiff.expr import Expr
from ..edge.program import Phase
from .value import STRUCTURAL

Kept = tuple[tuple[str, int], ...]
# numbers kept per edge at most
MOST_KEPT = 16
# gradients of these need what was put aside with their value
ASIDE = ("max", "dropout", "standardise")


def numbers(phase: Phase, kept: Kept) -> int:
    """How many numbers an edge keeps."""
    return sum(_size(phase.order[n]) for _, n in kept)


class Frontier:
    """Goes from the wanted gradients of a kernel back to what they need, and stops where a value is narrow.

    Args:
        writer: Of a kernel that keeps nothing.

    Attributes:
        path: Expressions, by id, whose gradients are worked out or kept.
        values: Expressions that are evaluated.
        kept: What is kept: ("value" | "weight" | "gradient", number of the expression); the weight is the softmax of a score.
            Nothing if it were too much.
    """

    def __init__(self, writer: Any):
        self._w, self._order = writer, writer.phase.order
        self._users: dict[int, list[Expr]] = {}
        for e in self._order:
            for a in dict.fromkeys(e.args):
                self._users.setdefault(id(a), []).append(e)
        self._widest = max((_size(e) for e in writer.phase.message), default=0)
        self.path: set[int] = set()
        self.values: list[Expr] = []
        found: dict[tuple[str, int], None] = {}
        self._found = found
        for e in self._order:
            if e.leaf is not None and e.leaf in writer.v.wanted:
                self._gradient(e)
        evaluated = {writer.number[id(e)] for e in self.values}
        kept = tuple((kind, n) for kind, n in sorted(found) if kind != "value" or n not in evaluated)
        self.kept: Kept = kept if numbers(writer.phase, kept) <= MOST_KEPT else ()

    def _narrow(self, e: Expr) -> bool:
        # integers would be rounded, and are read from where they lie
        return e.dtype.kind == "f" and 0 < 2 * _size(e) <= min(self._widest, MOST_KEPT)

    def _keep(self, kind: str, e: Expr) -> None:
        self._found[kind, self._w.number[id(e)]] = None

    def _gradient(self, e: Expr) -> None:
        if id(e) in self.path:
            return
        self.path.add(id(e))
        if self._narrow(e):
            self._keep("gradient", e)
            return
        for u in self._users.get(id(e), []):
            assert u.prim is not None
            if id(u) in self._w.on_path and any(a is e and u.prim.rule(k) is not None for k, a in enumerate(u.args)):
                self._gradient(u)
                self._rule(u, e)
        self._seed(e)

    def _rule(self, u: Expr, e: Expr) -> None:
        """What the gradient rules of u read to pass its gradient on to e."""
        assert u.prim is not None
        code = self._w.code(u)
        if code is None:
            if u.prim.name in ASIDE and not self._w.is_alias(u):
                self._value(u, here=True)
            return
        for a, rule in zip(u.args, code.grads, strict=True):
            if a is e and rule is not None:
                for i, b in enumerate((*u.args, u)):
                    if ("{y}" if b is u else f"{{{i}}}") in rule:
                        self._value(b)

    def _seed(self, e: Expr) -> None:
        """What the gradient of a part of the message reads."""
        parts = self._w.phase.message
        if any(e is part for part in parts) and any(self._w.phase.aggregators[n].name in ("softmax-sum", "logsumexp")
                                                    for n in self._w.v.spreads[0]):
            if self._narrow(parts[0]):
                self._keep("weight", parts[0])
            else:
                self._value(parts[0])
            if e is parts[0]:
                self._value(parts[-1])

    def _value(self, e: Expr, here: bool = False) -> None:
        if not e.rows or e.prim is None:
            return
        if self._w.is_alias(e) or (not here and e.prim.name in STRUCTURAL and _size(e) == _size(e.args[0])):
            self._value(e.args[0])
            return
        free = e.prim.name == "ones_like" or self._w.fixed(e)
        if self._narrow(e) and not here and not free:
            self._keep("value", e)
        elif not any(e is known for known in self.values):
            self.values.append(e)
            for a in () if free else e.args:
                self._value(a)


def _size(e: Expr) -> int:
    return int(np.prod(e.dims))
