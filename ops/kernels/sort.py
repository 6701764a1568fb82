"""Rows and orders of the edges of a graph: translation of ids, and stable sorts by counting.

``first`` and ``last`` select the edges of one thread.
"""
from __future__ import annotations

from ..compile.jit import jit


@jit()
def mark_ends(src, dst, edges, marks, first, last):  # type: ignore[no-untyped-def]
    """marks[v] = 1 for both ends v of some edges. Threads may mark at the same time."""
    for i in range(first, last):
        marks[src[edges[i]]] = 1
        marks[dst[edges[i]]] = 1


@jit()
def end_keys(src, dst, edges, row_of, sizes, by_src, by_dst, first, last):  # type: ignore[no-untyped-def]
    """Number the ends of edges by block and row.

    Blocks are numbered by whether the source (1) and the destination (2) are mirrors. A key is the
    row of an end, counted from the first row of the first block.

    Args:
        src, dst: Ids of the ends of all edges.
        edges: The edges, [m] int64.
        row_of: Row of each id; masters first.
        sizes: Masters and mirrors.
        by_src, by_dst: Keys of the sources and destinations, [m] int32; changed.
    """
    masters, mirrors = sizes
    for i in range(first, last):
        e = edges[i]
        s, d = row_of[src[e]], row_of[dst[e]]
        src_mirror, dst_mirror = s >= masters, d >= masters
        by_src[i] = s + (masters + mirrors) * dst_mirror
        by_dst[i] = d + masters * (src_mirror | dst_mirror) + mirrors * (src_mirror & dst_mirror)


@jit()
def count(keys, counts, first, last):  # type: ignore[no-untyped-def]
    """counts[k] += 1 for some keys k."""
    for i in range(first, last):
        counts[keys[i]] += 1


@jit()
def place(keys, values, numbers, free, out_values, out_numbers, first, last):  # type: ignore[no-untyped-def]
    """Write the rows of two columns in the order of their keys.

    Args:
        keys, values, numbers: [m].
        free: Where the next row of each key is written; changed.
        out_values, out_numbers: [m]; changed.
    """
    for i in range(first, last):
        at = free[keys[i]]
        free[keys[i]] = at + 1
        out_values[at], out_numbers[at] = values[i], numbers[i]
