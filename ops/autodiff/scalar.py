"""Elementwise primitives as scalar code: what the fused back end writes inside its loops.

One entry per primitive: the value, and the gradient of each argument, as text over ``{g}`` (gradient of the output),
``{y}`` (output), ``{0}``, ``{1}`` (arguments). ``None`` says "no gradient here". The meaning is that of the primitive
and of its rules, also for NaN, which must show; tests hold the two together. Code
names each argument once, through the functions in the header of every kernel, so that it does not double with every step.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Rule = str | None


@dataclass(frozen=True)
class Scalar:
    """Code of one elementwise primitive; costly values are computed once and kept."""

    value: str
    grads: tuple[Rule, ...]
    costly: bool = False


def _power(exponent: float) -> Scalar:
    return Scalar(_raised(exponent), (f"{{g}} * T({exponent!r}) * {_raised(exponent - 1)}",), exponent not in _PRODUCTS)


def _raised(exponent: float) -> str:
    return _PRODUCTS[int(exponent)] if exponent in _PRODUCTS else f"power({{0}}, T({exponent!r}))"


_PRODUCTS = {0: "single(ONE)", 1: "{0}", 2: "square({0})", 3: "cube({0})"}


def _clip(low: float | None, high: float | None) -> Scalar:
    bounds = f"T({-math.inf if low is None else low!r}), T({math.inf if high is None else high!r})".replace("inf", "np.inf")
    return Scalar(f"clip({{0}}, {bounds})", (f"{{g}} * inside({{0}}, {bounds})",))


def _leaky_relu(slope: float) -> Scalar:
    return Scalar(f"leaky_relu({{0}}, T({slope!r}))", (f"{{g}} * step({{0}}, T({slope!r}))",))


def _elu(alpha: float) -> Scalar:
    return Scalar(f"elu({{0}}, T({alpha!r}))", (f"{{g}} * elu_slope({{0}}, {{y}}, T({alpha!r}))",), True)


SCALARS: dict[str, Callable[..., Scalar]] = {
    "add": lambda: Scalar("({0} + {1})", ("{g}", "{g}")),
    "sub": lambda: Scalar("({0} - {1})", ("{g}", "-{g}")),
    "mul": lambda: Scalar("({0} * {1})", ("{g} * {1}", "{g} * {0}")),
    "div": lambda: Scalar("({0} / {1})", ("{g} / {1}", "-{g} * {y} / {1}")),
    "maximum": lambda: Scalar("maximum({0}, {1})", ("if_ge({0}, {1}, {g})", "if_gt({1}, {0}, {g})")),
    "minimum": lambda: Scalar("minimum({0}, {1})", ("if_ge({1}, {0}, {g})", "if_gt({0}, {1}, {g})")),
    "neg": lambda: Scalar("(-{0})", ("-{g}",)),
    "exp": lambda: Scalar("exp({0})", ("{g} * {y}",), True),
    "log": lambda: Scalar("log({0})", ("{g} / {0}",), True),
    "sqrt": lambda: Scalar("sqrt({0})", ("{g} / (T(2) * {y})",), True),
    "square": lambda: Scalar("square({0})", ("{g} * T(2) * {0}",)),
    "absolute": lambda: Scalar("absolute({0})", ("{g} * sign({0})",)),
    "relu": lambda: Scalar("relu({0})", ("if_positive({0}, {g})",)),
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "gelu": lambda: Scalar("gelu({0})", ("{g} * gelu_slope({0})",), True),
    "sigmoid": lambda: Scalar("sigmoid({0})", ("{g} * sigmoid_slope({y})",), True),
    "tanh": lambda: Scalar("tanh({0})", ("{g} * tanh_slope({y})",), True),
    "softplus": lambda: Scalar("softplus({0})", ("{g} * sigmoid({0})",), True),
    "clip": _clip,
    "power": _power,
    "cast": lambda dtype: Scalar("as_float({0})", ("{g}",)),
    "ones_like": lambda: Scalar("single(ONE)", (None,)),
}


def scalar(name: str, static: dict[str, Any]) -> Scalar | None:
    """The code of an elementwise primitive; None if it is not one."""
    make = SCALARS.get(name)
    return None if make is None else make(**static)
