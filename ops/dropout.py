"""Inverted dropout, keyed by global ids.

Whether an element is dropped depends on (seed, step, call, global id of its row, its column) and nothing else, so
every partition and every number of ranks drops the same elements. The mask is made again in backward, not kept.
"""
from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from graphtheta import rng
from graphtheta.errors import ConfigError
from graphtheta.rng import Purpose

from .expr import Expr, tracer, tracing
from .primitive import defvjp, primitive
from .tape import current, space_of

# hashing works on 64-bit words; blocks of this many elements stay in the cache
_BLOCK = 1 << 15


@primitive("dropout", sparse=True)
def _dropout(x: Any, ids: Any, key: Any, *, rate: float, site: int) -> Any:
    """Elements of x kept with probability 1 - rate and scaled by its inverse; x itself if there is no key."""
    if key is None:
        return x
    if issparse(x):
        return _drop_entries(x, ids, key, rate, site)
    return _drop(x, ids, key, rate, site)


def _drop(x: Any, ids: Any, key: Any, rate: float, site: int) -> Any:
    width = prod(x.shape[1:])
    flat = x.reshape(len(ids), width)
    out = np.empty_like(flat)
    scale, folded = _scale(x, rate), rng.key(int(key), Purpose.DROPOUT, site)
    step = max(1, _BLOCK // max(1, width))
    for start in range(0, len(ids), step):
        rows = slice(start, start + step)
        kept = rng.bits(folded, ids[rows], width) >= _threshold(rate)
        np.multiply(flat[rows], kept * scale, out=out[rows])
    return out.reshape(x.shape)


def _drop_entries(x: Any, ids: Any, key: Any, rate: float, site: int) -> Any:
    row_ids = np.repeat(ids, np.diff(x.indptr))
    kept = rng.bits_at(rng.key(int(key), Purpose.DROPOUT, site), row_ids, x.indices) >= _threshold(rate)
    ends = np.concatenate(([0], np.cumsum(kept)))[x.indptr]
    return csr_array((x.data[kept] * _scale(x, rate), x.indices[kept], ends.astype(x.indptr.dtype)), shape=x.shape)


def _threshold(rate: float) -> np.uint64:
    """Hashes below it are dropped."""
    return np.uint64(min(int(rate * 2.0**64), 2**64 - 1))


def _scale(x: Any, rate: float) -> Any:
    return x.dtype.type(1 / (1 - rate))


def _dropout_vjp(g: Any, y: Any, x: Any, ids: Any, key: Any, rate: float, site: int) -> Any:
    if issparse(x):
        return None
    return g if key is None else _drop(g, ids, key, rate, site)


defvjp(_dropout, x=_dropout_vjp, ids=None, key=None)


def dropout(x: Any, rate: float) -> Any:
    """Set elements to zero at random in training and scale up the rest; x itself otherwise.

    Args:
        x: [n, ...] node values, edge values inside gather, scipy CSR rows, or a value without rows.
        rate: Probability of dropping an element, in [0, 1).

    Returns:
        Shape and type of x. Sparse rows lose stored entries, exactly those that would be dropped of the dense array.

    Raises:
        ConfigError: The rate is outside [0, 1).

    Source: https://jmlr.org/papers/v15/srivastava14a.html
    """
    if not 0 <= rate < 1:
        raise ConfigError(f"dropout rate must be in [0, 1), got {rate}")
    rate = float(rate)
    if isinstance(x, Expr) or tracing():
        scope = tracer()
        ids: Any = scope.leaf("edge", "gid", (), np.int64, live=False) if getattr(x, "rows", False) else _positions(x)
        run = scope.leaf("key", "run", (), np.uint64, rows=False, live=False)
        return _dropout(x, ids, run, rate=rate, site=scope.next_site())
    tape = current()
    if not tape.training:
        return x
    key = tape.random_key()
    space = space_of(x)
    return _dropout(x, space.gid if space is not None else _positions(x), key, rate=rate, site=0) if rate else x


def _positions(x: Any) -> np.ndarray:
    """Row numbers stand in for ids where there are none."""
    return np.arange(x.shape[0] if len(x.shape) else 1)
