"""Normalisation: batch norm with statistics over all workers, layer norm over the last axis."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from graphtheta.base.sparse import is_sparse
from graphtheta.errors import ShapeError, UserFunctionError

from ..autodiff.expr import Expr, tracing
from ..autodiff.init import default_dtype
from ..autodiff.primitive import defvjp, primitive
from ..autodiff.refusal import operation
from ..autodiff.stored import operand_of
from ..autodiff.tape import Var, current
from ..autodiff.traits import Traits
from ..compile.scalar import Scalar
from ..rows.bfloat16 import as_float
from ..rows.columns import statistics, through_statistics, unbroadcast
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


@operation
def batch_norm(
    x: Any, gamma: Any, beta: Any, stats: RunningStats, momentum: float = 0.1, eps: float = 1e-5
) -> Any:
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
        raise UserFunctionError(
            "batch_norm mixes rows and cannot be used inside gather; use it in transform or apply"
        )
    x, gamma, beta = same_dtype(x, gamma, beta)
    for name, shape in (("gamma", gamma.shape), ("beta", beta.shape), ("stats", stats.mean.shape)):
        if shape != x.shape[1:]:
            raise ShapeError(
                f"batch_norm: {name} must have the trailing shape {list(x.shape[1:])} of x, got"
                f" {list(shape)}"
            )
    if current().training:
        return normalise_p(*_centre(x, stats, momentum, eps), gamma, beta)
    mean = stats.mean.astype(x.dtype)
    inverse = (1 / np.sqrt(np.asarray(stats.var, np.float64) + eps)).astype(x.dtype)
    return normalise_p(x, mean, inverse, gamma, beta)


def _centre(x: Any, stats: RunningStats, momentum: float, eps: float) -> tuple[Var, Var, Var]:
    """x itself, and mean and 1 / deviation of its columns over the rows of all workers.

    Gradients that flow into the three are those of the batch norm made of them. Lazy fusion finds
    their sums over the rows in the pass in which it backpropagates through what follows.

    Collective: two sums forward and one backward.
    """
    tape = current()
    given = operand_of(x)
    space = x.space if isinstance(x, Var) else None
    given = given.toarray() if is_sparse(given) else given
    rows = as_float(given)
    # the tape refers to the rule; a reference back would be a cycle
    all_sum = tape.all_sum
    counted = None if space is None else space.counted
    mean, var, total = statistics(rows, counted, all_sum)
    seen = np.array(total), mean, var * (total / max(total - 1, 1))
    tape.changes.append((partial(stats.update, momentum=momentum), seen))
    mean = mean.astype(rows.dtype)
    inverse = (1 / np.sqrt(np.asarray(var, np.float64) + eps)).astype(rows.dtype)
    outputs = Var(given, space), Var(mean), Var(inverse)

    def vjp(gs: list[Any]) -> list[Any]:
        g, *of_both = gs
        shift, slope = all_sum(np.stack(of_both).astype(np.float64)) / max(total, 1)
        # the variance is the mean of squares: (v + eps) ** -0.5 has the slope -(v + eps) ** -1.5 /
        # 2 and a square twice its root
        slope = -slope * inverse.astype(np.float64) ** 3
        return [
            through_statistics(
                g=g,
                x=as_float(given),
                mean=mean,
                shift=shift.astype(g.dtype),
                slope=slope.astype(g.dtype),
                counted=counted,
            )
        ]

    tape.add("batch_norm", [x], outputs, vjp)
    return outputs


@primitive(
    "normalise",
    scalar=Scalar(
        "(({0} - {1}) * {2} * {3} + {4})",
        (
            "{g} * ({2} * {3})",
            "-{g} * ({2} * {3})",
            "{g} * {3} * ({0} - {1})",
            "{g} * {2} * ({0} - {1})",
            "{g}",
        ),
    ),
)
def normalise_p(x: Any, mean: Any, inverse: Any, gamma: Any, beta: Any) -> Any:
    """(x - mean) * inverse * gamma + beta; x is [n, ...], the others [...]."""
    return (x - mean) * inverse * gamma + beta


# sums over rows come first, which is faster
defvjp(
    normalise_p,
    mean=lambda g, y, x, mean, inverse, gamma, beta: unbroadcast(g, mean) * -(inverse * gamma),
    inverse=lambda g, y, x, mean, inverse, gamma, beta: unbroadcast(g * (x - mean), mean) * gamma,
    gamma=lambda g, y, x, mean, inverse, gamma, beta: unbroadcast(g * (x - mean), mean) * inverse,
)


@primitive("standardise", threaded=True, traits=Traits(takes="floats"))
def standardise_p(x: Any, *, eps: float) -> Any:
    """Mean 0 and variance 1 over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + eps)


def _standardise_vjp(g: Any, y: Any, x: Any, eps: float) -> Any:
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + eps)
    return (
        g - g.mean(axis=-1, keepdims=True) - y * (g * y).mean(axis=-1, keepdims=True)
    ) / deviation


defvjp(standardise_p, x=_standardise_vjp)


@operation
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
