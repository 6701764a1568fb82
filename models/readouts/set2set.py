"""Set2Set: a readout in several steps, each of which attends to the nodes with what the one before
has read.

    q_t = LSTM([q, r]_{t-1})       at the readout node
    r_t = sum over the nodes u of softmax_u(q_t . h_u) h_u
    the value of the graph is [q_T, r_T]

Source: Vinyals, Bengio and Kudlur, Order matters: sequence to sequence for sets, section 4.2,
https://arxiv.org/abs/1511.06391.
"""

from __future__ import annotations

from typing import Any

from ...engine.layer.context import ActiveGraph
from ...engine.layer.layer import Layer
from ...engine.layer.module import Module
from ...ops.autodiff.tape import Parameter
from ...ops.edge.program import softmax
from ...ops.functions.constant import stop_gradient
from ...ops.functions.dense import matmul
from ...ops.functions.elementwise import add, mul, sigmoid, tanh
from ...ops.functions.shape import concat, sum

STEPS = 3


class Set2Set(Module):
    """A readout that attends to the nodes of a graph in several steps, [n, width] -> [n, 2 width].

    Nodes without members get what the steps make of a sum of 0.

    Args:
        width: Width of the values.
        steps: Number of steps; each is a hop along the relation "member".
    """

    def __init__(self, width: int, steps: int = STEPS):
        self.step = Attend(width)
        self.steps = steps
        self.width = width

    def __call__(self, graph: ActiveGraph, h: Any) -> Any:
        nothing = mul(stop_gradient(h), 0)
        state = concat([nothing, nothing, nothing])
        for _ in range(self.steps):
            state = self.step(graph, h, state=state)
        return state[..., : 2 * self.width]


class Attend(Layer):
    """One step; ``state`` is the query q, what was read r, and the cell c of the LSTM, [n, 3
    width].

    Args:
        width: Width of the values.
    """

    def __init__(self, width: int):
        self.weight = Parameter.glorot(2 * width, 4, width)
        self.bias = Parameter.zeros(4, width)

    def transform(self, node: Any) -> dict[str, Any]:
        width = self.weight.shape[-1]
        gates = add(matmul(node.state[..., : 2 * width], self.weight), self.bias)
        take, keep, give = (sigmoid(gates[..., i, :]) for i in range(3))
        cell = add(mul(keep, node.state[..., 2 * width :]), mul(take, tanh(gates[..., 3, :])))
        return {"q": mul(give, tanh(cell)), "c": cell}

    def gather(self, edge: Any) -> Any:
        return mul(softmax(sum(mul(edge.dst.q, edge.src.h))), edge.src.h)

    def apply(self, node: Any, total: Any) -> Any:
        return concat([node.q, total, node.c])
