"""Searches from sources: breadth-first searches by level or in one go, Dijkstra's algorithm,
dependencies of shortest paths.
"""

from __future__ import annotations

import numpy as np

from ...compile.jit import jit
from ..heap_sort import sort


@jit()
def mark_near(indptr, near, rows, marks, first, last):  # type: ignore[no-untyped-def]
    """marks[u] = 1 for the neighbours u of some rows. Threads may mark at the same time."""
    for i in range(first, last):
        v = rows[i]
        for e in range(indptr[v], indptr[v + 1]):
            marks[near[e]] = 1


@jit()
def narrow_levels(indptr, near, dist, queue, begin, end, most):  # type: ignore[no-untyped-def]
    """Search level by level while a level has no more than so many rows.

    It takes time for the rows that it finds and their edges only.

    Args:
        indptr, near: Neighbours of each row.
        dist: Number of the level of each row, -1 for rows that are not found, [n_rows] int32;
            changed.
        queue: The rows of a level from ``begin`` to ``end``, with room for all rows, [n_rows]
            int32; changed.
        most: Rows of a level.

    Returns:
        Bounds in the queue of the first level that has more rows, or none.
    """
    while begin < end <= begin + most:
        last = end
        for i in range(begin, last):
            v = queue[i]
            for e in range(indptr[v], indptr[v + 1]):
                u = near[e]
                if dist[u] < 0:
                    dist[u] = dist[v] + 1
                    queue[end] = u
                    end += 1
        begin = last
    return begin, end


@jit()
def search_order(  # type: ignore[no-untyped-def]
    out_bounds, out_near, in_bounds, in_near, ids, row_of, root, position
):
    """Positions of all rows in a search along edges in both directions, from a root, then from the
    next id that is not found.

    New neighbours of a node follow in the order of their ids.

    Args:
        out_bounds, out_near, in_bounds, in_near: Neighbours of each row by direction.
        ids: Id of each row, [n_rows] int64, which are 0 to n_rows - 1 in any order.
        row_of: Row of each id, [n_rows] int64.
        root: Id of the node from which the search starts.
        position: [n_rows] int64; changed.
    """
    n = len(position)
    queue = np.empty(n, np.int64)
    done = np.zeros(n, np.uint8)
    end = 0
    for k in range(n):
        start = (root + k) % n
        if done[start]:
            continue
        queue[end] = start
        done[start] = 1
        begin = end
        end = end + 1
        while begin < end:
            v = row_of[queue[begin]]
            new = end
            position[v] = begin
            begin += 1
            for e in range(out_bounds[v], out_bounds[v + 1]):
                u = ids[out_near[e]]
                if not done[u]:
                    queue[end] = u
                    done[u] = 1
                    end += 1
            for e in range(in_bounds[v], in_bounds[v + 1]):
                u = ids[in_near[e]]
                if not done[u]:
                    queue[end] = u
                    done[u] = 1
                    end += 1
            if end > new + 1:
                sort(queue[new:end], queue[new:end])


@jit()
def settle(indptr, near, weight, rows, dist, changed):  # type: ignore[no-untyped-def]
    """Lower distances along edges until none can be lowered, starting from rows whose distances are
    new.

    A binary heap has the rows to follow, nearest first, each once.

    Args:
        indptr, near, weight: Out-edges of each row, with lengths of at least 0, float64.
        rows: Rows whose distances are new, each once.
        dist: Distances, [n_rows] float64; changed.
        changed: changed[v] = 1 for rows whose distance was lowered, [n_rows] uint8; changed.
    """
    heap = np.empty(len(dist), np.int32)
    slot = np.full(len(dist), -1, np.int32)
    n = 0
    for i in range(len(rows)):
        n = _raise(heap=heap, slot=slot, dist=dist, v=rows[i], n=n)
    while n > 0:
        v = heap[0]
        slot[v] = -1
        n -= 1
        if n > 0:
            last = heap[n]
            at = 0
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
            u = near[e]
            d = dist[v] + weight[e]
            if d < dist[u]:
                dist[u] = d
                changed[u] = 1
                n = _raise(heap=heap, slot=slot, dist=dist, v=u, n=n)


@jit()
def _raise(heap, slot, dist, v, n):  # type: ignore[no-untyped-def]
    """Move a row up to its position in the heap, at whose end it is added if it is not there;
    returns the new length.
    """
    at = slot[v]
    if at < 0:
        at = n
        n = n + 1
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
        v = rows[i]
        s = 0.0
        for e in range(indptr[v], indptr[v + 1]):
            s += paths[near[e]]
        total[v] = s


@jit()
def dependencies(  # type: ignore[no-untyped-def]
    indptr, near, paths, passed, unit, rows, total, first, last
):
    """total[v] = sum of paths[v] * passed over the neighbours of some rows v, each rounded to an
    integer in a unit.

    Args:
        indptr, near: Neighbours of each row.
        paths: Numbers of shortest paths from the source, [n_rows] float64.
        passed: (1 + dependency) / paths of the nodes of the next level, 0 for others, [n_rows]
            float64.
        unit: Units in 1.
        rows: The rows.
        total: [n_rows] int64; changed.
    """
    for i in range(first, last):
        v = rows[i]
        s = np.int64(0)
        for e in range(indptr[v], indptr[v + 1]):
            if passed[near[e]] > 0:
                s += np.int64(paths[v] * passed[near[e]] * unit + 0.5)
        total[v] = s


@jit()
def all_dependencies(indptr, near, source, unit, delta):  # type: ignore[no-untyped-def]
    """delta[v] = dependency of a source on each row v that it reaches; whether all paths could be
    counted.

    Levels, numbers of paths and rounding are those of ``paths_into`` and ``dependencies``.

    Args:
        indptr, near: Out-neighbours of each row; these are all rows of the graph.
        source: Row of the source.
        unit: Units in 1.
        delta: [n_rows] float64, all 0; changed.
    """
    n = len(delta)
    level = np.full(n, -1, np.int32)
    queue = np.empty(n, np.int32)
    paths = np.zeros(n)
    passed = np.empty(n)
    queue[0] = source
    level[source] = 0
    paths[source] = 1.0
    begin = 0
    end = 1
    while begin < end:
        v = queue[begin]
        begin += 1
        if paths[v] == np.inf:
            return False
        for e in range(indptr[v], indptr[v + 1]):
            u = near[e]
            if level[u] < 0:
                level[u] = level[v] + 1
                queue[end] = u
                end += 1
            if level[u] == level[v] + 1:
                paths[u] += paths[v]
    for i in range(end - 1, 0, -1):
        v = queue[i]
        s = np.int64(0)
        for e in range(indptr[v], indptr[v + 1]):
            u = near[e]
            if level[u] == level[v] + 1:
                s += np.int64(paths[v] * passed[u] * unit + 0.5)
        delta[v] = s / unit
        passed[v] = (1 + delta[v]) / paths[v]
    return True
