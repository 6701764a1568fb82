"""Tensors of other libraries as arrays; no library is imported for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphtheta.base.arguments import is_whole
from graphtheta.base.sparse import is_sparse


def of_tensor(value: Any) -> Any:
    """Values as a NumPy array, or a SciPy matrix if they are a sparse matrix.

    Args:
        value: Anything NumPy takes, a SciPy matrix, or a tensor of PyTorch on any device: dense or
            sparse, with or without gradients. Tensors of types that NumPy lacks, such as bfloat16,
            become float32.
    """
    if is_sparse(value):
        return value
    if not is_tensor(value):
        return np.asarray(value)
    tensor = value.detach().cpu()
    if "strided" not in str(tensor.layout):
        return _sparse(tensor)
    try:
        return np.asarray(tensor)
    except TypeError:
        return np.asarray(tensor.float())


def without_tensors(value: Any) -> Any:
    """A value, or those of a dict or a pair, with arrays for tensors and all else as it is."""
    if isinstance(value, Mapping):
        return {key: without_tensors(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)) and len(value) == 2 and any(map(is_tensor, value)):
        return tuple(map(of_tensor, value))
    return of_tensor(value) if is_tensor(value) else with_whole(value)


def with_whole(value: Any) -> Any:
    """A list of integers that NumPy would make floats, because only some of them are beyond 64
    bits, as an array of objects; all else as it is.
    """
    first = value
    while isinstance(first, (list, tuple)) and len(first):
        first = first[0]
    if first is value or not is_whole(first) or hasattr(first, "dtype"):
        return value
    try:
        if np.asarray(value).dtype.kind != "f":
            return value
    except ValueError:
        # lists of different lengths
        return value
    cells = np.array(value, object)
    return cells if all(map(is_whole, cells.flat)) else value


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of PyTorch."""
    return hasattr(value, "detach") and hasattr(value, "layout")


def _sparse(tensor: Any) -> Any:
    """A sparse tensor: a matrix of numbers as CSR, all others dense."""
    entries = tensor.to_sparse_coo().coalesce()
    if entries.ndim != 2 or entries.dense_dim():
        return of_tensor(tensor.to_dense())
    import scipy.sparse as sp

    rows, columns = of_tensor(entries.indices())
    values = of_tensor(entries.values())
    # of which SciPy has no matrices
    values = values.astype(np.float32) if values.dtype == np.float16 else values
    return sp.csr_array((values, (rows, columns)), tuple(tensor.shape))
