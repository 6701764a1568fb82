"""https://arxiv.org/abs/2003.01332 Heterogeneous graph transformer (Hu et al., WWW 2020).

    k_v, q_v, v_v = K_t h_v, Q_t h_v, V_t h_v           t the type of v, per head
    e_uv = (A_r k_u) . q_v  p_r / sqrt(d)               r the relation of u -> v
    m_v  = sum over u -> v of softmax_u(e_uv) M_r v_u   over all relations
    h'_v = s_t O_t gelu(m_v) + (1 - s_t) h_v,   s_t = sigmoid(skip_t)

Transform multiplies by the matrices of types, and for each relation by A_r and M_r; gather chooses
by ``edge.relation``; apply multiplies by the matrix of the receiver's type.

As in the code of the paper and in PyTorch Geometric, layers follow each other without an activation
between them; one follows the embedding.

Departures, as in PyTorch Geometric: relu in place of tanh after the embedding, the skip connection
is left out where input and output have different widths, no relative temporal encoding.
One matrix embeds nodes of all types, and dropout stands in front of a layer, not of its skip
connection.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from graphtheta.errors import ConfigError

from ..engine.layer.layer import Layer
from ..ops.autodiff import init
from ..ops.autodiff.tape import Parameter
from ..ops.edge.program import softmax
from ..ops.functions.dense import matmul
from ..ops.functions.dropout import dropout
from ..ops.functions.elementwise import gelu, sigmoid
from ..ops.functions.embedding import embedding
from ..ops.functions.index import getitem
from ..ops.functions.shape import flatten, stack
from ..ops.functions.shape import sum as sum_over
from ..ops.functions.typed import typed_matmul
from .design import Design
from .gat import HeadOptions


class HGT(Layer):
    """Attention with matrices of node types and of relations.

    Args:
        d_in: Width of the input.
        d_out: Width of the output, all heads together.
        relations: Number of relations; ``edge.relation`` is below it.
        types: Number of node types; ``node.type`` is below it.
        heads: Number of heads.
        attention_dropout: Dropout probability for the attention weights.
        bias: Whether to add a bias of the type after the product with O_t.

    Raises:
        ConfigError: The heads do not divide the output.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        relations: int,
        types: int,
        heads: int = 1,
        *,
        attention_dropout: float = 0.0,
        bias: bool = True,
    ):
        if d_out % heads:
            raise ConfigError(
                f"HGT: {heads} heads do not divide the width {d_out}; choose another number of"
                " heads"
            )
        d = d_out // heads
        # keys, queries and values
        self.weight = Parameter(
            np.stack(
                [
                    np.stack([init.glorot((d_in, heads, d)) for _ in range(3)], axis=1)
                    for _ in range(types)
                ]
            )
        )
        self.bias = Parameter.zeros(types, 3, heads, d)
        self.key, self.value = (
            Parameter(
                np.stack(
                    [
                        np.stack([init.glorot((d, d)) for _ in range(relations)], axis=1)
                        for _ in range(heads)
                    ]
                )
            )
            for _ in range(2)
        )
        self.prior = Parameter.ones(relations, heads)
        self.out = Parameter(np.stack([init.glorot((d_out, d_out)) for _ in range(types)]))
        self.out_bias = Parameter.zeros(types, d_out) if bias else None
        self.skip = Parameter.ones(types) if d_in == d_out else None
        self.attention_dropout = attention_dropout

    def transform(self, node: Any) -> dict[str, Any]:
        z = typed_matmul(node.h, self.weight, node.type) + embedding(self.bias, node.type)
        return {
            "k": self._by_relation(z[..., 0, :, :], self.key),
            "q": z[..., 1, :, :],
            "v": self._by_relation(z[..., 2, :, :], self.value),
        }

    @staticmethod
    def _by_relation(z: Any, weight: Parameter) -> Any:
        """[n, heads, d] -> [n, relations, heads, d]."""
        return stack([matmul(z[..., i, :], getitem(weight, i)) for i in range(weight.shape[0])], -2)

    def gather(self, edge: Any) -> Any:
        key, value, prior = (
            embedding(x, edge.relation) for x in (edge.src.k, edge.src.v, self.prior)
        )
        weight = softmax(sum_over(key * edge.dst.q) * prior / sqrt(edge.dst.q.shape[-1]))
        return (
            dropout(weight, self.attention_dropout) if self.attention_dropout else weight
        ) * value

    def apply(self, node: Any, total: Any) -> Any:
        out = typed_matmul(gelu(flatten(total)), self.out, node.type)
        out = out if self.out_bias is None else out + embedding(self.out_bias, node.type)
        if self.skip is None:
            return out
        share = sigmoid(embedding(self.skip, node.type))
        return share * out + (1 - share) * node.h


def _layer(
    d_in: int, d_out: int, d_edge: int, last: bool, o: HeadOptions, *, relations: int, types: int
) -> tuple[Layer, int]:
    width = o.heads * d_out
    layer = HGT(
        d_in=d_in,
        d_out=width,
        relations=relations,
        types=types,
        heads=o.heads,
        attention_dropout=o.attention_dropout,
        bias=o.has_bias(last),
    )
    return layer, width


# an embedding before the layers and a head after them
DESIGN = Design(_layer, HeadOptions, whole=True, relational=True, typed=True, activated="none")
