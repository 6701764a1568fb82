"""Turns: a kernel that runs on several threads at once takes its next share of the work from
counters.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def turns() -> np.ndarray:
    """Counters of one piece of work: shares taken in all, and from either end."""
    return np.zeros(3, np.int64)


@intrinsic
def increased(typing: Any, counters: Any, i: Any) -> Any:
    """Increase ``counters[i]`` by 1 and return what it was; no two threads get the same number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw(
            "add",
            builder.gep(array.data, [arguments[1]]),
            ir.Constant(ir.IntType(64), 1),
            "monotonic",
        )

    return types.int64(counters, types.int64), generate


@numba.njit
def next_turn(counters, shares, side):  # type: ignore[no-untyped-def]
    """The next share of the work from one end (side 0: the first, 1: the last); ``shares`` if all
    are taken.

    Threads that work from different ends read and write the same rows in one operation after
    another, which stay in the caches of their cores.
    """
    if increased(counters, 0) >= shares:  # type: ignore[call-arg]
        return shares
    # as many are taken from both ends as were admitted, so that the two never meet
    taken = increased(counters, 1 + side)
    return shares - 1 - taken if side else taken
