"""Values that are worth keeping, and those that need code of their own: sums, products, joins, masks."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..autodiff.expr import Expr
from .held import Held
from .place import Place, Shape, cells
from .value import STRUCTURAL, ValueWriter

Text = Callable[[Place], str]
# uses that read their argument many times
READ_AGAIN = ("matmul", "standardise")
# elementwise steps written into one line
MOST_STEPS = 6


class KeepWriter(ValueWriter):
    """Writes values of the current edge into variables or scratch space."""

    def keep_values(self, roots: list[Expr]) -> None:
        """Write what must be kept, arguments first."""
        needed: set[int] = set()

        def visit(e: Expr) -> None:
            if id(e) not in needed and self.number[id(e)] not in self.kept:
                needed.add(id(e))
                # ones_like looks at the shape of its argument only
                for a in () if e.prim is not None and e.prim.name == "ones_like" else e.args:
                    visit(a)

        for root in roots:
            visit(root)
        uses = self.uses()
        steps: dict[int, int] = {}
        for e in self.phase.order:
            if id(e) not in needed or not e.rows or e.prim is None or self.is_alias(e):
                continue
            steps[id(e)] = 1 + max(steps.get(id(a), 0) for a in e.args)
            if self.must_keep(e, uses.get(id(e), []), any(e is root for root in roots), steps[id(e)]):
                steps[id(e)] = 0
                if self.fixed(e):
                    with self.within("row"):
                        self.keep(e)
                else:
                    self.keep(e)

    def must_keep(self, e: Expr, uses: list[Expr], root: bool, steps: int) -> bool:
        assert e.prim is not None
        code, count = self.code(e), len(uses) + root
        if code is None and e.prim.name not in STRUCTURAL:
            return True
        if any(u.prim is not None and u.prim.name in READ_AGAIN for u in uses):
            return True
        if code is None or e.prim.name in ("ones_like", "cast"):
            return False
        size = int(np.prod(e.dims))
        wider = any(int(np.prod(u.dims)) > size for u in uses)
        return count > 1 or wider or steps > MOST_STEPS or (code.costly and self.v.mode != "forward")

    def fixed(self, e: Expr) -> bool:
        """Whether a value is the same for all edges of the row."""
        if e.leaf is not None:
            return e.leaf[0] == self.fixed_end or not e.rows
        assert e.prim is not None
        return not self.rolled and (e.prim.name != "dropout" or self.is_alias(e)) and all(self.fixed(a) for a in e.args)

    def keep(self, e: Expr) -> None:
        assert e.prim is not None
        n = self.number[id(e)]
        special = {"sum": self.keep_sum, "max": self.keep_max, "matmul": self.keep_matmul, "concat": self.keep_concat,
                   "dropout": self.keep_dropout, "standardise": self.keep_standardise, "embedding": self.keep_embedding}.get(e.prim.name)
        if special is not None:
            self.kept[n] = special(e, f"t{n}")
            return
        held = Held.best(self, f"t{n}", e.dims)
        for place in self.cells(e.dims):
            held.set(place, self.value(e, place))
        self.kept[n] = held

    # ---- sums over places

    def fold(self, where: np.ndarray, shape: Shape, text: Text, made: Held) -> Held:
        """Add up the numbers of a value of ``shape`` at the positions that a map gives them."""
        if self.rolled:
            self.fold_in_memory(where, shape, text, made)
            return made
        out = cells(made.shape, self.lanes)
        starts = {(int(c.at[0]), c.active) for c in out}
        dots: dict[int, str] = {}
        for place in cells(shape, self.lanes):
            q = place.through(where)
            if q.same is not None and (q.run is None or (q.same, 1) not in starts):
                dots[q.same] = self.add_up(dots.get(q.same), place.active, text(place))
            elif q.run is not None and (int(q.at[0]), q.active) in starts:
                made.add(q, text(place))
            else:
                # neither along nor across the vectors: number by number
                spread = self.once_scratch(text(place), place.active)
                for i, p in enumerate(q.at):
                    dots[int(p)] = self.add_up(dots.get(int(p)), 1, f"{self.loads(1)}({spread}, 0, {i})")
        for c in out:
            inside = [dots.get(int(p)) for p in c.at]
            if any(inside):
                name = self.function(f"totals{c.active}", f"lane_tools.totals({c.active})")
                zero = f"{self.cut(1, self.lanes)}(single(ZERO))"
                made.add(c, f"{name}({', '.join(x or zero for x in inside)})")
        made.fill_up()
        return made

    def add_up(self, known: str | None, active: int, text: str) -> str:
        """A variable that takes in the lanes of one more vector."""
        more = f"{self.cut(active, self.lanes)}({text})"
        if known is None:
            known = self.name("d")
            self.put(f"{known} = {more}")
        else:
            self.put(f"{known} = {known} + {more}")
        return known

    def cut(self, active: int, lanes: int) -> str:
        return self.function(f"first{active}", f"lane_tools.first({active}, {lanes})")

    def once_scratch(self, text: str, active: int) -> str:
        name = self.buffer(self.name("x"), self.lanes)
        self.write(name, "0", Place(np.arange(active), active), text)
        return name

    def fold_in_memory(self, where: np.ndarray, shape: Shape, text: Text, made: Held) -> None:
        assert made.backing is not None
        array, row = made.backing
        for place in self.cells(shape):
            q = place.through(where)
            if q.run is not None:
                made.add(q, text(place))
                continue
            x, i = self.once_scratch(text(place), place.active), self.name("i")
            with self.block(f"for {i} in range({place.active}):"):
                self.put(f"{array}[{row}, {self.map(q.at)}[0, {place.start} + {i}]] += {x}[0, {i}]")

    def reduced(self, e: Expr) -> np.ndarray:
        """Position in a sum of each number of its argument."""
        a = e.args[0]
        kept = [1 if k - len(a.dims) in e.static["axis"] else d for k, d in enumerate(a.dims)]
        return np.broadcast_to(np.arange(int(np.prod(kept))).reshape(kept), a.dims).ravel()

    def total(self, name: str, shape: Shape) -> Held:
        """A value to be added up."""
        held = Held.best(self, name, shape)
        held.clear()
        return held

    # ---- one method for each

    def keep_sum(self, e: Expr, name: str) -> Held:
        a = e.args[0]
        return self.fold(self.reduced(e), a.dims, lambda p: self.value(a, p), self.total(name, e.dims))

    def keep_max(self, e: Expr, name: str) -> Held:
        a, n = e.args[0], self.number[id(e)]
        held = Held.scratch(self, name, e.dims)
        winner, values = self.buffer(f"w{n}", int(np.prod(e.dims)), "int64"), Held.scratch(self, f"all{n}", a.dims)
        for place in self.cells(a.dims):
            values.set(place, self.value(a, place))
        order = np.argsort(self.reduced(e), kind="stable")
        size = int(np.prod(e.dims))
        where, each = self.map(order), len(order) // max(size, 1)
        with self.block(f"for i in range({size}):"):
            self.put("best, which = T(-np.inf), 0")
            with self.block(f"for j in range({each}):"):
                self.put(f"at_j = {where}[0, i * {each} + j]")
                with self.block(f"if {values.name}[0, at_j] > best:"):
                    self.put(f"best, which = {values.name}[0, at_j], at_j")
            self.put(f"{name}[0, i] = best")
            self.put(f"{winner}[0, i] = which")
        return held

    def keep_matmul(self, e: Expr, name: str) -> Held:
        x, w = e.args
        inner, k = int(np.prod(w.dims[1:])), x.dims[-1]
        if self.turned(e):
            return self.fold(self.product_at(e), self.product_shape(e), self.products(e), self.total(name, e.dims))
        held = self.total(name, e.dims)
        matrix, array, row = self.arg(f"c{self.number[id(w)]}"), *self.memory(x)
        lead, one = int(np.prod(x.dims[:-1])), self.loads(1)
        if not self.rolled:
            for place in self.cells(e.dims):
                held.add(place, self.zeros(place))
            with self.block(f"for k_{name} in range({k}):"):
                for line in range(lead):
                    self.put(f"x{line}_{name} = {one}({array}, {row}, {line * k} + k_{name})")
                for place in self.cells(e.dims):
                    line, start = divmod(int(place.at[0]), inner)
                    entry = self.read(matrix, f"k_{name}", Place(np.arange(start, start + place.active), place.active))
                    held.add(place, f"x{line}_{name} * {entry}")
            return held
        for line in range(lead):
            with self.block(f"for k_{name} in range({k}):"):
                self.put(f"x_{name} = {one}({array}, {row}, {line * k} + k_{name})")
                for place in self.cells((inner,)):
                    entry = self.read(matrix, f"k_{name}", place)
                    held.add(place.through(np.arange(inner) + line * inner), f"x_{name} * {entry}")
        return held

    def product_shape(self, e: Expr) -> Shape:
        """Rows, columns and length of the inner products of a turned product."""
        x, w = e.args
        return int(np.prod(x.dims[:-1])), int(np.prod(w.dims[1:])), x.dims[-1]

    def product_at(self, e: Expr) -> np.ndarray:
        lead, inner, k = self.product_shape(e)
        return np.repeat(np.arange(lead * inner), k)

    def products(self, e: Expr) -> Text:
        """The single products of which the inner products are sums."""
        x, w = e.args
        lead, inner, k = self.product_shape(e)
        line, column, at = np.indices((lead, inner, k)).reshape(3, -1)
        matrix = self.arg(f"ct{self.number[id(w)]}")
        return lambda p: f"{self.value(x, p.through(line * k + at))} * {self.read(matrix, '0', p.through(column * k + at))}"

    def memory(self, e: Expr) -> tuple[str, str]:
        """Where a value can be read number by number at run time."""
        n = self.number[id(e)]
        if not e.rows:
            return self.arg(f"c{n}"), "0"
        if e.leaf is not None:
            return self.arg(f"{e.leaf[0]}{n}"), self.row(e)
        if n in self.kept:
            return self.kept[n].memory()
        if self.is_alias(e):
            return self.memory(e.args[0])
        held = Held.scratch(self, f"m{n}", e.dims)
        for place in self.cells(e.dims):
            held.set(place, self.value(e, place))
        return held.memory()

    def keep_standardise(self, e: Expr, name: str) -> Held:
        x, d = e.args[0], e.dims[-1]
        lead = np.repeat(np.arange(int(np.prod(e.dims[:-1]))), d)
        mean = self.fold(lead, e.dims, lambda p: f"{self.value(x, p)} * T({1 / d!r})", self.total(f"a{name}", e.dims[:-1]))
        centred = Held.best(self, f"b{name}", e.dims)
        for place in self.cells(e.dims):
            centred.set(place, f"{self.value(x, place)} - {mean.get(place.through(lead))}")
        square = lambda p: f"square({centred.get(p)}) * T({1 / d!r})"
        variance = self.fold(lead, e.dims, square, self.total(f"v{name}", e.dims[:-1]))
        inverse, held = Held.best(self, f"d{name}", e.dims[:-1]), Held.best(self, name, e.dims)
        for place in self.cells(e.dims[:-1]):
            inverse.set(place, f"T(1) / sqrt({variance.get(place)} + T({e.static['eps']!r}))")
        for place in self.cells(e.dims):
            held.set(place, f"{centred.get(place)} * {inverse.get(place.through(lead))}")
        self.aside[self.number[id(e)]] = inverse
        return held

    def keep_concat(self, e: Expr, name: str) -> Held:
        held = Held.scratch(self, name, e.dims)
        array, row = held.memory()
        for a, where in zip(e.args, self.joined(e), strict=True):
            for place in self.cells(a.dims):
                q = place.through(where)
                if q.run is not None:
                    held.set(q, self.value(a, place))
                    continue
                x, i = self.once_scratch(self.value(a, place), place.active), self.name("i")
                with self.block(f"for {i} in range({place.active}):"):
                    self.put(f"{array}[{row}, {self.map(q.at)}[0, {place.start} + {i}]] = {x}[0, {i}]")
        return held

    def joined(self, e: Expr) -> list[np.ndarray]:
        """Position in a joined value of each number of its parts."""
        axis = len(e.dims) + e.static["axis"]
        cuts = np.cumsum([a.dims[axis] for a in e.args])[:-1]
        return [part.ravel() for part in np.split(np.arange(int(np.prod(e.dims))).reshape(e.dims), cuts, axis)]

    def keep_dropout(self, e: Expr, name: str) -> Held:
        x, n, rate = e.args[0], self.number[id(e)], e.static["rate"]
        factor, held = Held.best(self, f"f{n}", e.dims), Held.best(self, name, e.dims)
        self.put(f"h{n} = mix(np.uint64({self.arg('edge_gid')}[se]) * GOLDEN + {self.arg(f'key{n}')})")
        limit = f"np.uint64({min(int(rate * 2.0**64), 2**64 - 1)}), T({1 / (1 - rate)!r})"
        for place in self.cells(e.dims):
            draw = self.function(f"draw{place.active}", f"lane_tools.dropout_factors({place.active})")
            factor.set(place, f"{draw}(h{n}, {place.run}, {limit})")
            held.set(place, f"{self.value(x, place)} * {factor.get(place)}")
        self.aside[n] = factor
        return held

    def keep_embedding(self, e: Expr, name: str) -> Held:
        table = e.args[0]
        held = Held.scratch(self, name, e.dims)
        for p, row in enumerate(self.rows_of(e)):
            width = int(np.prod(table.dims[1:]))
            for place in self.cells((width,)):
                entry = self.read(self.arg(f"c{self.number[id(table)]}"), row, place)
                held.set(place.through(np.arange(width) + p * width), entry)
        return held

    def rows_of(self, e: Expr) -> list[str]:
        """The rows of its table that an embedding reads."""
        table, which = e.args
        return [self.once(f"inside_table(number({self.value(which, Place(np.array([p]), 1))}), {table.dims[0]})")
                for p in range(int(np.prod(which.dims)))]
