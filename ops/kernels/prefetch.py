"""Prefetching of rows: those at the other end of edges are scattered over memory."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LINE = 64


@intrinsic
def prefetch(typing: Any, rows: Any, row: Any, line: Any) -> Any:
    """Prefetch cache line ``line`` of a row of a two-dimensional array; any address is safe."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = builder.extract_value(array.strides, 0)
        offset = builder.add(
            builder.mul(arguments[1], stride),
            builder.mul(arguments[2], ir.Constant(ir.IntType(64), LINE)),
        )
        byte = ir.IntType(8).as_pointer()
        address = builder.gep(builder.bitcast(array.data, byte), [offset])
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(rows, types.int64, types.int64), generate
