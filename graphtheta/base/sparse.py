"""Sparse matrices of SciPy, recognised without importing ``scipy.sparse``, which few jobs need."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.base.npy import AGAIN
from graphtheta.errors import FormatError

WIDEST = np.iinfo(np.int32).max


def is_sparse(x: Any) -> bool:
    """Whether x is a sparse matrix or array of SciPy."""
    return hasattr(x, "tocsr") and hasattr(x, "nnz")


def csr(values: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: Any, at: str) -> Any:
    """A CSR array from untrusted parts, checked before compiled code uses the indices.

    Raises:
        FormatError: The parts do not make a CSR matrix.
    """
    import scipy.sparse as sp

    if len(shape) != 2 or len(indptr) != int(shape[0]) + 1 or len(values) != len(indices):
        raise FormatError(
            f"{at}: CSR parts of {len(values)} values, {len(indices)} indices and {len(indptr)}"
            f" bounds do not make a matrix of shape {[int(n) for n in shape]}; {AGAIN}"
        )
    if not 0 <= int(shape[1]) <= WIDEST:
        raise FormatError(
            f"{at}: a CSR matrix of {int(shape[1])} columns, expected 0 to {WIDEST}; {AGAIN}"
        )
    if indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
        raise FormatError(
            f"{at}: the row bounds (indptr) must rise from 0 to {len(indices)}; {AGAIN}"
        )
    if len(indices) and (indices.min() < 0 or indices.max() >= int(shape[1])):
        raise FormatError(
            f"{at}: column indices run from {indices.min()} to {indices.max()}, outside"
            f" 0..{int(shape[1]) - 1}; {AGAIN}"
        )
    return sp.csr_array((values, indices, indptr), shape=(int(shape[0]), int(shape[1])))
