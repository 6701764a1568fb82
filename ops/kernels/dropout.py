"""Dropout masks by hashing, without arrays of hashes."""
from __future__ import annotations

import numpy as np
from numba import njit

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
COLUMN = np.uint64(0xD1B54A32D192ED03)


@njit(inline="always")
def _mix(x):  # type: ignore[no-untyped-def]
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(nogil=True, cache=True)
def drop(x, ids, key, threshold, scale, out):  # type: ignore[no-untyped-def]
    """out[i, j] = x[i, j] * scale where the hash of (key, ids[i], j) is at least the threshold, else 0."""
    for i in range(x.shape[0]):
        h = _mix(np.uint64(ids[i]) * GOLDEN + key)
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * scale if _mix(h + np.uint64(j + 1) * COLUMN) >= threshold else x.dtype.type(0)


@njit(nogil=True, cache=True)
def kept(indptr, indices, ids, key, threshold, out):  # type: ignore[no-untyped-def]
    """out[e] = whether entry e of sparse rows stays."""
    for i in range(len(ids)):
        h = _mix(np.uint64(ids[i]) * GOLDEN + key)
        for e in range(indptr[i], indptr[i + 1]):
            out[e] = _mix(h + np.uint64(indices[e] + 1) * COLUMN) >= threshold
