"""Searches from sources: the next level of a breadth-first search, Dijkstra's algorithm, dependencies of shortest paths."""
from __future__ import annotations

import numpy as np

from ..compile.jit import jit


@jit()
def mark_near(indptr, near, rows, marks, first, last):  # type: ignore[no-untyped-def]
    """marks[u] = 1 for the neighbours u of some rows. Threads may mark at the same time."""
    for i in range(first, last):
        v = rows[i]
        for e in range(indptr[v], indptr[v + 1]):
            marks[near[e]] = 1


@jit()
def settle(indptr, near, weight, rows, dist, changed):  # type: ignore[no-untyped-def]
    """Lower distances along edges until none can be lowered, starting from rows whose distances are new.

    A binary heap has the rows to follow, nearest first, each once.

    Args:
        indptr, near, weight: Out-edges of each row, with lengths of at least 0, float64.
        rows: Rows whose distances are new, each once.
        dist: Distances, [n_rows] float64; changed.
        changed: changed[v] = 1 for rows whose distance was lowered, [n_rows] uint8; changed.
    """
    heap, slot, n = np.empty(len(dist), np.int32), np.full(len(dist), -1, np.int32), 0
    for i in range(len(rows)):
        n = _raise(heap, slot, dist, rows[i], n)
    while n > 0:
        v = heap[0]
        slot[v] = -1
        n -= 1
        if n > 0:
            last, at = heap[n], 0
            while True:
                child = 2 * at + 1
                if child >= n:
                    break
                if child + 1 < n and dist[heap[child + 1]] < dist[heap[child]]:
                    child += 1
                if dist[heap[child]] >= dist[last]:
                    break
                heap[at] = heap[child]
                slot[heap[at]] = at
                at = child
            heap[at], slot[last] = last, at
        for e in range(indptr[v], indptr[v + 1]):
            u, d = near[e], dist[v] + weight[e]
            if d < dist[u]:
                dist[u], changed[u] = d, 1
                n = _raise(heap, slot, dist, u, n)


@jit()
def _raise(heap, slot, dist, v, n):  # type: ignore[no-untyped-def]
    """Move a row up to its position in the heap, at whose end it is added if it is not there; returns the new length."""
    at = slot[v]
    if at < 0:
        at, n = n, n + 1
    while at > 0:
        above = (at - 1) >> 1
        if dist[heap[above]] <= dist[v]:
            break
        heap[at] = heap[above]
        slot[heap[at]] = at
        at = above
    heap[at], slot[v] = v, at
    return n


@jit()
def paths_into(indptr, near, paths, rows, total, first, last):  # type: ignore[no-untyped-def]
    """total[v] = sum of paths over the neighbours of some rows v.

    Args:
        indptr, near: Neighbours of each row.
        paths: Numbers of shortest paths, 0 outside of the last level, [n_rows] float64.
        rows: The rows.
        total: [n_rows] float64; changed.
    """
    for i in range(first, last):
        v, s = rows[i], 0.0
        for e in range(indptr[v], indptr[v + 1]):
            s += paths[near[e]]
        total[v] = s


@jit()
def dependencies(indptr, near, paths, passed, unit, rows, total, first, last):  # type: ignore[no-untyped-def]
    """total[v] = sum of paths[v] * passed over the neighbours of some rows v, each rounded to an integer in a unit.

    Args:
        indptr, near: Neighbours of each row.
        paths: Numbers of shortest paths from the source, [n_rows] float64.
        passed: (1 + dependency) / paths of the nodes of the next level, 0 for others, [n_rows] float64.
        unit: Units in 1.
        rows: The rows.
        total: [n_rows] int64; changed.
    """
    for i in range(first, last):
        v, s = rows[i], np.int64(0)
        for e in range(indptr[v], indptr[v + 1]):
            if passed[near[e]] > 0:
                s += np.int64(paths[v] * passed[near[e]] * unit + 0.5)
        total[v] = s
