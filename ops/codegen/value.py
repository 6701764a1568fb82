"""Values of expressions as text at an index."""
from __future__ import annotations

import numpy as np

from ..expr import Expr
from ..program import Phase
from ..scalar import Scalar, scalar
from .text import Index, TextWriter, Variant

# not elementwise, but the same numbers in another order
STRUCTURAL = ("reshape", "expand_last", "getitem", "broadcast_to", "to_dense")


class ValueWriter(TextWriter):
    """Reads of leaves, of kept values, and elementwise code in between."""

    def __init__(self, phase: Phase, variant: Variant):
        super().__init__(phase, variant)
        self.kept: set[int] = set()

    def uses(self) -> dict[int, list[Expr]]:
        """Where each expression is used; through one that changes nothing, its own uses."""
        uses: dict[int, list[Expr]] = {}
        for e in reversed(self.phase.order):
            for a in e.args:
                uses.setdefault(id(a), []).extend(uses.get(id(e), []) if self.is_alias(e) else [e])
        return uses

    def code(self, e: Expr) -> Scalar | None:
        return None if e.prim is None else scalar(e.prim.name, e.static)

    def is_alias(self, e: Expr) -> bool:
        """Dropout that does not drop."""
        return e.prim is not None and e.prim.name == "dropout" and not self.v.training

    def value(self, e: Expr, index: Index) -> str:
        """The value of an expression at an index, as text."""
        n = self.number[id(e)]
        if not e.rows:
            return self.arg(f"c{n}") if not e.shape else f"{self.arg(f'c{n}')}[{self.flat(e.shape, index)}]"
        if e.leaf is not None:
            return self.leaf(e, self.flat(e.shape, index))
        if n in self.kept:
            return f"t{n}[{self.flat(e.shape, index)}]"
        if self.is_alias(e):
            return self.value(e.args[0], index)
        assert e.prim is not None
        name = e.prim.name
        if name == "expand_last":
            return self.value(e.args[0], index[: len(e.args[0].shape)])
        if name in STRUCTURAL:
            return self.at_flat(e.args[0], self.mapped(e, self.flat(e.shape, index)))
        if name == "repeat_rows":
            return self.value(e.args[0], index)
        if name == "embedding":
            return self.embedding(e, index)
        code = self.code(e)
        assert code is not None
        return code.value.format(*(self.value(a, self.narrow(a, e, index)) for a in e.args))

    def narrow(self, a: Expr, e: Expr, index: Index) -> Index:
        """The index of an argument that is broadcast to e."""
        tail = index[len(index) - len(a.shape):]
        return ["0" if d == 1 else i for d, i in zip(a.shape, tail, strict=True)]

    def leaf(self, e: Expr, at: str) -> str:
        assert e.leaf is not None
        kind, name = e.leaf
        n = self.number[id(e)]
        if kind == "src":
            return f"{self.arg(f'src{n}')}[sr, {at}]"
        if kind == "dst":
            return f"{self.arg(f'dst{n}')}[dr, {at}]"
        if name == "gid":
            return f"{self.arg('edge_gid')}[se]"
        return f"{self.arg(f'edge{n}')}[{'ce' if name in self.v.carried else 'se'}, {at}]"

    def at_flat(self, e: Expr, at: str) -> str:
        """The value of a leaf, kept or rowless expression at a flat position."""
        n = self.number[id(e)]
        if not e.rows:
            return f"{self.arg(f'c{n}')}[{at}]" if e.shape else self.arg(f"c{n}")
        if e.leaf is not None:
            return self.leaf(e, at)
        if self.is_alias(e):
            return self.at_flat(e.args[0], at)
        assert n in self.kept, e
        return f"t{n}[{at}]"

    def mapped(self, e: Expr, at: str) -> str:
        """Flat position in the argument of a structural expression."""
        assert e.prim is not None
        a = e.args[0]
        size = int(np.prod(a.shape))
        where = np.asarray(e.prim.forward(np.arange(size).reshape((1, *a.shape)), **e.static)).ravel()
        if np.array_equal(where, np.arange(size)):
            return at
        name = f"m{self.number[id(e)]}"
        self.maps[name] = where.astype(np.int64)
        return f"{self.arg(name)}[{at}]"

    def turned(self, e: Expr) -> bool:
        """Whether a product reads its matrix turned round, so that the longer of its axes is the innermost loop."""
        x, w = e.args
        return x.shape[-1] > int(np.prod(w.shape[1:]))

    def entry(self, e: Expr, k: Index, j: Index, of: str = "c") -> str:
        """An entry of the matrix of a product, or of its gradient if ``of`` is "gc"."""
        w, turned = e.args[1], self.turned(e)
        at = self.flat((*w.shape[1:], w.shape[0]), j + k) if turned else self.flat(w.shape, k + j)
        return f"{self.arg(of + ('t' if turned else '') + str(self.number[id(w)]))}[{at}]"

    def embedding(self, e: Expr, index: Index) -> str:
        table, which = e.args
        depth = len(which.shape)
        row = self.value(which, index[:depth])
        inner = table.shape[1:]
        width = int(np.prod(inner))
        at = f"{row} * {self.dim(width) if width > 1 else 1} + {self.flat(inner, index[depth:])}"
        return f"{self.arg(f'c{self.number[id(table)]}')}[{at}]"
