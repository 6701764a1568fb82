"""Decoders: from node values to classes, to values of edges, or to scores of links.

A head for nodes is one NN-Transform and no superstep. A decoder of pairs is a layer without a sum:
transform computes values of nodes, and gather the value of each pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine.layer.layer import Layer
from ..ops.autodiff.tape import Parameter
from ..ops.functions.dense import matmul
from ..ops.functions.elementwise import add
from ..ops.functions.shape import sum
from .mlp import MLP


class NodeHead(MLP):
    """Classes or values of nodes: a perceptron on node values, [n, d_in] -> [n, d_out]."""


class EdgeDecoder(Layer):
    """Values of edges: a perceptron on [h_src, h_dst, edge.attr].

    The first product is split, so that the parts of the two ends are computed once per node.

    Args:
        d_in: Width of the node values.
        d_out: Values per edge; with 1 the result is [pairs], else [pairs, d_out].
        d_edge: Width of ``edge.attr``; 0 to leave it out.
        hidden: Hidden widths.
        dropout: Dropout probability in the perceptron.
        activation: Activation in the perceptron.
    """

    sum = None

    def __init__(
        self,
        d_in: int,
        d_out: int = 1,
        d_edge: int = 0,
        *,
        hidden: Sequence[int] = (),
        dropout: float = 0.0,
        activation: str = "relu",
    ):
        self.mlp = MLP(d_in, hidden, d_out, dropout=dropout, activation=activation)
        self.weight_dst = Parameter.glorot(*self.mlp.weights[0].shape)
        self.weight_edge = (
            Parameter.glorot(d_edge, *self.mlp.weights[0].shape[1:]) if d_edge else None
        )
        self.single = d_out == 1

    def transform(self, node: Any) -> dict[str, Any]:
        return {"s": self.mlp.start(node.h), "t": matmul(node.h, self.weight_dst)}

    def gather(self, edge: Any) -> Any:
        z = edge.src.s + edge.dst.t
        out = self.mlp.finish(
            z if self.weight_edge is None else add(z, matmul(edge.attr, self.weight_edge))
        )
        return out[..., 0] if self.single else out


class DotDecoder(Layer):
    """Score of a link: the inner product of its ends, [pairs]."""

    sum = None

    def gather(self, edge: Any) -> Any:
        return sum(edge.src.h * edge.dst.h)


class HadamardDecoder(Layer):
    """Score of a link: a perceptron on the elementwise product of its ends, [pairs].

    Args:
        d_in: Width of the node values.
        hidden: Hidden widths.
        dropout: Dropout probability in the perceptron.
        activation: Activation in the perceptron.
        last_bias: Whether a bias is added to the scores. A loss that compares scores has a gradient
            of 0 for it, of which rounding errors are left.
    """

    sum = None

    def __init__(
        self,
        d_in: int,
        *,
        hidden: Sequence[int] = (),
        dropout: float = 0.0,
        activation: str = "relu",
        last_bias: bool = True,
    ):
        self.mlp = MLP(d_in, hidden, 1, dropout=dropout, activation=activation, last_bias=last_bias)

    def gather(self, edge: Any) -> Any:
        return self.mlp(edge.src.h * edge.dst.h)[..., 0]
