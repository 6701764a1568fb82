"""Functions of vectors that generated kernels call: the elementary ones, and those of softmax and
dropout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numba.core.typing.templates import signature
from numba.extending import intrinsic

from ..compile.elementary import FUNCTIONS
from .lanes import V, lanewise

LANES: dict[str, Callable[..., V]] = {
    name: function.lanes for name, function in FUNCTIONS.items() if function.lanes is not None
}


def raised(top: V, z: V) -> V:
    """The larger of two, where a new NaN changes nothing."""
    return (z > top).choose(z, top)


def softmax_weight(z: V, top: V) -> V:
    """exp(z - top); 0 for a masked score, also where all so far are masked. NaN propagates."""
    return z.equals(-math.inf).choose(0.0, LANES["exp"](z - top))


def softmax_share(z: V, top: V, mass: V, tolerance: V) -> V:
    """exp(z - top - mass); exactly 1 within ``tolerance`` of 1. NaN propagates."""
    weight = LANES["exp"](z - top - mass)
    return (abs(weight - 1.0) <= tolerance).choose(1.0, weight)


def unless_dropped(factor: V, x: V) -> V:
    """x times the factor of a dropout; 0 where it drops, whatever x is."""
    return factor.equals(0.0).choose(0.0, x * factor)


def unless_one(weight: V, g: V) -> V:
    """0 where the weight is 1, else g."""
    return weight.equals(1.0).choose(0.0, g)


LANES |= {
    f.__name__: f for f in (raised, softmax_weight, softmax_share, unless_dropped, unless_one)
}
VECTOR_FUNCTIONS = {name: lanewise(function) for name, function in LANES.items()}


@intrinsic
def power(typing: Any, x: Any, exponent: Any) -> Any:
    """A power, lane by lane."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        scalar = context.get_function(math.pow, signature(x.element, x.element, x.element))
        return V(builder, arguments[0]).each(lambda one: scalar(builder, [one, arguments[1]])).value

    return x(x, x.element), generate
