"""Degrees and neighbourhoods of some nodes, from chunks of edges."""

from __future__ import annotations

from ...compile.jit import jit
from ..heap_sort import sort


@jit()
def add_degrees(ends, first, degree):  # type: ignore[no-untyped-def]
    """degree[v - first] += 1 for each v in ``ends``."""
    for v in ends:
        degree[v - first] += 1


@jit()
def fill_lists(at, other, first, free, near):  # type: ignore[no-untyped-def]
    """Append other[i] to the list of the node at[i], for each i.

    Args:
        at, other: Nodes, [n] integers.
        first: The node of the first list.
        free: Next position in each list, -1 for nodes whose lists are not filled, [n_lists] int64;
            changed.
        near: All lists; changed.
    """
    for i in range(len(at)):
        v = at[i] - first
        if free[v] >= 0:
            near[free[v]] = other[i]
            free[v] += 1


@jit()
def drop_repeats(ptr, near):  # type: ignore[no-untyped-def]
    """Sort the list of each node and leave each item once, in place; returns the number of items
    left.

    Args:
        ptr: Bounds of the lists, [n + 1] int64; changed.
        near: All lists; changed.
    """
    begin = end = 0
    for v in range(len(ptr) - 1):
        items = near[begin : ptr[v + 1]]
        sort(items, items)
        begin = ptr[v + 1]
        for i in range(len(items)):
            if i == 0 or items[i] != items[i - 1]:
                near[end] = items[i]
                end += 1
        ptr[v + 1] = end
    return end
