"""The arithmetic of Adam in one pass over a parameter."""
from __future__ import annotations

import math

from ..compile.jit import jit

# numbers that stay in the first cache from one loop to the next
STEP = 1 << 10


@jit(error_model="numpy")
def adam(value, g, old, new, numbers, out, begin, end):  # type: ignore[no-untyped-def]
    """The next value of the numbers begin to end, and their next moments.

    Args:
        value, g: The parameter and its gradient, [n].
        old, new: Running mean and mean square, [n] each; ``new`` is written.
        numbers: Share of the mean that is kept, and the rest of 1; the same of the mean square; what divides its root, and is
            added to it; what is multiplied with the quotient; the share of the value that is kept. [8] of the type of the value.
        out: The next value, [n].
    """
    keep_mean, more_mean, keep_square, more_square, divisor, eps, step, keep = numbers
    for a in range(begin, end, STEP):
        b = min(end, a + STEP)
        x, slope, old_mean, old_square, mean, square, to = value[a:b], g[a:b], old[0][a:b], old[1][a:b], new[0][a:b], new[1][a:b], out[a:b]
        # a loop that writes more than one array is not vectorised
        for i in range(len(x)):
            mean[i] = keep_mean * old_mean[i] + more_mean * slope[i]
        for i in range(len(x)):
            square[i] = keep_square * old_square[i] + more_square * (slope[i] * slope[i])
        for i in range(len(x)):
            to[i] = keep * x[i] - step * (mean[i] / (math.sqrt(square[i]) / divisor + eps))
