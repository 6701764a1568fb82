"""Lowering of the product of edge values with a matrix."""

from __future__ import annotations

import numpy as np

from ...autodiff.expr import Expr
from ...functions.dense import matmul_p
from ..source.lane_slice import LaneSlice, Shape
from ..source.register_buffer import RegisterBuffer
from .gradients import Gradients
from .lowering import Lowering, register
from .registers import Registers, Text


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
            return r.fold(product_at(e), product_shape(e), products(r, e), r.total(name, e.dims))
        buffer = r.total(name, e.dims)
        matrix = s.arg(f"c{v.number[id(w)]}")
        array, row = r.memory(x)
        lead = int(np.prod(x.dims[:-1]))
        one = s.loads(1)
        if not s.rolled:
            for cell in s.slices(e.dims):
                buffer.add(cell, s.zeros(cell))
            with s.block(f"for k_{name} in range({k}):"):
                for line in range(lead):
                    s.put(f"x{line}_{name} = {one}({array}, {row}, {line * k} + k_{name})")
                for cell in s.slices(e.dims):
                    line, start = divmod(int(cell.at[0]), inner)
                    entry = s.read(
                        matrix,
                        f"k_{name}",
                        LaneSlice(np.arange(start, start + cell.active), cell.active),
                    )
                    buffer.add(cell, f"x{line}_{name} * {entry}")
            return buffer
        for line in range(lead):
            with s.block(f"for k_{name} in range({k}):"):
                s.put(f"x_{name} = {one}({array}, {row}, {line * k} + k_{name})")
                for cell in s.slices((inner,)):
                    entry = s.read(matrix, f"k_{name}", cell)
                    buffer.add(cell.through(np.arange(inner) + line * inner), f"x_{name} * {entry}")
        return buffer

    def backward(self, to: Gradients, e: Expr, g: Text) -> None:
        s = to.source
        v = to.values
        r = to.registers
        x, w = e.args
        if transposed(e, s.lanes):
            self._transposed(to, e, g)
            return
        if id(x) in to.on_path:
            self._left(to, e, g)
        if id(w) in to.on_path:
            lead, inner, k = product_shape(e)
            name = s.near_sum(f"gc{v.number[id(w)]}")
            array, source = r.memory(x)
            buffer = RegisterBuffer(s, name, (inner,), (name, f"k_{name}"))
            with s.block(f"for k_{name} in range({k}):"):
                for line in range(lead):
                    s.put(f"x_{name} = {s.loads(1)}({array}, {source}, {line * k} + k_{name})")
                    for cell in s.slices((inner,)):
                        buffer.add(
                            cell, f"x_{name} * {g(cell.through(np.arange(inner) + line * inner))}"
                        )

    def _transposed(self, to: Gradients, e: Expr, g: Text) -> None:
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

    def _left(self, to: Gradients, e: Expr, g: Text) -> None:
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
