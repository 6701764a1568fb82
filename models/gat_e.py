"""https://arxiv.org/abs/2104.10569 GAT-E: attention with edge attributes (GraphTheta).

    z_v  = W h_v                                                            per head
    e_uv = leaky_relu(a_src . z_u + a_dst . z_v + a_edge . (W_edge x_uv))
    h'_v = sum over u -> v of softmax_u(e_uv) z_u  + b  [+ W_root h_v]      heads joined or averaged

Transform projects and contracts with the attention vectors, gather adds the term of the edge and
multiplies by the softmax, sum adds, apply joins the heads.

Departures: the exact equation is in no public source; the paper calls GAT-E a simplified GIPA
(https://arxiv.org/abs/2301.08209), and this is GIPA with single linear maps. The activation on
the output belongs to the network. a_edge and W_edge are contracted with each other before they
are applied to the edges.
"""

from __future__ import annotations

from typing import Any

from ..engine.layer.layer import Layer
from ..ops.autodiff.tape import Parameter
from ..ops.edge.program import softmax
from ..ops.functions.dense import matmul
from ..ops.functions.dropout import dropout
from ..ops.functions.elementwise import add, leaky_relu, mul
from ..ops.functions.shape import sum
from .design import Design
from .gat import AttentionOptions, join_heads


class GATE(Layer):
    """Multi-head attention over neighbours and the edges to them.

    Args:
        d_in: Width of the input.
        d_out: Width of each head.
        d_edge: Width of ``edge.attr``.
        heads: Number of heads.
        concat: True puts heads side by side (heads * d_out wide), False averages them (d_out wide).
        dropout: Dropout probability for the projected features in messages.
        attention_dropout: Dropout probability for the attention weights.
        slope: Negative slope of the leaky relu.
        residual: Whether to add W_root h_v.
        bias: Whether to add a bias.
    """

    self_loops = True

    def __init__(
        self,
        d_in: int,
        d_out: int,
        d_edge: int,
        heads: int = 1,
        *,
        concat: bool = True,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        slope: float = 0.2,
        residual: bool = False,
        bias: bool = True,
    ):
        width = heads * d_out if concat else d_out
        self.weight = Parameter.glorot(d_in, heads, d_out)
        self.weight_edge = Parameter.glorot(d_edge, heads, d_out)
        self.att_src, self.att_dst, self.att_edge = (
            Parameter.glorot(heads, d_out) for _ in range(3)
        )
        self.root = Parameter.glorot(d_in, width) if residual else None
        self.bias = Parameter.zeros(width) if bias else None
        self.concat = concat
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.slope = slope

    def transform(self, node: Any) -> dict[str, Any]:
        z = matmul(node.h, self.weight)
        return {
            "z": dropout(z, self.dropout) if self.dropout else z,
            "s": sum(mul(z, self.att_src)),
            "t": sum(mul(z, self.att_dst)),
        }

    def gather(self, edge: Any) -> Any:
        of_edge = matmul(edge.attr, sum(mul(self.weight_edge, self.att_edge)))
        weight = softmax(leaky_relu(edge.src.s + edge.dst.t + of_edge, self.slope))
        return (
            dropout(weight, self.attention_dropout) if self.attention_dropout else weight
        ) * edge.src.z

    def apply(self, node: Any, total: Any) -> Any:
        out = join_heads(total, self.concat)
        out = out if self.root is None else add(out, matmul(node.h, self.root))
        return out if self.bias is None else add(out, self.bias)


def _layer(
    d_in: int, d_out: int, d_edge: int, last: bool, o: AttentionOptions
) -> tuple[Layer, int]:
    heads = o.out_heads if last else o.heads
    layer = GATE(
        d_in,
        d_out,
        d_edge,
        heads,
        concat=not last,
        dropout=o.feature_dropout,
        attention_dropout=o.attention_dropout,
        residual=o.residual,
        bias=o.has_bias(last),
    )
    return layer, d_out if last else heads * d_out


# the layer adds the residual itself, by W_root
DESIGN = Design(_layer, AttentionOptions, activation="elu", residual="none", reads_edges=True)
