"""https://arxiv.org/abs/2009.03509 Graph transformer of UniMP (Shi et al., IJCAI 2021).

    q_v = W_q h_v + b_q,   k_u = W_k h_u,   z_u = W_v h_u + b_v             per head
    e_uv = q_v . (k_u [+ W_edge x_uv]) / sqrt(d)
    m_v  = sum over u -> v of softmax_u(e_uv) (z_u [+ W_edge x_uv])         heads joined or averaged
    r_v  = W_skip h_v + b
    h'_v = m_v + r_v,   or with beta   g_v r_v + (1 - g_v) m_v,
           g_v = sigmoid(w . [m_v, r_v, m_v - r_v])

Transform projects, gather computes the score and multiplies by the softmax, sum adds, apply joins
the heads and adds the node's own value.

Departures: k has no bias, because the softmax cancels what it adds to the scores of a node. The
activation and the layer norm on the output belong to the network, and the labels that UniMP adds to
the features belong to the graph.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from graphtheta.errors import ConfigError

from ..engine.layer.layer import Layer
from ..ops.autodiff.tape import Parameter
from ..ops.edge.program import softmax
from ..ops.functions.dense import linear, matmul
from ..ops.functions.dropout import dropout
from ..ops.functions.elementwise import add, mul, sigmoid, sub
from ..ops.functions.shape import concat as join
from ..ops.functions.shape import reshape, sum
from .design import Design, EdgeOptions
from .gat import HeadOptions, join_heads


class Transformer(Layer):
    """Scaled dot-product attention over neighbours, and over the edges to them.

    Args:
        d_in: Width of the input.
        d_out: Width of each head.
        heads: Number of heads.
        d_edge: Width of ``edge.attr`` if keys and messages read it, else 0.
        concat: True puts heads side by side (heads * d_out wide), False averages them (d_out wide).
        skip: Whether to add r_v.
        beta: Whether a gate weighs r_v against the messages.
        attention_dropout: Dropout probability for the attention weights.
        query_bias: Whether to add b_q.
        bias: Whether to add b_v and b, which shift all outputs.

    Raises:
        ConfigError: ``beta`` without ``skip``.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        heads: int = 1,
        *,
        d_edge: int = 0,
        concat: bool = True,
        skip: bool = True,
        beta: bool = False,
        attention_dropout: float = 0.0,
        query_bias: bool = True,
        bias: bool = True,
    ):
        if beta and not skip:
            raise ConfigError(
                "Transformer: beta weighs the node's own value, which skip=False leaves out; choose"
                " one of the two"
            )
        width = heads * d_out if concat else d_out
        self.query, self.key, self.value = (Parameter.glorot(d_in, heads, d_out) for _ in range(3))
        self.query_bias = Parameter.zeros(heads, d_out) if query_bias else None
        self.value_bias = Parameter.zeros(heads, d_out) if bias else None
        self.weight_edge = Parameter.glorot(d_edge, heads, d_out) if d_edge else None
        self.root = Parameter.glorot(d_in, width) if skip else None
        self.bias = Parameter.zeros(width) if skip and bias else None
        self.gate = Parameter.glorot(3, width) if beta else None
        self.concat = concat
        self.attention_dropout = attention_dropout

    def transform(self, node: Any) -> dict[str, Any]:
        scale = 1 / sqrt(self.query.shape[-1])
        return {
            "q": mul(linear(node.h, self.query, self.query_bias), scale),
            "k": matmul(node.h, self.key),
            "z": linear(node.h, self.value, self.value_bias),
        }

    def gather(self, edge: Any) -> Any:
        key = edge.src.k
        value = edge.src.z
        if self.weight_edge is not None:
            of_edge = matmul(edge.attr, self.weight_edge)
            key = key + of_edge
            value = value + of_edge
        weight = softmax(sum(edge.dst.q * key))
        return (
            dropout(weight, self.attention_dropout) if self.attention_dropout else weight
        ) * value

    def apply(self, node: Any, total: Any) -> Any:
        messages = join_heads(total, self.concat)
        if self.root is None:
            return messages
        own = linear(node.h, self.root, self.bias)
        if self.gate is None:
            return add(messages, own)
        gap = sub(own, messages)
        share = sigmoid(matmul(join([messages, own, -gap]), reshape(self.gate, -1, 1)))
        return add(messages, mul(share, gap))


class TransformerOptions(HeadOptions, EdgeOptions):
    """Options of transformer."""

    skip: bool = True
    """Add a linear map of a node's own value to its messages (transformer)."""
    beta: bool = False
    """Weigh a node's own value against its messages by a learned gate (transformer)."""


def _layer(
    d_in: int, d_out: int, d_edge: int, last: bool, o: TransformerOptions
) -> tuple[Layer, int]:
    layer = Transformer(
        d_in,
        d_out,
        o.heads,
        d_edge=d_edge if o.edge_attributes else 0,
        concat=not last,
        skip=o.skip,
        beta=o.beta,
        attention_dropout=o.attention_dropout,
        bias=o.has_bias(last),
    )
    return layer, d_out if last else o.heads * d_out


DESIGN = Design(_layer, TransformerOptions)
