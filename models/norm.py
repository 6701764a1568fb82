"""Normalisation between layers, with its own parameters."""

from __future__ import annotations

from typing import Any

from graphtheta.base.arguments import checked
from graphtheta.errors import ConfigError

from ..engine.layer.module import Module
from ..ops.autodiff.tape import Parameter
from ..ops.functions.norm import RunningStats, batch_norm, layer_norm

NORMS = ("none", "batch", "layer")


class BatchNorm(Module):
    """Batch norm: each column to mean 0 and variance 1 over the active rows of all workers.

    An affine map with the parameters gamma and beta follows.

    A constant added to all rows of the input has no effect on the output. The gradient of a bias
    before the norm is therefore rounding error only, which optimisers such as Adam scale up to
    full steps. Leave such a bias out; the shift of the norm replaces it.

    Args:
        d: Width.

    Source: https://arxiv.org/abs/1502.03167
    """

    @checked
    def __init__(self, d: int):
        self.gamma = Parameter.ones(d)
        self.beta = Parameter.zeros(d)
        self.stats = RunningStats(d)

    def __call__(self, x: Any) -> Any:
        return batch_norm(x, self.gamma, self.beta, self.stats)


class LayerNorm(Module):
    """Layer norm: each row to mean 0 and variance 1, then an affine map.

    Args:
        d: Width.

    Source: https://arxiv.org/abs/1607.06450
    """

    @checked
    def __init__(self, d: int):
        self.gamma = Parameter.ones(d)
        self.beta = Parameter.zeros(d)

    def __call__(self, x: Any) -> Any:
        return layer_norm(x, self.gamma, self.beta)


def make_norm(name: str, d: int) -> BatchNorm | LayerNorm | None:
    """The normalisation of that name for values of width d; None for ``"none"``.

    Raises:
        ConfigError: Unknown name.
    """
    if name not in NORMS:
        raise ConfigError(f"norm {name!r} is not known; choose from {', '.join(NORMS)}")
    return BatchNorm(d) if name == "batch" else LayerNorm(d) if name == "layer" else None
