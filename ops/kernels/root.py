"""Roots of trees in forests, which are arrays of parents."""

from __future__ import annotations

from numba import njit


@njit(inline="always")
def find_root(parent, x):  # type: ignore[no-untyped-def]
    """The root of the tree of x; nodes on the way get the parents of their parents, so that later
    ways are half as long.

    Args:
        parent: Parent of each node, [n] integers; a root is its own. Changed.
        x: A node.
    """
    while parent[x] != x:
        parent[x] = parent[parent[x]]
        x = parent[x]
    return x
