"""https://arxiv.org/abs/1706.02216 GraphSAGE (Hamilton, Ying and Leskovec, NeurIPS 2017).

    h'_v = W_n AGG{h_u : u -> v} + W_s h_v + b          AGG = mean, max or sum

Transform passes h on, gather reads it at the source, sum aggregates, apply multiplies. Mean and
sum are linear, so W_n is applied before them if that is cheaper in the batch: the result is the
same.

Departures: as in DistGNN-MB, the activation belongs to the network and h' is not divided by its
length; "max" aggregates the neighbour values themselves (as PyTorch Geometric), without the
perceptron of the paper's pooling aggregator.
"""

from __future__ import annotations

from typing import Any, Literal

from graphtheta.errors import ConfigError

from ..engine.layer.layer import Layer
from ..ops.autodiff.tape import Parameter
from ..ops.functions.dense import matmul, to_dense
from ..ops.functions.elementwise import add
from .design import Design, NetworkOptions

AGGREGATORS = ("mean", "max", "sum")


class SAGE(Layer):
    """GraphSAGE layer.

    Args:
        d_in, d_out: Widths of input and output.
        aggregator: "mean", "max" or "sum".
        bias: Whether to add a bias.

    Raises:
        ConfigError: Unknown aggregator.
    """

    def __init__(self, d_in: int, d_out: int, *, aggregator: str = "mean", bias: bool = True):
        if aggregator not in AGGREGATORS:
            raise ConfigError(
                f"SAGE: aggregator {aggregator!r} is not known; choose from"
                f" {', '.join(AGGREGATORS)}"
            )
        self.neighbour = Parameter.glorot(d_in, d_out)
        self.root = Parameter.glorot(d_in, d_out)
        self.bias = Parameter.zeros(d_out) if bias else None
        self.sum = aggregator

    def transform(self, node: Any) -> dict[str, Any]:
        return {"z": matmul(node.h, self.neighbour) if self._first(node) else to_dense(node.h)}

    def gather(self, edge: Any) -> Any:
        return edge.src.z

    def apply(self, node: Any, total: Any) -> Any:
        out = add(
            total if self._first(node) else matmul(total, self.neighbour), matmul(node.h, self.root)
        )
        return out if self.bias is None else add(out, self.bias)

    def _first(self, node: Any) -> bool:
        return self.sum != "max" and node.product_first(self.neighbour)


class SAGEOptions(NetworkOptions):
    """Options of sage."""

    aggregator: Literal["mean", "max", "sum"] = "mean"
    """Aggregation of messages in sage."""


def _layer(d_in: int, d_out: int, d_edge: int, last: bool, o: SAGEOptions) -> tuple[Layer, int]:
    return SAGE(d_in, d_out, aggregator=o.aggregator, bias=o.has_bias(last)), d_out


DESIGN = Design(_layer, SAGEOptions)
