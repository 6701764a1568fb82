"""Dropout masks by hashing, without arrays of hashes."""
from __future__ import annotations

import numpy as np

from ..compile.jit import jit
from .hash import COLUMN, draw, mix


@jit()
def drop(x, ids, key, threshold, scale, column, out):  # type: ignore[no-untyped-def]
    """out[i, j] = x[i, j] * scale where the hash of (key, ids[i], column + j) is at least the threshold, else 0."""
    for i in range(x.shape[0]):
        h = draw(key, ids[i])
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * scale if mix(h + np.uint64(column + j + 1) * COLUMN) >= threshold else x.dtype.type(0)


@jit()
def keep_mask(indptr, indices, ids, key, threshold, out):  # type: ignore[no-untyped-def]
    """out[e] = whether entry e of sparse rows stays."""
    for i in range(len(ids)):
        h = draw(key, ids[i])
        for e in range(indptr[i], indptr[i + 1]):
            out[e] = mix(h + np.uint64(indices[e] + 1) * COLUMN) >= threshold
