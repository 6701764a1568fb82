"""Arithmetic and method syntax for variables, parameters and edge expressions: ``x * 2``, ``x.sum(-1)``, ``x @ w``."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import shape
from .dense import matmul
from .elementwise import add, div, mul, neg, power, sub
from .index import getitem
from .tape import Operators


def _reversed(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, y: function(y, x)


_METHODS: dict[str, Callable[..., Any]] = {
    "__add__": lambda x, y: add(x, y),
    "__sub__": lambda x, y: sub(x, y),
    "__mul__": lambda x, y: mul(x, y),
    "__truediv__": lambda x, y: div(x, y),
    "__matmul__": lambda x, w: matmul(x, w),
    "__radd__": _reversed(add),
    "__rsub__": _reversed(sub),
    "__rmul__": _reversed(mul),
    "__rtruediv__": _reversed(div),
    "__rmatmul__": _reversed(matmul),
    "__pow__": lambda x, exponent: power(x, exponent),
    "__neg__": lambda x: neg(x),
    "__getitem__": lambda x, key: getitem(x, key),
    "sum": lambda x, axis=-1, keepdims=False: shape.sum(x, axis, keepdims),
    "mean": lambda x, axis=-1, keepdims=False: shape.mean(x, axis, keepdims),
    "max": lambda x, axis=-1, keepdims=False: shape.max(x, axis, keepdims),
    "min": lambda x, axis=-1, keepdims=False: shape.min(x, axis, keepdims),
    "reshape": lambda x, *new: shape.reshape(x, *new),
    "flatten": lambda x: shape.flatten(x),
}

for _name, _method in _METHODS.items():
    setattr(Operators, _name, _method)

# __getitem__ alone would make Python count 0, 1, 2, ... through the rows
Operators.__iter__ = None  # type: ignore[attr-defined]
