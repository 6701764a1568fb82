"""https://arxiv.org/abs/2105.14491 GATv2: attention that ranks neighbours anew for each node
(Brody, Alon and Yahav, ICLR 2022).

    s_u = W_src h_u + b_src,   t_v = W_dst h_v + b_dst                      per head
    e_uv = a . leaky_relu(s_u + t_v  [+ W_edge x_uv])
    h'_v = sum over u -> v of softmax_u(e_uv) s_u  + b  [+ W_root h_v]      heads joined or averaged

Transform projects, gather computes the score and multiplies by the softmax, sum adds, apply joins
the heads. The vector a follows the leaky relu, so that scores cannot be computed at the nodes.

Departures: the dropout on the layer's input and the activation on its output belong to the network;
self loops are not added here but to the graph. Biases and the edge term are those of GATv2Conv in
PyTorch Geometric.
"""

from __future__ import annotations

from typing import Any

from ..engine.layer.layer import Layer
from ..ops.autodiff.tape import Parameter
from ..ops.edge.program import softmax
from ..ops.functions.dense import linear, matmul
from ..ops.functions.dropout import dropout
from ..ops.functions.elementwise import add, leaky_relu, mul
from ..ops.functions.shape import sum
from .design import Design, EdgeOptions
from .gat import AttentionOptions, join_heads


class GATv2(Layer):
    """Multi-head attention over neighbours, with scores of a perceptron.

    Args:
        d_in: Width of the input.
        d_out: Width of each head.
        heads: Number of heads.
        d_edge: Width of ``edge.attr`` if the scores read it, else 0.
        concat: True puts heads side by side (heads * d_out wide), False averages them (d_out wide).
        share: Whether sources and destinations have the same weights and bias.
        dropout: Dropout probability for the projected features in messages.
        attention_dropout: Dropout probability for the attention weights.
        slope: Negative slope of the leaky relu.
        residual: Whether to add W_root h_v.
        projection_bias: Whether to add b_src and b_dst.
        bias: Whether to add b.
    """

    self_loops = True

    def __init__(
        self,
        d_in: int,
        d_out: int,
        heads: int = 1,
        *,
        d_edge: int = 0,
        concat: bool = True,
        share: bool = False,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        slope: float = 0.2,
        residual: bool = False,
        projection_bias: bool = True,
        bias: bool = True,
    ):
        width = heads * d_out if concat else d_out
        self.weight = Parameter.glorot(d_in, heads, d_out)
        self.bias_src = Parameter.zeros(heads, d_out) if projection_bias else None
        self.weight_dst = None if share else Parameter.glorot(d_in, heads, d_out)
        self.bias_dst = Parameter.zeros(heads, d_out) if projection_bias and not share else None
        self.weight_edge = Parameter.glorot(d_edge, heads, d_out) if d_edge else None
        self.att = Parameter.glorot(heads, d_out)
        self.root = Parameter.glorot(d_in, width) if residual else None
        self.bias = Parameter.zeros(width) if bias else None
        self.concat = concat
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.slope = slope

    def transform(self, node: Any) -> dict[str, Any]:
        s = linear(node.h, self.weight, self.bias_src)
        t = s if self.weight_dst is None else linear(node.h, self.weight_dst, self.bias_dst)
        columns = {"s": s, "t": t}
        return {**columns, "z": dropout(s, self.dropout)} if self.dropout else columns

    def gather(self, edge: Any) -> Any:
        joined = edge.src.s + edge.dst.t
        if self.weight_edge is not None:
            joined = joined + matmul(edge.attr, self.weight_edge)
        weight = softmax(sum(mul(leaky_relu(joined, self.slope), self.att)))
        return (dropout(weight, self.attention_dropout) if self.attention_dropout else weight) * (
            edge.src.z if self.dropout else edge.src.s
        )

    def apply(self, node: Any, total: Any) -> Any:
        out = join_heads(total, self.concat)
        out = out if self.root is None else add(out, matmul(node.h, self.root))
        return out if self.bias is None else add(out, self.bias)


class GATv2Options(AttentionOptions, EdgeOptions):
    """Options of gatv2."""

    share: bool = False
    """The same weights for source and destination (gatv2)."""


def _layer(d_in: int, d_out: int, d_edge: int, last: bool, o: GATv2Options) -> tuple[Layer, int]:
    heads = o.out_heads if last else o.heads
    layer = GATv2(
        d_in,
        d_out,
        heads,
        d_edge=d_edge if o.edge_attributes else 0,
        concat=not last,
        share=o.share,
        dropout=o.feature_dropout,
        attention_dropout=o.attention_dropout,
        residual=o.residual,
        bias=o.has_bias(last),
    )
    return layer, d_out if last else heads * d_out


# the layer adds the residual itself, by W_root
DESIGN = Design(_layer, GATv2Options, activation="elu", residual="none")
