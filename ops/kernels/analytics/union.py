"""Union-find over rows. The root of a set is its lowest row.

Source: Sutton, Ben-Nun and Barak, Afforest, IPDPS 2018, for linking few neighbours of each row
first; a read-only pass, which threads share, then finds the few rows that are left.
"""

from __future__ import annotations

from ...compile.jit import jit


@jit()
def link(indptr, near, rows, most, parent):  # type: ignore[no-untyped-def]
    """Unite the sets of some rows with those of their first neighbours.

    Args:
        indptr, near: Neighbours of each row.
        rows: The rows.
        most: Neighbours of a row to link.
        parent: A row of the same set, at most the row itself, [n_rows] int32; changed.
    """
    for i in range(len(rows)):
        v = rows[i]
        for e in range(indptr[v], min(indptr[v + 1], indptr[v] + most)):
            a = parent[v]
            b = parent[near[e]]
            while a != b:
                if a < b:
                    a, b = b, a
                # a is the higher one: hang it below b if it is a root, else go up from it
                above = parent[a]
                if above == a:
                    parent[a] = b
                    break
                parent[a] = parent[above]
                a = above


@jit()
def compress(parent):  # type: ignore[no-untyped-def]
    """Make the root of its set the parent of every row. Parents come first: one pass suffices."""
    for v in range(len(parent)):
        parent[v] = parent[parent[v]]


@jit()
def mark_split(indptr, near, parent, marks, first, last):  # type: ignore[no-untyped-def]
    """marks[v] = 1 for rows that have a neighbour with another parent.

    Args:
        indptr, near: Neighbours of each row.
        parent: [n_rows] int32.
        marks: [n_rows] uint8; changed.
        first, last: Rows of one thread.
    """
    for v in range(first, last):
        for e in range(indptr[v], indptr[v + 1]):
            if parent[near[e]] != parent[v]:
                marks[v] = 1
                break


@jit()
def lowest(parent, label, out):  # type: ignore[no-untyped-def]
    """out[parent[v]] = minimum of itself and label[v], for every row v."""
    for v in range(len(parent)):
        if label[v] < out[parent[v]]:
            out[parent[v]] = label[v]
