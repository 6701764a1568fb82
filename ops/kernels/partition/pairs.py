"""Sorts of pairs of keys on all threads: by buckets that fit into cache, and within these by
digits.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...parallel.buffers import by_blocks, empty
from ...parallel.pool import run_blocks, threads
from .edge_order import count, count_buckets, deal, sort_bucket

# least keys for each thread
KEYS_PER_THREAD = 1 << 17
# most edges of a graph whose ids fit into int32
WIDEST = 1 << 31
# pairs of a bucket, which fit twice into a second-level cache; most buckets; entries of their
# table; pairs that are sampled to bound them
BUCKET = 1 << 15
MOST_BUCKETS = 1 << 10
ENTRIES = 1 << 14
SAMPLED = 1 << 16
# bits of a digit at most
DIGIT = 11


def occurrences(keys: np.ndarray, n: int) -> np.ndarray:
    """How often each number below n occurs, [n] int64.

    Args:
        keys: [m] integers.
    """
    # a thread has as many counters as there are numbers
    parts = thread_parts(len(keys), max(n, KEYS_PER_THREAD))
    counts = np.zeros((len(parts), n), np.int64)
    run_blocks(lambda b: count(keys, counts[b], *parts[b]), len(parts))
    return counts[0] if len(parts) == 1 else counts.sum(axis=0)


class Dealt(NamedTuple):
    """Pairs of keys in buckets of high keys.

    Attributes:
        keys: The high key in the upper 32 bits and the low one, [m] int64.
        numbers: A number of each pair, [m] integers.
        at: Bounds of the pairs of each bucket.
        rows: Bounds of its high keys.
    """

    keys: np.ndarray
    numbers: np.ndarray
    at: np.ndarray
    rows: np.ndarray


def dealt_pairs(high: np.ndarray, low: np.ndarray, numbers: np.ndarray, n: int) -> Dealt:
    """Deal pairs of keys to buckets; in a bucket they stay in order.

    Args:
        high, low: Keys, [m] int32.
        numbers: A number of each pair, [m] integers.
        n: High keys that are possible.
    """
    bucket_of, shift, rows = _buckets(high, n)
    parts = thread_parts(len(high), KEYS_PER_THREAD)
    free = np.zeros((len(parts), len(rows) - 1), np.int64)
    run_blocks(lambda b: count_buckets(high, bucket_of, shift, free[b], *parts[b]), len(parts))
    ends = np.cumsum(free.T).reshape(-1, len(parts))
    # a thread writes its pairs of a bucket after those of the threads before it
    free[:] = ends.T - free
    keys, order = empty(high.shape, np.int64), empty(high.shape, numbers.dtype)
    run_blocks(
        lambda b: deal(high, low, numbers, bucket_of, shift, free[b], keys, order, *parts[b]),
        len(parts),
    )
    return Dealt(keys, order, np.append(0, ends[:, -1]), rows)


def sorted_pairs(dealt: Dealt, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort pairs of keys; equal ones stay in order. Each bucket is sorted by digits.

    Args:
        dealt: The pairs; changed.
        most: Low keys that are possible; with 1, they are not sorted by.

    Returns:
        Bounds of the pairs of each high key, [n + 1] int64, and low keys and numbers in order.
    """
    keys, numbers, at, rows = dealt
    bits = int(most - 1).bit_length()
    digits = -(-bits // DIGIT)
    width = -(-bits // max(digits, 1))
    bounds = np.zeros(rows[-1] + 1, np.int64)
    out_low = empty(keys.shape, np.int32)
    out_numbers = empty(keys.shape, numbers.dtype)

    def sort(b: int) -> None:
        part = slice(at[b], at[b + 1])
        spare = [empty(x[part].shape, x.dtype) if digits else x[:0] for x in (keys, numbers)]
        sort_bucket(
            keys[part],
            numbers[part],
            *spare,
            np.empty(max(1 << width, rows[b + 1] - rows[b]), np.int64),
            digits,
            width,
            (rows[b], rows[b + 1], at[b]),
            bounds,
            out_low,
            out_numbers,
        )

    run_blocks(sort, len(rows) - 1)
    return bounds, out_low, out_numbers


def _buckets(keys: np.ndarray, n: int) -> tuple[np.ndarray, int, np.ndarray]:
    """Buckets of about as many of the keys below n, found from a sample: a table, bits left out to
    enter it, and bounds of the buckets.
    """
    wanted = min(max(len(keys) // BUCKET, 1), MOST_BUCKETS)
    shift = max(int(n).bit_length() - ENTRIES.bit_length() + 1, 0)
    entries = max(-(-n // (1 << shift)), 1)
    counts = np.bincount(keys[:: max(len(keys) // SAMPLED, 1)] >> shift, minlength=entries)
    before = np.cumsum(counts) - counts
    _, first, bucket_of = np.unique(
        before * wanted // max(int(counts.sum()), 1), return_index=True, return_inverse=True
    )
    return bucket_of.astype(np.int16), shift, np.append(first << shift, n)


def thread_parts(m: int, least: int) -> list[tuple[int, int]]:
    """Bounds of the keys of each thread, of which a thread has at least some."""
    parts = max(1, min(threads(), m // least))
    return list(pairwise(np.linspace(0, m, parts + 1, dtype=np.int64).tolist()))


def numbered(n: int, last: int) -> np.ndarray:
    """The numbers 0..n-1, [n] int32 if that holds ``last``, else int64."""
    # half as many bytes are moved
    out = empty((n,), np.int32 if last <= WIDEST else np.int64)
    by_blocks(lambda b, begin, end: np.copyto(out[begin:end], np.arange(begin, end)), n, 1)
    return out
