"""Elementwise primitives as scalar code: what the fused back end writes inside its loops.

One entry per primitive: the value, and the gradient of each argument, as text over ``{g}`` (gradient of the output),
``{y}`` (output), ``{0}``, ``{1}`` (arguments). ``None`` says "no gradient here". The meaning is that of the primitive
and of its rules; tests hold the two together.
"""
from __future__ import annotations

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
    return Scalar(f"{{0}} ** T({exponent!r})", (f"{{g}} * T({exponent!r}) * {{0}} ** T({exponent - 1!r})",), True)


def _clip(low: float | None, high: float | None) -> Scalar:
    value, inside = "{0}", []
    if low is not None:
        value, inside = f"max({value}, T({low!r}))", ["{0} >= T(" + repr(low) + ")"]
    if high is not None:
        value = f"min({value}, T({high!r}))"
        inside.append("{0} <= T(" + repr(high) + ")")
    return Scalar(value, ("({g} if " + (" and ".join(inside) or "True") + " else T(0))",))


SCALARS: dict[str, Callable[..., Scalar]] = {
    "add": lambda: Scalar("({0} + {1})", ("{g}", "{g}")),
    "sub": lambda: Scalar("({0} - {1})", ("{g}", "-{g}")),
    "mul": lambda: Scalar("({0} * {1})", ("{g} * {1}", "{g} * {0}")),
    "div": lambda: Scalar("({0} / {1})", ("{g} / {1}", "-{g} * {y} / {1}")),
    "maximum": lambda: Scalar("max({0}, {1})", ("({g} if {0} >= {1} else T(0))", "({g} if {1} > {0} else T(0))")),
    "minimum": lambda: Scalar("min({0}, {1})", ("({g} if {0} <= {1} else T(0))", "({g} if {1} < {0} else T(0))")),
    "neg": lambda: Scalar("(-{0})", ("-{g}",)),
    "exp": lambda: Scalar("T(math.exp({0}))", ("{g} * {y}",), True),
    "log": lambda: Scalar("T(math.log({0}))", ("{g} / {0}",), True),
    "sqrt": lambda: Scalar("T(math.sqrt({0}))", ("{g} / (T(2) * {y})",), True),
    "square": lambda: Scalar("({0} * {0})", ("{g} * T(2) * {0}",)),
    "absolute": lambda: Scalar("abs({0})", ("({g} if {0} > T(0) else (-{g} if {0} < T(0) else T(0)))",)),
    "relu": lambda: Scalar("max({0}, T(0))", ("({g} if {0} > T(0) else T(0))",)),
    "leaky_relu": lambda slope: Scalar(f"({{0}} if {{0}} > T(0) else {{0}} * T({slope!r}))", (f"({{g}} if {{0}} > T(0) else {{g}} * T({slope!r}))",)),
    "elu": lambda alpha: Scalar(f"({{0}} if {{0}} > T(0) else T(T({alpha!r}) * math.expm1({{0}})))",
                                (f"({{g}} if {{0}} > T(0) else {{g}} * ({{y}} + T({alpha!r})))",), True),
    "gelu": lambda: Scalar("T({0} * T(0.5) * (T(1) + T(math.erf({0} * T(0.7071067811865476)))))",
                           ("{g} * T(T(0.5) * (T(1) + T(math.erf({0} * T(0.7071067811865476)))) + "
                            "{0} * T(math.exp(T(-0.5) * {0} * {0})) * T(0.3989422804014327))",), True),
    "sigmoid": lambda: Scalar("sigmoid({0})", ("{g} * {y} * (T(1) - {y})",), True),
    "tanh": lambda: Scalar("T(math.tanh({0}))", ("{g} * (T(1) - {y} * {y})",), True),
    "softplus": lambda: Scalar("softplus({0})", ("{g} * sigmoid({0})",), True),
    "clip": _clip,
    "power": _power,
    "cast": lambda dtype: Scalar("T({0})", ("{g}",)),
    "ones_like": lambda: Scalar("T(1)", (None,)),
}


def scalar(name: str, static: dict[str, Any]) -> Scalar | None:
    """The code of an elementwise primitive; None if it is not one."""
    make = SCALARS.get(name)
    return None if make is None else make(**static)
