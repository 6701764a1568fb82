"""Compares gradient rules with central differences, for built-in and user-defined primitives.

For a random direction v and a random weight u, the derivative of ``<u, f(x + t v)>`` at t = 0 is
compared with ``<v, vjp(u)>``. Meant for float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphtheta.base import rng
from graphtheta.base.arguments import checked
from graphtheta.base.rng import Purpose
from graphtheta.base.wording import shown
from graphtheta.errors import CheckError, ConfigError
from graphtheta.ops.autodiff.tape import Parameter, Tape, Var, needs_grad


@checked
def check_vjp(
    f: Callable[..., Any], *args: Any, eps: float = 1e-6, tol: float = 1e-6, seed: int = 0
) -> None:
    """Check the gradient of f for every differentiable argument.

    Args:
        f: Function of variables; one variable or array as result.
        *args: Float arrays (made differentiable), variables (differentiable if they need
            gradients), parameters, and constants of any other kind.
        eps: Length of the step to either side, relative to a direction of standard normal entries.
        tol: Allowed difference, relative to the size of the derivative or 1.
        seed: Seed of the random directions and of dropout.

    Raises:
        CheckError: A gradient is wrong or missing; names the position of the argument.
    """
    prepared = [
        Var(a.copy(), None, True) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a
        for a in args
    ]
    with Tape(seed=seed) as tape:
        out = f(*prepared)
    if not isinstance(out, Var):
        raise ConfigError(
            f"check_vjp: the function returned {shown(out)}, which depends on no argument; give"
            " arrays of floats, and return a value that is computed from them"
        )
    weight = _direction(out.shape, seed, 0)
    grads = tape.backward(out, weight)

    def value() -> float:
        with Tape(record=False, seed=seed):
            return float(np.vdot(weight, f(*prepared).value))

    for i, a in enumerate(prepared):
        if needs_grad(a):
            v = _direction(a.shape, seed, i + 1)
            _compare(
                what=f"argument {i} of {getattr(f, '__name__', repr(f))}",
                g=grads.of(a),
                v=v,
                slope=_slope(value, a, v, eps),
                tol=tol,
            )


@checked
def check_gradients(
    loss: Callable[[], Var],
    parameters: Sequence[Parameter | Var],
    *,
    eps: float = 1e-6,
    tol: float = 1e-6,
    seed: int = 0,
    all_sum: Callable[[np.ndarray], np.ndarray] | None = None,
) -> None:
    """Check the gradients of a whole computation for each parameter.

    Args:
        loss: Runs the computation on the current tape and returns a 0-d variable; on several
            workers its local share.
        parameters: Parameters (or variables that need gradients) it uses.
        eps, tol, seed: As for ``check_vjp``; every run of ``loss`` sees the same random numbers.
        all_sum: Sums an array over the workers; None on one worker.

    Raises:
        CheckError: A gradient is wrong or missing; names the parameter.

    Collective: if ``all_sum`` is.
    """
    total = all_sum or (lambda x: x)
    with Tape(seed=seed, all_sum=all_sum) as tape:
        out = loss()
    if not isinstance(out, Var) or out.shape:
        raise ConfigError(
            f"check_gradients: the loss returned {shown(out)}; it must return one number, such as"
            " gt.mean of all values"
        )
    grads = tape.backward(out)

    def value() -> float:
        with Tape(record=False, seed=seed, all_sum=all_sum):
            return float(total(np.asarray(loss().value)))

    for i, p in enumerate(parameters):
        g = grads.of(p)
        g = total(np.zeros(p.shape, p.dtype) if g is None else g)
        v = _direction(p.shape, seed, i)
        _compare(
            what=f"parameter {getattr(p, 'name', '') or i}",
            g=g,
            v=v,
            slope=_slope(value, p, v, eps),
            tol=tol,
        )


def _direction(shape: tuple[int, ...], seed: int, number: int) -> np.ndarray:
    return rng.normal(rng.key(seed, Purpose.CHECK, number), np.arange(int(np.prod(shape)))).reshape(
        shape
    )


def _slope(value: Callable[[], float], x: Any, v: np.ndarray, eps: float) -> float:
    """Central difference of value() along v; x is restored afterwards."""
    original = x.value
    try:
        x.value = original + eps * v
        above = value()
        x.value = original - eps * v
        below = value()
    finally:
        x.value = original
    return (above - below) / (2 * eps)


def _compare(what: str, g: Any, v: np.ndarray, slope: float, tol: float) -> None:
    derivative = 0.0 if g is None else float(np.vdot(g, v))
    if not abs(derivative - slope) <= tol * max(1.0, abs(slope)):
        raise CheckError(
            f"the gradient of {what} is wrong: in a random direction its rule gives"
            f" {derivative:.9g}, differences give {slope:.9g}"
            + (" (no gradient was computed)" if g is None else "")
        )
