"""Elementwise functions; ``rows.py`` aligns two values, and gradients undo the broadcasting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy

from graphtheta.errors import UserFunctionError

from ..autodiff.primitive import defvjp, primitive
from ..autodiff.refusal import operation
from ..autodiff.traits import Traits, all_axes
from ..compile.scalar import Scalar, constant
from ..rows.columns import unbroadcast
from .rows import align

_FLOATS = Traits(takes="floats")
_SQRT_HALF = 0.5**0.5
_INV_SQRT_2PI = (2 * np.pi) ** -0.5


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
    traits=Traits(takes="floats", linear=(0,), kept_axes=all_axes, neutral=1, sign="/"),
)
def _div(x: Any, y: Any) -> Any:
    return np.true_divide(x, y)


@primitive(
    "maximum",
    scalar=Scalar("maximum({0}, {1})", ("if_ge({0}, {1}, {g})", "if_gt({1}, {0}, {g})")),
    traits=Traits(integers=True),
)
def _maximum(x: Any, y: Any) -> Any:
    return np.maximum(x, y)


@primitive(
    "minimum",
    scalar=Scalar("minimum({0}, {1})", ("if_ge({1}, {0}, {g})", "if_gt({0}, {1}, {g})")),
    traits=Traits(integers=True),
)
def _minimum(x: Any, y: Any) -> Any:
    return np.minimum(x, y)


defvjp(_add, x=lambda g, out, x, y: unbroadcast(g, x), y=lambda g, out, x, y: unbroadcast(g, y))
defvjp(_sub, x=lambda g, out, x, y: unbroadcast(g, x), y=lambda g, out, x, y: unbroadcast(-g, y))
defvjp(
    _mul, x=lambda g, out, x, y: unbroadcast(g * y, x), y=lambda g, out, x, y: unbroadcast(g * x, y)
)
defvjp(
    _div,
    x=lambda g, out, x, y: unbroadcast(g / y, x),
    y=lambda g, out, x, y: unbroadcast(-g * out / y, y),
)
# of equal values, the first gets the whole gradient
defvjp(
    _maximum,
    x=lambda g, out, x, y: unbroadcast(g * (x >= y), x),
    y=lambda g, out, x, y: unbroadcast(g * (y > x), y),
)
defvjp(
    _minimum,
    x=lambda g, out, x, y: unbroadcast(g * (x <= y), x),
    y=lambda g, out, x, y: unbroadcast(g * (y < x), y),
)


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


@primitive(
    "exp", threaded=True, scalar=Scalar("exp({0})", ("{g} * {y}",), costly=True), traits=_FLOATS
)
def exp(x: Any) -> Any:
    """e to the power of x."""
    return np.exp(x)


@primitive(
    "log", threaded=True, scalar=Scalar("log({0})", ("{g} / {0}",), costly=True), traits=_FLOATS
)
def log(x: Any) -> Any:
    """Natural logarithm."""
    return np.log(x)


@primitive(
    "sqrt",
    threaded=True,
    scalar=Scalar("sqrt({0})", ("{g} / (T(2) * {y})",), costly=True),
    traits=_FLOATS,
)
def sqrt(x: Any) -> Any:
    """Square root."""
    return np.sqrt(x)


@primitive(
    "sin",
    threaded=True,
    scalar=Scalar("sin({0})", ("{g} * cos({0})",), costly=True),
    traits=_FLOATS,
)
def sin(x: Any) -> Any:
    """Sine of x in radians."""
    return np.sin(x)


@primitive(
    "cos",
    threaded=True,
    scalar=Scalar("cos({0})", ("-{g} * sin({0})",), costly=True),
    traits=_FLOATS,
)
def cos(x: Any) -> Any:
    """Cosine of x in radians."""
    return np.cos(x)


@primitive(
    "square",
    scalar=Scalar("square({0})", ("{g} * T(2) * {0}",)),
    traits=Traits(takes="numbers", integers=True),
)
def square(x: Any) -> Any:
    """x * x."""
    return np.square(x)


@primitive(
    "absolute",
    scalar=Scalar("absolute({0})", ("{g} * sign({0})",)),
    traits=Traits(takes="numbers", integers=True),
)
def absolute(x: Any) -> Any:
    """|x|; gradient 0 at 0."""
    return np.abs(x)


@primitive(
    "relu", scalar=Scalar("relu({0})", ("if_positive({0}, {g})",)), traits=Traits(takes="numbers")
)
def relu(x: Any) -> Any:
    """max(x, 0); gradient 0 at 0."""
    return np.maximum(x, 0)


@primitive(
    "sigmoid",
    threaded=True,
    scalar=Scalar("sigmoid({0})", ("{g} * sigmoid_slope({y})",), costly=True),
    traits=_FLOATS,
)
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return scipy.special.expit(x)


@primitive(
    "tanh",
    threaded=True,
    scalar=Scalar("tanh({0})", ("{g} * tanh_slope({y})",), costly=True),
    traits=_FLOATS,
)
def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    return np.tanh(x)


@primitive(
    "softplus",
    threaded=True,
    scalar=Scalar("softplus({0})", ("{g} * sigmoid({0})",), costly=True),
    traits=_FLOATS,
)
def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""
    return np.logaddexp(x, np.zeros((), np.asarray(x).dtype))


@primitive(
    "gelu",
    threaded=True,
    scalar=Scalar("gelu({0})", ("{g} * gelu_slope({0})",), costly=True),
    traits=_FLOATS,
)
def gelu(x: Any) -> Any:
    """x times the normal distribution function of x; the exact form, not the tanh approximation.

    Source: https://arxiv.org/abs/1606.08415
    """
    return x * _normal_cdf(x)


def _normal_cdf(x: Any) -> Any:
    return 0.5 * (1 + scipy.special.erf(x * _SQRT_HALF))


def _gelu_vjp(g: Any, y: Any, x: Any) -> Any:
    return g * (_normal_cdf(x) + x * (_INV_SQRT_2PI * np.exp(-0.5 * x * x)))


defvjp(neg, x=lambda g, y, x: -g)
defvjp(exp, x=lambda g, y, x: g * y)
defvjp(log, x=lambda g, y, x: g / x)
defvjp(sqrt, x=lambda g, y, x: g * 0.5 / y)
defvjp(sin, x=lambda g, y, x: g * np.cos(x))
defvjp(cos, x=lambda g, y, x: -g * np.sin(x))
defvjp(square, x=lambda g, y, x: g * 2 * x)
# 0 at NaN as well, as in kernels
defvjp(absolute, x=lambda g, y, x: g * np.subtract(x > 0, x < 0, dtype=g.dtype))
defvjp(relu, x=lambda g, y, x: g * (y > 0))
defvjp(sigmoid, x=lambda g, y, x: g * y * (1 - y))
defvjp(tanh, x=lambda g, y, x: g * (1 - y * y))
defvjp(softplus, x=lambda g, y, x: g * scipy.special.expit(x))
defvjp(gelu, x=_gelu_vjp)


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
    ),
)
def _power(x: Any, *, exponent: float) -> Any:
    return np.power(x, exponent)


def _power_vjp(g: Any, y: Any, x: Any, exponent: float) -> Any:
    return np.zeros_like(g) if exponent == 0 else g * exponent * np.power(x, exponent - 1)


@primitive(
    "leaky_relu",
    traits=_FLOATS,
    scalar=lambda slope: Scalar(
        f"leaky_relu({{0}}, {constant(slope)})", (f"{{g}} * step({{0}}, {constant(slope)})",)
    ),
)
def _leaky_relu(x: Any, *, slope: float) -> Any:
    return np.where(x > 0, x, slope * x)


@primitive(
    "elu",
    threaded=True,
    traits=_FLOATS,
    scalar=lambda alpha: Scalar(
        f"elu({{0}}, {constant(alpha)})",
        (f"{{g}} * elu_slope({{0}}, {{y}}, {constant(alpha)})",),
        costly=True,
    ),
)
def _elu(x: Any, *, alpha: float) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


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


def _clip_vjp(g: Any, y: Any, x: Any, low: float | None, high: float | None) -> Any:
    low, high = _open(low, high)
    return g * ((x >= low) & (x <= high))


defvjp(_power, x=_power_vjp)
defvjp(_leaky_relu, x=lambda g, y, x, slope: np.where(x > 0, g, slope * g))
defvjp(_elu, x=lambda g, y, x, alpha: np.where(x > 0, g, g * (y + alpha)))
defvjp(_clip, x=_clip_vjp)


@primitive(
    "pow",
    traits=_FLOATS,
    scalar=Scalar(
        "pow({0}, {1})",
        (
            "where({1}, {g} * {1} * pow({0}, {1} - T(1)), T(0))",
            "if_positive({0}, {g} * {y} * log({0}))",
        ),
        costly=True,
    ),
)
def _pow(x: Any, exponent: Any) -> Any:
    return np.power(x, exponent)


def _pow_base(g: Any, y: Any, x: Any, exponent: Any) -> Any:
    # the slope of x ** 0 is 0 also where that of other powers is infinite
    return unbroadcast(g * exponent * np.power(x, np.where(exponent == 0, 1, exponent) - 1), x)


def _pow_exponent(g: Any, y: Any, x: Any, exponent: Any) -> Any:
    return unbroadcast(np.where(x > 0, g * y * np.log(np.where(x > 0, x, 1)), 0), exponent)


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
