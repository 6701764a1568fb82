"""https://arxiv.org/abs/1706.02216 GraphSAGE (Hamilton, Ying and Leskovec, NeurIPS 2017).

    h'_v = W_n AGG{h_u : u -> v} + W_s h_v + b          AGG = mean, max, sum, or a module

Transform passes h on, gather reads it at the source, sum aggregates, apply multiplies. Mean and
sum are linear, so W_n is applied before them if that is cheaper in the batch: the result is the
same.

The other aggregators have parameters. "lstm" and "gru" have a hidden value of the width of h', and
read the neighbours in the order of the edges or of an edge column, such as a time, where those of
the paper are in a random order. "concat" reads the first k neighbours, "attention" and "gated"
weigh them by learned scores.

Departures: as in DistGNN-MB, the activation belongs to the network and h' is not divided by its
length; "max" aggregates the neighbour values themselves (as PyTorch Geometric), without the
perceptron of the paper's pooling aggregator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from graphtheta.errors import ConfigError

from ..engine.layer.layer import Layer
from ..engine.layer.ordered import Concat
from ..engine.layer.staged import Staged
from ..ops.autodiff.fusion import evaluated
from ..ops.autodiff.tape import Parameter
from ..ops.functions.dense import matmul, to_dense
from ..ops.functions.elementwise import add
from ..ops.functions.shape import flatten
from .design import Design, NetworkOptions
from .pooling import AttentionPooling, GatedPooling
from .recurrent import GRU, LSTM

LINEAR = ("mean", "sum")
IN_ORDER = ("lstm", "gru", "concat")
AGGREGATORS = ("max", *LINEAR, *IN_ORDER, "attention", "gated")


class SAGE(Layer):
    """GraphSAGE layer.

    Args:
        d_in, d_out: Widths of input and output.
        aggregator: "mean", "max", "sum", "lstm", "gru", "concat", "attention" or "gated".
        bias: Whether to add a bias.
        neighbours: Number of neighbours that "concat" reads.
        order: What "lstm", "gru" and "concat" sort neighbours by, as that of ``gt.Ordered``.

    Raises:
        ConfigError: Unknown aggregator, ``neighbours`` or ``order`` with another one than these, or
            "concat" without a number of neighbours.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        aggregator: str = "mean",
        bias: bool = True,
        neighbours: int | None = None,
        order: str | None = None,
    ):
        if aggregator not in AGGREGATORS:
            raise ConfigError(
                f"SAGE: aggregator {aggregator!r} is not known; choose from"
                f" {', '.join(AGGREGATORS)}"
            )
        if (neighbours is None) == (aggregator == "concat"):
            raise ConfigError(
                f"SAGE: neighbours={neighbours} with aggregator {aggregator!r}; give a number for"
                " 'concat', and none for others"
            )
        if order is not None and aggregator not in IN_ORDER:
            raise ConfigError(
                f"SAGE: order={order!r} has no meaning with aggregator {aggregator!r}, only with"
                f" {', '.join(IN_ORDER)}; leave it out"
            )
        sums: dict[str, Callable[[], Staged]] = {
            "lstm": lambda: LSTM(d_in, d_out, order),
            "gru": lambda: GRU(d_in, d_out, order),
            "concat": lambda: Concat(neighbours or 0, order),
            "attention": lambda: AttentionPooling(d_in, d_out),
            "gated": lambda: GatedPooling(d_in, d_out, d_in),
        }
        width = d_in * neighbours if neighbours else d_out if aggregator in sums else d_in
        self.neighbour = Parameter.glorot(width, d_out)
        self.root = Parameter.glorot(d_in, d_out)
        self.bias = Parameter.zeros(d_out) if bias else None
        self.sum = sums[aggregator]() if aggregator in sums else aggregator

    def transform(self, node: Any) -> dict[str, Any]:
        # computed once, since apply reads it again
        h = evaluated(node.h)
        return {"z": matmul(h, self.neighbour) if self._first(node) else to_dense(h)}

    def gather(self, edge: Any) -> Any:
        return edge.src.z

    def apply(self, node: Any, total: Any) -> Any:
        total = flatten(total) if isinstance(self.sum, Concat) else total
        out = add(
            total if self._first(node) else matmul(total, self.neighbour), matmul(node.h, self.root)
        )
        return out if self.bias is None else add(out, self.bias)

    def _first(self, node: Any) -> bool:
        return self.sum in LINEAR and node.product_first(self.neighbour)


class SAGEOptions(NetworkOptions):
    """Options of sage."""

    aggregator: Literal["mean", "max", "sum", "lstm", "gru", "concat", "attention", "gated"] = (
        "mean"
    )
    """Aggregation of messages in sage; those from lstm on have parameters."""
    neighbours: int | None = Field(None, ge=1)
    """Number of neighbours that aggregator=concat reads; it pads with 0."""
    neighbour_order: str | None = None
    """Edge column, or src.COLUMN of the neighbour, in whose order lstm, gru and concat read
    neighbours; by default the order of the edges.
    """


def _layer(d_in: int, d_out: int, d_edge: int, last: bool, o: SAGEOptions) -> tuple[Layer, int]:
    layer = SAGE(
        d_in,
        d_out,
        aggregator=o.aggregator,
        bias=o.has_bias(last),
        neighbours=o.neighbours,
        order=o.neighbour_order,
    )
    return layer, d_out


DESIGN = Design(_layer, SAGEOptions)
