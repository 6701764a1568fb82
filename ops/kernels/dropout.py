"""Dropout masks by hashing, without arrays of hashes."""

from __future__ import annotations

import numpy as np

from ..compile.jit import jit
from .hash import COLUMN, draw, mix


@jit()
def drop(x, ids, key, threshold, scale, column, out):  # type: ignore[no-untyped-def]
    """out[i, j] = x[i, j] * scale where the hash of (key, ids[i], column + j) is at least the
    threshold, else 0.
    """
    for i in range(x.shape[0]):
        h = draw(key, ids[i])
        for j in range(x.shape[1]):
            out[i, j] = (
                x[i, j] * scale
                if mix(h + np.uint64(column + j + 1) * COLUMN) >= threshold
                else x.dtype.type(0)
            )


@jit()
def drop_entries(  # type: ignore[no-untyped-def]
    indptr, indices, data, ids, key, threshold, scale, ends, at, values
):
    """Entries of sparse rows that stay, and how many there are.

    Args:
        indptr, indices, data: The rows, [n + 1], [entries] and [entries].
        ids, key, threshold, scale: As for ``drop``.
        ends, at, values: The same for the rows that are left; written, the last two as far as there
            are entries.
    """
    m = 0
    ends[0] = 0
    for i in range(len(ids)):
        h = draw(key, ids[i])
        for e in range(indptr[i], indptr[i + 1]):
            # an entry that goes is overwritten by the next one, which is faster than a branch
            at[m] = indices[e]
            values[m] = data[e] * scale
            m += mix(h + np.uint64(indices[e] + 1) * COLUMN) >= threshold
        ends[i + 1] = m
    return m
