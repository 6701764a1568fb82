"""Lowering of rows of tables by number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...autodiff.expr import Expr
from ...functions.embedding import check_range, embedding_p, own_embedding_p
from ..source.lane_slice import LaneSlice
from ..source.register_buffer import RegisterBuffer
from .gradients import GradientCode
from .lowering import Lowering, register
from .registers import Registers, Text
from .values import TABLES, Values


class Embedding(Lowering):
    """One row is read where it is, several are copied into scratch space; gradients are added to
    rows.
    """

    repeats = True

    def forward(self, r: Registers, e: Expr, name: str) -> RegisterBuffer:
        s = r.source
        v = r.values
        table = e.args[0]
        rows = rows_of(v, e)
        if len(rows) == 1:
            return RegisterBuffer(s, name, e.dims, (s.arg(f"c{v.number[id(table)]}"), rows[0]))
        buffer = RegisterBuffer.scratch(s, name, e.dims)
        width = int(np.prod(table.dims[1:]))
        for p, row in enumerate(rows):
            for cell in s.slices((width,)):
                entry = s.read(s.arg(f"c{v.number[id(table)]}"), row, cell)
                buffer.set(cell.through(np.arange(width) + p * width), entry)
        return buffer

    def backward(self, to: GradientCode, e: Expr, g: Text) -> None:
        s = to.source
        v = to.values
        table = e.args[0]
        if id(table) not in to.on_path:
            return
        name = s.arg(f"gc{v.number[id(table)]}")
        width = int(np.prod(table.dims[1:]))
        for p, row in enumerate(rows_of(v, e)):
            # few edges add to a row of a large table, so each is added in float64
            buffer = RegisterBuffer(s, name, (width,), (name, row), dtype="float64")
            for cell in s.slices((width,)):
                buffer.add(cell, g(cell.through(np.arange(width) + p * width)))

    def check(
        self,
        e: Expr,
        constants: Callable[[Expr], np.ndarray],
        column: Callable[[Expr], np.ndarray | None],
    ) -> None:
        check_range(column(e.args[1]), len(constants(e.args[0])), **e.static)


class OwnEmbedding(Lowering):
    """A row of the table that a row has; all tables of a column are one matrix of their rows."""

    gradient_reads = (1,)

    def forward(self, r: Registers, e: Expr, name: str) -> RegisterBuffer:
        leaf = e.args[0].leaf
        assert leaf is not None
        return self._row(r.values, e, name, leaf[0], r.values.row(e.args[0]))

    def backward(self, to: GradientCode, e: Expr, g: Text) -> None:
        v = to.values
        table = e.args[0]
        if id(table) not in to.on_path:
            return
        assert table.leaf is not None
        kind = table.leaf[0]
        buffer = self._row(
            v, e, to.source.name("own"), f"g{kind}", "tr" if kind == v.fixed_end else v.row(table)
        )
        for cell in to.source.slices(e.dims):
            buffer.add(cell, g(cell))

    @staticmethod
    def _row(v: Values, e: Expr, name: str, kind: str, row: str) -> RegisterBuffer:
        s = v.source
        table = e.args[0]
        at = s.once(f"{row} * {table.dims[0]} + {rows_of(v, e)[0]}")
        return RegisterBuffer(s, name, e.dims, (s.arg(f"{kind}{v.number[id(table)]}{TABLES}"), at))

    def check(
        self,
        e: Expr,
        constants: Callable[[Expr], np.ndarray],
        column: Callable[[Expr], np.ndarray | None],
    ) -> None:
        check_range(column(e.args[1]), e.args[0].dims[0], **e.static)


def rows_of(v: Values, e: Expr) -> list[str]:
    """The rows of its table that an embedding reads."""
    table, which = e.args
    s = v.source
    return [
        s.once(
            f"inside_table(number({v.text(which, LaneSlice(np.array([p]), 1))}), {table.dims[0]})"
        )
        for p in range(int(np.prod(which.dims)))
    ]


register(embedding_p, Embedding())
register(own_embedding_p, OwnEmbedding())
