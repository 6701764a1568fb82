"""https://arxiv.org/abs/2112.14936 Simple-HGN: attention that reads types of edges (Lv et al., KDD
2021).

    z_v  = W h_v                                                            per head
    e_uv = leaky_relu(a_dst . z_v + a_src . z_u + a_edge . (W_edge t_r))    r the relation of u -> v
    h'_v = sum over u -> v of softmax_u(e_uv) z_u  +  W_root h_v            heads joined or averaged

t_r is a learned vector of the relation. Transform projects and contracts with the attention
vectors, gather adds the term of the relation, which is computed once for each relation.

Departures: activation and normalisation of the output belong to the network. In networks by name,
layers do not read the attention weights of earlier layers (beta = 0).
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ..engine.layer.layer import Layer
from ..ops.autodiff.tape import Parameter
from ..ops.edge.program import softmax
from ..ops.functions.dense import matmul
from ..ops.functions.dropout import dropout
from ..ops.functions.elementwise import add, leaky_relu, mul
from ..ops.functions.embedding import embedding
from ..ops.functions.shape import sum
from .design import Design
from .gat import AttentionOptions, join_heads


class SimpleHGN(Layer):
    """Multi-head attention over neighbours and the relations to them.

    Args:
        d_in: Width of the input.
        d_out: Width of each head.
        relations: Number of relations; ``edge.relation`` is below it.
        heads: Number of heads.
        d_relation: Width of the vector of a relation.
        concat: True puts heads side by side (heads * d_out wide), False averages them (d_out wide).
        beta: Share of the attention weights of an earlier layer, which must have as many heads; 0
            reads none.
        stores_attention: Whether a later layer reads the attention weights of this one.
        dropout: Dropout probability for the projected features in messages.
        attention_dropout: Dropout probability for the attention weights.
        slope: Negative slope of the leaky relu.
        residual: Whether to add W_root h_v.
        bias: Whether to add a bias.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        relations: int,
        heads: int = 1,
        *,
        d_relation: int = 64,
        concat: bool = True,
        beta: float = 0.0,
        stores_attention: bool = False,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        slope: float = 0.2,
        residual: bool = False,
        bias: bool = True,
    ):
        width = heads * d_out if concat else d_out
        self.weight = Parameter.glorot(d_in, heads, d_out)
        self.weight_edge = Parameter.glorot(d_relation, heads, d_relation)
        self.relations = Parameter.glorot(relations, d_relation)
        self.att_src = Parameter.glorot(heads, d_out)
        self.att_dst = Parameter.glorot(heads, d_out)
        self.att_edge = Parameter.glorot(heads, d_relation)
        self.root = Parameter.glorot(d_in, width) if residual else None
        self.bias = Parameter.zeros(width) if bias else None
        self.concat = concat
        self.beta = beta
        self.stores_attention = stores_attention
        self.slope = slope
        self.dropout = dropout
        self.attention_dropout = attention_dropout

    def transform(self, node: Any) -> dict[str, Any]:
        z = matmul(node.h, self.weight)
        return {
            "z": dropout(z, self.dropout) if self.dropout else z,
            "s": sum(mul(z, self.att_src)),
            "t": sum(mul(z, self.att_dst)),
        }

    def gather(self, edge: Any) -> Any:
        # [relations, heads], once for all edges
        of_relation = matmul(self.relations, sum(mul(self.weight_edge, self.att_edge)))
        score = edge.src.s + edge.dst.t + embedding(of_relation, edge.relation)
        weight = softmax(leaky_relu(score, self.slope))
        if self.beta:
            weight = weight * (1 - self.beta) + edge.attention * self.beta
        message = (
            dropout(weight, self.attention_dropout) if self.attention_dropout else weight
        ) * edge.src.z
        return (message, {"attention": weight}) if self.stores_attention else message

    def apply(self, node: Any, total: Any) -> Any:
        out = join_heads(total, self.concat)
        out = out if self.root is None else add(out, matmul(node.h, self.root))
        return out if self.bias is None else add(out, self.bias)


class SimpleHGNOptions(AttentionOptions):
    """Options of simple_hgn."""

    d_relation: int = Field(64, ge=1)
    """Width of the vector of a relation in simple_hgn."""


def _layer(
    d_in: int, d_out: int, d_edge: int, last: bool, o: SimpleHGNOptions, *, relations: int
) -> tuple[Layer, int]:
    heads = o.out_heads if last else o.heads
    layer = SimpleHGN(
        d_in,
        d_out,
        relations,
        heads,
        d_relation=o.d_relation,
        concat=not last,
        dropout=o.feature_dropout,
        attention_dropout=o.attention_dropout,
        residual=o.residual,
        bias=o.has_bias(last),
    )
    return layer, d_out if last else heads * d_out


# the layer adds the residual itself, by W_root
DESIGN = Design(_layer, SimpleHGNOptions, activation="elu", residual="none", relational=True)
