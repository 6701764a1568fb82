"""The arithmetic of optimisers in one pass over the numbers of a parameter, or over some rows of a
table.
"""

from __future__ import annotations

import math

import numpy as np

from ..compile.jit import jit

# numbers that stay in the first cache from one loop to the next
STEP = 1 << 10


@jit(error_model="numpy")
def adam(value, g, old, new, numbers, out, begin, end):  # type: ignore[no-untyped-def]
    """The next value of the numbers begin to end, and their next moments.

    Args:
        value, g: The parameter and its gradient, [n].
        old, new: Running mean and mean square, [n] each; ``new`` is written.
        numbers: Share of the mean that is kept, and the rest of 1; the same of the mean square;
            what divides its root, and is added to it; what is multiplied with the quotient; the
            share of the value that is kept. [8] of the type of the value.
        out: The next value, [n].
    """
    keep_mean, more_mean, keep_square, more_square, divisor, eps, step, keep = numbers
    old_mean, old_square = old
    mean, square = new
    for a in range(begin, end, STEP):
        b = min(end, a + STEP)
        # a loop that writes more than one array is not vectorised
        for i in range(a, b):
            mean[i] = keep_mean * old_mean[i] + more_mean * g[i]
        for i in range(a, b):
            square[i] = keep_square * old_square[i] + more_square * (g[i] * g[i])
        for i in range(a, b):
            out[i] = keep * value[i] - step * (mean[i] / (math.sqrt(square[i]) / divisor + eps))


@jit(error_model="numpy")
def adam_rows(  # type: ignore[no-untyped-def]
    value, mean, square, updates, rows, g, numbers, first, last
):
    """Update the rows of some numbers in place; bias is corrected by the updates of each row.

    Args:
        value, mean, square: The table, running mean and mean square, [n, width] each; changed.
        updates: How often each row has been updated, [n] int64; changed.
        rows: Rows, [m], none twice; ``first`` and ``last`` select some of them.
        g: Their gradients, [m, width].
        numbers: Shares of the mean and of the mean square that are kept, float64; then of the type
            of the values the same two, the rest of 1 for each, what is added to the root, the step
            size, and what gradients are multiplied with.
    """
    decay_mean, decay_square, keep_mean, keep_square, more_mean, more_square, eps, step, scale = (
        numbers
    )
    correction = np.empty(2, value.dtype)
    for i in range(first, last):
        r = rows[i]
        updates[r] += 1
        correction[0], correction[1] = 1 - decay_mean ** updates[r], 1 - decay_square ** updates[r]
        bias_mean, bias_square = correction[0], correction[1]
        x = value[r]
        slope = g[i]
        m = mean[r]
        s = square[r]
        # a loop that writes more than one array is not vectorised
        for j in range(len(x)):
            m[j] = keep_mean * m[j] + more_mean * (scale * slope[j])
        for j in range(len(x)):
            s[j] = keep_square * s[j] + more_square * (scale * slope[j]) * (scale * slope[j])
        for j in range(len(x)):
            x[j] -= step * (m[j] / bias_mean) / (math.sqrt(s[j] / bias_square) + eps)


@jit(error_model="numpy")
def adagrad_rows(value, total, rows, g, numbers, first, last):  # type: ignore[no-untyped-def]
    """Update the rows of some numbers in place.

    Args:
        value, total: The table, and the sums of squares, [n, width] each; changed.
        rows, g: As of ``adam_rows``.
        numbers: What is added to the root, the step size, and what gradients are multiplied with;
            of the type of the values.
    """
    eps, step, scale = numbers
    for i in range(first, last):
        x = value[rows[i]]
        slope = g[i]
        t = total[rows[i]]
        for j in range(len(x)):
            t[j] += (scale * slope[j]) * (scale * slope[j])
        for j in range(len(x)):
            x[j] -= step * (scale * slope[j]) / (math.sqrt(t[j]) + eps)
