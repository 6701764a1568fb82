"""The shapes of tiles for the processor. They were measured with ``bench/products.py`` and decide
the time of a product, not its numbers.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba.core.registry import cpu_target

from graphtheta.base.bfloat16 import BFLOAT16

from .code import PAIRS, SHORT, Tile

# share of its speed that a tile of a single vector loses
SINGLE = 0.1


class Registers(NamedTuple):
    """Bytes of a vector, and the rows that a tile has by its number of vectors: in a product of
    rows, and at most in a transposed product. No tiles without fused multiply-adds. ``pairs`` is
    whether an instruction multiplies pairs of bfloat16 numbers.
    """

    size: int
    rows: dict[int, int]
    transposed: dict[int, int]
    pairs: bool = False


AVX512 = Registers(64, {4: 6, 3: 8, 2: 12, 1: 8}, {3: 8, 2: 14, 1: 14})
AVX512_PAIRS = AVX512._replace(pairs=True)
AVX2 = Registers(32, {3: 4, 2: 6, 1: 8}, {2: 6, 1: 12})
NEON = Registers(16, AVX512.rows, AVX512.transposed)
NONE = Registers(16, {}, {})


@cache
def registers() -> Registers:
    """The registers of the processor that kernels are compiled for."""
    *_, features = cpu_target.target_context.codegen().magic_tuple()
    have = set(features.split(","))
    if "+avx512f" in have:
        return AVX512_PAIRS if "+avx512bf16" in have else AVX512
    if {"+avx2", "+fma"} <= have:
        return AVX2
    return NEON if "+neon" in have else NONE


def fastest(columns: int, dtype: Any, shapes: dict[int, int], size: int, pairs: bool) -> Tile:
    """The tile for outputs of a number of columns; lanes beyond them are computed for nothing.

    Args:
        columns: Columns of outputs.
        dtype: Of the factors: float32, float64 or ``BFLOAT16``.
        shapes: Rows of tiles by their number of vectors.
        size: Bytes of a vector.
        pairs: Whether bfloat16 numbers are multiplied in pairs.
    """
    short = dtype == BFLOAT16
    sums = np.dtype(np.float32 if short else dtype)
    lanes = size // sums.itemsize

    def cost(vectors: int) -> tuple[float, int]:
        width = vectors * lanes
        return -(-columns // width) * width * (1 + SINGLE * (vectors == 1)), -vectors

    vectors = min(shapes, key=cost)
    return Tile(
        rows=shapes[vectors],
        vectors=vectors,
        lanes=lanes,
        dtype=sums.name,
        factor=(PAIRS if pairs else SHORT) if short else sums.name,
    )
