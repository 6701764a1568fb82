"""Ranks of edges with rates: an edge of twice the rate is twice as likely to have the lowest rank.

All operations are additions, multiplications, divisions and shifts in a fixed order, so that ranks
are equal to the bit on every machine; the logarithm of the C library is not.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ...compile.jit import jit

LN2, SQRT2 = 0.6931471805599453, 1.4142135623730951
MANTISSA, EXPONENT_OF_1, BIAS = np.uint64((1 << 52) - 1), np.uint64(1023 << 52), 1023


@njit(inline="always")
def unit(h):  # type: ignore[no-untyped-def]
    """A number in (0, 1) of 64 random bits."""
    return (np.float64(h >> np.uint64(12)) + 0.5) * 2.0**-52


@njit(inline="always")
def quotient(h, rate):  # type: ignore[no-untyped-def]
    """The rank u / rate of priority sampling, as bits in the same order."""
    return np.float64(unit(h) / rate).view(np.uint64)


@njit(inline="always")
def race(h, rate):  # type: ignore[no-untyped-def]
    """A time of an exponential race, -log(u) / rate, as bits in the same order."""
    return np.float64(minus_log(unit(h)) / rate).view(np.uint64)


@njit
def minus_log(u):  # type: ignore[no-untyped-def]
    """-log(u) for a normal number u in (0, 1), within a few units in the last place.

    u = 2**k * m with 1 / sqrt(2) < m <= sqrt(2), and log(m) = 2 artanh((m - 1) / (m + 1)).
    """
    bits = np.float64(u).view(np.uint64)
    k = np.int64(bits >> np.uint64(52)) - BIAS
    m = np.uint64((bits & MANTISSA) | EXPONENT_OF_1).view(np.float64)
    if m > SQRT2:
        k = k + 1
        m = 0.5 * m
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = 0.0
    for n in range(23, 0, -2):
        series = series * z + 1.0 / n
    return -(k * LN2 + 2.0 * s * series)


@jit()
def sums(begin, end, edges, values):  # type: ignore[no-untyped-def]
    """The sum of the values of each group's edges, [n_groups] float64.

    Args:
        begin, end: Bounds of each group in the list, [n_groups] int64.
        edges: Position of each edge; empty if edge k has position k.
        values: Value of each position.
    """
    out = np.zeros(len(begin))
    for g in range(len(begin)):
        for e in range(begin[g], end[g]):
            out[g] += values[edges[e] if len(edges) else e]
    return out
