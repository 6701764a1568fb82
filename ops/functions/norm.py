"""Normalisation: batch norm with statistics over all workers, layer norm over the last axis."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from graphtheta.errors import ShapeError, UserFunctionError

from ..autodiff.expr import Expr, tracing
from ..autodiff.init import default_dtype
from ..autodiff.primitive import defvjp, primitive
from ..autodiff.tape import Var, current, needs_grad, value_of
from ..rows.columns import centred_gradient, normalised, row_products, row_sums
from .elementwise import add, mul
from .rows import same_dtype, trailing


class RunningStats:
    """Mean and variance seen in training, used in evaluation; the same on every rank.

    Attributes:
        mean, var: Arrays of the trailing shape; replaced, not changed, by an update.
    """

    def __init__(self, *shape: int):
        self.mean = np.zeros(shape, default_dtype())
        self.var = np.ones(shape, default_dtype())

    def update(self, rows: np.ndarray, mean: np.ndarray, var: np.ndarray, momentum: float) -> None:
        """Move towards a batch's mean and unbiased variance by the fraction ``momentum``.

        Args:
            rows: Rows of the batch, 0-d; a batch without rows changes nothing.
        """
        if not rows:
            return
        self.mean = ((1 - momentum) * self.mean + momentum * mean).astype(self.mean.dtype)
        self.var = ((1 - momentum) * self.var + momentum * var).astype(self.var.dtype)


def batch_norm(x: Any, gamma: Any, beta: Any, stats: RunningStats, momentum: float = 0.1, eps: float = 1e-5) -> Any:
    """Normalise every column over the rows of all workers.

    Rows that their row space does not count are normalised by the statistics of the others.

    Args:
        x: [n, ...]; n may be 0 on a rank.
        gamma, beta: Scale and shift, of the trailing shape.
        stats: Changed in training, read otherwise.
        momentum: Weight of this batch in the running statistics.
        eps: Added to the variance.

    Returns:
        [n, ...]. In training (x - mean) / sqrt(biased variance + eps) * gamma + beta.

    Raises:
        UserFunctionError: Used inside gather.
        ShapeError: gamma, beta or stats do not have the trailing shape of x.

    Collective: in training, two sums forward and one backward.
    Source: https://arxiv.org/abs/1502.03167, running statistics as in PyTorch.
    """
    if isinstance(x, Expr) or tracing():
        raise UserFunctionError("batch_norm mixes rows and cannot be used inside gather; use it in transform or apply")
    x, gamma, beta = same_dtype(x, gamma, beta)
    for name, shape in (("gamma", gamma.shape), ("beta", beta.shape), ("stats", stats.mean.shape)):
        if shape != x.shape[1:]:
            raise ShapeError(f"batch_norm: {name} must have the trailing shape {list(x.shape[1:])} of x, got {list(shape)}")
    tape, rows, scale = current(), _dense(x), value_of(gamma)
    # the tape refers to the rule; a reference back would be a cycle
    training, all_sum = tape.training, tape.all_sum
    counted = x.space.counted if isinstance(x, Var) and x.space is not None else None
    if training:
        mean, var, total = _statistics(rows, counted, all_sum)
        seen = np.array(total), mean, var * (total / max(total - 1, 1))
        tape.changes.append((partial(stats.update, momentum=momentum), seen))
    else:
        mean, var, total = stats.mean, stats.var, 0.0
    inverse = (1 / np.sqrt(np.asarray(var, np.float64) + eps)).astype(rows.dtype)
    unit, y = normalised(rows, mean.astype(rows.dtype), inverse, scale, value_of(beta))
    out = Var(y, x.space if isinstance(x, Var) else None)

    def vjp(gs: list[Any]) -> list[Any]:
        g = gs[0]
        g_beta, g_gamma = row_products(g, unit)
        if not needs_grad(x):
            return [None, g_gamma, g_beta]
        if not training:
            return [g * (scale * inverse), g_gamma, g_beta]
        means = all_sum(np.stack([g_beta, g_gamma]).astype(np.float64)) / max(total, 1)
        return [centred_gradient(g, unit, means.astype(g.dtype), scale * inverse, counted), g_gamma, g_beta]

    tape.add("batch_norm", [x, gamma, beta], [out], vjp)
    return out


def _dense(x: Any) -> np.ndarray:
    value = value_of(x)
    return value.toarray() if hasattr(value, "toarray") else value


def _statistics(x: np.ndarray, counted: np.ndarray | None,
                all_sum: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean, biased variance and number of the rows of all workers.

    Sums are float64 and the second pass is centred, so that a large mean does not cancel the
    variance.
    """
    n = len(x) if counted is None else np.count_nonzero(counted)
    sums = all_sum(np.concatenate([[n], row_sums(x, counted).ravel()]))
    total = float(sums[0])
    mean = (sums[1:] / max(total, 1)).reshape(x.shape[1:])
    squares = all_sum(row_sums(x, counted, mean.astype(x.dtype)))
    return mean, squares / max(total, 1), total


@primitive("standardise", threaded=True)
def standardise_p(x: Any, *, eps: float) -> Any:
    """Mean 0 and variance 1 over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + eps)


def _standardise_vjp(g: Any, y: Any, x: Any, eps: float) -> Any:
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + eps)
    return (g - g.mean(axis=-1, keepdims=True) - y * (g * y).mean(axis=-1, keepdims=True)) / deviation


defvjp(standardise_p, x=_standardise_vjp)


def layer_norm(x: Any, gamma: Any = None, beta: Any = None, eps: float = 1e-5) -> Any:
    """Normalise every row over its last axis.

    Args:
        x: [..., d].
        gamma, beta: Scale and shift, [d], or None.
        eps: Added to the variance.

    Raises:
        ShapeError: x has no axis besides its rows.

    Source: https://arxiv.org/abs/1607.06450
    """
    if not trailing(x):
        raise ShapeError("layer_norm normalises the last axis, but x has one number per row")
    y = standardise_p(x, eps=float(eps))
    y = y if gamma is None else mul(y, gamma)
    return y if beta is None else add(y, beta)
