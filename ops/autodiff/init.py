"""Initial values of parameters, and the default float type.

A draw is keyed by (seed, running number of the parameter in its scope), so every rank that builds
the same model makes the same parameters. Use through ``Parameter.glorot(...)`` and its siblings.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from math import prod, sqrt
from typing import Any

import numpy as np

from graphtheta.base import rng
from graphtheta.base.rng import Purpose
from graphtheta.errors import ConfigError, ShapeError

from .scope import value_scope

_DTYPE: ContextVar[str] = ContextVar("graphtheta_dtype", default="float32")
# sizes beyond it overflow 64 bits
MOST_VALUES = 1 << 62


class _Scope:
    """Counts the parameters made under one seed."""

    def __init__(self, seed: int):
        self.seed = seed
        self.count = 0


_SCOPE: ContextVar[_Scope | None] = ContextVar("graphtheta_init", default=None)


def default_dtype() -> np.dtype:
    """The float type of new parameters and statistics."""
    return np.dtype(_DTYPE.get())


def dtype_scope(dtype: Any) -> AbstractContextManager[None]:
    """Make everything inside in ``"float32"`` or ``"float64"``.

    Raises:
        ConfigError: Another type.
    """
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise ConfigError(f"dtype must be float32 or float64, got {dtype}")
    return value_scope(_DTYPE, np.dtype(dtype).name)


def init_scope(seed: int) -> AbstractContextManager[None]:
    """Parameters made inside are a function of the seed and the order in which they are made.

    Outside of any scope the seed is 0 and the count runs on within the thread.
    """
    return value_scope(_SCOPE, _Scope(seed))


def _next_key() -> int:
    scope = _SCOPE.get()
    if scope is None:
        scope = _Scope(0)
        _SCOPE.set(scope)
    scope.count += 1
    return rng.key(scope.seed, Purpose.INIT, scope.count)


def uniform(shape: tuple[int, ...], limit: float) -> np.ndarray:
    """Uniform in +-limit."""
    draws = rng.uniform(_next_key(), np.arange(_size(shape)))
    return ((2 * draws - 1) * limit).astype(default_dtype()).reshape(shape)


def glorot(shape: tuple[int, ...]) -> np.ndarray:
    """Uniform in +-sqrt(6 / (fan_in + fan_out)) with fan_in = shape[0], fan_out = prod(shape[1:]).

    Source: https://proceedings.mlr.press/v9/glorot10a.html
    """
    _check("glorot", shape)
    return uniform(shape, sqrt(6 / max(1, shape[0] + prod(shape[1:]))))


def he(shape: tuple[int, ...]) -> np.ndarray:
    """Uniform in +-sqrt(6 / fan_in) with fan_in = shape[0].

    Source: https://arxiv.org/abs/1502.01852
    """
    _check("he", shape)
    return uniform(shape, sqrt(6 / max(1, shape[0])))


def normal(shape: tuple[int, ...], std: float = 1.0) -> np.ndarray:
    """Normal with mean 0."""
    return (
        (rng.normal(_next_key(), np.arange(_size(shape))) * std)
        .astype(default_dtype())
        .reshape(shape)
    )


def zeros(shape: tuple[int, ...]) -> np.ndarray:
    """All 0."""
    _size(shape)
    return np.zeros(shape, default_dtype())


def ones(shape: tuple[int, ...]) -> np.ndarray:
    """All 1."""
    _size(shape)
    return np.ones(shape, default_dtype())


def _size(shape: tuple[int, ...]) -> int:
    """Number of values."""
    if min(shape, default=0) < 0 or prod(shape) > MOST_VALUES:
        raise ShapeError(
            f"a parameter cannot have shape {list(shape)}; give sizes from 0 that fit into memory"
        )
    return prod(shape)


def _check(rule: str, shape: tuple[int, ...]) -> None:
    if not shape:
        raise ConfigError(
            f"{rule} needs at least one axis, the number of inputs; use zeros() or normal() for a"
            " single number"
        )
