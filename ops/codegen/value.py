"""Values of expressions as text at a place."""
from __future__ import annotations

import numpy as np

from ..autodiff.expr import Expr
from ..autodiff.scalar import Scalar, scalar
from ..edge.program import Phase
from .held import Held
from .place import Place, broadcast
from .text import TextWriter, Variant

# not elementwise, but the same numbers in another order
STRUCTURAL = ("reshape", "expand_last", "getitem", "broadcast_to", "to_dense", "repeat_rows")


class ValueWriter(TextWriter):
    """Reads of leaves, of kept values, and elementwise code in between."""

    def __init__(self, phase: Phase, variant: Variant):
        super().__init__(phase, variant)
        self.kept: dict[int, Held] = {}
        # what a kept value needs again in its gradient
        self.aside: dict[int, Held] = {}
        self.fixed_end = "src" if variant.mode == "sender" else "dst"

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

    def value(self, e: Expr, place: Place) -> str:
        """The value of an expression at a place, as the text of a vector."""
        n = self.number[id(e)]
        if not e.rows:
            return self.read(self.arg(f"c{n}"), "0", place) if e.dims else f"single({self.arg(f'c{n}')})"
        if e.leaf is not None:
            return self.leaf(e, place)
        if n in self.kept:
            return self.kept[n].get(place)
        if self.is_alias(e):
            return self.value(e.args[0], place)
        assert e.prim is not None
        if e.prim.name in STRUCTURAL:
            return self.value(e.args[0], place.through(self.where(e)))
        code = self.code(e)
        assert code is not None, e
        return code.value.format(*self.arguments_of(code.value, e, place))

    def arguments_of(self, code: str, e: Expr, place: Place) -> list[str]:
        """The arguments of e as code names them: nothing for one that it does not read."""
        return [self.value(a, self.narrow(a, e, place)) if f"{{{i}}}" in code else "" for i, a in enumerate(e.args)]

    def narrow(self, a: Expr, e: Expr, place: Place) -> Place:
        """The place in an argument that is broadcast to e."""
        return place if a.dims == e.dims else place.through(broadcast(a.dims, e.dims))

    def where(self, e: Expr) -> np.ndarray:
        """Flat position in the argument of each number of a structural expression."""
        assert e.prim is not None
        a = e.args[0]
        size = int(np.prod(a.dims))
        if e.prim.name == "repeat_rows":
            return np.arange(size)
        return np.asarray(e.prim.forward(np.arange(size).reshape((1, *a.dims)), **e.static)).ravel()

    def leaf(self, e: Expr, place: Place) -> str:
        """A column, read once wherever it is needed: before the edges if it belongs to the row they share."""
        assert e.leaf is not None
        kind, name = e.leaf
        if name == "gid":
            return f"single({self.arg('edge_gid')}[se])"
        text = self.read(self.arg(f"{kind}{self.number[id(e)]}"), self.row(e), place)
        return self.once(text, "row" if kind == self.fixed_end and place.start == "0" else "")

    def row(self, e: Expr) -> str:
        """The row of a leaf that an edge reads."""
        assert e.leaf is not None
        kind, name = e.leaf
        return {"src": "sr", "dst": "dr"}.get(kind) or ("ce" if name in self.v.carried else "se")

    def turned(self, e: Expr) -> bool:
        """Whether a product is a few inner products: its matrix is then read turned round, along its longer axis."""
        x, w = e.args
        lead, inner = int(np.prod(x.dims[:-1])), int(np.prod(w.dims[1:]))
        return inner == 1 or (x.dims[-1] >= 2 * inner and lead * inner <= self.lanes)
