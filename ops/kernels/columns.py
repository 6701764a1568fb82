"""Statistics of batch norm: sums over the rows of each column, and gradients that flow through them.

Rows are added in order, in the arithmetic of NumPy, so that results do not depend on threads.
``counted`` has a mark for each row, or is empty if all of them count. Loops begin at 0, because an
index that may be negative is compared each time.
"""
from __future__ import annotations

from ..compile.jit import jit


@jit()
def sums(x, counted, begin, end, out):  # type: ignore[no-untyped-def]
    """Add the rows that count to ``out``, [d] float64, in the columns begin to end."""
    part = out[begin:end]
    for i in range(x.shape[0]):
        if not len(counted) or counted[i]:
            row = x[i, begin:end]
            for j in range(len(part)):
                part[j] += row[j]


@jit()
def squares(x, mean, counted, begin, end, out):  # type: ignore[no-untyped-def]
    """Add the squares of what the rows that count are above ``mean``, [d] of the type of x, in the columns begin to end."""
    part, middle = out[begin:end], mean[begin:end]
    for i in range(x.shape[0]):
        if not len(counted) or counted[i]:
            row = x[i, begin:end]
            for j in range(len(part)):
                centred = row[j] - middle[j]
                part[j] += centred * centred


@jit()
def moved(g, x, mean, shift, slope, counted, out, begin, end):  # type: ignore[no-untyped-def]
    """out = g + shift + (x - mean) * slope in the rows begin to end; out = g in rows that do not count."""
    for i in range(begin, end):
        if not len(counted) or counted[i]:
            for j in range(g.shape[1]):
                out[i, j] = g[i, j] + (shift[j] + (x[i, j] - mean[j]) * slope[j])
        else:
            for j in range(g.shape[1]):
                out[i, j] = g[i, j]
