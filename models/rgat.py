"""https://arxiv.org/abs/1904.05811 Relational graph attention (Busbridge et al., 2019).

    z_ur = W_r h_u                                                          per head
    e_uv = leaky_relu(q . z_vr + k . z_ur)                                  r the relation of u -> v
    h'_v = sum over u -> v of softmax_u(e_uv) z_ur  + b                     heads joined or averaged

The softmax runs over all in-edges of a node ("across-relation", ARGAT), with additive scores.
Transform multiplies by all matrices, gather chooses the products by ``edge.relation``; with bases,
W_r = sum over b of comp_rb V_b.

Departures: q and k are vectors of each head. In PyTorch Geometric they are matrices over all
heads; ``mixed_heads`` has this form.
"""

from __future__ import annotations

from typing import Any

from ..engine.layer.layer import Layer
from ..ops.autodiff.tape import Parameter
from ..ops.edge.program import softmax
from ..ops.functions.dense import matmul
from ..ops.functions.dropout import dropout
from ..ops.functions.elementwise import add, leaky_relu, mul
from ..ops.functions.embedding import embedding
from ..ops.functions.shape import sum as sum_over
from .design import Design
from .gat import AttentionOptions, join_heads
from .rgcn import BasisOptions, matrices


class RGAT(Layer):
    """Attention over neighbours, with a matrix for each relation.

    Args:
        d_in: Width of the input.
        d_out: Width of each head.
        relations: Number of relations; ``edge.relation`` is below it.
        heads: Number of heads.
        bases: Number of matrices that the relations combine; 0 for independent matrices.
        concat: True puts heads side by side (heads * d_out wide), False averages them (d_out wide).
        mixed_heads: Whether the score of a head reads the values of all heads.
        dropout: Dropout probability for the products in messages.
        attention_dropout: Dropout probability for the attention weights.
        slope: Negative slope of the leaky relu.
        bias: Whether to add a bias.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        relations: int,
        heads: int = 1,
        *,
        bases: int = 0,
        concat: bool = True,
        mixed_heads: bool = False,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        slope: float = 0.2,
        bias: bool = True,
    ):
        self.weight = matrices(bases or relations, d_in, heads, d_out)
        self.comp = Parameter.glorot(relations, bases) if bases else None
        shape = (heads * d_out, heads) if mixed_heads else (heads, d_out)
        self.query = Parameter.glorot(*shape)
        self.key = Parameter.glorot(*shape)
        self.bias = Parameter.zeros(heads * d_out if concat else d_out) if bias else None
        self.concat = concat
        self.mixed_heads = mixed_heads
        self.slope = slope
        self.dropout = dropout
        self.attention_dropout = attention_dropout

    def transform(self, node: Any) -> dict[str, Any]:
        z = matmul(node.h, self.weight)
        return {
            "z": dropout(z, self.dropout) if self.dropout else z,
            "s": self._score(z, self.key),
            "t": self._score(z, self.query),
        }

    def _score(self, z: Any, by: Parameter) -> Any:
        """[n, k, heads, d_out] -> [n, k, heads]."""
        return (
            matmul(z.reshape(z.shape[1], by.shape[0]), by)
            if self.mixed_heads
            else sum_over(mul(z, by))
        )

    def gather(self, edge: Any) -> Any:
        weight = softmax(
            leaky_relu(self._of(edge, edge.src.s) + self._of(edge, edge.dst.t), self.slope)
        )
        return (
            dropout(weight, self.attention_dropout) if self.attention_dropout else weight
        ) * self._of(edge, edge.src.z)

    def _of(self, edge: Any, products: Any) -> Any:
        """The value of a column for the relation of the edge."""
        if self.comp is None:
            return embedding(products, edge.relation)
        # [bases] * [bases, ...]: row values are aligned from the left
        return sum_over(mul(embedding(self.comp, edge.relation), products), 1 - len(products.shape))

    def apply(self, node: Any, total: Any) -> Any:
        out = join_heads(total, self.concat)
        return out if self.bias is None else add(out, self.bias)


class RGATOptions(AttentionOptions, BasisOptions):
    """Options of rgat."""


def _layer(
    d_in: int, d_out: int, d_edge: int, last: bool, o: RGATOptions, *, relations: int
) -> tuple[Layer, int]:
    heads = o.out_heads if last else o.heads
    layer = RGAT(
        d_in,
        d_out,
        relations,
        heads,
        bases=o.bases,
        concat=not last,
        dropout=o.feature_dropout,
        attention_dropout=o.attention_dropout,
        bias=o.has_bias(last),
    )
    return layer, d_out if last else heads * d_out


DESIGN = Design(_layer, RGATOptions, activation="elu", relational=True)
