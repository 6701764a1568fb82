"""Puts the received edges of a view in order: by position, and those of a sweep by receiving row.

Rows and positions are int32, bounds int64. A use is an edge that a sweep runs over; it has the
number of the edge among those of its sender.
"""

from __future__ import annotations

import numpy as np

from ...compile.jit import jit

NONE = -1


@jit()
def place(rows, new, position, out):  # type: ignore[no-untyped-def]
    """out[position[i]] = new[rows[i]]."""
    for i in range(len(rows)):
        out[position[i]] = new[rows[i]]


@jit()
def positions(edge, ptr, edge_ptr, position, out):  # type: ignore[no-untyped-def]
    """Positions of edges that messages number among those of their sender.

    Args:
        edge: Number of each, [n].
        ptr, edge_ptr: Bounds of the senders in these, and in all received edges.
        position: Position of each received edge.
        out: The positions, [n]; changed.
    """
    for q in range(len(ptr) - 1):
        for i in range(ptr[q], ptr[q + 1]):
            out[i] = position[edge_ptr[q] + edge[i]]


@jit()
def by_receiver(uses, chosen, receive, send, marks, n):  # type: ignore[no-untyped-def]
    """The edges of a sweep by receiving row and position.

    Args:
        uses: The uses of the sweep, no two of the same edge.
        chosen: Position of the edge of each use.
        receive, send: Rows at the ends of the edges by position.
        marks: NONE for each edge; changed, and restored.
        n: Number of receiving rows.

    Returns:
        The rows that receive, bounds of their edges, and of each edge the sending row, position,
        and use.
    """
    bounds = np.zeros(n + 1, np.int64)
    for u in uses:
        marks[chosen[u]] = u
        bounds[receive[chosen[u]] + 1] += 1
    row = np.empty(n, np.int32)
    ptr = np.empty(n + 1, np.int64)
    groups = 0
    for r in range(n):
        if bounds[r + 1]:
            row[groups], ptr[groups] = r, bounds[r]
            groups += 1
        bounds[r + 1] += bounds[r]
    ptr[groups] = bounds[n]
    other = np.empty(len(uses), np.int32)
    edges = np.empty(len(uses), np.int32)
    use = np.empty(len(uses), np.int32)
    for e in range(len(marks)):
        if marks[e] != NONE:
            k = bounds[receive[e]]
            bounds[receive[e]] += 1
            other[k], edges[k], use[k] = send[e], e, marks[e]
            marks[e] = NONE
    return row[:groups].copy(), ptr[: groups + 1].copy(), other, edges, use
