"""Poolings with parameters: the messages of a node, weighted by learned scores.

Attention (as in Li et al., https://arxiv.org/abs/1511.05493, with a softmax over the messages):

    total = sum over the messages m of softmax(a . m) (W m)

Gated, the adaptive breadth and the gates of GeniePath (https://arxiv.org/abs/1802.00910):

    t = tanh(W sum over the messages m of softmax(v . tanh(A m + B h)) m)       h of the receiver
    i, o = sigmoid(U t + b)        total = o tanh(i tanh(C t + c))

which is a step of its LSTM over the depth whose memory is empty.
"""

from __future__ import annotations

from typing import Any

from graphtheta.base.arguments import checked
from graphtheta.errors import ConfigError

from ..engine.layer.staged import Pooling
from ..ops.autodiff.tape import Parameter
from ..ops.edge.program import softmax
from ..ops.functions.dense import matmul
from ..ops.functions.elementwise import add, mul, sigmoid, tanh
from ..ops.functions.shape import flatten


class AttentionPooling(Pooling):
    """Messages weighted by the softmax of a learned score, of several heads side by side,
    [n, d_out].

    Args:
        d_in, d_out: Widths of a message and of the total.
        heads: Number of scores of a message, each with ``d_out / heads`` columns of the total.

    Attributes:
        weight, score: W and a of each head, [d_in, heads, d_out / heads] and [d_in, heads].

    Raises:
        ConfigError: ``d_out`` is not a multiple of ``heads``.
    """

    name = "attention"

    @checked
    def __init__(self, d_in: int, d_out: int, heads: int = 1):
        if heads < 1 or d_out % heads:
            raise ConfigError(
                f"gt.AttentionPooling: d_out={d_out} cannot be divided among {heads} heads; give a"
                " multiple"
            )
        self.weight = Parameter.glorot(d_in, heads, d_out // heads)
        self.score = Parameter.glorot(d_in, heads)

    def before(self, edge: Any, message: Any) -> Any:
        return mul(softmax(matmul(message, self.score)), matmul(message, self.weight))

    def after(self, node: Any, total: Any) -> Any:
        return flatten(total)


class GatedPooling(Pooling):
    """The attention of GeniePath, with the gates of its LSTM, [n, d_out].

    Args:
        d_in, d_out: Widths of a message and of the total.
        d_node: Width of ``h``, the value with which the layer is called.

    Attributes:
        sender, receiver, score: A, B and v, [d_in, d_out], [d_node, d_out] and [d_out].
        weight: W, [d_in, d_out].
        gates, bias: U and C, b and c, [d_out, 3, d_out] and [3, d_out]; i, o, and what they gate.
    """

    name = "gated"

    @checked
    def __init__(self, d_in: int, d_out: int, d_node: int):
        self.sender = Parameter.glorot(d_in, d_out)
        self.receiver = Parameter.glorot(d_node, d_out)
        self.score = Parameter.glorot(d_out, 1)
        self.weight = Parameter.glorot(d_in, d_out)
        self.gates = Parameter.glorot(d_out, 3, d_out)
        self.bias = Parameter.zeros(3, d_out)

    def before(self, edge: Any, message: Any) -> Any:
        both = add(matmul(message, self.sender), matmul(edge.dst.h, self.receiver))
        return mul(softmax(matmul(tanh(both), self.score)[..., 0]), message)

    def after(self, node: Any, total: Any) -> Any:
        breadth = tanh(matmul(total, self.weight))
        gates = add(matmul(breadth, self.gates), self.bias)
        take, give = (sigmoid(gates[..., i, :]) for i in range(2))
        return mul(give, tanh(mul(take, tanh(gates[..., 2, :]))))
