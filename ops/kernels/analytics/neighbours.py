"""Sets of neighbours: labels, cores, triangles, membership.

Columns are the masters of a worker, then nodes of others whose values or neighbours it has fetched.
``first`` and ``last`` select the rows of one thread.
"""

from __future__ import annotations

import numpy as np

from ...compile.jit import jit


@jit()
def core_sweep(indptr, near, value, first, last):  # type: ignore[no-untyped-def]
    """Lower value[v] to the largest h for which h neighbours have a value of at least h; returns
    how many rows have changed.

    Values only fall, and the result does not depend on the order, so threads may see old or new
    values of each other.

    Args:
        indptr, near: Distinct neighbours of each row, without the row itself.
        value: At least the core number of each column, [n_columns] int32; changed.
    """
    changed = 0
    for v in range(first, last):
        core = value[v]
        enough = 0
        for e in range(indptr[v], indptr[v + 1]):
            if value[near[e]] >= core:
                enough += 1
                if enough >= core:
                    break
        if enough >= core:
            continue
        # numbers of neighbours by value; those above the own one count as equal
        counts = np.zeros(core + 1, np.int32)
        for e in range(indptr[v], indptr[v + 1]):
            counts[min(value[near[e]], core)] += 1
        h = core
        above = counts[core]
        while above < h:
            h -= 1
            above += counts[h]
        value[v] = h
        changed += 1
    return changed


@jit()
def frequent_labels(indptr, near, label, out, first, last):  # type: ignore[no-untyped-def]
    """out[v] = the most frequent label of the neighbours of row v, the least of several; its own
    without neighbours.

    Args:
        indptr, near: Neighbours of each row.
        label: [n_columns] int64, at least 0.
        out: [n_rows] int64; changed.
    """
    for v in range(first, last):
        begin = indptr[v]
        degree = indptr[v + 1] - indptr[v]
        if degree == 0:
            out[v] = label[v]
            continue
        # a table with open addressing, at most half full
        size = 2
        while size < 2 * degree:
            size *= 2
        keys = np.full(size, -1, np.int64)
        counts = np.zeros(size, np.int32)
        best = np.int64(-1)
        most = 0
        for e in range(begin, begin + degree):
            x = label[near[e]]
            at = (np.uint64(x) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)) & np.uint64(
                size - 1
            )
            while keys[at] != x and keys[at] >= 0:
                at = (at + np.uint64(1)) & np.uint64(size - 1)
            keys[at] = x
            counts[at] += 1
            if counts[at] > most or (counts[at] == most and x < best):
                best = x
                most = counts[at]
        out[v] = best


@jit()
def count_triangles(  # type: ignore[no-untyped-def]
    indptr, higher, lists, marks, counts, first, last
):
    """Add the triangles whose lowest corner is one of some rows to the counts of their three
    corners.

    Args:
        indptr, higher: For each row its neighbours of higher order, as columns.
        lists: (bounds, higher neighbours) of all columns; neighbours that are no columns here are
            left out.
        marks: [n_columns] uint8, all 0.
        counts: [n_columns] int64 of this thread; changed.
    """
    bounds, theirs = lists
    for v in range(first, last):
        for e in range(indptr[v], indptr[v + 1]):
            marks[higher[e]] = 1
        for e in range(indptr[v], indptr[v + 1]):
            u = higher[e]
            for k in range(bounds[u], bounds[u + 1]):
                w = theirs[k]
                if marks[w]:
                    counts[v] += 1
                    counts[u] += 1
                    counts[w] += 1
        for e in range(indptr[v], indptr[v + 1]):
            marks[higher[e]] = 0


@jit()
def is_near(indptr, ids, rows, wanted, out, first, last):  # type: ignore[no-untyped-def]
    """out[i] = 1 if node wanted[i] is a neighbour of row rows[i].

    Args:
        indptr, ids: Neighbours of each row, ascending.
        rows, wanted: [n] integers.
        out: [n] uint8; changed.
    """
    for i in range(first, last):
        low = indptr[rows[i]]
        high = indptr[rows[i] + 1]
        while low < high:
            middle = (low + high) >> 1
            if ids[middle] < wanted[i]:
                low = middle + 1
            else:
                high = middle
        out[i] = low < indptr[rows[i] + 1] and ids[low] == wanted[i]
