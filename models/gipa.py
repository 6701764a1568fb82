"""https://arxiv.org/abs/2301.08209 GIPA: general information propagation for attributed graphs (Li
et al., 2023).

    x'_uv = relu(W_edge x_uv + b)                         edge embedding of this layer
    p_u   = MLP_src(h_u),   q_v = MLP_dst(h_v)            [heads, d_out]
    a_uv  = act(MLP_s(h_u) + MLP_d(h_v) + MLP_e(x'_uv))   [heads], maps without biases
    r_v   = REDUCE over u -> v of softmax_u(a_uv) p_u     REDUCE = sum, mean or max
    h'_v  = r_v + q_v,   or   MLP_agg([q_v, r_v])

Transform runs the perceptrons of the ends, gather those of the edge and the softmax, sum reduces,
apply combines. Edge drop removes edges from a training step: their weight is 0 and the softmax
runs over the others.

Departures: heads are flattened here; the residual between layers, batch norm, activation and the
dropout between layers belong to the network. Its residual is the input of a layer, after norm and
activation of the one before; that of the published code is the value before them, and begins at the
second layer. Source of sizes and defaults: https://github.com/yongchao-liu/gipa.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from graphtheta.errors import ConfigError

from ..engine.layer.layer import Layer
from ..ops.autodiff.tape import Parameter
from ..ops.edge.program import ones_like, softmax
from ..ops.functions.dense import linear
from ..ops.functions.dropout import dropout
from ..ops.functions.elementwise import add, minimum, relu
from ..ops.functions.shape import concat, flatten
from .design import Design, EdgeDropOptions
from .gat import HeadOptions
from .mlp import MLP, activation

REDUCES = ("sum", "mean", "max")
# added to the scores of dropped edges; large enough to make their softmax 0, finite so that a node
# that loses all its edges stays free of NaN
_DROPPED = 1e9


class GIPA(Layer):
    """Attention of perceptrons over neighbours and the edges to them.

    Args:
        d_in: Width of the input.
        d_out: Width of each head; the output is heads * d_out wide.
        d_edge: Width of ``edge.attr``.
        heads: Number of heads.
        d_embed: Width of the edge embedding.
        attention_hidden, prop_hidden: Hidden widths of the attention and of the propagation
            perceptrons.
        agg_hidden: Hidden widths of MLP_agg; None adds q_v instead.
        reduce: "sum", "mean" or "max".
        activation: Activation of the scores.
        dropout: Dropout probability in the propagation and aggregation perceptrons.
        attention_dropout: Dropout probability in the attention perceptrons.
        edge_drop: Probability of dropping an edge in each training step.
        bias: Whether the last maps of the propagation and aggregation perceptrons have biases.

    Raises:
        ConfigError: Unknown reduce.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        d_edge: int,
        heads: int = 8,
        *,
        d_embed: int = 16,
        attention_hidden: Sequence[int] = (80,),
        prop_hidden: Sequence[int] = (),
        agg_hidden: Sequence[int] | None = None,
        reduce: str = "sum",
        activation: str = "relu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        edge_drop: float = 0.0,
        bias: bool = True,
    ):
        if reduce not in REDUCES:
            raise ConfigError(
                f"GIPA: reduce {reduce!r} is not known; choose from {', '.join(REDUCES)}"
            )
        self.embed = Parameter.he(d_edge, d_embed)
        self.embed_bias = Parameter.zeros(d_embed)
        self.prop_src, self.prop_dst = (
            MLP(d_in, prop_hidden, (heads, d_out), dropout=dropout, last_bias=bias)
            for _ in range(2)
        )
        self.att_src, self.att_dst, self.att_edge = (
            MLP(d, attention_hidden, heads, dropout=attention_dropout, bias=False)
            for d in (d_in, d_in, d_embed)
        )
        width = heads * d_out
        self.agg = (
            None
            if agg_hidden is None
            else MLP(2 * width, agg_hidden, width, dropout=dropout, last_bias=bias)
        )
        self.sum = reduce
        self.activation = activation
        self.edge_drop = edge_drop

    def transform(self, node: Any) -> dict[str, Any]:
        return {"p": self.prop_src(node.h), "s": self.att_src(node.h), "t": self.att_dst(node.h)}

    def gather(self, edge: Any) -> Any:
        embedded = relu(linear(edge.attr, self.embed, self.embed_bias))
        score = activation(self.activation)(edge.src.s + edge.dst.t + self.att_edge(embedded))
        if not self.edge_drop:
            return softmax(score) * edge.src.p
        weight = minimum(dropout(ones_like(edge.weight), self.edge_drop), 1)
        return softmax(score + (weight - 1) * _DROPPED) * (edge.src.p * weight)

    def apply(self, node: Any, total: Any) -> Any:
        q = flatten(self.prop_dst(node.h))
        r = flatten(total)
        return add(r, q) if self.agg is None else self.agg(concat([q, r]))


class GIPAOptions(HeadOptions, EdgeDropOptions):
    """Options of gipa."""

    reduce: Literal["sum", "mean", "max"] = "sum"
    """Aggregation of weighted messages in gipa."""


def _layer(d_in: int, d_out: int, d_edge: int, last: bool, o: GIPAOptions) -> tuple[Layer, int]:
    layer = GIPA(
        d_in,
        d_out,
        d_edge,
        o.heads,
        attention_hidden=(o.hidden,),
        reduce=o.reduce,
        attention_dropout=o.attention_dropout,
        edge_drop=o.edge_drop,
        bias=o.has_bias(last),
    )
    return layer, o.heads * d_out


DESIGN = Design(_layer, GIPAOptions, whole=True, residual="before", reads_edges=True)
