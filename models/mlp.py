"""Multi-layer perceptrons: the dense part of layers and decoders, and ``mlp`` without edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphtheta.base.arguments import checked
from graphtheta.errors import ConfigError

from ..engine.layer.context import ActiveGraph
from ..engine.layer.module import Module
from ..ops.autodiff.tape import Parameter
from ..ops.functions.dense import matmul
from ..ops.functions.dropout import dropout
from ..ops.functions.elementwise import add, elu, gelu, leaky_relu, relu, tanh
from .design import Design, NetworkOptions
from .norm import make_norm

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": relu,
    "elu": elu,
    "leaky_relu": leaky_relu,
    "tanh": tanh,
    "gelu": gelu,
    "none": lambda x: x,
}


def activation(name: str) -> Callable[[Any], Any]:
    """The activation of that name.

    Raises:
        ConfigError: Unknown name.
    """
    if name not in ACTIVATIONS:
        raise ConfigError(f"activation {name!r} is not known; choose from {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


class MLP(Module):
    """Linear maps with normalisation, activation and dropout between them.

    Works on node values and, without batch norm, on edge values inside ``gather``.

    Args:
        d_in: Width of the input.
        hidden: Widths of the hidden layers; empty for one linear map.
        d_out: Width of the output, or several axes such as (heads, width).
        activation: Activation after every hidden layer.
        dropout: Dropout probability after every hidden layer.
        norm: "none", "batch" or "layer", before the activation of every hidden layer.
        bias: Whether the maps have biases. A map before batch norm never has one: see
            ``BatchNorm``.
        last_bias: Whether the last map has one too.
    """

    @checked
    def __init__(
        self,
        d_in: int,
        hidden: Sequence[int],
        d_out: int | tuple[int, ...],
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        norm: str = "none",
        bias: bool = True,
        last_bias: bool = True,
    ):
        ends = [(int(w),) for w in hidden] + [d_out if isinstance(d_out, tuple) else (d_out,)]
        starts = [d_in, *(int(w) for w in hidden)]
        self.weights = [Parameter.glorot(a, *b) for a, b in zip(starts, ends, strict=True)]
        biased = [norm != "batch"] * len(hidden) + [last_bias]
        self.biases = [
            Parameter.zeros(*b) if bias and has else None
            for b, has in zip(ends, biased, strict=True)
        ]
        self.norms = [make_norm(norm, int(w)) for w in hidden]
        self.activation = activation
        self.dropout = dropout

    def __call__(self, x: Any) -> Any:
        """[..., d_in] -> [..., d_out]."""
        return self.finish(self.start(x))

    def start(self, x: Any) -> Any:
        """The first product, without its bias; linear, so it may be exchanged with a linear
        aggregation.
        """
        return matmul(x, self.weights[0])

    def finish(self, z: Any) -> Any:
        """Everything after the first product."""
        z = self._shift(z, 0)
        for i, norm in enumerate(self.norms):
            z = activation(self.activation)(z if norm is None else norm(z))
            z = dropout(z, self.dropout) if self.dropout else z
            z = self._shift(matmul(z, self.weights[i + 1]), i + 1)
        return z

    def _shift(self, z: Any, i: int) -> Any:
        bias = self.biases[i]
        return z if bias is None else add(z, bias)


class Linear(Module):
    """x @ W + b, on node values and on edge values inside ``gather``.

    Args:
        d_in: Width of the input.
        d_out: Width of the output, or several axes such as (heads, width).
        bias: Whether to add b.
    """

    @checked
    def __init__(self, d_in: int, d_out: int | tuple[int, ...], *, bias: bool = True):
        shape = d_out if isinstance(d_out, tuple) else (d_out,)
        self.weight = Parameter.glorot(d_in, *shape)
        self.bias = Parameter.zeros(*shape) if bias else None

    def __call__(self, x: Any) -> Any:
        """[..., d_in] -> [..., d_out]."""
        out = matmul(x, self.weight)
        return out if self.bias is None else add(out, self.bias)


class Dense(Module):
    """A layer without edges, as a baseline for experiments; it is no superstep.

    Args:
        d_in, d_out: Widths of input and output.
        bias: Whether to add a bias.
    """

    def __init__(self, d_in: int, d_out: int, *, bias: bool = True):
        self.mlp = MLP(d_in, (), d_out, bias=bias)

    def __call__(self, graph: ActiveGraph, h: Any) -> Any:
        return self.mlp(h)


def _layer(d_in: int, d_out: int, d_edge: int, last: bool, o: NetworkOptions) -> tuple[Module, int]:
    return Dense(d_in, d_out, bias=o.has_bias(last)), d_out


DESIGN = Design(_layer)
