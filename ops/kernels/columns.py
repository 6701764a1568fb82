"""Batch norm: sums over the rows of each column, and what is computed of each number with them.

Rows are added in order, in the arithmetic of NumPy, so that results do not depend on threads.
``counted`` has a mark for each row, or is empty if all of them count. Each loop writes one array,
because loops with more arrays than the compiler compares for overlap are not vectorised, and begins
at 0, because an index that may be negative is compared each time.
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
def normalise(x, mean, inverse, scale, shift, unit, out, begin, end):  # type: ignore[no-untyped-def]
    """unit = (x - mean) * inverse and out = unit * scale + shift, in the rows begin to end."""
    for i in range(begin, end):
        for j in range(x.shape[1]):
            unit[i, j] = (x[i, j] - mean[j]) * inverse[j]
        for j in range(x.shape[1]):
            out[i, j] = unit[i, j] * scale[j] + shift[j]


@jit()
def products(g, unit, begin, end, of_g, of_both):  # type: ignore[no-untyped-def]
    """Add all rows of g, and of g * unit, in the columns begin to end."""
    first, second = of_g[begin:end], of_both[begin:end]
    for i in range(g.shape[0]):
        row, other = g[i, begin:end], unit[i, begin:end]
        for j in range(len(first)):
            first[j] += row[j]
        for j in range(len(second)):
            second[j] += row[j] * other[j]


@jit()
def gradient(g, unit, mean_g, mean_gu, factor, counted, out, begin, end):  # type: ignore[no-untyped-def]
    """out = (g - mean_g - unit * mean_gu) * factor in the rows begin to end; means weigh nothing in rows that do not count."""
    for i in range(begin, end):
        if not len(counted) or counted[i]:
            for j in range(g.shape[1]):
                out[i, j] = (g[i, j] - (mean_g[j] + unit[i, j] * mean_gu[j])) * factor[j]
        else:
            for j in range(g.shape[1]):
                out[i, j] = g[i, j] * factor[j]
