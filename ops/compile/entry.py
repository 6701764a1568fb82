"""Reads of arrays at numbers that are never negative, such as those of rows and edges."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def entry(typing: Any, array: Any, i: Any) -> Any:
    """``array[i]`` of a one-dimensional array, for i of 0 or more.

    ``array[i]`` itself counts from the end where i is negative. The instructions that find out take
    a loop over narrow rows as long as the arithmetic.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        fields = context.make_array(kind)(context, builder, arguments[0])
        return context.unpack_value(
            builder,
            kind.dtype,
            cgutils.get_item_pointer(context, builder, kind, fields, [arguments[1]]),
        )

    return array.dtype(array, types.int64), generate
