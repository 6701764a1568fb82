"""https://arxiv.org/abs/1710.10903 Graph attention network (Velickovic et al., ICLR 2018).

    z_v  = W h_v                                                            per head
    e_uv = leaky_relu(a_src . z_u + a_dst . z_v)
    h'_v = sum over u -> v of softmax_u(e_uv) z_u  + b                      heads joined or averaged

Transform projects and contracts with the attention vectors, gather multiplies by the softmax, sum
adds, apply joins the heads. With ``separate`` it is the layer of DistGNN-MB
(https://arxiv.org/abs/2211.06385, eq. 2): bias and activation come before the attention, and
sources and destinations have separate weights,

    z_u = relu(W_src h_u + b),   z_v = relu(W_dst h_v),   h'_v = sum of softmax_u(...) z_u

Departures: the dropout on the layer's input and the activation on its output belong to the
network; self loops are not added here but to the graph. DistGNN-MB also adds a bias to z_v, which
is left out: it shifts all scores of a node equally, and the softmax cancels the shift if the
scores lie on one side of the leaky relu, so that its gradient is often rounding error only.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ..engine.layer.layer import Layer
from ..ops.autodiff.tape import Parameter
from ..ops.edge.program import softmax
from ..ops.functions.dense import linear, matmul
from ..ops.functions.dropout import dropout
from ..ops.functions.elementwise import add, leaky_relu, mul
from ..ops.functions.shape import flatten, mean, sum
from .design import COMMON, Design, NetworkOptions
from .mlp import activation


def join_heads(x: Any, concat: bool) -> Any:
    """[n, heads, d] -> [n, heads * d] side by side, or [n, d] averaged."""
    return flatten(x) if concat else mean(x, -2)


class GAT(Layer):
    """Multi-head attention over neighbours.

    Args:
        d_in: Width of the input.
        d_out: Width of each head.
        heads: Number of heads.
        concat: True puts heads side by side (heads * d_out wide), False averages them (d_out wide).
        dropout: Dropout probability for the projected features in messages.
        attention_dropout: Dropout probability for the attention weights.
        slope: Negative slope of the leaky relu.
        separate: Whether this is the layer of DistGNN-MB.
        activation: Activation of that layer, before the attention.
        bias: Whether to add a bias.
    """

    self_loops = True

    def __init__(
        self,
        d_in: int,
        d_out: int,
        heads: int = 1,
        *,
        concat: bool = True,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        slope: float = 0.2,
        separate: bool = False,
        activation: str = "relu",
        bias: bool = True,
    ):
        self.weight = Parameter.glorot(d_in, heads, d_out)
        self.att_src = Parameter.glorot(heads, d_out)
        self.att_dst = Parameter.glorot(heads, d_out)
        self.weight_dst = Parameter.glorot(d_in, heads, d_out) if separate else None
        shape = (heads, d_out) if separate else (heads * d_out if concat else d_out,)
        self.bias = Parameter.zeros(*shape) if bias else None
        self.concat = concat
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.slope = slope
        self.activation = activation

    def transform(self, node: Any) -> dict[str, Any]:
        if self.weight_dst is None:
            z = z_dst = matmul(node.h, self.weight)
        else:
            act = activation(self.activation)
            z = act(linear(node.h, self.weight, self.bias))
            z_dst = act(matmul(node.h, self.weight_dst))
        return {
            "z": dropout(z, self.dropout) if self.dropout else z,
            "s": sum(mul(z, self.att_src)),
            "t": sum(mul(z_dst, self.att_dst)),
        }

    def gather(self, edge: Any) -> Any:
        weight = softmax(leaky_relu(edge.src.s + edge.dst.t, self.slope))
        return (
            dropout(weight, self.attention_dropout) if self.attention_dropout else weight
        ) * edge.src.z

    def apply(self, node: Any, total: Any) -> Any:
        out = join_heads(total, self.concat)
        return out if self.bias is None or self.weight_dst is not None else add(out, self.bias)


class HeadOptions(NetworkOptions):
    """Options of models with attention heads."""

    heads: Annotated[int, COMMON] = Field(8, ge=1)
    """Attention heads of the hidden layers; in gipa, of all layers."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout probability for attention weights; in gipa, for hidden values of the attention MLPs.
    """


class AttentionOptions(HeadOptions):
    """Options of gat and gat_e."""

    out_heads: int = Field(1, ge=1)
    """Attention heads of the last layer."""
    feature_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout probability for the projected features in messages (gat, gat_e)."""


class GATOptions(AttentionOptions):
    """Options of gat."""

    separate: bool = False
    """Variant of gat from DistGNN-MB: separate weights for source and destination, bias and
    activation before the attention.
    """


def _layer(d_in: int, d_out: int, d_edge: int, last: bool, o: GATOptions) -> tuple[Layer, int]:
    heads = o.out_heads if last else o.heads
    # the bias of the separate form is inside the activation
    layer = GAT(
        d_in,
        d_out,
        heads,
        concat=not last,
        dropout=o.feature_dropout,
        attention_dropout=o.attention_dropout,
        separate=o.separate,
        activation="none" if last else "relu",
        bias=o.separate or o.has_bias(last),
    )
    return layer, d_out if last else heads * d_out


DESIGN = Design(_layer, GATOptions, activation="elu")
