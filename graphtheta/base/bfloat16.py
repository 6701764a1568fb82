"""The type of values that are stored as bfloat16: float32 numbers with 8 instead of 24 significant
bits.

NumPy has no such type. Arrays of ``BFLOAT16`` are two bytes a number that can be copied, taken and
sent, and that no arithmetic accepts, so that nothing is computed from them by mistake. Kernels read
them as uint16; ``graphtheta.ops.rows.bfloat16`` converts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

BFLOAT16: np.dtype[Any] = np.dtype("V2")
# Columns of fewer numbers are stored and sent in full: scores, maxima and normalisers, whose
# rounding errors an exponential would amplify. They are few bytes.
WIDE = 16


def is_wide(shape: Sequence[int], dtype: Any) -> bool:
    """Whether rows of a trailing shape may be rounded: float32 numbers, ``WIDE`` or more."""
    return bool(dtype == np.float32) and prod(shape) >= WIDE
