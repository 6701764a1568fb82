"""Recurrent sums: a node takes its messages one after another, in an order of its edges; and the
cell of a GRU, for the states of nodes.

LSTM (Hochreiter and Schmidhuber, 1997), without peepholes, as an aggregator of GraphSAGE
(https://arxiv.org/abs/1706.02216):

    i, f, o = sigmoid(W x + U h + b)      g = tanh(W x + U h + b)      (each with its own W, U, b)
    c' = f c + i g                        h' = o tanh(c')

GRU (https://arxiv.org/abs/1406.1078), in the form of PyTorch and cuDNN, whose reset gate follows
the product with U:

    r, z = sigmoid(W x + U h + b)         n = tanh(W x + b + r (U h + d))
    h' = (1 - z) n + z h

The product W x reads the message alone: where that is a value of the sender, it is computed once
for each node.
"""

from __future__ import annotations

from typing import Any

from graphtheta.base.arguments import checked

from ..engine.layer.module import Module
from ..engine.layer.ordered import Recurrent
from ..ops.autodiff.tape import Parameter
from ..ops.functions.dense import linear, matmul
from ..ops.functions.elementwise import add, mul, sigmoid, sub, tanh


class LSTM(Recurrent):
    """The last hidden value of an LSTM over the messages of a node, [n, d_out]; 0 without messages.

    Args:
        d_in, d_out: Widths of a message and of the hidden value.
        order: As that of ``gt.Ordered``.

    Attributes:
        weight, recurrent, bias: W, U and b, [d_in or d_out, 4, d_out]; the gates are i, f, g, o.
    """

    name = "lstm"

    @checked
    def __init__(self, d_in: int, d_out: int, order: str | None = None):
        super().__init__(order)
        self.weight = Parameter.glorot(d_in, 4, d_out)
        self.recurrent = Parameter.glorot(d_out, 4, d_out)
        self.bias = Parameter.zeros(4, d_out)

    def before(self, edge: Any, message: Any) -> Any:
        return add(matmul(message, self.weight), self.bias)

    def step(self, state: Any, message: Any) -> dict[str, Any]:
        gates = message if state is None else add(message, matmul(state["h"], self.recurrent))
        take, keep, new, give = (gates[..., i, :] for i in range(4))
        cell = mul(sigmoid(take), tanh(new))
        if state is not None:
            cell = add(mul(sigmoid(keep), state["c"]), cell)
        return {"h": mul(sigmoid(give), tanh(cell)), "c": cell}

    def after(self, node: Any, total: Any) -> Any:
        return total.h


class GRU(Recurrent):
    """The last hidden value of a GRU over the messages of a node, [n, d_out]; 0 without messages.

    Args:
        d_in, d_out: Widths of a message and of the hidden value.
        order: As that of ``gt.Ordered``.

    Attributes:
        weight, recurrent, bias: W, U and b, [d_in or d_out, 3, d_out]; r, z, n.
        inner: d, [d_out].
    """

    name = "gru"

    @checked
    def __init__(self, d_in: int, d_out: int, order: str | None = None):
        super().__init__(order)
        self.weight = Parameter.glorot(d_in, 3, d_out)
        self.recurrent = Parameter.glorot(d_out, 3, d_out)
        self.bias = Parameter.zeros(3, d_out)
        self.inner = Parameter.zeros(d_out)

    def before(self, edge: Any, message: Any) -> Any:
        return add(matmul(message, self.weight), self.bias)

    def step(self, state: Any, message: Any) -> Any:
        if state is None:
            reset, keep = (sigmoid(message[..., i, :]) for i in range(2))
            new = tanh(add(message[..., 2, :], mul(reset, self.inner)))
            return mul(sub(1.0, keep), new)
        return _gru(message, state, self.recurrent, self.inner)


class GRUCell(Module):
    """One step of a GRU on node values, called as ``cell(x, h)``: the new state of each node from
    an input x, such as what a layer has aggregated, and its state h, [n, d_out].

    ``gt.GRU`` takes the messages of a node one after another; this cell takes one input.

    Args:
        d_in, d_out: Widths of the input and of the state.

    Attributes:
        weight, recurrent, bias: W, U and b, [d_in or d_out, 3, d_out]; r, z, n.
        inner: d, [d_out].
    """

    @checked
    def __init__(self, d_in: int, d_out: int):
        self.weight = Parameter.glorot(d_in, 3, d_out)
        self.recurrent = Parameter.glorot(d_out, 3, d_out)
        self.bias = Parameter.zeros(3, d_out)
        self.inner = Parameter.zeros(d_out)

    def __call__(self, x: Any, h: Any) -> Any:
        """[n, d_in] and [n, d_out] -> [n, d_out]."""
        return _gru(linear(x, self.weight, self.bias), h, self.recurrent, self.inner)


def _gru(given: Any, state: Any, weight: Parameter, inner: Parameter) -> Any:
    """The next state, from W x + b, the state, U and d."""
    recurrent = matmul(state, weight)
    reset, keep = (sigmoid(add(given[..., i, :], recurrent[..., i, :])) for i in range(2))
    new = tanh(add(given[..., 2, :], mul(reset, add(recurrent[..., 2, :], inner))))
    return add(new, mul(keep, sub(state, new)))
