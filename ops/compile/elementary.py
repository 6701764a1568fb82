"""The elementary functions: those that scalar forms may call, each declared once, here.

A declaration is the function of NumPy arrays, with the gradient of each argument if an operation
has its name. Every other form derives from it:

    @elementary("{g} * tanh_slope({y})", lanes=_tanh, costly=True)
    def tanh(x):
        return np.tanh(x)

    @elementary()
    def tanh_slope(y):
        return 1.0 - y * y

- Kernels of edges call a function with vectors (``kernels.lanes.V``), which have the operators and
  the methods that it uses. Where vectors need another algorithm than NumPy has, ``lanes`` is it.
- Loops of lazy elementwise fusion call the vector form with single numbers, from which LLVM makes
  vector code by itself. ``loop`` is another form for these, and functions that NumPy computes
  faster are not ``lazy``.
- ``Scalar`` evaluates gradients on arrays with the functions of NumPy.

Single precision exp, log, tanh and what is made of them are polynomials after range reduction, as
in the Cephes library (S. L. Moshier, Methods and Programs for Mathematical Functions, 1989): exp is
at most 2 units in the last place away from the true value over the whole range, log and tanh 3,
sigmoid 4, softplus 6, elu 8. Double precision goes lane by lane through the C library, as do power
and erf.

This module imports no compiler, because programs that run none should start fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

Function = Callable[..., Any]


@dataclass(frozen=True)
class Elementary:
    """An elementary function.

    Attributes:
        name: What scalar forms call.
        array: On arrays.
        grads: As of ``Scalar``, of the operation of this name; empty if there is none.
        lanes: On vectors; None if kernels have an intrinsic of their own, because its result
            depends on more than the type of its arguments.
        loop: Makes the function of single numbers in the loops of lazy fusion, from the type of
            numbers and the functions ``exp_down`` and ``expm1_down``; None if ``lanes`` is used.
        lazy: Whether these loops may call it.
        costly: As of ``Scalar``.
    """

    name: str
    array: Function
    grads: tuple[str | None, ...]
    lanes: Function | None
    loop: Callable[[Any, Function, Function], Function] | None
    lazy: bool
    costly: bool

    @property
    def of_numbers(self) -> bool:
        """Whether loops over single numbers have it."""
        return self.loop is not None or self.lanes is not None

    def __call__(self, *args: Any) -> Any:
        return self.array(*args)


FUNCTIONS: dict[str, Elementary] = {}


def elementary(
    *grads: str | None,
    lanes: Function | None = None,
    loop: Callable[[Any, Function, Function], Function] | None = None,
    intrinsic: bool = False,
    lazy: bool = False,
    costly: bool = False,
) -> Callable[[Function], Elementary]:
    """Declare an elementary function; see ``Elementary``.

    Args:
        *grads: Texts of gradients.
        lanes: The form for vectors if it is not the function itself.
        loop: The form in loops if it is not that for vectors.
        intrinsic: Whether kernels have an intrinsic of this name.
        lazy, costly: As there.
    """

    def declare(function: Function) -> Elementary:
        declared = Elementary(
            name=function.__name__,
            array=function,
            grads=grads,
            lanes=None if intrinsic else lanes or function,
            loop=loop,
            lazy=lazy,
            costly=costly,
        )
        FUNCTIONS[declared.name] = declared
        return declared

    return declare


def choose(mask: Any, yes: Any, no: Any) -> Any:
    """``yes`` where a mask holds, else ``no``; of vectors or of arrays and numbers."""
    if isinstance(mask, (np.ndarray, np.generic, bool)):
        return np.where(mask, yes, no)
    return mask.choose(yes, no)


def typed(number: float, like: Any) -> Any:
    """A number in the type of a vector, or of an array or number."""
    return like.of(number) if hasattr(like, "of") else np.asarray(like).dtype.type(number)


# ---- exponentials on vectors

LOG2E = 1.44269504088896341
LN2_HIGH = 0.693359375
LN2_LOW = -2.12194440e-4
EXP = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    y: Any = x.of(coefficients[0])
    for c in coefficients[1:]:
        y = y.call("llvm.fma", x, c)
    return y


def _exp(x: Any) -> Any:
    if not x.single:
        return x.call("llvm.exp")
    nan = x.is_nan()
    y = nan.choose(0.0, x)
    y = (y < -110.0).choose(-110.0, (y > 100.0).choose(100.0, y))
    n = (y * LOG2E).call("llvm.rint")
    r = n.call("llvm.fma", -LN2_HIGH, y)
    r = n.call("llvm.fma", -LN2_LOW, r)
    p = _polynomial(r, EXP) * (r * r) + r + 1.0
    # two factors, because one power of two cannot reach from the subnormal numbers to infinity
    k = n.to("int32")
    half = k.halved()
    scaled = p * ((half + 127) << 23).bits("float32") * ((k - half + 127) << 23).bits("float32")
    return nan.choose(x, scaled)


def _log(x: Any) -> Any:
    """-inf of 0, NaN below."""
    if not x.single:
        return x.call("llvm.log")
    small = x < 1.17549435e-38
    bits = small.choose(x * 8388608.0, x).bits("int32")
    e = ((bits >> 23) - 126).to("float32") - small.choose(x.of(23.0), 0.0)
    m = ((bits & 0x007FFFFF) | 0x3F000000).bits("float32")
    low = m < 0.707106781186547524
    e = e - low.choose(x.of(1.0), 0.0)
    m = low.choose(m + m, m) - 1.0
    z = m * m
    y = _polynomial(m, LOG) * m * z
    y = e.call("llvm.fma", LN2_LOW, y)
    y = y - z * 0.5
    y = e.call("llvm.fma", LN2_HIGH, m + y)
    y = (x < math.inf).choose(y, x)
    return x.equals(0.0).choose(-math.inf, (x < 0.0).choose(math.nan, y))


def _expm1(x: Any) -> Any:
    """Kahan's form: the error of exp cancels against that of log."""
    u = _exp(x)
    y = (u - 1.0) * x / _log(u)
    y = u.equals(1.0).choose(x, y)
    return (x < -15.0).choose(u - 1.0, (x > 15.0).choose(u - 1.0, y))


def _log1p(x: Any) -> Any:
    """For x >= 0; the same trick."""
    u = x + 1.0
    y = _log(u) * x / (u - 1.0)
    return u.equals(1.0).choose(x, (u < math.inf).choose(y, u))


@elementary("{g} * {y}", lanes=_exp, costly=True)
def exp(x: Any) -> Any:
    """e to the power of x."""
    return np.exp(x)


@elementary("{g} / {0}", lanes=_log, costly=True)
def log(x: Any) -> Any:
    """Natural logarithm."""
    return np.log(x)


@elementary("{g} / (T(2) * {y})", lanes=lambda x: x.call("llvm.sqrt"), costly=True)
def sqrt(x: Any) -> Any:
    """Square root."""
    return np.sqrt(x)


# ---- circular functions

# pi / 2 in two parts; Taylor polynomials are accurate to 1e-9 within a quarter of pi
PI_HALF_HIGH = 1.5707963267948966
PI_HALF_LOW = 6.123233995736766e-17
LARGEST_ANGLE = 2.0**30
SIN = (
    2.7557319223985893e-06,
    -1.984126984126984e-04,
    8.333333333333333e-03,
    -1.6666666666666666e-01,
)
COS = (
    -2.7557319223985888e-07,
    2.48015873015873e-05,
    -1.388888888888889e-03,
    4.1666666666666664e-02,
    -0.5,
)


def _circular(x: Any, name: str, quarters: int) -> Any:
    """Single precision in double precision: a polynomial of the distance to the nearest multiple of
    a quarter turn.
    """
    if not x.single:
        return x.call(name)
    wide = x.to("float64")
    n = (wide * (2 / math.pi)).call("llvm.rint")
    r = n.call("llvm.fma", -PI_HALF_HIGH, wide)
    r = n.call("llvm.fma", -PI_HALF_LOW, r)
    z = r * r
    sine = _polynomial(z, SIN) * z * r + r
    cosine = _polynomial(z, COS) * z + 1.0
    turn = n.to("int64") + quarters
    y = (turn & 1).equals(1).choose(cosine, sine)
    near = (turn & 2).equals(2).choose(-y, y).to("float32")
    # numbers of this size are rare, and their sine says little: the C library computes it
    return near.unless_rare(abs(x) < LARGEST_ANGLE, lambda: x.call(name))


@elementary("{g} * cos({0})", lanes=lambda x: _circular(x, "llvm.sin", 0), costly=True)
def sin(x: Any) -> Any:
    """Sine of x in radians."""
    return np.sin(x)


# the sine a quarter of a turn later
@elementary("-{g} * sin({0})", lanes=lambda x: _circular(x, "llvm.cos", 1), costly=True)
def cos(x: Any) -> Any:
    """Cosine of x in radians."""
    return np.cos(x)


# ---- powers


@elementary("{g} * T(2) * {0}", lazy=True)
def square(x: Any) -> Any:
    """x * x."""
    return x * x


@elementary(lanes=lambda x: x * x * x, lazy=True)
def cube(x: Any) -> Any:
    """x x x."""
    return np.power(x, 3)


@elementary(intrinsic=True)
def power(x: Any, exponent: Any) -> Any:
    """x to the power of a number, lane by lane through the C library."""
    return np.power(x, exponent)


def _pow(x: Any, y: Any) -> Any:
    """Lane by lane through the C library."""
    return x.repeated(max(x.n, y.n)).call("llvm.pow", y)


# the slope of x ** 0 is 0 also where that of other powers is infinite
@elementary(
    "where({1}, {g} * {1} * pow({0}, {1} - T(1)), T(0))",
    "if_positive({0}, {g} * {y} * log({0}))",
    lanes=_pow,
    costly=True,
)
def pow(x: Any, exponent: Any) -> Any:
    """x to the power of another value."""
    return np.power(x, exponent)


# ---- pieces


# a NaN of the first propagates in kernels; of equal values, the first gets the whole gradient
@elementary(
    "if_ge({0}, {1}, {g})",
    "if_gt({1}, {0}, {g})",
    lanes=lambda x, y: ((x >= y) | x.is_nan()).choose(x, y),
    lazy=True,
)
def maximum(x: Any, y: Any) -> Any:
    """The larger of two values."""
    return np.maximum(x, y)


@elementary(
    "if_ge({1}, {0}, {g})",
    "if_gt({0}, {1}, {g})",
    lanes=lambda x, y: ((x <= y) | x.is_nan()).choose(x, y),
    lazy=True,
)
def minimum(x: Any, y: Any) -> Any:
    """The smaller of two values."""
    return np.minimum(x, y)


@elementary("{g} * inside({0}, {1}, {2})", None, None, lazy=True)
def clip(x: Any, low: Any, high: Any) -> Any:
    """The nearest number within bounds."""
    return choose(x < low, low, choose(x > high, high, x))


# NumPy takes several times longer to choose than to multiply by a mask


def _where_true(mask: np.ndarray, g: np.ndarray) -> np.ndarray:
    """g where a mask holds, else 0, also where g is infinite or NaN: its bits are multiplied."""
    bits = g.view(f"i{g.itemsize}") * mask
    return bits.view(g.dtype)


@elementary(lanes=lambda x, low, high: ((x >= low) & (x <= high)).choose(x.of(1.0), 0.0), lazy=True)
def inside(x: Any, low: Any, high: Any) -> Any:
    """1 within bounds, 0 outside."""
    return ((x >= low) & (x <= high)) * typed(1.0, x)


@elementary("{g} * sign({0})", lanes=abs, lazy=True)
def absolute(x: Any) -> Any:
    """|x|; gradient 0 at 0."""
    return np.abs(x)


@elementary(
    lanes=lambda x: (x > 0.0).choose(x.of(1.0), (x < 0.0).choose(x.of(-1.0), 0.0)), lazy=True
)
def sign(x: Any) -> Any:
    """-1, 0 or 1; 0 of NaN."""
    return np.subtract(x > 0, x < 0, dtype=np.asarray(x).dtype)


@elementary(lazy=True)
def step(x: Any, below: Any) -> Any:
    """1 above zero, else ``below``: the slope of a leaky relu."""
    return choose(x > 0.0, typed(1.0, x), below)


@elementary(lanes=lambda x, g: (x > 0.0).choose(g, 0.0), lazy=True)
def if_positive(x: Any, g: Any) -> Any:
    """g where x is above zero, else 0."""
    return _where_true(x > 0, g)


@elementary(lanes=lambda x, y, g: (x >= y).choose(g, 0.0), lazy=True)
def if_ge(x: Any, y: Any, g: Any) -> Any:
    """g where x is at least y, else 0."""
    return _where_true(x >= y, g)


@elementary(lanes=lambda x, y, g: (x > y).choose(g, 0.0), lazy=True)
def if_gt(x: Any, y: Any, g: Any) -> Any:
    """g where x is above y, else 0."""
    return _where_true(x > y, g)


def _relu(x: Any) -> Any:
    """NaN propagates."""
    return (x < 0.0).choose(0.0, x)


@elementary("if_positive({0}, {g})", lanes=_relu, lazy=True)
def relu(x: Any) -> Any:
    """max(x, 0); gradient 0 at 0."""
    return np.maximum(x, 0)


@elementary("{g} * step({0}, {1})", None, lazy=True)
def leaky_relu(x: Any, slope: Any) -> Any:
    """x where positive, else x times the slope."""
    return choose(x > 0.0, x, x * slope)


# ---- activations


def _elu_in_loops(T: Any, exp_down: Function, expm1_down: Function) -> Function:
    def elu(x: Any, alpha: Any) -> Any:
        low = alpha * expm1_down(T(0) if x > T(0) else x)
        return x if x > T(0) else low

    return elu


@elementary(
    "{g} * elu_slope({0}, {y}, {1})",
    None,
    lanes=lambda x, alpha: (x > 0.0).choose(x, alpha * _expm1(x)),
    loop=_elu_in_loops,
    lazy=True,
    costly=True,
)
def elu(x: Any, alpha: Any) -> Any:
    """x where positive, else alpha (exp(x) - 1)."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


@elementary(lazy=True)
def elu_slope(x: Any, y: Any, alpha: Any) -> Any:
    """Slope of elu at x, where it is y."""
    return choose(x > 0.0, typed(1.0, y), y + alpha)


def _sigmoid_in_loops(T: Any, exp_down: Function, expm1_down: Function) -> Function:
    def sigmoid(x: Any) -> Any:
        # of the side on which the exponential cannot overflow
        e = exp_down(-abs(x))
        return (T(1) if x > T(0) else e) / (T(1) + e)

    return sigmoid


@elementary(
    "{g} * sigmoid_slope({y})",
    lanes=lambda x: 1.0 / (_exp(-x) + 1.0),
    loop=_sigmoid_in_loops,
    lazy=True,
    costly=True,
)
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return scipy.special.expit(x)


@elementary(lazy=True)
def sigmoid_slope(y: Any) -> Any:
    """Slope of the sigmoid where it is y."""
    return y * (1.0 - y)


def _tanh(x: Any) -> Any:
    a = abs(x)
    large = 1.0 - 2.0 / (_exp(a + a) + 1.0)
    large = (x < 0.0).choose(-large, large)
    if not x.single:
        small = _expm1(a + a)
        small = small / (small + 2.0)
        small = (x < 0.0).choose(-small, small)
    else:
        z = x * x
        small = _polynomial(z, TANH) * z * x + x
    # NaN passes through either
    return (a < 0.625).choose(small, large)


@elementary("{g} * tanh_slope({y})", lanes=_tanh, costly=True)
def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    return np.tanh(x)


@elementary()
def tanh_slope(y: Any) -> Any:
    """Slope of tanh where it is y."""
    return 1.0 - y * y


@elementary("{g} * sigmoid({0})", lanes=lambda x: _relu(x) + _log1p(_exp(-abs(x))), costly=True)
def softplus(x: Any) -> Any:
    """log(1 + exp(x))."""
    return np.logaddexp(x, np.zeros((), np.asarray(x).dtype))


_SQRT_HALF = 0.5**0.5
_INV_SQRT_2PI = (2 * np.pi) ** -0.5


def _normal_cdf(x: Any) -> Any:
    return 0.5 * (1 + scipy.special.erf(x * _SQRT_HALF))


@elementary(
    "{g} * gelu_slope({0})",
    lanes=lambda x: x * 0.5 * ((x * math.sqrt(0.5)).libm("erf") + 1.0),
    costly=True,
)
def gelu(x: Any) -> Any:
    """x times the normal distribution function of x; the exact form, not the tanh approximation.

    Source: https://arxiv.org/abs/1606.08415
    """
    return x * _normal_cdf(x)


def _gelu_slope(x: Any) -> Any:
    return ((x * math.sqrt(0.5)).libm("erf") + 1.0) * 0.5 + x * _exp(x * x * -0.5) * (
        1 / math.sqrt(2 * math.pi)
    )


@elementary(lanes=_gelu_slope)
def gelu_slope(x: Any) -> Any:
    """Slope of gelu."""
    return _normal_cdf(x) + x * (_INV_SQRT_2PI * np.exp(-0.5 * x * x))


# ---- types and choices


@elementary()
def unchanged(x: Any) -> Any:
    """x."""
    return x


@elementary(lanes=lambda x: x.call("llvm.arithmetic.fence"))
def rounded(x: Any) -> Any:
    """x itself, rounded: not rearranged or contracted with the operations that read it."""
    return x


@elementary(intrinsic=True)
def single(x: Any) -> Any:
    """A number as a vector."""
    return x


@elementary(intrinsic=True)
def where(holds: Any, yes: Any, no: Any) -> Any:
    """``yes`` where a mask holds, or a number is not 0, else ``no``."""
    return np.where(holds, yes, no)


@elementary(intrinsic=True)
def less(x: Any, y: Any) -> Any:
    """1 where x < y, else 0."""
    return np.less(x, y) * 1.0


@elementary(intrinsic=True)
def less_equal(x: Any, y: Any) -> Any:
    """1 where x <= y, else 0."""
    return np.less_equal(x, y) * 1.0


@elementary(intrinsic=True)
def equal(x: Any, y: Any) -> Any:
    """1 where x == y, else 0."""
    return np.equal(x, y) * 1.0


@elementary(intrinsic=True)
def as_float(x: Any) -> Any:
    """In the type of the kernel."""
    return x * 1.0


@elementary(intrinsic=True)
def as_int32(x: Any) -> Any:
    """As an integer of 32 bits."""
    return np.asarray(x).astype(np.int32)


@elementary(intrinsic=True)
def as_int64(x: Any) -> Any:
    """As an integer of 64 bits."""
    return np.asarray(x).astype(np.int64)
