"""Elementwise functions; ``rows.py`` aligns two values, and gradients undo the broadcasting."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from graphtheta.errors import UserFunctionError

from ..autodiff.primitive import Primitive, defvjp, primitive
from ..autodiff.refusal import operation
from ..autodiff.traits import Traits, all_axes
from ..compile import elementary
from ..compile.elementary import Elementary
from ..compile.scalar import Scalar, constant
from ..rows.columns import unbroadcast
from .rows import align

_FLOATS = Traits(takes="floats")
_NUMBERS = Traits(takes="numbers", integers=True)


def _form(function: Elementary, *constants: float) -> Scalar:
    """The scalar form of an operation that is an elementary function; its last arguments are
    constants.
    """
    values = len(function.grads) - len(constants)
    args = [*(f"{{{i}}}" for i in range(values)), *map(constant, constants)]
    grads = [g and g.format(*args, g="{g}", y="{y}") for g in function.grads[:values]]
    return Scalar(f"{function.name}({', '.join(args)})", tuple(grads), function.costly)


def _operation(function: Elementary, traits: Traits) -> Primitive:
    """The operation that is an elementary function of values."""
    form = _form(function)
    # in several threads if it is costly; an argument without rows would not be divided
    threaded = function.costly and len(form.grads) == 1
    declare = primitive(function.name, threaded=threaded, scalar=form, traits=traits)
    return declare(function.array)


@primitive(
    "add",
    scalar=Scalar("({0} + {1})", ("{g}", "{g}")),
    traits=Traits(additive=True, neutral=0, commutative=True, integers=True, sign="+"),
)
def _add(x: Any, y: Any) -> Any:
    return np.add(x, y)


@primitive(
    "sub",
    scalar=Scalar("({0} - {1})", ("{g}", "-{g}")),
    traits=Traits(additive=True, neutral=0, integers=True, sign="-"),
)
def _sub(x: Any, y: Any) -> Any:
    return np.subtract(x, y)


@primitive(
    "mul",
    scalar=Scalar("({0} * {1})", ("{g} * {1}", "{g} * {0}")),
    traits=Traits(
        linear=(0, 1), kept_axes=all_axes, neutral=1, commutative=True, integers=True, sign="*"
    ),
)
def _mul(x: Any, y: Any) -> Any:
    return np.multiply(x, y)


@primitive(
    "div",
    scalar=Scalar("({0} / {1})", ("{g} / {1}", "-{g} * {y} / {1}")),
    traits=Traits(
        takes="floats", linear=(0,), kept_axes=all_axes, neutral=1, sign="/", singular=(1,)
    ),
)
def _div(x: Any, y: Any) -> Any:
    return np.true_divide(x, y)


_maximum = _operation(elementary.maximum, Traits(integers=True))
_minimum = _operation(elementary.minimum, Traits(integers=True))
_pow = _operation(elementary.pow, replace(_FLOATS, singular=(0, 1)))


def add(x: Any, y: Any) -> Any:
    """x + y, aligned."""
    return _add(*align(x, y))


def sub(x: Any, y: Any) -> Any:
    """x - y, aligned."""
    return _sub(*align(x, y))


def mul(x: Any, y: Any) -> Any:
    """x * y elementwise, aligned."""
    return _mul(*align(x, y))


def div(x: Any, y: Any) -> Any:
    """x / y elementwise, aligned."""
    return _div(*align(x, y))


@operation
def maximum(x: Any, y: Any) -> Any:
    """The larger of two values, aligned; where they are equal the gradient goes to x."""
    return _maximum(*align(x, y))


@operation
def minimum(x: Any, y: Any) -> Any:
    """The smaller of two values, aligned; where they are equal the gradient goes to x."""
    return _minimum(*align(x, y))


@primitive(
    "neg",
    scalar=Scalar("(-{0})", ("-{g}",)),
    traits=Traits(
        takes="numbers",
        linear=(0,),
        kept_axes=all_axes,
        involution=True,
        integers=True,
        written=lambda x, static: f"-{x[0]}",
    ),
)
def neg(x: Any) -> Any:
    """-x."""
    return np.negative(x)


exp = _operation(elementary.exp, _FLOATS)
log = _operation(elementary.log, replace(_FLOATS, singular=(0,)))
sqrt = _operation(elementary.sqrt, replace(_FLOATS, singular=(0,)))
sin = _operation(elementary.sin, _FLOATS)
cos = _operation(elementary.cos, _FLOATS)
square = _operation(elementary.square, _NUMBERS)
absolute = _operation(elementary.absolute, _NUMBERS)
relu = _operation(elementary.relu, Traits(takes="numbers"))
sigmoid = _operation(elementary.sigmoid, _FLOATS)
tanh = _operation(elementary.tanh, _FLOATS)
softplus = _operation(elementary.softplus, _FLOATS)
gelu = _operation(elementary.gelu, _FLOATS)
# kernels round y (1 - y) first
defvjp(sigmoid, x=lambda g, y, x: g * y * (1 - y))


@primitive(
    "silu",
    threaded=True,
    scalar=Scalar(
        "({0} * sigmoid({0}))",
        ("{g} * sigmoid({0}) * (T(1) + {0} * (T(1) - sigmoid({0})))",),
        costly=True,
    ),
    traits=_FLOATS,
)
def silu(x: Any) -> Any:
    """x * sigmoid(x), also called swish.

    Source: https://arxiv.org/abs/1606.08415
    """
    return x * elementary.sigmoid(x)


_PRODUCTS = {0: "single(ONE)", 1: "{0}", 2: "square({0})", 3: "cube({0})"}


def _of_powers(exponent: float) -> str:
    """What a power takes: integers to the power of integers from 0 on are integers."""
    return "numbers" if isinstance(exponent, int) and exponent >= 0 else "floats"


def _raised(exponent: float) -> str:
    return (
        _PRODUCTS[int(exponent)] if exponent in _PRODUCTS else f"power({{0}}, {constant(exponent)})"
    )


def _power_form(exponent: float) -> Scalar:
    # the slope of x ** 0 is 0 also where that of other powers is infinite
    slope = f"{{g}} * {constant(exponent)} * {_raised(exponent - 1)}" if exponent else None
    return Scalar(_raised(exponent), (slope,), exponent not in _PRODUCTS)


@primitive(
    "power",
    threaded=True,
    scalar=_power_form,
    traits=Traits(
        takes=lambda static: _of_powers(**static),
        identity=lambda static: bool(static["exponent"] == 1),
        singular=(0,),
    ),
)
def _power(x: Any, *, exponent: float) -> Any:
    return np.power(x, exponent)


@primitive("leaky_relu", traits=_FLOATS, scalar=lambda slope: _form(elementary.leaky_relu, slope))
def _leaky_relu(x: Any, *, slope: float) -> Any:
    return elementary.leaky_relu(x, slope)


@primitive("elu", threaded=True, traits=_FLOATS, scalar=lambda alpha: _form(elementary.elu, alpha))
def _elu(x: Any, *, alpha: float) -> Any:
    return elementary.elu(x, alpha)


def _clip_form(low: float | None, high: float | None) -> Scalar:
    low, high = _open(low, high)
    if math.isnan(low) or math.isnan(high):
        return Scalar("single(T(np.nan))", (None,))
    # of bounds in the wrong order the upper one decides
    bounds = f"{constant(min(low, high))}, {constant(high)}"
    slope = f"{{g}} * inside({{0}}, {constant(low)}, {constant(high)})"
    return Scalar(f"clip({{0}}, {bounds})", (slope,))


def _open(low: float | None, high: float | None) -> tuple[float, float]:
    """Bounds, infinite where a side is open."""
    return -math.inf if low is None else low, math.inf if high is None else high


@primitive(
    "clip",
    scalar=_clip_form,
    traits=Traits(
        takes=lambda static: (
            "floats" if any(isinstance(bound, float) for bound in static.values()) else "numbers"
        )
    ),
)
def _clip(x: Any, *, low: float | None, high: float | None) -> Any:
    return np.clip(x, low, high)


def _pow_base(g: Any, y: Any, x: Any, exponent: Any) -> Any:
    return unbroadcast(g * exponent * np.power(x, np.where(exponent == 0, 1, exponent) - 1), x)


def _pow_exponent(g: Any, y: Any, x: Any, exponent: Any) -> Any:
    return unbroadcast(np.where(x > 0, g * y * np.log(np.where(x > 0, x, 1)), 0), exponent)


# kernels may compute the logarithm of what is not positive, and choose afterwards
defvjp(_pow, x=_pow_base, exponent=_pow_exponent)


@operation
def power(x: Any, exponent: Any) -> Any:
    """x ** exponent, aligned.

    Args:
        x: Base. For an exponent that is no number it should be positive: a negative base gives NaN,
            and 0 gives an infinite gradient for exponents below 1 other than 0.
        exponent: A number; or a parameter or value, into which a gradient flows: y log(x), and 0
            where x is not positive.
    """
    if isinstance(exponent, (int, float, np.generic)) and not isinstance(
        x, (int, float, np.generic)
    ):
        return _power(x, exponent=_constant("power", "exponent", exponent))
    return _pow(*align(x, exponent))


@operation
def leaky_relu(x: Any, slope: float = 0.01) -> Any:
    """x where positive, slope * x elsewhere; the slope is a constant."""
    return _leaky_relu(x, slope=_constant("leaky_relu", "slope", slope))


@operation
def elu(x: Any, alpha: float = 1.0) -> Any:
    """x where positive, alpha * (exp(x) - 1) elsewhere.

    Source: https://arxiv.org/abs/1511.07289
    """
    return _elu(x, alpha=_constant("elu", "alpha", alpha))


@operation
def clip(x: Any, low: float | None, high: float | None) -> Any:
    """x limited to [low, high], as in NumPy; None leaves a side open. The gradient is 0 outside.

    If low is above high, the result is high; if a bound is NaN, it is NaN.
    """
    bounds = {"low": low, "high": high}
    return _clip(
        x, **{name: None if b is None else _constant("clip", name, b) for name, b in bounds.items()}
    )


def _constant(function: str, name: str, x: Any) -> float:
    """A number as a Python number, so that it adapts to the type of arrays."""
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, (int, float)):
        return x
    raise UserFunctionError(f"{function}: {name} must be a number, got {type(x).__name__}")
