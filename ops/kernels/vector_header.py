"""The header of the kernels of edge programs: the names that their source uses."""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np

from ..compile.entry import entry
from ..compile.jit import kernel_form
from . import lane_tools, lanes
from .hash import GOLDEN, mix
from .lane_math import VECTOR_FUNCTIONS, power
from .prefetch import prefetch
from .turn import next_turn


@numba.njit
def inside_table(i, size):  # type: ignore[no-untyped-def]
    """An index of a table; raises IndexError if it is out of range."""
    if i < 0 or i >= size:
        raise IndexError
    return i


@cache
def names(dtype: str) -> dict[str, Any]:
    """What each name stands for in kernels of a float type."""
    number, element = getattr(np, dtype), getattr(numba, dtype)
    return {
        **VECTOR_FUNCTIONS,
        "np": np,
        "T": number,
        "ZERO": number(0),
        "ONE": number(1),
        "ELEMENT": element,
        "GOLDEN": GOLDEN,
        "as_float": lane_tools.as_type(element),
        "as_float64": lane_tools.as_type(numba.float64),
        "as_int32": lane_tools.as_type(numba.int32),
        "as_int64": lane_tools.as_type(numba.int64),
        "less": lane_tools.comparison("<", element),
        "less_equal": lane_tools.comparison("<=", element),
        "equal": lane_tools.comparison("==", element),
        "power": power,
        "lanes": lanes,
        "lane_tools": lane_tools,
        "beats": lane_tools.beats,
        "lane": lane_tools.lane,
        "number": lane_tools.number,
        "same": lane_tools.same,
        "single": lane_tools.single,
        "some": lane_tools.some,
        "where": lane_tools.where,
        "entry": entry,
        "inside_table": inside_table,
        "kernel_form": kernel_form,
        "mix": mix,
        "next_turn": next_turn,
        "prefetch": prefetch,
    }
