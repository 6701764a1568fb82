"""Values of expressions as text, lane slice by lane slice."""

from __future__ import annotations

import numpy as np

from ...autodiff.expr import Expr
from ...compile.scalar import Scalar
from ...functions.embedding import own_embedding_p
from ..program import Phase
from ..source.lane_slice import LaneSlice, broadcast
from ..source.register_buffer import RegisterBuffer
from ..source.source import KernelSource
from .variant import Variant

# ends the name of a column whose rows are tables, as the matrix of all rows of all tables
TABLES = "_tables"


class Values:
    """Reads of leaves and of saved values, and elementwise code in between.

    Attributes:
        number: Position of each expression in the order of the phase, by id.
        saved: Values that are in register buffers, by number.
        intermediates: Other values that gradients of saved values read, by number.
        fixed_end: The end, "src" or "dst", that all edges of a row share.
        tables: Columns, by id, of which edges read one row of each table, with the index.
        padded: Numbers of the edge values stored as ``TypedRows`` that are read as whole rows.
    """

    def __init__(self, source: KernelSource, phase: Phase, variant: Variant):
        self.source = source
        self.phase = phase
        self.variant = variant
        self.number = {id(e): i for i, e in enumerate(phase.order)}
        self.saved: dict[int, RegisterBuffer] = {}
        self.intermediates: dict[int, RegisterBuffer] = {}
        self.fixed_end = "src" if variant.mode == "sender" else "dst"
        self.padded: set[int] = set()
        self.tables = {
            id(e.args[0]): e.args[1] for e in phase.order if e.prim is own_embedding_p and e.rows
        }

    def uses(self) -> dict[int, list[Expr]]:
        """The uses of each expression; those of an alias instead of the alias."""
        uses: dict[int, list[Expr]] = {}
        for e in reversed(self.phase.order):
            for a in e.args:
                uses.setdefault(id(a), []).extend(uses.get(id(e), []) if self.is_alias(e) else [e])
        return uses

    def form(self, e: Expr) -> Scalar | None:
        """The scalar form of an elementwise expression."""
        return None if e.prim is None else e.prim.form(e.static)

    def kind(self, e: Expr) -> str:
        """The type in which the kernel holds an expression."""
        return e.dtype.name if e.dtype.kind in "iu" else self.variant.dtype

    def is_alias(self, e: Expr) -> bool:
        """Whether it is the identity: dropout outside of training."""
        return e.traits.random and not self.variant.training

    def text(self, e: Expr, cell: LaneSlice) -> str:
        """The value of an expression at some positions, as the text of a vector."""
        n = self.number[id(e)]
        if not e.rows:
            return (
                self.source.read(self.source.arg(f"c{n}"), "0", cell)
                if e.dims
                else f"single({self.source.arg(f'c{n}')})"
            )
        if e.leaf is not None:
            return self.leaf(e, cell)
        if n in self.saved:
            return self.saved[n].get(cell)
        if self.is_alias(e):
            return self.text(e.args[0], cell)
        assert e.prim is not None
        if e.traits.structural:
            return self.text(e.args[0], cell.through(self.where(e)))
        code = self.form(e)
        assert code is not None, e
        return code.value.format(*self.arguments_of(code.value, e, cell))

    def arguments_of(self, code: str, e: Expr, cell: LaneSlice) -> list[str]:
        """The arguments of e as code names them: nothing for one that it does not read."""
        return [
            self.text(a, self.narrow(a, e, cell)) if f"{{{i}}}" in code else ""
            for i, a in enumerate(e.args)
        ]

    def narrow(self, a: Expr, e: Expr, cell: LaneSlice) -> LaneSlice:
        """The positions in an argument that is broadcast to e."""
        return cell if a.dims == e.dims else cell.through(broadcast(a.dims, e.dims))

    def where(self, e: Expr) -> np.ndarray:
        """Flat position in the argument of each number of a structural expression."""
        assert e.prim is not None
        a, *others = e.args
        positions = np.arange(int(np.prod(a.dims))).reshape(((1,) if a.rows else ()) + a.dims)
        return np.asarray(
            e.prim.forward(positions, *(np.zeros((1, *x.dims)) for x in others), **e.static)
        ).ravel()

    def leaf(self, e: Expr, cell: LaneSlice) -> str:
        """A column, read once: before the edges if it belongs to the row that they share."""
        assert e.leaf is not None
        kind, name = e.leaf
        if name == "reversed":
            return f"single({self.source.arg('reversed')})"
        if name == "gid":
            return f"single(entry({self.source.arg('edge_gid')}, se))"
        text = self.source.read(*self.memory(e), cell)
        # a mask is 0 or 1 in the type of the kernel
        text = f"as_float({text})" if e.dtype.kind == "b" else text
        return self.source.once(text, "row" if kind == self.fixed_end and cell.start == "0" else "")

    def memory(self, e: Expr) -> tuple[str, str]:
        """The array that an edge reads a leaf in, and the row there."""
        assert e.leaf is not None
        n = self.number[id(e)]
        if e.leaf not in self.variant.typed:
            return self.source.arg(f"{e.leaf[0]}{n}"), self.row(e)
        self.typed(e)
        self.padded.add(n)
        return self.source.buffer(f"padded{n}", e.dims[0]), "0"

    def typed(self, e: Expr) -> tuple[str, str, str, str] | None:
        """Where the numbers of an edge are in a leaf that is stored as ``TypedRows``: the array,
        the row where they begin, their count, and the column of the first; None for others.

        ``locating`` has the lines that these names come from.
        """
        if e.leaf is None or e.leaf not in self.variant.typed:
            return None
        n = self.number[id(e)]
        for name in ("kind_of", "at_of", "width_of", "begin_of", "first_of"):
            self.source.arg(f"{name}{n}")
        return self.source.arg(f"edge{n}"), f"part_begin{n}", f"part_width{n}", f"part_column{n}"

    def locating(self) -> list[str]:
        """Lines that locate the numbers of an edge in leaves that are stored as ``TypedRows``."""
        lines = []
        for n, e in enumerate(self.phase.order):
            if f"kind_of{n}" not in self.source.arguments:
                continue
            lines += [
                f"part{n} = np.int64(entry(kind_of{n}, se))",
                f"part_width{n} = entry(width_of{n}, part{n})",
                f"part_column{n} = entry(first_of{n}, part{n})",
                f"part_begin{n} = entry(begin_of{n}, part{n})",
                f"part_begin{n} += entry(at_of{n}, se) * part_width{n}",
            ]
            if n in self.padded:
                lines += [
                    f"for i in range({e.dims[0]}):",
                    f"    padded{n}[0, i] = ZERO",
                    f"for i in range(part_width{n}):",
                    f"    padded{n}[0, part_column{n} + i] = edge{n}[part_begin{n} + i, 0]",
                ]
        return lines

    def row(self, e: Expr) -> str:
        """The row of a leaf that an edge reads."""
        assert e.leaf is not None
        kind, name = e.leaf
        if e.leaf in self.variant.in_place:
            rows = self.source.arg(f"rows_{kind}{self.number[id(e)]}")
            return self.source.once(
                f"entry({rows}, {'se' if kind == 'edge' else kind[0] + 'r'})",
                "row" if kind == self.fixed_end else "",
            )
        return {"src": "sr", "dst": "dr"}.get(kind) or (
            "ce" if name in self.variant.carried else "se"
        )

    def fixed(self, e: Expr) -> bool:
        """Whether a value is the same for all edges of the row."""
        if e.leaf is not None:
            return e.leaf[0] == self.fixed_end or not e.rows
        return (
            not self.source.rolled
            and (not e.traits.random or self.is_alias(e))
            and all(self.fixed(a) for a in e.args)
        )
