"""Rounds float32 numbers to bfloat16, and expands them again."""

from __future__ import annotations

import numpy as np

from ..compile.jit import jit
from . import lanes

# the upper 16 bits of a float32 number, rounded (ties to even): uint32 from uint32. Numba itself
# would compute in 64 bits, at half the speed.
upper_half = lanes.numberwise(lanes.upper_half)


@jit()
def round_bits(bits, out):  # type: ignore[no-untyped-def]
    """out = the bfloat16 numbers, as uint16, nearest to float32 numbers, as uint32."""
    for i in range(len(bits)):
        out[i] = np.uint16(upper_half(bits[i]))


@jit()
def expand_bits(bits, out):  # type: ignore[no-untyped-def]
    """out = the float32 numbers, as uint32, that bfloat16 numbers, as uint16, are."""
    for i in range(len(bits)):
        out[i] = np.uint32(bits[i]) << np.uint32(16)
