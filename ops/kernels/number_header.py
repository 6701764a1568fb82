"""The header of loops over single numbers, those of lazy elementwise fusion and of steps of
recurrences: the names that their source uses.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np

from ..compile.elementary import FUNCTIONS
from ..compile.jit import FAST, kernel_form
from .decay import exp_down, expm1_down
from .hash import COLUMN, GOLDEN, mix
from .lanes import numberwise
from .prefetch import prefetch


@cache
def names(dtype: str) -> dict[str, Any]:
    """What each name stands for in loops over numbers of a float type."""
    number = getattr(np, dtype)
    compiled = numba.njit(error_model="numpy", fastmath=FAST)
    functions = {}
    for name, function in FUNCTIONS.items():
        if function.loop is not None:
            functions[name] = compiled(function.loop(number, exp_down, expm1_down))
        elif function.lanes is not None:
            functions[name] = numberwise(function.lanes)
    return {
        **functions,
        "np": np,
        "T": number,
        "ONE": number(1),
        "GOLDEN": GOLDEN,
        "COLUMN": COLUMN,
        "kernel_form": kernel_form,
        "mix": mix,
        "prefetch": prefetch,
    }
