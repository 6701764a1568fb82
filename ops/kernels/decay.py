"""exp(x) and exp(x) - 1 of numbers that are not positive, in a form that compilers turn into vector
code.

Single precision: x = k log 2 + r with |r| <= log(2) / 2, and a polynomial for (exp(r) - 1 - r) /
r**2, as in the Cephes library (S. L. Moshier, Methods and Programs for Mathematical Functions,
1989); at most 1 unit in the last place away from the true value, 0 in place of subnormal results.
Double precision calls the C library.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

F = np.float32
LOG2E, LN2_HIGH, LN2_LOW = F(1.44269504088896341), F(0.693359375), F(-2.12194440e-4)
P0, P1, P2 = F(1.9875691500e-4), F(1.3981999507e-3), F(8.3334519073e-3)
P3, P4, P5 = F(4.1665795894e-2), F(1.6666665459e-1), F(5.0000001201e-1)
# the power of two below it is 0
LOWEST, HALF, ONE, ZERO = F(-88.0), F(0.5), F(1.0), F(0.0)


# not rearranged: the remainder relies on the order of its roundings. Each function is compiled with
# the one that calls it, which takes half as long as to compile it alone.
IN_ORDER: Any = {"fastmath": {"contract"}}


@njit(inline="always")
def _parts(x):  # type: ignore[no-untyped-def]
    """exp(r) - 1 and 2**k."""
    y = ZERO if x != x else (LOWEST if x < LOWEST else x)
    k = np.int32(y * LOG2E - HALF)
    n = F(k)
    r = (y - n * LN2_HIGH) - n * LN2_LOW
    p = ((((P0 * r + P1) * r + P2) * r + P3) * r + P4) * r + P5
    # the exponent of a float, in its bits above the fraction
    bits = np.int32((k + np.int32(127)) << np.int32(23))
    return p * (r * r) + r, bits.view(np.float32)


def _exp(x):  # type: ignore[no-untyped-def]
    q, power = _parts(x)
    return x if x != x else q * power + power


def _expm1(x):  # type: ignore[no-untyped-def]
    q, power = _parts(x)
    return x if x != x else q * power + (power - ONE)


def exp_down(x):  # type: ignore[no-untyped-def]
    """e to the power of x, x <= 0."""


def expm1_down(x):  # type: ignore[no-untyped-def]
    """The same less 1, without cancellation."""


@overload(exp_down, jit_options=IN_ORDER)
def _exp_down(x):  # type: ignore[no-untyped-def]
    return _exp if x == types.float32 else (lambda x: math.exp(x))


@overload(expm1_down, jit_options=IN_ORDER)
def _expm1_down(x):  # type: ignore[no-untyped-def]
    return _expm1 if x == types.float32 else (lambda x: math.expm1(x))
