"""Lowering of rows of a table by number."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..autodiff.expr import Expr
from ..functions.embedding import check_range, embedding_p
from .gradients import Gradients
from .lane_slice import LaneSlice
from .lowering import Lowering, register
from .register_buffer import RegisterBuffer
from .registers import Registers, Text
from .values import Values


class Embedding(Lowering):
    """Rows are copied into scratch space, and gradients added to rows."""

    repeats = True

    def forward(self, r: Registers, e: Expr, name: str) -> RegisterBuffer:
        s, v = r.source, r.values
        table = e.args[0]
        buffer = RegisterBuffer.scratch(s, name, e.dims)
        for p, row in enumerate(rows_of(v, e)):
            width = int(np.prod(table.dims[1:]))
            for cell in s.slices((width,)):
                entry = s.read(s.arg(f"c{v.number[id(table)]}"), row, cell)
                buffer.set(cell.through(np.arange(width) + p * width), entry)
        return buffer

    def backward(self, to: Gradients, e: Expr, g: Text) -> None:
        s, v = to.source, to.values
        table = e.args[0]
        if id(table) not in to.on_path:
            return
        name, width = s.arg(f"gc{v.number[id(table)]}"), int(np.prod(table.dims[1:]))
        for p, row in enumerate(rows_of(v, e)):
            buffer = RegisterBuffer(s, name, (width,), (name, row))
            for cell in s.slices((width,)):
                buffer.add(cell, g(cell.through(np.arange(width) + p * width)))

    def check(self, e: Expr, constants: Callable[[Expr], np.ndarray], column: Callable[[Expr], np.ndarray | None]) -> None:
        check_range(column(e.args[1]), len(constants(e.args[0])), **e.static)


def rows_of(v: Values, e: Expr) -> list[str]:
    """The rows of its table that an embedding reads."""
    table, which = e.args
    s = v.source
    return [s.once(f"inside_table(number({v.text(which, LaneSlice(np.array([p]), 1))}), {table.dims[0]})")
            for p in range(int(np.prod(which.dims)))]


register(embedding_p, Embedding())
