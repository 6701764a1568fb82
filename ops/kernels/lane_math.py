"""Functions of vectors that generated kernels call.

Single precision exp, log, tanh and what is made of them are polynomials after range reduction, as
in the Cephes library (S. L. Moshier, Methods and Programs for Mathematical Functions, 1989): exp is
at most 2 units in the last place away from the true value over the whole range, log and tanh 3,
sigmoid 4, softplus 6, elu 8. Double precision goes lane by lane through the C library, as do power
and erf.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from .lanes import V, lanewise

FLOAT, INT = ir.FloatType(), ir.IntType(32)
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


def _single(x: V) -> bool:
    return bool(x.element == FLOAT)


def _polynomial(x: V, coefficients: tuple[float, ...]) -> V:
    y: Any = x.of(coefficients[0])
    for c in coefficients[1:]:
        y = y.call("llvm.fma", x, c)
    return y


def exp(x: V) -> V:
    """e to the power of x."""
    if not _single(x):
        return x.call("llvm.exp")
    nan = x.is_nan()
    y = nan.choose(0.0, x)
    y = (y < -110.0).choose(-110.0, (y > 100.0).choose(100.0, y))
    n = (y * LOG2E).call("llvm.rint")
    r = n.call("llvm.fma", -LN2_HIGH, y)
    r = n.call("llvm.fma", -LN2_LOW, r)
    p = _polynomial(r, EXP) * (r * r) + r + 1.0
    # two factors, because one power of two cannot reach from the subnormal numbers to infinity
    k = n.to(INT)
    half = k.halved()
    scaled = p * ((half + 127) << 23).bits(FLOAT) * ((k - half + 127) << 23).bits(FLOAT)
    return nan.choose(x, scaled)


def rounded(x: V) -> V:
    """x itself, rounded: not rearranged or contracted with the operations that read it."""
    return x.call("llvm.arithmetic.fence")


def log(x: V) -> V:
    """Natural logarithm; -inf of 0, NaN below."""
    if not _single(x):
        return x.call("llvm.log")
    small = x < 1.17549435e-38
    bits = small.choose(x * 8388608.0, x).bits(INT)
    e = ((bits >> 23) - 126).to(FLOAT) - small.choose(x.of(23.0), 0.0)
    m = ((bits & 0x007FFFFF) | 0x3F000000).bits(FLOAT)
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


def expm1(x: V) -> V:
    """Kahan's form: the error of exp cancels against that of log."""
    u = exp(x)
    y = (u - 1.0) * x / log(u)
    y = u.equals(1.0).choose(x, y)
    return (x < -15.0).choose(u - 1.0, (x > 15.0).choose(u - 1.0, y))


def log1p(x: V) -> V:
    """For x >= 0; the same trick."""
    u = x + 1.0
    y = log(u) * x / (u - 1.0)
    return u.equals(1.0).choose(x, (u < math.inf).choose(y, u))


def tanh(x: V) -> V:
    """Hyperbolic tangent."""
    a = x.call("llvm.fabs")
    large = 1.0 - 2.0 / (exp(a + a) + 1.0)
    large = (x < 0.0).choose(-large, large)
    if not _single(x):
        small = expm1(a + a)
        small = small / (small + 2.0)
        small = (x < 0.0).choose(-small, small)
    else:
        z = x * x
        small = _polynomial(z, TANH) * z * x + x
    # NaN passes through either
    return (a < 0.625).choose(small, large)


def sigmoid(x: V) -> V:
    """1 / (1 + exp(-x))."""
    return 1.0 / (exp(-x) + 1.0)


def softplus(x: V) -> V:
    """log(1 + exp(x))."""
    return relu(x) + log1p(exp(-x.call("llvm.fabs")))


def sqrt(x: V) -> V:
    """Square root."""
    return x.call("llvm.sqrt")


def square(x: V) -> V:
    """x x."""
    return x * x


def cube(x: V) -> V:
    """x x x."""
    return x * x * x


def absolute(x: V) -> V:
    """|x|."""
    return x.call("llvm.fabs") if x.floating else (x < 0).choose(-x, x)


def unchanged(x: V) -> V:
    """x."""
    return x


def pow(x: V, y: V) -> V:
    """x to the power of y, lane by lane through the C library."""
    n = max(x.n, y.n)
    return x.repeated(n).call("llvm.pow", y)


def maximum(x: V, y: V) -> V:
    """The larger; a NaN of the first propagates."""
    return ((x >= y) | (x.is_nan())).choose(x, y)


def minimum(x: V, y: V) -> V:
    """The smaller; a NaN of the first propagates."""
    return ((x <= y) | (x.is_nan())).choose(x, y)


def clip(x: V, low: V, high: V) -> V:
    """The nearest number within bounds."""
    return (x < low).choose(low, (x > high).choose(high, x))


def inside(x: V, low: V, high: V) -> V:
    """1 within bounds, 0 outside."""
    return ((x >= low) & (x <= high)).choose(x.of(1.0), 0.0)


def sign(x: V) -> V:
    """-1, 0 or 1."""
    return (x > 0.0).choose(x.of(1.0), (x < 0.0).choose(x.of(-1.0), 0.0))


def step(x: V, below: V) -> V:
    """1 above zero, else ``below``: the slope of a leaky relu."""
    return (x > 0.0).choose(1.0, below)


def sin(x: V) -> V:
    """Sine."""
    return _circular(x, "llvm.sin", 0)


def cos(x: V) -> V:
    """Cosine: the sine a quarter of a turn later."""
    return _circular(x, "llvm.cos", 1)


def _circular(x: V, name: str, quarters: int) -> V:
    """Single precision in double precision: a polynomial of the distance to the nearest multiple of
    a quarter turn.
    """
    if not _single(x):
        return x.call(name)
    wide = x.to(ir.DoubleType())
    n = (wide * (2 / math.pi)).call("llvm.rint")
    r = n.call("llvm.fma", -PI_HALF_HIGH, wide)
    r = n.call("llvm.fma", -PI_HALF_LOW, r)
    z = r * r
    sine = _polynomial(z, SIN) * z * r + r
    cosine = _polynomial(z, COS) * z + 1.0
    turn = n.to(ir.IntType(64)) + quarters
    y = (turn & 1).equals(1).choose(cosine, sine)
    near = (turn & 2).equals(2).choose(-y, y).to(FLOAT)
    # numbers of this size are rare, and their sine says little: the C library computes it
    far = (x.call("llvm.fabs") < LARGEST_ANGLE).value
    bits = ir.IntType(x.n)
    some = x.b.icmp_unsigned("!=", x.b.bitcast(far, bits), ir.Constant(bits, (1 << x.n) - 1))
    before = x.b.block
    with x.b.if_then(some, likely=False):
        exact = V(x.b, far).choose(near, x.call(name))
        inside = x.b.block
    merged = x.b.phi(near.value.type)
    merged.add_incoming(near.value, before)
    merged.add_incoming(exact.value, inside)
    return V(x.b, merged)


def relu(x: V) -> V:
    """x above zero, else 0; NaN propagates."""
    return (x < 0.0).choose(0.0, x)


def leaky_relu(x: V, slope: V) -> V:
    """x above zero, else x times the slope."""
    return (x > 0.0).choose(x, x * slope)


def elu(x: V, alpha: V) -> V:
    """x above zero, else alpha (exp(x) - 1)."""
    return (x > 0.0).choose(x, alpha * expm1(x))


def elu_slope(x: V, y: V, alpha: V) -> V:
    """Slope of elu at x, where it is y."""
    return (x > 0.0).choose(1.0, y + alpha)


def sigmoid_slope(y: V) -> V:
    """Slope of the sigmoid where it is y."""
    return y * (1.0 - y)


def tanh_slope(y: V) -> V:
    """Slope of tanh where it is y."""
    return 1.0 - y * y


def if_positive(x: V, g: V) -> V:
    """g where x is above zero, else 0."""
    return (x > 0.0).choose(g, 0.0)


def if_ge(x: V, y: V, g: V) -> V:
    """g where x is at least y, else 0."""
    return (x >= y).choose(g, 0.0)


def if_gt(x: V, y: V, g: V) -> V:
    """g where x is above y, else 0."""
    return (x > y).choose(g, 0.0)


def raised(top: V, z: V) -> V:
    """The larger of two, where a new NaN changes nothing."""
    return (z > top).choose(z, top)


def softmax_weight(z: V, top: V) -> V:
    """exp(z - top); 0 for a masked score, also where all so far are masked. NaN propagates."""
    return z.equals(-math.inf).choose(0.0, exp(z - top))


def softmax_share(z: V, top: V, mass: V, tolerance: V) -> V:
    """exp(z - top - mass); exactly 1 within ``tolerance`` of 1. NaN propagates."""
    weight = exp(z - top - mass)
    return (absolute(weight - 1.0) <= tolerance).choose(1.0, weight)


def unless_dropped(factor: V, x: V) -> V:
    """x times the factor of a dropout; 0 where it drops, whatever x is."""
    return factor.equals(0.0).choose(0.0, x * factor)


def unless_one(weight: V, g: V) -> V:
    """0 where the weight is 1, else g."""
    return weight.equals(1.0).choose(0.0, g)


FUNCTIONS = {
    f.__name__: lanewise(f)
    for f in (
        exp,
        rounded,
        log,
        sin,
        cos,
        pow,
        unchanged,
        tanh,
        sigmoid,
        softplus,
        sqrt,
        square,
        cube,
        absolute,
        maximum,
        minimum,
        clip,
        inside,
        sign,
        step,
        relu,
        leaky_relu,
        elu,
        elu_slope,
        sigmoid_slope,
        tanh_slope,
        if_positive,
        if_ge,
        if_gt,
        raised,
        softmax_weight,
        softmax_share,
        unless_dropped,
        unless_one,
    )
}


def gelu(x: V, erf: Callable[[V], V]) -> V:
    """x times the share of a normal distribution below x."""
    return x * 0.5 * (erf(x * math.sqrt(0.5)) + 1.0)


def gelu_slope(x: V, erf: Callable[[V], V]) -> V:
    """Slope of gelu."""
    return (erf(x * math.sqrt(0.5)) + 1.0) * 0.5 + x * exp(x * x * -0.5) * (
        1 / math.sqrt(2 * math.pi)
    )


def _with_erf(function: Callable[[V, Callable[[V], V]], V]) -> Any:
    """A function that needs erf, which comes lane by lane from the C library."""

    def typed(typing: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            scalar = context.get_function(math.erf, signature(x.element, x.element))
            return function(
                V(builder, arguments[0]), lambda v: v.each(lambda one: scalar(builder, [one]))
            ).value

        return x(x), generate

    typed.__name__ = function.__name__
    return intrinsic(typed)


FUNCTIONS |= {f.__name__: _with_erf(f) for f in (gelu, gelu_slope)}


@intrinsic
def power(typing: Any, x: Any, exponent: Any) -> Any:
    """A power, lane by lane."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        scalar = context.get_function(math.pow, signature(x.element, x.element, x.element))
        return V(builder, arguments[0]).each(lambda one: scalar(builder, [one, arguments[1]])).value

    return x(x, x.element), generate
