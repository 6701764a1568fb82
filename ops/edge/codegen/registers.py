"""Decides which values are saved in register buffers, and writes them and sums over positions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...autodiff.expr import Expr
from ..source.lane_slice import LaneSlice, Shape, slices
from ..source.register_buffer import RegisterBuffer
from ..source.source import KernelSource
from .lowering import lowering_of
from .values import Values

Text = Callable[[LaneSlice], str]
# elementwise steps written into one line
MOST_STEPS = 6
# vectors of a gradient of all edges that are held in variables
MOST_SUMMED = 16


class Registers:
    """Writes values of the current edge, and sums over edges, into variables or scratch space."""

    def __init__(self, source: KernelSource, values: Values):
        self.source = source
        self.values = values
        self.sums: dict[str, RegisterBuffer] = {}

    def save(self, roots: list[Expr]) -> None:
        """Write the values that need a register buffer, arguments first."""
        needed: set[int] = set()

        def visit(e: Expr) -> None:
            if id(e) not in needed and self.values.number[id(e)] not in self.values.saved:
                needed.add(id(e))
                # a constant reads the shape of its argument only
                for a in () if e.traits.constant is not None else e.args:
                    visit(a)

        for root in roots:
            visit(root)
        uses = self.values.uses()
        steps: dict[int, int] = {}
        for e in self.values.phase.order:
            if id(e) not in needed or not e.rows or e.prim is None or self.values.is_alias(e):
                continue
            steps[id(e)] = 1 + max(steps.get(id(a), 0) for a in e.args)
            if self.must_save(
                e, uses.get(id(e), []), any(e is root for root in roots), steps[id(e)]
            ):
                steps[id(e)] = 0
                if self.values.fixed(e):
                    with self.source.within("row"):
                        self.save_one(e)
                else:
                    self.save_one(e)

    def must_save(self, e: Expr, uses: list[Expr], root: bool, steps: int) -> bool:
        """Whether a value gets a register buffer, rather than being written where it is used."""
        code = self.values.form(e)
        count = len(uses) + root
        if code is None and not e.traits.structural:
            return True
        if any(low is not None and low.reads_again for low in map(lowering_of, uses)):
            return True
        if code is None or e.traits.free:
            return False
        size = int(np.prod(e.dims))
        wider = any(int(np.prod(u.dims)) > size for u in uses)
        return (
            count > 1
            or wider
            or steps > MOST_STEPS
            or (code.costly and self.values.variant.mode != "forward")
        )

    def save_one(self, e: Expr) -> None:
        """Write a value into a register buffer."""
        n = self.values.number[id(e)]
        lowering = lowering_of(e)
        if lowering is not None and not e.traits.structural:
            self.values.saved[n] = lowering.forward(self, e, f"t{n}")
            return
        buffer = RegisterBuffer.best(self.source, f"t{n}", e.dims, self.values.kind(e))
        for cell in self.source.slices(e.dims):
            buffer.set(cell, self.values.text(e, cell))
        self.values.saved[n] = buffer

    def fold(
        self, where: np.ndarray, shape: Shape, text: Text, result: RegisterBuffer
    ) -> RegisterBuffer:
        """Add up the numbers of a value of ``shape`` at the positions that a map gives them."""
        if self.source.rolled:
            self.fold_in_memory(where, shape, text, result)
            return result
        out = slices(result.shape, self.source.lanes)
        starts = {(int(c.at[0]), c.active) for c in out}
        dots: dict[int, str] = {}
        moved = []
        for cell in slices(shape, self.source.lanes):
            q = cell.through(where)
            if q.same is not None and (q.run is None or (q.same, 1) not in starts):
                dots[q.same] = self.source.add_up(dots.get(q.same), cell.active, text(cell))
            elif q.run is not None and (int(q.at[0]), q.active) in starts:
                result.add(q, text(cell))
            else:
                moved.append((cell, q))
        self.move(moved=moved, text=text, out=out, result=result, dots=dots)
        for c in out:
            inside = [dots.get(int(p)) for p in c.at]
            if any(inside):
                name = self.source.function(f"totals{c.active}", f"lane_tools.totals({c.active})")
                zero = f"{self.source.cut(1, self.source.lanes)}(single(ZERO))"
                result.add(c, f"{name}({', '.join(x or zero for x in inside)})")
        result.fill_up()
        return result

    def move(
        self,
        moved: list[tuple[LaneSlice, LaneSlice]],
        text: Text,
        out: list[LaneSlice],
        result: RegisterBuffer,
        dots: dict[int, str],
    ) -> None:
        """Add vectors to positions neither along nor across those of the result, such as a part of
        a row that begins in a vector.

        Args:
            moved: Where the numbers are in the value, and where in the result.
            text, result: As of ``fold``.
            out: The vectors of the result.
            dots: Sums of numbers by position, to which are added those that are moved one by one.
        """
        places = np.concatenate([q.at for _, q in moved]) if moved else np.zeros(0, np.int64)
        if all(q.run is not None for _, q in moved) and len(np.unique(places)) == len(places):
            # written to memory where they belong, and read as vectors of the result
            row = RegisterBuffer.scratch(self.source, self.source.name("moved"), result.shape)
            touched = [(c, np.isin(c.at, places)) for c in out]
            for c, inside in touched:
                if inside.any() and not inside.all():
                    row.set(c, self.source.zeros(c))
            for cell, q in moved:
                row.set(q, text(cell))
            for c, inside in touched:
                if inside.any():
                    result.add(c, row.get(c))
            return
        for cell, q in moved:
            lanes = self.source.scratch(text(cell), cell.active)
            for i, p in enumerate(q.at):
                dots[int(p)] = self.source.add_up(
                    dots.get(int(p)), 1, f"{self.source.loads(1)}({lanes}, 0, {i})"
                )

    def fold_in_memory(
        self, where: np.ndarray, shape: Shape, text: Text, result: RegisterBuffer
    ) -> None:
        """The same in a loop over scratch space."""
        assert result.backing is not None
        array, row = result.backing
        for cell in self.source.slices(shape):
            q = cell.through(where)
            if q.run is not None:
                result.add(q, text(cell))
                continue
            x = self.source.scratch(text(cell), cell.active)
            i = self.source.name("i")
            with self.source.block(f"for {i} in range({cell.active}):"):
                self.source.put(
                    f"{array}[{row}, {self.source.map(q.at)}[0, {cell.start} + {i}]] += {x}[0, {i}]"
                )

    def total(self, name: str, shape: Shape) -> RegisterBuffer:
        """A buffer of zeros to add to."""
        buffer = RegisterBuffer.best(self.source, name, shape)
        buffer.clear()
        return buffer

    def memory(self, e: Expr) -> tuple[str, str]:
        """Where a value can be read number by number at run time."""
        n = self.values.number[id(e)]
        if not e.rows:
            return self.source.arg(f"c{n}"), "0"
        if e.leaf is not None:
            return self.values.memory(e)
        if n in self.values.saved:
            return self.values.saved[n].memory()
        if self.values.is_alias(e):
            return self.memory(e.args[0])
        buffer = RegisterBuffer.scratch(self.source, f"m{n}", e.dims, self.values.kind(e))
        for cell in self.source.slices(e.dims):
            buffer.set(cell, self.values.text(e, cell))
        return buffer.memory()

    def row_sum(self, array: str, shape: Shape, additive: bool) -> RegisterBuffer:
        """A sum over the edges of a row.

        Args:
            array: Where the rows are.
            shape: Trailing shape.
            additive: Whether edges only add to it. Then it is the sum over a stretch of edges,
                which is added to the row: as for ``block_sum``, a float32 sum over many edges would
                lose digits.
        """
        if array not in self.sums:
            sum_of = self._sum_in_memory if self.source.rolled else self._sum_in_variables
            self.sums[array] = sum_of(array, shape, additive)
        return self.sums[array]

    def _sum_in_variables(self, array: str, shape: Shape, additive: bool) -> RegisterBuffer:
        """A sum in variables during the loop, then stored in the row."""
        s = self.source
        buffer = RegisterBuffer(s, f"sum_{array}", shape)
        cells = slices(shape, s.lanes)
        with s.within("row"):
            for cell in cells:
                buffer.filled.add(int(cell.at[0]))
                buffer.set(cell, s.zeros(cell) if additive else s.read(array, "tr", cell))

        def store(add: bool) -> None:
            for cell in cells:
                before = f"{s.read(array, 'tr', cell)} + " if add else ""
                s.write(array, "tr", cell, before + buffer.get(cell))

        with s.within("end"):
            if additive and self.values.variant.fresh:
                with s.block("if begin == ptr[r]:"):
                    store(add=False)
                with s.block("else:"):
                    store(add=True)
            else:
                store(add=additive)
        return buffer

    def _sum_in_memory(self, array: str, shape: Shape, additive: bool) -> RegisterBuffer:
        """A sum in the row; of a later stretch of edges in scratch space, then added to the row."""
        s = self.source
        if not additive:
            return RegisterBuffer(s, array, shape, (array, "tr"))
        later = RegisterBuffer.scratch(s, f"later_{array}", shape)
        buffer = RegisterBuffer(s, array, shape, (f"into_{array}", f"at_{array}"))
        with s.within("row"):
            with s.block("if begin == ptr[r]:"):
                s.put(f"into_{array}, at_{array} = {array}, tr")
                if self.values.variant.fresh:
                    buffer.clear()
            with s.block("else:"):
                s.put(f"into_{array}, at_{array} = {later.name}, 0")
                buffer.clear()
        with s.within("end"), s.block("if begin > ptr[r]:"):
            for cell in s.slices(shape):
                s.write(array, "tr", cell, f"{s.read(array, 'tr', cell)} + {later.get(cell)}")
        return buffer

    def block_sum(self, name: str, shape: Shape) -> RegisterBuffer:
        """A sum over all edges of a block: the gradient of a value without rows.

        It is float64, and what is added to it are sums over some hundred edges in the type of the
        kernel: a float32 sum over millions of edges would lose digits.
        """
        if self.source.rolled or len(slices(shape, self.source.lanes)) > MOST_SUMMED:
            return RegisterBuffer(self.source, name, shape, (self.source.near_sum(name), "0"))
        self.source.arg(name)
        if name not in self.sums:
            buffer = self.sums[name] = RegisterBuffer(self.source, f"sum_{name}", shape)
            for cell in slices(shape, self.source.lanes):
                buffer.filled.add(int(cell.at[0]))
                with self.source.within("top"):
                    buffer.set(cell, self.source.zeros(cell))
                with self.source.within("bottom"):
                    self.source.write(
                        name,
                        "0",
                        cell,
                        f"{self.source.read(name, '0', cell)} + as_float64({buffer.get(cell)})",
                    )
        return self.sums[name]
