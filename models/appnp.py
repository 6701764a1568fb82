"""https://arxiv.org/abs/1810.05997 Personalised propagation of neural predictions (Klicpera,
Bojchevski and Guennemann, ICLR 2019).

    z_0   = MLP(x)
    z_k+1 = (1 - alpha) A z_k + alpha z_0       A = D^-1/2 A D^-1/2, as that of gcn

The layers of a network are those of the perceptron, which read no edges; K steps of propagation
follow the last one. A step is a superstep without parameters: gather multiplies by the factor of
the source's degree and by the edge weight, sum adds, apply scales and adds the start value.

Departures: those of ``models/gcn.py``. Where a head follows, as with jumping knowledge or a
readout, the hidden values are propagated and not the outputs.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from graphtheta.base.arguments import checked
from graphtheta.errors import ConfigError

from ..engine.layer.context import ActiveGraph
from ..engine.layer.layer import Layer
from ..engine.layer.module import Module
from ..ops.functions.dropout import dropout
from ..ops.functions.elementwise import add, mul
from .design import Design, EdgeDropOptions, TeleportOptions
from .gcn import degree_factor
from .mlp import Dense


class Propagation(Layer):
    """A step: (1 - alpha) A h + alpha start, called as ``step(graph, h, start=z)``.

    Args:
        alpha: Share of the start value.
        edge_drop: Dropout probability for the entries of A, in each step anew.
    """

    self_loops = True

    def __init__(self, alpha: float = 0.1, *, edge_drop: float = 0.0):
        self.alpha = alpha
        self.edge_drop = edge_drop

    def transform(self, node: Any) -> dict[str, Any]:
        factor = degree_factor(node, self.direction)
        return {"z": mul(node.h, factor), "factor": factor}

    def gather(self, edge: Any) -> Any:
        weight = dropout(edge.weight, self.edge_drop) if self.edge_drop else edge.weight
        return edge.src.z * weight

    def apply(self, node: Any, total: Any) -> Any:
        return add(mul(total, mul(node.factor, 1 - self.alpha)), mul(node.start, self.alpha))


class APPNP(Module):
    """Propagation by personalised PageRank, called as ``layer(graph, h)``; its result has the shape
    of h.

    Args:
        steps: Number of steps, K. Each is a hop.
        alpha: Probability of teleport, which is the share of h.
        edge_drop: Dropout probability for the entries of A, in each step anew.

    Raises:
        ConfigError: Fewer than one step, or alpha is not from 0 to 1.
    """

    @checked
    def __init__(self, steps: int = 10, alpha: float = 0.1, *, edge_drop: float = 0.0):
        if steps < 1 or not 0 <= alpha <= 1:
            raise ConfigError(
                f"APPNP: steps={steps} and alpha={alpha}; expected at least 1 step, and alpha from"
                " 0 to 1"
            )
        self.step = Propagation(alpha, edge_drop=edge_drop)
        self.steps = steps

    def __call__(self, graph: ActiveGraph, h: Any) -> Any:
        start = h
        for _ in range(self.steps):
            h = self.step(graph, h, start=start)
        return h


class APPNPOptions(TeleportOptions, EdgeDropOptions):
    """Options of appnp."""

    propagations: int = Field(10, ge=1, le=10_000)
    """Steps of propagation after the last layer (appnp); each is a hop."""


def _layer(d_in: int, d_out: int, d_edge: int, last: bool, o: APPNPOptions) -> tuple[Module, int]:
    return Dense(d_in, d_out, bias=o.has_bias(last)), d_out


def _end(o: APPNPOptions) -> Module:
    return APPNP(o.propagations, o.alpha, edge_drop=o.edge_drop)


DESIGN = Design(_layer, APPNPOptions, hops="propagations", end=_end)
