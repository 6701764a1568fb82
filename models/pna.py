"""https://arxiv.org/abs/2004.05718 Principal neighbourhood aggregation (Corso et al., NeurIPS
2020).

    m_uv = W_src h_u + W_dst h_v [+ W_edge x_uv] + b                           per tower
    t_v  = [mean, min, max, std of m_uv over u -> v]
    s_v  = [1, log(d_v + 1) / delta, delta / log(d_v + 1)]                     scalers
    y_v  = W_root h_v + sum over the scalers i of s_vi W_i t_v + c,   h'_v = U y_v + b'

d is the in-degree and delta the mean of log(d + 1) over the nodes of the training graph. Towers are
several y side by side. Transform projects, gather adds, the four sums aggregate, apply scales,
multiplies and mixes the towers by U.

Departures: the perceptrons before and after the aggregation are linear maps, as by default in
PNAConv of PyTorch Geometric, and the product with W_i is taken before the scaling: the result is
the same. Where all messages of a node are equal its std is 0, as is its gradient; PNAConv has 0 for
any variance below 1e-5. The activation and batch norm belong to the network.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from graphtheta.errors import ConfigError

from ..engine.layer.layer import Layer
from ..ops.autodiff import init
from ..ops.autodiff.init import default_dtype
from ..ops.autodiff.tape import Parameter
from ..ops.functions.dense import linear, matmul
from ..ops.functions.elementwise import add, div, log, maximum, mul
from ..ops.functions.index import getitem
from ..ops.functions.shape import concat, stack, sum
from .design import Design, EdgeOptions
from .gcn import degree

AGGREGATORS = ("mean", "min", "max", "std")
SCALERS = ("identity", "amplification", "attenuation")


class PNA(Layer):
    """Several aggregators of the messages, scaled by the degree.

    Args:
        d_in, d_out: Widths of input and output.
        log_degree: delta, which is ``graph.mean_log_degree()`` of the training graph. It is saved
            with the weights and not trained.
        d_edge: Width of ``edge.attr`` if messages read it, else 0.
        towers: Number of towers, which divides d_out.
        aggregators: Some of "mean", "min", "max", "std", and other aggregators by name.
        scalers: Some of "identity", "amplification", "attenuation".
        bias: Whether to add c and b'.

    Raises:
        ConfigError: Unknown scaler, none of either, or the towers do not divide d_out.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        log_degree: float,
        *,
        d_edge: int = 0,
        towers: int = 1,
        aggregators: tuple[str, ...] = AGGREGATORS,
        scalers: tuple[str, ...] = SCALERS,
        bias: bool = True,
    ):
        if d_out % towers:
            raise ConfigError(
                f"PNA: {towers} towers do not divide the width {d_out}; choose another number of"
                " towers"
            )
        if not aggregators or not scalers or not set(scalers) <= set(SCALERS):
            raise ConfigError(
                f"PNA: aggregators={aggregators} and scalers={scalers}; give at least one of each,"
                f" scalers from {', '.join(SCALERS)}"
            )
        width = d_out // towers
        of_totals = len(aggregators) * d_in
        self.weight_src, self.weight_dst = (Parameter.glorot(d_in, towers, d_in) for _ in range(2))
        self.weight_edge = Parameter.glorot(d_edge, towers, d_in) if d_edge else None
        self.message_bias = Parameter.zeros(towers, d_in)
        self.root = Parameter.glorot(d_in, towers, width)
        self.weight = Parameter(
            np.stack([init.glorot((of_totals, len(scalers), width)) for _ in range(towers)])
        )
        self.tower_bias = Parameter.zeros(towers, width) if bias else None
        self.mix = Parameter.glorot(d_out, d_out)
        self.bias = Parameter.zeros(d_out) if bias else None
        self.log_degree = Parameter(default_dtype().type(log_degree), decay=0)
        self.log_degree.requires_grad = False
        self.sum = aggregators
        self.scalers = scalers

    def transform(self, node: Any) -> dict[str, Any]:
        return {
            "s": matmul(node.h, self.weight_src),
            "t": linear(node.h, self.weight_dst, self.message_bias),
        }

    def gather(self, edge: Any) -> Any:
        message = edge.src.s + edge.dst.t
        return (
            message if self.weight_edge is None else message + matmul(edge.attr, self.weight_edge)
        )

    def apply(self, node: Any, total: Any) -> Any:
        totals = concat([getattr(total, name) for name in self.sum])
        scales = self._scales(node)
        towers = linear(node.h, self.root, self.tower_bias)
        outs = []
        for i in range(self.root.shape[1]):
            scaled = mul(matmul(totals[..., i, :], getitem(self.weight, i)), scales)
            outs.append(add(towers[..., i, :], sum(scaled, -2)))
        return linear(concat(outs), self.mix, self.bias)

    def _scales(self, node: Any) -> Any:
        """The scalers of each node, [n, scalers]."""
        count = degree(node, self.direction)
        # 0 without edges, where all totals are 0
        mean = add(self.log_degree, float(self.log_degree.value == 0))
        scales = {
            "identity": lambda: add(mul(count, 0.0), 1.0),
            "amplification": lambda: div(log(add(count, 1)), mean),
            "attenuation": lambda: div(mean, log(add(maximum(count, 1), 1))),
        }
        return stack([scales[name]() for name in self.scalers])


class PNAOptions(EdgeOptions):
    """Options of pna."""

    towers: int = Field(1, ge=1)
    """Towers of each layer, which divide its width (pna)."""


def _layer(
    d_in: int, d_out: int, d_edge: int, last: bool, o: PNAOptions, *, log_degree: float
) -> tuple[Layer, int]:
    layer = PNA(
        d_in,
        d_out,
        log_degree,
        d_edge=d_edge if o.edge_attributes else 0,
        # the width of the output need not be divided among towers
        towers=1 if last else o.towers,
        bias=o.has_bias(last),
    )
    return layer, d_out


DESIGN = Design(_layer, PNAOptions, reads_degrees=True)
