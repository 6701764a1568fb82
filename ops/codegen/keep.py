"""Values that are worth a buffer, and those that need a loop of their own: sums, products, joins, masks."""
from __future__ import annotations

import numpy as np

from ..expr import Expr
from .text import Index
from .value import STRUCTURAL, ValueWriter

# uses that address their argument by flat position, or read it many times
READ_AGAIN = ("reshape", "getitem", "broadcast_to", "to_dense", "concat", "matmul", "standardise")
# numbers of one edge that a buffer may hold for the sake of speed
MOST_KEPT = 1 << 17
# characters of an inlined value; code that names an argument twice would otherwise double with every step
MOST_TEXT = 300


class KeepWriter(ValueWriter):
    """Writes values of the current edge into buffers."""

    def keep_values(self, roots: list[Expr]) -> None:
        """Write loops for what must be kept, arguments first."""
        needed: set[int] = set()

        def visit(e: Expr) -> None:
            if id(e) not in needed:
                needed.add(id(e))
                for a in e.args:
                    visit(a)

        for root in roots:
            visit(root)
        uses = self.uses()
        for e in self.phase.order:
            if id(e) not in needed or not e.rows or e.prim is None or self.is_alias(e):
                continue
            if self.must_keep(e, uses.get(id(e), []), any(e is root for root in roots)):
                self.keep(e)

    def must_keep(self, e: Expr, uses: list[Expr], root: bool) -> bool:
        assert e.prim is not None
        name, code = e.prim.name, self.code(e)
        if code is None and name not in (*STRUCTURAL, "repeat_rows", "embedding"):
            return True
        count = len(uses) + root
        backward = self.v.mode != "forward"
        if code is not None and code.costly and (count > 1 or backward):
            return True
        if any(u.prim is not None and u.prim.name in READ_AGAIN for u in uses):
            return True
        size = int(np.prod(e.shape))
        wider = any(int(np.prod(u.shape)) > size for u in uses)
        if code is None or self.trivial(e):
            return False
        return len(self.value(e, ["0"] * len(e.shape))) > MOST_TEXT or ((count > 1 or wider) and size <= MOST_KEPT)

    def trivial(self, e: Expr) -> bool:
        return e.prim is not None and e.prim.name in ("ones_like", "cast")

    def keep(self, e: Expr) -> None:
        assert e.prim is not None
        n, name, size = self.number[id(e)], e.prim.name, int(np.prod(e.shape))
        self.buffer(f"t{n}", size)
        if name == "sum":
            self.keep_sum(e)
        elif name == "max":
            self.keep_max(e)
        elif name == "matmul":
            self.keep_matmul(e)
        elif name == "concat":
            self.keep_concat(e)
        elif name == "dropout":
            self.keep_dropout(e)
        elif name == "standardise":
            self.keep_standardise(e)
        else:
            with self.loops(e.shape, "i") as index:
                self.put(f"t{n}[{self.flat(e.shape, index)}] = {self.value(e, index)}")
        self.kept.add(n)

    def reduced(self, e: Expr) -> tuple[Expr, list[int], list[int]]:
        """Argument of a reduction, its kept axes and its reduced axes."""
        a = e.args[0]
        gone = sorted(len(a.shape) + k for k in e.static["axis"])
        return a, [k for k in range(len(a.shape)) if k not in gone], gone

    def split_loops(self, a: Expr, stay: list[int], gone: list[int], outer: Index, inner: Index) -> Index:
        index = ["0"] * len(a.shape)
        for k, i in zip(stay, outer, strict=True):
            index[k] = i
        for k, i in zip(gone, inner, strict=True):
            index[k] = i
        return index

    def keep_sum(self, e: Expr) -> None:
        a, stay, gone = self.reduced(e)
        n = self.number[id(e)]
        with self.loops(tuple(a.shape[k] for k in stay), "i") as outer:
            self.put(f"a{n} = T(0)")
            with self.loops(tuple(a.shape[k] for k in gone), "j") as inner:
                self.put(f"a{n} += {self.value(a, self.split_loops(a, stay, gone, outer, inner))}")
            self.put(f"t{n}[{self.flat(tuple(a.shape[k] for k in stay), outer)}] = a{n}")

    def keep_max(self, e: Expr) -> None:
        a, stay, gone = self.reduced(e)
        n = self.number[id(e)]
        self.buffer(f"w{n}", int(np.prod(e.shape)), "int64")
        with self.loops(tuple(a.shape[k] for k in stay), "i") as outer:
            self.put(f"a{n} = T(-np.inf)")
            self.put(f"b{n} = 0")
            with self.loops(tuple(a.shape[k] for k in gone), "j") as inner:
                index = self.split_loops(a, stay, gone, outer, inner)
                self.put(f"x{n} = {self.value(a, index)}")
                self.put(f"if x{n} > a{n}:")
                self.put(f"    a{n} = x{n}")
                self.put(f"    b{n} = {self.flat(a.shape, index)}")
            at = self.flat(tuple(a.shape[k] for k in stay), outer)
            self.put(f"t{n}[{at}] = a{n}")
            self.put(f"w{n}[{at}] = b{n}")

    def keep_matmul(self, e: Expr) -> None:
        x, w = e.args
        n, lead, inner = self.number[id(e)], x.shape[:-1], w.shape[1:]
        if self.turned(e):
            with self.loops(lead, "i") as outer, self.loops(inner, "j") as j:
                self.put(f"a{n} = T(0)")
                with self.loops((x.shape[-1],), "k") as k:
                    self.put(f"a{n} += {self.value(x, outer + k)} * {self.entry(e, k, j)}")
                self.put(f"t{n}[{self.flat(e.shape, outer + j)}] = a{n}")
            return
        with self.loops(e.shape, "i") as index:
            self.put(f"t{n}[{self.flat(e.shape, index)}] = T(0)")
        with self.loops(lead, "i") as outer, self.loops((x.shape[-1],), "k") as k:
            self.put(f"x{n} = {self.value(x, outer + k)}")
            with self.loops(inner, "j") as j:
                self.put(f"t{n}[{self.flat(e.shape, outer + j)}] += x{n} * {self.entry(e, k, j)}")

    def keep_standardise(self, e: Expr) -> None:
        n, x, d = self.number[id(e)], e.args[0], e.shape[-1]
        self.buffer(f"d{n}", int(np.prod(e.shape[:-1])))
        with self.loops(e.shape[:-1], "i") as outer:
            self.put(f"a{n} = T(0)")
            with self.loops(e.shape[-1:], "j") as j:
                self.put(f"a{n} += {self.value(x, outer + j)}")
            self.put(f"a{n} /= T({d})")
            self.put(f"b{n} = T(0)")
            with self.loops(e.shape[-1:], "j") as j:
                self.put(f"x{n} = {self.value(x, outer + j)} - a{n}")
                self.put(f"b{n} += x{n} * x{n}")
            self.put(f"b{n} = T(1) / T(math.sqrt(b{n} / T({d}) + T({e.static['eps']!r})))")
            self.put(f"d{n}[{self.flat(e.shape[:-1], outer)}] = b{n}")
            with self.loops(e.shape[-1:], "j") as j:
                self.put(f"t{n}[{self.flat(e.shape, outer + j)}] = ({self.value(x, outer + j)} - a{n}) * b{n}")

    def keep_concat(self, e: Expr) -> None:
        n = self.number[id(e)]
        for p, a in enumerate(e.args):
            with self.loops(a.shape, "i") as index:
                self.put(f"t{n}[{self.concat_place(e, p, index)}] = {self.value(a, index)}")

    def concat_place(self, e: Expr, p: int, index: Index) -> str:
        axis = len(e.shape) + e.static["axis"]
        start = sum(a.shape[axis] for a in e.args[:p])
        moved = [f"({i} + {start})" if k == axis and start else i for k, i in enumerate(index)]
        # the joined axis is longer than 1 even where this part's is not
        return self.flat(e.shape, moved)

    def keep_dropout(self, e: Expr) -> None:
        x, n = e.args[0], self.number[id(e)]
        self.buffer(f"f{n}", int(np.prod(e.shape)))
        self.put(f"h{n} = mix(np.uint64({self.arg('edge_gid')}[se]) * GOLDEN + {self.arg(f'key{n}')})")
        rate = e.static["rate"]
        threshold = min(int(rate * 2.0**64), 2**64 - 1)
        with self.loops(e.shape, "i") as index:
            at = self.flat(e.shape, index)
            self.put(f"f{n}[{at}] = T({1 / (1 - rate)!r}) if mix(h{n} + np.uint64({at} + 1) * COLUMN) >= np.uint64({threshold}) else T(0)")
            self.put(f"t{n}[{at}] = {self.value(x, index)} * f{n}[{at}]")
