"""The random numbers of ``graphtheta.base.rng`` inside compiled loops."""

from __future__ import annotations

import numpy as np
from numba import njit

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
COLUMN = np.uint64(0xD1B54A32D192ED03)


@njit(inline="always")
def mix(x):  # type: ignore[no-untyped-def]
    """The finaliser of SplitMix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(inline="always")
def draw(key, i):  # type: ignore[no-untyped-def]
    """64 random bits of the id i; ``mix(draw(key, i) + (column + 1) * COLUMN)`` for one of several
    columns.
    """
    return mix(np.uint64(i) * GOLDEN + key)
