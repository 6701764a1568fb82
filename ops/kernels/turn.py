"""Turns: a kernel that runs on several threads at once takes its next share of the work from a counter."""
from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def next_turn(typing: Any, counter: Any) -> Any:
    """The number in ``counter``, [1] int64, which is increased by 1; no two threads get the same."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", array.data, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(counter), generate
