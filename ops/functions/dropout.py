"""Inverted dropout, keyed by global ids.

Whether an element is dropped depends on (seed, step, call, global id of its row, its column) and
nothing else, so any partition on any number of ranks drops the same elements. The mask is
recomputed in backward.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import scipy

from graphtheta.base import rng
from graphtheta.base.rng import Purpose
from graphtheta.base.sparse import is_sparse
from graphtheta.base.typed_rows import TypedRows
from graphtheta.errors import ConfigError

from ..autodiff.expr import Expr, tracer, tracing
from ..autodiff.primitive import defvjp, primitive
from ..autodiff.refusal import operation
from ..autodiff.tape import current, space_of
from ..autodiff.traits import Traits, all_axes
from .rows import as_floats

# elements a thread takes at a time
_BLOCK = 1 << 17


@primitive(
    "dropout", sparse=True, traits=Traits(linear=(0,), kept_axes=all_axes, random=True, lazy="draw")
)
def dropout_p(x: Any, ids: Any, key: Any, *, rate: float, site: int) -> Any:
    """x / (1 - rate) with probability 1 - rate, else 0, elementwise; x itself without a key."""
    if key is None:
        return x
    if isinstance(x, TypedRows):
        return x.mapped(
            [
                _drop(x=block, ids=ids[rows], key=key, rate=rate, site=site, column=columns.start)
                for block, columns, rows in x.types()
            ]
        )
    if is_sparse(x):
        return _drop_entries(x=x, ids=ids, key=key, rate=rate, site=site)
    return _drop(x=x, ids=ids, key=key, rate=rate, site=site)


def _drop(x: Any, ids: Any, key: Any, rate: float, site: int, column: int = 0) -> Any:
    """The array after dropout; its first column has this number."""
    # numba takes longer to import than many programs to run
    from ..kernels.dropout import drop
    from ..parallel.pool import run_blocks

    flat = np.ascontiguousarray(x.reshape(len(ids), prod(x.shape[1:])))
    out = np.empty_like(flat)
    folded = np.uint64(rng.key(int(key), Purpose.DROPOUT, site))
    step = max(1, _BLOCK // max(1, flat.shape[1]))

    def block(b: int) -> None:
        rows = slice(b * step, (b + 1) * step)
        drop(
            x=flat[rows],
            ids=ids[rows],
            key=folded,
            threshold=_threshold(rate),
            scale=_scale(x, rate),
            column=column,
            out=out[rows],
        )

    run_blocks(block, -(-len(ids) // step))
    return out.reshape(x.shape)


def _drop_entries(x: Any, ids: Any, key: Any, rate: float, site: int) -> Any:
    from ..kernels.dropout import drop_entries

    folded = np.uint64(rng.key(int(key), Purpose.DROPOUT, site))
    ends, at, values = (np.empty_like(part) for part in (x.indptr, x.indices, x.data))
    n = drop_entries(
        indptr=x.indptr,
        indices=x.indices,
        data=x.data,
        ids=ids,
        key=folded,
        threshold=_threshold(rate),
        scale=_scale(x, rate),
        ends=ends,
        at=at,
        values=values,
    )
    return scipy.sparse.csr_array((values[:n], at[:n], ends), shape=x.shape)


def _threshold(rate: float) -> np.uint64:
    """Hashes below it are dropped."""
    return np.uint64(min(int(rate * 2.0**64), 2**64 - 1))


def _scale(x: Any, rate: float) -> Any:
    return x.dtype.type(1 / (1 - rate))


def _dropout_vjp(g: Any, y: Any, x: Any, ids: Any, key: Any, rate: float, site: int) -> Any:
    if is_sparse(x):
        return None
    return g if key is None else _drop(x=g, ids=ids, key=key, rate=rate, site=site)


defvjp(dropout_p, x=_dropout_vjp, ids=None, key=None)


@operation
def dropout(x: Any, rate: float) -> Any:
    """Set elements to zero at random in training and scale up the rest; x itself otherwise.

    Args:
        x: [n, ...] node values, edge values inside gather, scipy CSR rows, or a value without rows.
        rate: Probability of dropping an element, in [0, 1).

    Returns:
        Shape and type of x; integers and masks become floats, in training or not, as in
        x / (1 - rate). Sparse rows lose stored entries, exactly those that would be dropped of the
        dense array.

    Raises:
        ConfigError: The rate is outside [0, 1).

    Source: https://jmlr.org/papers/v15/srivastava14a.html
    """
    if not 0 <= rate < 1:
        raise ConfigError(f"dropout rate must be in [0, 1), got {rate}")
    rate = float(rate)
    x = as_floats(x)
    if isinstance(x, Expr) or tracing():
        scope = tracer()
        ids: Any = (
            scope.leaf("edge", "gid", (), np.int64, requires_grad=False)
            if getattr(x, "rows", False)
            else _positions(x)
        )
        run = scope.leaf("key", "run", (), np.uint64, rows=False, requires_grad=False)
        return dropout_p(x, ids, run, rate=rate, site=scope.next_call_site())
    tape = current()
    if not tape.training:
        return x
    key = tape.random_key()
    space = space_of(x)
    return (
        dropout_p(x, space.gid if space is not None else _positions(x), key, rate=rate, site=0)
        if rate
        else x
    )


def _positions(x: Any) -> np.ndarray:
    """Row numbers in place of ids, for values that have none."""
    return np.arange(x.shape[0] if len(x.shape) else 1)
