"""Products with sparse rows (CSR), on a block of rows."""

from __future__ import annotations

from ..compile.jit import jit


@jit()
def rows_times(begin, end, indptr, indices, data, w, out):  # type: ignore[no-untyped-def]
    """out[i] = sum over entries e of row i of data[e] * w[indices[e]], for rows begin to end."""
    for i in range(begin, end):
        for j in range(w.shape[1]):
            out[i, j] = 0
        for e in range(indptr[i], indptr[i + 1]):
            x, k = data[e], indices[e]
            for j in range(w.shape[1]):
                out[i, j] += x * w[k, j]


@jit()
def rows_onto(begin, end, indptr, indices, data, g, out):  # type: ignore[no-untyped-def]
    """out[indices[e]] += data[e] * g[i] over the entries e of rows begin to end; the transposed
    product.
    """
    for i in range(begin, end):
        for e in range(indptr[i], indptr[i + 1]):
            x, k = data[e], indices[e]
            for j in range(g.shape[1]):
                out[k, j] += x * g[i, j]
