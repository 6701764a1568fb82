"""Rows and orders of the edges of a graph: translation of ids, and stable sorts in buckets that fit
into cache.

``first`` and ``last`` select the edges of one thread.
"""

from __future__ import annotations

import numpy as np

from ...compile.jit import jit


@jit()
def mark_ends(src, dst, edges, marks, first, last):  # type: ignore[no-untyped-def]
    """marks[v] = 1 for both ends v of some edges. Threads may mark at the same time."""
    for i in range(first, last):
        marks[src[edges[i]]] = 1
        marks[dst[edges[i]]] = 1


@jit()
def end_keys(  # type: ignore[no-untyped-def]
    src, dst, edges, row_of, sizes, by_src, by_dst, first, last
):
    """Number the ends of edges by block and row.

    Blocks are numbered by whether the source (1) and the destination (2) are mirrors. A key is the
    row of an end, counted from the first row of the first block.

    Args:
        src, dst: Ids of the ends of all edges.
        edges: The edges, [m] integers.
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
def count_buckets(keys, bucket_of, shift, counts, first, last):  # type: ignore[no-untyped-def]
    """counts[bucket_of[k >> shift]] += 1 for some keys k."""
    for i in range(first, last):
        counts[bucket_of[keys[i] >> shift]] += 1


@jit()
def deal(  # type: ignore[no-untyped-def]
    high, low, numbers, bucket_of, shift, free, keys, order, first, last
):
    """Write pairs of keys, and numbers, in the order of the buckets of the high keys.

    Args:
        high, low: Keys, [m] int32, from 0.
        numbers: [m] integers.
        bucket_of, shift: Bucket of each high key without its last ``shift`` bits.
        free: Where the next pair of each bucket is written; changed.
        keys: Pairs, the high key in the upper 32 bits, [m] int64; changed.
        order: Their numbers, [m]; changed.
    """
    for i in range(first, last):
        b = bucket_of[high[i] >> shift]
        at = free[b]
        free[b] = at + 1
        keys[at] = np.int64(high[i]) << 32 | np.int64(low[i])
        order[at] = numbers[i]


@jit()
def sort_bucket(  # type: ignore[no-untyped-def]
    keys, order, spare_keys, spare_order, free, digits, width, rows, bounds, out_low, out_order
):
    """Sort the pairs of a bucket by high key and the last digits of the low one; equal pairs stay
    in order.

    Args:
        keys, order: Pairs and numbers as of ``deal``, [n]; changed.
        spare_keys, spare_order: Memory for as many.
        free: Memory for a number of each digit, or of each high key if they are more, int64; to
            allocate it here would take a fifth of a second more to compile.
        digits, width: Digits of the low keys to sort by, and bits of a digit.
        rows: The first high key of the bucket, the one after the last, and pairs of lower buckets.
        bounds: bounds[k + 1] becomes the number of pairs of high keys up to k.
        out_low, out_order: Low keys and numbers of all buckets in order; changed.
    """
    begin, end, at = rows
    mask = (np.int64(1) << width) - 1
    n = len(keys)
    for digit in range(digits):
        shift = np.int64(digit * width)
        total = np.int64(0)
        free[: mask + 1] = 0
        for i in range(n):
            free[keys[i] >> shift & mask] += 1
        for k in range(mask + 1):
            free[k], total = total, total + free[k]
        for i in range(n):
            k = keys[i] >> shift & mask
            spare_keys[free[k]], spare_order[free[k]] = keys[i], order[i]
            free[k] += 1
        keys, order, spare_keys, spare_order = spare_keys, spare_order, keys, order
    free[: end - begin] = 0
    for i in range(n):
        free[(keys[i] >> 32) - begin] += 1
    for k in range(end - begin):
        free[k], at = at, at + free[k]
        bounds[begin + k + 1] = at
    for i in range(n):
        k = (keys[i] >> 32) - begin
        out_low[free[k]], out_order[free[k]] = keys[i] & 0xFFFFFFFF, order[i]
        free[k] += 1
