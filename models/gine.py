"""https://arxiv.org/abs/1905.12265 GIN with edge attributes, as for molecules with bonds (Hu et
al., ICLR 2020).

    h'_v = MLP((1 + eps) h_v + sum over u -> v of relu(h_u + W_e x_uv))

Transform passes h on, gather adds the projected attributes of the edge, sum adds, apply runs the
perceptron, whose hidden layer is twice as wide. One-hot attributes make of W_e x the sum of an
embedding for each of them, as the bond encoders of https://arxiv.org/abs/2005.00687, section 4.2.

As in the code of the paper and of the Open Graph Benchmark, batch norm follows every layer, and
relu every layer but the last.

Departures: relu and dropout follow the embedding of the features too.
"""

from __future__ import annotations

from typing import Any

from ..engine.layer.layer import Layer
from ..ops.autodiff.init import default_dtype
from ..ops.autodiff.tape import Parameter
from ..ops.functions.dense import matmul
from ..ops.functions.elementwise import add, mul, relu
from .design import Design
from .gin import GINOptions
from .mlp import MLP


class GINE(Layer):
    """Graph isomorphism layer whose messages read the edges.

    Args:
        mlp: Perceptron applied to the sum; as published it has batch norm.
        d_in: Width of the input.
        d_edge: Width of ``edge.attr``.
        eps: Additional weight of the node's own features.
        train_eps: Whether eps is trained.
        edge_bias: Whether projected attributes have a bias, as in PyTorch Geometric.
    """

    def __init__(
        self,
        mlp: MLP,
        d_in: int,
        d_edge: int,
        *,
        eps: float = 0.0,
        train_eps: bool = False,
        edge_bias: bool = False,
    ):
        self.mlp = mlp
        self.weight_edge = Parameter.glorot(d_edge, d_in)
        self.bias_edge = Parameter.zeros(d_in) if edge_bias else None
        self.eps: Parameter | float = (
            Parameter(default_dtype().type(eps), decay=0) if train_eps else eps
        )

    def gather(self, edge: Any) -> Any:
        projected = matmul(edge.attr, self.weight_edge)
        projected = projected if self.bias_edge is None else projected + self.bias_edge
        return relu(add(edge.src.h, projected))

    def apply(self, node: Any, total: Any) -> Any:
        return self.mlp(
            add(
                total,
                mul(node.h, add(self.eps, 1) if isinstance(self.eps, Parameter) else 1 + self.eps),
            )
        )


def _layer(d_in: int, d_out: int, d_edge: int, last: bool, o: GINOptions) -> tuple[Layer, int]:
    mlp = MLP(d_in, (2 * o.hidden,), d_out, norm=o.norm, last_bias=o.has_bias(last))
    return GINE(mlp, d_in, d_edge, train_eps=o.train_eps), d_out


DESIGN = Design(_layer, GINOptions, whole=True, reads_edges=True, activated="inner")
