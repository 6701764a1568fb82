"""Readouts: one value of a whole graph, from the values of its nodes.

The nodes of a graph are joined to its readout node by edges of the relation "member"
(``graphtheta.graph.graph_level``), and a readout is a layer over these edges. The nodes of one
graph may therefore be on several workers.

Source of the attention: Li et al., Gated graph sequence neural networks, section 3.2,
https://arxiv.org/abs/1511.05493, with a softmax over the nodes of a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphtheta.errors import ConfigError

from ...engine.layer.context import ActiveGraph
from ...engine.layer.layer import Layer
from ...ops.autodiff.tape import Parameter
from ...ops.edge.program import softmax
from ...ops.functions.dense import matmul
from ...ops.functions.elementwise import mul
from .set2set import STEPS, Set2Set

# code of the relation from the nodes to their readout node
MEMBER = 1
SINGLE = ("sum", "mean", "max", "attention")
READOUTS = (*SINGLE, "set2set")


class Readout(Layer):
    """The sum, mean or largest value of a graph's nodes, or their mean with learned weights.

    Other nodes get 0.

    Args:
        kind: "sum", "mean", "max" or "attention".
        width: Width of the values, for attention.

    Raises:
        ConfigError: Unknown kind.
    """

    def __init__(self, kind: str, width: int = 0):
        if kind not in SINGLE:
            raise ConfigError(f"readout {kind!r} is not known; choose from {', '.join(SINGLE)}")
        self.score = Parameter.glorot(width, 1) if kind == "attention" else None
        self.sum = "sum" if kind == "attention" else kind

    def transform(self, node: Any) -> dict[str, Any]:
        return (
            {"h": node.h}
            if self.score is None
            else {"h": node.h, "score": matmul(node.h, self.score)}
        )

    def gather(self, edge: Any) -> Any:
        return edge.src.h if self.score is None else mul(softmax(edge.src.score), edge.src.h)


def make_readout(kind: str, width: int) -> tuple[Readout | Set2Set, int]:
    """A readout by name and the width of its values.

    Args:
        kind: A name in ``READOUTS``.
        width: Width of the values of the nodes.

    Raises:
        ConfigError: Unknown name.
    """
    return (Set2Set(width), 2 * width) if kind == "set2set" else (Readout(kind, width), width)


def hops(kind: str) -> int:
    """The number of layers of a readout, "none" included."""
    return {"none": 0, "set2set": STEPS}.get(kind, 1)


def read_out(layer: Callable[[ActiveGraph, Any], Any], graph: ActiveGraph, h: Any) -> Any:
    """The values of a readout, or another layer or module of layers, along the relation from nodes
    to readout nodes.

    Collective: all ranks of the view's partition.
    """
    with graph.relation(MEMBER, 0.5):
        return layer(graph, h)
