"""LLVM code of tiles: the vectors of a block of outputs, which one loop computes in registers.

A tile is a function of its own in the code of a kernel, so that the loops around it take none of
its registers. Its arguments are addresses in bytes and numbers, all of them int64: a kernel is
compiled once, whatever the layout of the arrays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from llvmlite import ir
from numba import types

from ..lanes import ELEMENTS, INDEX, call, intrinsic_with

NUMBER = ir.IntType(64)
BYTE = ir.IntType(8).as_pointer()
HALF = ir.IntType(16)
# how bfloat16 numbers are multiplied
SHORT, PAIRS = "bfloat16", "bfloat16 pairs"
Vectors: TypeAlias = list[list[Any]]


class _BFloat16(ir.Type):  # type: ignore[misc]
    """LLVM's type of bfloat16 numbers, which llvmlite lacks."""

    def __str__(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat16)

    def __hash__(self) -> int:
        return hash(_BFloat16)


@dataclass(frozen=True)
class Tile:
    """Outputs that are computed together.

    Attributes:
        rows: Rows of outputs; each has a number of the first factor that is broadcast.
        vectors: Vectors side by side in a row.
        lanes: Numbers of a vector.
        dtype: Of the outputs: "float32" or "float64".
        factor: How the first factor is stored: as ``dtype``; as "bfloat16", which is expanded to
            float32, a block at a time, before a tile reads it; or as "bfloat16 pairs", of which an
            instruction multiplies two at a time, and the second factor likewise. A pair counts as
            one number.
    """

    rows: int
    vectors: int
    lanes: int
    dtype: str
    factor: str

    @property
    def width(self) -> int:
        """Columns of outputs."""
        return self.vectors * self.lanes

    @property
    def itemsize(self) -> int:
        return 4 if self.dtype == "float32" else 8


class Code:
    """Writes instructions of a tile.

    Args:
        tile: Its shape.
        builder: At the end of the first block of the function.
    """

    def __init__(self, tile: Tile, builder: Any):
        self.tile = tile
        self.b = builder
        self.number = ELEMENTS[tile.dtype]
        self.vector = ir.VectorType(self.number, tile.lanes)
        self.side = ir.VectorType(INDEX, tile.lanes) if tile.factor == PAIRS else self.vector
        self.zero = ir.Constant(self.vector, None)
        self.name = f"v{tile.lanes}f{8 * tile.itemsize}"

    def least(self, x: Any, y: Any) -> Any:
        return self.b.select(self.b.icmp_signed("<", x, y), x, y)

    def bytes(self, n: Any) -> Any:
        """Bytes of n numbers, or pairs, of the first factor."""
        return self.b.mul(n, NUMBER(self.tile.itemsize))

    def load(self, address: Any, kind: Any) -> Any:
        """A number or vector at an address, which need not be aligned."""
        pointer = self.b.inttoptr(address, kind.as_pointer())
        return self.b.load(pointer, align=8 if kind == NUMBER else self.tile.itemsize)

    def factor(self, address: Any) -> Any:
        """A number, or pair, of the first factor."""
        if self.tile.factor != PAIRS:
            return self.load(address, self.number)
        return self.b.load(self.b.inttoptr(address, INDEX.as_pointer()), align=2)

    def half_pair(self, address: Any) -> Any:
        """The pair of a number of the first factor and 0."""
        return self.b.zext(self.b.load(self.b.inttoptr(address, HALF.as_pointer()), align=2), INDEX)

    def store(self, x: Any, address: Any) -> None:
        pointer = self.b.inttoptr(address, self.vector.as_pointer())
        self.b.store(x, pointer, align=self.tile.itemsize)

    def masked_load(self, address: Any, mask: Any) -> Any:
        pointer = self.b.inttoptr(address, self.vector.as_pointer())
        given = [pointer, INDEX(self.tile.itemsize), mask, self.zero]
        return call(self.b, f"llvm.masked.load.{self.name}.p0", self.vector, given)

    def masked_store(self, x: Any, address: Any, mask: Any) -> None:
        pointer = self.b.inttoptr(address, self.vector.as_pointer())
        given = [x, pointer, INDEX(self.tile.itemsize), mask]
        call(self.b, f"llvm.masked.store.{self.name}.p0", ir.VoidType(), given)

    def prefetch(self, address: Any, writes: bool = False, later: bool = False) -> None:
        """Read a line ahead: into the first cache, or the second if it is used much later."""
        level = INDEX(2 if later else 3)
        given = [self.b.inttoptr(address, BYTE), INDEX(int(writes)), level, INDEX(1)]
        call(self.b, "llvm.prefetch.p0", ir.VoidType(), given)

    def broadcast(self, x: Any) -> Any:
        """A number in all lanes."""
        empty = ir.Constant(ir.VectorType(x.type, self.tile.lanes), ir.Undefined)
        order = ir.Constant(ir.VectorType(INDEX, self.tile.lanes), [0] * self.tile.lanes)
        return self.b.shuffle_vector(self.b.insert_element(empty, x, INDEX(0)), empty, order)

    def first_lanes(self, n: Any) -> Any:
        """A mask that is true in the first n lanes."""
        lane = ir.Constant(ir.VectorType(NUMBER, self.tile.lanes), list(range(self.tile.lanes)))
        return self.b.icmp_signed("<", lane, self.broadcast(n))

    def at_vector(self, address: Any, v: int) -> Any:
        """The address of the vector that is v vectors further."""
        return self.b.add(address, NUMBER(v * self.tile.lanes * self.tile.itemsize))

    def row_of(self, base: Any, stride: Any, numbers: Any, i: Any) -> Any:
        """The address of row i of an array, or of row numbers[i] unless ``numbers`` is 0."""
        start = self.b.block
        with self.b.if_then(self.b.icmp_signed("!=", numbers, NUMBER(0))):
            listed = self.load(self.b.add(numbers, self.b.mul(i, NUMBER(8))), NUMBER)
            inside = self.b.block
        row = self.b.phi(NUMBER)
        row.add_incoming(i, start)
        row.add_incoming(listed, inside)
        return self.b.add(base, self.b.mul(row, stride))

    def loop(
        self,
        start: Any,
        stop: Any,
        values: Sequence[Any],
        step: Callable[[Any, list[Any]], Sequence[Any]],
    ) -> list[Any]:
        """Values after a loop over i from start to stop.

        Args:
            start, stop: Bounds of i.
            values: Before the loop.
            step: From i and the values to those that follow.
        """
        before = self.b.block
        loop = self.b.append_basic_block("loop")
        body = self.b.append_basic_block("body")
        after = self.b.append_basic_block("after")
        self.b.branch(loop)
        self.b.position_at_end(loop)
        i = self.b.phi(NUMBER)
        i.add_incoming(start, before)
        current = [self.b.phi(x.type) for x in values]
        self.b.cbranch(self.b.icmp_signed("<", i, stop), body, after)
        self.b.position_at_end(body)
        following = step(i, current)
        # LLVM would compute two steps at a time, for which there are not enough registers
        barrier = ir.InlineAsm(ir.FunctionType(ir.VoidType(), []), "", "", side_effect=True)
        self.b.call(barrier, [])
        i.add_incoming(self.b.add(i, NUMBER(1)), self.b.block)
        for x, first, new in zip(current, values, following, strict=True):
            x.add_incoming(first, before)
            x.add_incoming(new, self.b.block)
        self.b.branch(loop)
        self.b.position_at_end(after)
        return current

    def sums(
        self, start: Any, stop: Any, step: Callable[[Any], tuple[Sequence[Any], Sequence[Any]]]
    ) -> Vectors:
        """The tile as sums over i from start to stop, each a chain of multiply-adds in order.

        Args:
            start, stop: Bounds of i.
            step: For i, the numbers of the rows, and the vectors that they are multiplied by.
        """
        rows, vectors = self.tile.rows, self.tile.vectors

        def split(values: Sequence[Any]) -> Vectors:
            return [list(values[i * vectors : (i + 1) * vectors]) for i in range(rows)]

        def added(i: Any, values: list[Any]) -> list[Any]:
            numbers, side = step(i)
            return [x for row in self.added(numbers, side, split(values)) for x in row]

        return split(self.loop(start, stop, [self.zero] * (rows * vectors), added))

    def added(self, numbers: Sequence[Any], vectors: Sequence[Any], sums: Vectors) -> Vectors:
        """The sums, plus the products of the numbers of the rows with the vectors."""
        return [
            [
                self._multiply_add(self.broadcast(x), y, total)
                for y, total in zip(vectors, row, strict=True)
            ]
            for x, row in zip(numbers, sums, strict=True)
        ]

    def _multiply_add(self, x: Any, y: Any, total: Any) -> Any:
        if self.tile.factor == PAIRS:
            pairs = ir.VectorType(_BFloat16(), 2 * self.tile.lanes)
            given = [total, self.b.bitcast(x, pairs), self.b.bitcast(y, pairs)]
            name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * self.tile.lanes}"
            return call(self.b, name, self.vector, given)
        return call(self.b, f"llvm.fma.{self.name}", self.vector, [x, y, total])


def tile_function(write: Callable[..., None], tile: Tile) -> Any:
    """A tile as a function that kernels may call.

    Args:
        write: Called with ``Code`` and the arguments of the tile; writes what it does.
        tile: Its shape.
    """
    names = list(inspect.signature(write).parameters)[1:]
    name = f"{write.__name__}_{tile.rows}_{tile.vectors}_{tile.lanes}_{tile.dtype}_{tile.factor}"

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = builder.module.globals.get(name)
        if function is None:
            form = ir.FunctionType(ir.VoidType(), [NUMBER] * len(names))
            function = ir.Function(builder.module, form, name)
            function.linkage = "internal"
            for attribute in ("noinline", "nounwind"):
                function.attributes.add(attribute)
            inside = ir.IRBuilder(function.append_basic_block("start"))
            write(Code(tile, inside), *function.args)
            inside.ret_void()
        builder.call(function, arguments)
        return context.get_dummy_value()

    def typed(typing: Any, *kinds: Any) -> Any:
        return types.void(*[types.int64] * len(names)), generate

    return intrinsic_with(names, typed)
