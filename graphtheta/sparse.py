"""Sparse matrices of SciPy, recognised without importing ``scipy.sparse``, which few jobs need."""
from __future__ import annotations

from typing import Any


def is_sparse(x: Any) -> bool:
    """Whether x is a sparse matrix or array of SciPy."""
    return hasattr(x, "tocsr") and hasattr(x, "nnz")
