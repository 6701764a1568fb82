"""Arithmetic and method syntax for variables, parameters and edge expressions: ``x * 2``,
``x.sum(-1)``, ``x @ w``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from graphtheta.errors import UserFunctionError

from ..autodiff.tape import Operators
from . import shape
from .comparison import equal, less, less_equal, logical_and, logical_not, logical_or
from .dense import matmul
from .elementwise import absolute, add, div, mul, neg, power, sub
from .index import getitem


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
    "__rpow__": _reversed(power),
    "__lt__": lambda x, y: less(x, _comparable("<", y)),
    "__le__": lambda x, y: less_equal(x, _comparable("<=", y)),
    "__gt__": lambda x, y: less(_comparable(">", y), x),
    "__ge__": lambda x, y: less_equal(_comparable(">=", y), x),
    "__eq__": lambda x, y: y is not None and equal(x, _comparable("==", y)),
    "__ne__": lambda x, y: y is None or logical_not(equal(x, _comparable("!=", y))),
    "__and__": lambda x, y: logical_and(x, y),
    "__or__": lambda x, y: logical_or(x, y),
    "__rand__": _reversed(logical_and),
    "__ror__": _reversed(logical_or),
    "__invert__": lambda x: logical_not(x),
    "__neg__": lambda x: neg(x),
    "__abs__": lambda x: absolute(x),
    "__getitem__": lambda x, key: getitem(x, key),
    "sum": lambda x, axis=-1, keepdims=False: shape.sum(x, axis, keepdims),
    "mean": lambda x, axis=-1, keepdims=False: shape.mean(x, axis, keepdims),
    "max": lambda x, axis=-1, keepdims=False: shape.max(x, axis, keepdims),
    "min": lambda x, axis=-1, keepdims=False: shape.min(x, axis, keepdims),
    "reshape": lambda x, *new: shape.reshape(x, *new),
    "flatten": lambda x: shape.flatten(x),
}

# what numpy calls for `array * var`
_BY_UFUNC: dict[Any, Callable[..., Any]] = {
    np.add: add,
    np.subtract: sub,
    np.multiply: mul,
    np.true_divide: div,
    np.matmul: matmul,
    np.less: less,
    np.less_equal: less_equal,
    np.greater: _reversed(less),
    np.greater_equal: _reversed(less_equal),
    np.equal: equal,
    np.not_equal: lambda x, y: logical_not(equal(x, y)),
    np.power: power,
    np.logical_and: logical_and,
    np.logical_or: logical_or,
    np.logical_not: logical_not,
    np.bitwise_and: logical_and,
    np.bitwise_or: logical_or,
}
# functions of numpy and scipy with a counterpart of the same name here, and substitutes for others
_SAME = (
    "exp",
    "log",
    "sqrt",
    "square",
    "sin",
    "cos",
    "tanh",
    "where",
    "maximum",
    "minimum",
    "absolute",
    "clip",
    "stack",
    "sum",
    "mean",
    "max",
    "min",
    "reshape",
)
_OTHER = {
    "abs": "gt.absolute(x)",
    "concatenate": "gt.concat([a, b])",
    "hstack": "gt.concat([a, b])",
    "dot": "gt.matmul(x, w)",
    "einsum": "gt.matmul(x, w), or a product and .sum(-1)",
    "expit": "gt.sigmoid(x)",
    "amax": "gt.max(x)",
    "amin": "gt.min(x)",
    "expm1": "gt.exp(x) - 1",
    "log1p": "gt.log(1 + x)",
    "exp2": "gt.exp(x * np.log(2))",
    "log2": "gt.log(x) / np.log(2)",
    "log10": "gt.log(x) / np.log(10)",
    "logaddexp": "y + gt.softplus(x - y)",
    "reciprocal": "1 / x",
    "cbrt": "x ** (1 / 3)",
}


def _refuse(what: str, remedy: str) -> NoReturn:
    raise UserFunctionError(
        f"values of nodes and edges cannot be {what}, because a function is traced once for all"
        f" rows; {remedy}"
    )


def _comparable(sign: str, x: Any) -> Any:
    if isinstance(x, (str, bytes)) or not (np.isscalar(x) or hasattr(x, "dtype")):
        raise UserFunctionError(f"{sign} compares values with values and numbers, not with {x!r}")
    return x


def _as_number(x: Any) -> NoReturn:
    _refuse(
        "turned into one Python number",
        "use it without conversion; use gt.exp, gt.log, ... instead of the functions of math",
    )


def _as_ufunc(x: Any, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    if method == "__call__" and not options and ufunc in _BY_UFUNC:
        return _BY_UFUNC[ufunc](*inputs)
    return _refuse_numpy(ufunc.__name__)


def _refuse_numpy(name: str) -> NoReturn:
    counterpart = (
        f"gt.{name}"
        if name in _SAME
        else _OTHER.get(name, "a function of gt, or make one with gt.primitive")
    )
    _refuse(f"given to NumPy's {name}", f"use {counterpart}")


_REFUSALS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("__float__", "__int__", "__index__", "__complex__"), _as_number),
    "__bool__": lambda x: _refuse(
        "used as a condition",
        "choose with gt.where(x > 0, a, b); an if on a setting such as self.residual is fine",
    ),
    # __getitem__ alone would make Python count 0, 1, 2, ... through the rows
    "__iter__": lambda x: _refuse(
        "looped over", "take a column as x[..., i], or all of them as x.sum(-1)"
    ),
    "__array__": lambda x, *_, **__: _refuse(
        "turned into a NumPy array", "use functions of gt, or make one with gt.primitive"
    ),
    "__array_ufunc__": _as_ufunc,
    "__array_function__": lambda x, function, *_: _refuse_numpy(function.__name__),
}

for _name, _method in (_METHODS | _REFUSALS).items():
    setattr(Operators, _name, _method)
# comparisons give masks; as keys of a dict, values differ from each other
Operators.__hash__ = object.__hash__  # type: ignore[method-assign]
