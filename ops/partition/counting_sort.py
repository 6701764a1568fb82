"""Counting sorts on all threads."""
from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ..autodiff.buffers import empty
from ..kernels.pool import run_blocks, threads
from ..kernels.sort import count, place

# least keys for each thread
KEYS_PER_THREAD = 1 << 17


def occurrences(keys: np.ndarray, n: int) -> np.ndarray:
    """How often each number below n occurs, [n] int64.

    Args:
        keys: [m] int64.
    """
    return _counted(keys, n, np.int64)[1].sum(axis=0)


def counting_sort(keys: np.ndarray, n: int, values: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort two columns by key; rows of equal keys stay in order.

    Args:
        keys: [m] int32, below n.
        n: Keys that are possible.
        values, numbers: The columns, [m] int32 and [m] integers.

    Returns:
        Bounds of the rows of each key, [n + 1] int64, and the sorted columns.
    """
    parts, free = _counted(keys, n, np.int32)
    bounds = np.append(0, np.cumsum(free.sum(axis=0, dtype=np.int64)))
    # a thread writes the rows of a key after those of the threads before it
    first = bounds[:-1].astype(np.int32)
    for own in free:
        end = first + own
        own[:], first = first, end
    out = empty(values.shape, values.dtype), empty(numbers.shape, numbers.dtype)
    run_blocks(lambda b: place(keys, values, numbers, free[b], *out, *parts[b]), len(parts))
    return bounds, *out


def _counted(keys: np.ndarray, n: int, dtype: Any) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Bounds of the keys of each thread, and how often each number occurs among them, [threads, n]."""
    # a thread has as many counters as there are numbers
    parts = max(1, min(threads(), len(keys) // max(n, KEYS_PER_THREAD)))
    each = list(pairwise(np.linspace(0, len(keys), parts + 1, dtype=np.int64).tolist()))
    counts = np.zeros((parts, n), dtype)
    run_blocks(lambda b: count(keys, counts[b], *each[b]), parts)
    return each, counts
