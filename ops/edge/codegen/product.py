"""Lowering of the product of edge values with a matrix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ...autodiff.expr import Expr
from ...functions.dense import matmul_p
from ..source.lane_slice import LaneSlice, Shape
from ..source.register_buffer import RegisterBuffer
from .gradients import GradientCode
from .lowering import Lowering, register
from .registers import Registers, Text
from .values import Values


class Product(Lowering):
    """Rows of the matrix times numbers of the edge, or a few inner products."""

    reads_again = True
    repeats = True

    def forward(self, r: Registers, e: Expr, name: str) -> RegisterBuffer:
        s = r.source
        v = r.values
        x, w = e.args
        inner = int(np.prod(w.dims[1:]))
        k = x.dims[-1]
        if transposed(e, s.lanes):
            if v.typed(x):
                return self._own_columns(r, e, name)
            return r.fold(product_at(e), product_shape(e), products(r, e), r.total(name, e.dims))
        buffer = r.total(name, e.dims)
        matrix = s.arg(f"c{v.number[id(w)]}")
        # of a row of a type only its own columns are multiplied
        array, row, count, first = v.typed(x) or (*r.memory(x), str(k), "")
        of_matrix = f"{first} + k_{name}" if first else f"k_{name}"
        lead = int(np.prod(x.dims[:-1]))
        one = s.loads(1)
        if not s.rolled:
            for cell in s.slices(e.dims):
                buffer.add(cell, s.zeros(cell))
            with s.block(f"for k_{name} in range({count}):"):
                for line in range(lead):
                    s.put(f"x{line}_{name} = {one}({array}, {row}, {line * k} + k_{name})")
                for cell in s.slices(e.dims):
                    line, start = divmod(int(cell.at[0]), inner)
                    entry = s.read(
                        matrix,
                        of_matrix,
                        LaneSlice(np.arange(start, start + cell.active), cell.active),
                    )
                    buffer.add(cell, f"x{line}_{name} * {entry}")
            return buffer
        for line in range(lead):
            with s.block(f"for k_{name} in range({count}):"):
                s.put(f"x_{name} = {one}({array}, {row}, {line * k} + k_{name})")
                for cell in s.slices((inner,)):
                    entry = s.read(matrix, of_matrix, cell)
                    buffer.add(cell.through(np.arange(inner) + line * inner), f"x_{name} * {entry}")
        return buffer

    def backward(self, to: GradientCode, e: Expr, g: Text) -> None:
        s = to.source
        v = to.values
        r = to.registers
        x, w = e.args
        if transposed(e, s.lanes):
            if v.typed(x):
                self._own_columns_back(to, e, g)
            else:
                self._transposed(to, e, g)
            return
        if id(x) in to.on_path:
            self._left(to, e, g)
        if id(w) in to.on_path:
            lead, inner, k = product_shape(e)
            name = s.near_sum(f"gc{v.number[id(w)]}")
            array, source, count, first = v.typed(x) or (*r.memory(x), str(k), "")
            of_matrix = f"{first} + k_{name}" if first else f"k_{name}"
            buffer = RegisterBuffer(s, name, (inner,), (name, of_matrix))
            with s.block(f"for k_{name} in range({count}):"):
                for line in range(lead):
                    s.put(f"x_{name} = {s.loads(1)}({array}, {source}, {line * k} + k_{name})")
                    for cell in s.slices((inner,)):
                        buffer.add(
                            cell, f"x_{name} * {g(cell.through(np.arange(inner) + line * inner))}"
                        )

    def _own_columns(self, r: Registers, e: Expr, name: str) -> RegisterBuffer:
        """A few inner products of the numbers of a row of a type: whole vectors along the row, and
        vectors of the products for the numbers that these leave.
        """
        s = r.source
        n = r.values.number[id(e.args[1])]
        inner = product_shape(e)[1]
        buffer = RegisterBuffer.scratch(s, name, e.dims)
        every = LaneSlice(np.arange(inner), inner)
        s.put(f"r_{name} = {s.zeros(every)}")
        with self._numbers(r.values, e, name, 1) as first:
            entries = s.read(s.arg(f"c{n}"), f"{first} + k_{name}", every)
            s.put(f"r_{name} = r_{name} + x_{name} * {entries}")
        s.write(buffer.name, "0", every, f"r_{name}")
        with s.block(f"if {self._count(r.values, e)} >= {s.lanes}:"):
            for h in range(inner):
                s.put(f"d{h}_{name} = {s.zeros(LaneSlice(np.arange(s.lanes), s.lanes))}")
            with self._numbers(r.values, e, name, s.lanes) as first:
                for h in range(inner):
                    entries = f"{s.loads(s.lanes)}({s.arg(f'ct{n}')}, {h}, {first} + k_{name})"
                    s.put(f"d{h}_{name} = d{h}_{name} + v_{name} * {entries}")
            total = s.function("totals1", "lane_tools.totals(1)")
            for h in range(inner):
                s.put(f"{buffer.name}[0, {h}] += number({total}(d{h}_{name}))")
        return buffer

    def _own_columns_back(self, to: GradientCode, e: Expr, g: Text) -> None:
        """The gradient of the matrix of ``_own_columns``."""
        s = to.source
        v = to.values
        n = v.number[id(e.args[1])]
        if id(e.args[1]) not in to.on_path:
            return
        name = s.name("own")
        inner = product_shape(e)[1]
        every = LaneSlice(np.arange(inner), inner)
        s.put(f"g_{name} = {g(every)}")
        with self._numbers(v, e, name, 1) as first:
            near = s.near_sum(f"gc{n}")
            row = f"{first} + k_{name}"
            s.write(near, row, every, f"{s.read(near, row, every)} + x_{name} * g_{name}")
        with s.block(f"if {self._count(v, e)} >= {s.lanes}:"):
            for h in range(inner):
                s.put(f"g{h}_{name} = {g(LaneSlice(np.array([h]), 1))}")
            near = s.near_sum(f"gct{n}")
            load = s.loads(s.lanes)
            store = s.function(f"store{s.lanes}", f"lanes.storer({s.lanes})")
            with self._numbers(v, e, name, s.lanes) as first:
                for h in range(inner):
                    at = f"{near}, {h}, {first} + k_{name}"
                    s.put(f"{store}({at}, {load}({at}) + g{h}_{name} * v_{name})")

    @staticmethod
    def _count(v: Values, e: Expr) -> str:
        own = v.typed(e.args[0])
        assert own is not None
        return own[2]

    @staticmethod
    @contextmanager
    def _numbers(v: Values, e: Expr, name: str, size: int) -> Iterator[str]:
        """A loop over the numbers of a row of a type: over as many whole vectors as there are,
        which it names v, or over the numbers that these leave, x. Gives the column of the first.
        """
        own = v.typed(e.args[0])
        assert own is not None
        array, row, count, first = own
        s = v.source
        whole = f"{count} // {s.lanes} * {s.lanes}"
        bounds = f"0, {whole}, {size}" if size > 1 else f"{whole}, {count}"
        with s.block(f"for k_{name} in range({bounds}):"):
            s.put(f"{'v' if size > 1 else 'x'}_{name} = {s.loads(size)}({array}, {row}, k_{name})")
            yield first

    def _transposed(self, to: GradientCode, e: Expr, g: Text) -> None:
        s = to.source
        v = to.values
        r = to.registers
        x, w = e.args
        lead, inner, k = product_shape(e)
        n = v.number[id(w)]
        line, at = np.divmod(np.arange(lead * k), k)

        def text(p: LaneSlice) -> str:
            matrix = s.arg(f"ct{n}")
            terms = [
                f"{g(p.through(line * inner + j))} * {s.read(matrix, '0', p.through(j * k + at))}"
                for j in range(inner)
            ]
            return f"({' + '.join(terms)})"

        to.add(x, x.dims, text)
        if id(w) not in to.on_path:
            return
        target = r.block_sum(f"gct{n}", (inner, k))
        column, along = np.divmod(np.arange(inner * k), k)
        for row in range(lead):
            for cell in s.slices((inner, k)):
                target.add(
                    cell,
                    f"{g(cell.through(row * inner + column))} *"
                    f" {v.text(x, cell.through(row * k + along))}",
                )

    def _left(self, to: GradientCode, e: Expr, g: Text) -> None:
        """The gradient of the left factor: an inner product with each row of the matrix."""
        s = to.source
        v = to.values
        x, w = e.args
        lead, inner, k = product_shape(e)
        matrix = s.arg(f"c{v.number[id(w)]}")
        name = f"gx{v.number[id(e)]}"
        buffer = RegisterBuffer.scratch(s, name, x.dims)
        one = s.function("totals1", "lane_tools.totals(1)")
        for line in range(lead):
            with s.block(f"for k_{name} in range({k}):"):
                s.put(f"d_{name} = {s.cut(1, s.lanes)}(single(ZERO))")
                for cell in s.slices((inner,)):
                    text = (
                        f"{g(cell.through(np.arange(inner) + line * inner))} *"
                        f" {s.read(matrix, f'k_{name}', cell)}"
                    )
                    s.put(f"d_{name} = d_{name} + {s.cut(cell.active, s.lanes)}({text})")
                s.put(f"{buffer.name}[0, {line * k} + k_{name}] = number({one}(d_{name}))")
        to.add(x, x.dims, buffer.get)


def transposed(e: Expr, lanes: int) -> bool:
    """Whether a product is a few inner products: its matrix is then read transposed."""
    x, w = e.args
    lead = int(np.prod(x.dims[:-1]))
    inner = int(np.prod(w.dims[1:]))
    return inner == 1 or (x.dims[-1] >= 2 * inner and lead * inner <= lanes)


def product_shape(e: Expr) -> Shape:
    """Rows, columns and length of the inner products of a transposed product."""
    x, w = e.args
    return int(np.prod(x.dims[:-1])), int(np.prod(w.dims[1:])), x.dims[-1]


def product_at(e: Expr) -> np.ndarray:
    """Position in the result of each single product."""
    lead, inner, k = product_shape(e)
    return np.repeat(np.arange(lead * inner), k)


def products(r: Registers, e: Expr) -> Text:
    """The single products of which the inner products are sums."""
    s = r.source
    v = r.values
    x, w = e.args
    lead, inner, k = product_shape(e)
    line, column, at = np.indices((lead, inner, k)).reshape(3, -1)
    matrix = s.arg(f"ct{v.number[id(w)]}")
    return lambda p: (
        f"{v.text(x, p.through(line * k + at))} * {s.read(matrix, '0', p.through(column * k + at))}"
    )


register(matmul_p, Product())
