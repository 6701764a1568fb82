"""Sums over the rows of each column, and gradients that flow through the statistics of batch norm.

``counted`` has a mark for each row, or is empty if all of them count. Loops over columns begin at
0, because an index that may be negative is compared each time.
"""

from __future__ import annotations

import numpy as np

from ..compile.jit import jit


@jit()
def sums(x, counted, out):  # type: ignore[no-untyped-def]
    """Add the rows that count to ``out``, [d] float64."""
    for i in range(len(x)):
        if not len(counted) or counted[i]:
            row = x[i]
            for j in range(len(out)):
                out[j] += row[j]


@jit()
def sums_by_number(x, numbers, out):  # type: ignore[no-untyped-def]
    """Add each row to the row of ``out``, [k, d] float64, that its number chooses."""
    for i in range(len(x)):
        row = x[i]
        part = out[numbers[i]]
        for j in range(len(part)):
            part[j] += row[j]


@jit()
def sum_of_parts(parts, out, begin, end):  # type: ignore[no-untyped-def]
    """Rows of out, [n, d], are those of the parts, [k, n, at least d], added in float64."""
    width = out.shape[1]
    total = np.empty(width)
    for i in range(begin, end):
        for j in range(width):
            total[j] = parts[0, i, j]
        for k in range(1, len(parts)):
            part = parts[k, i]
            for j in range(width):
                total[j] += part[j]
        for j in range(width):
            out[i, j] = total[j]


@jit()
def squares(x, mean, counted, out):  # type: ignore[no-untyped-def]
    """Add the squares of what the rows that count are above ``mean``, [d] of the type of x."""
    for i in range(len(x)):
        if not len(counted) or counted[i]:
            row = x[i]
            for j in range(len(out)):
                centred = row[j] - mean[j]
                out[j] += centred * centred


@jit()
def moved(g, x, mean, shift, slope, counted, out, begin, end):  # type: ignore[no-untyped-def]
    """out = g + shift + (x - mean) * slope in the rows begin to end; out = g in rows that do not
    count.
    """
    for i in range(begin, end):
        if not len(counted) or counted[i]:
            for j in range(g.shape[1]):
                out[i, j] = g[i, j] + (shift[j] + (x[i, j] - mean[j]) * slope[j])
        else:
            for j in range(g.shape[1]):
                out[i, j] = g[i, j]
