"""https://arxiv.org/abs/1609.02907 Graph convolutional network (Kipf and Welling, ICLR 2017).

    h'_v = sum over u -> v of  a_uv d_u^-1/2 d_v^-1/2  W h_u  + b          (norm="sym")
    h'_v = sum over u -> v of  a_uv d_v^-1  W h_u  + b                     (norm="row")

Gather multiplies by the factor of the source's degree and by the edge weight a_uv, sum adds, apply
scales by the factor of the destination's degree. The product with W is taken before or after the
sum, whichever is cheaper in the batch: the result is the same.

Departures: d counts edges in the layer's direction (in-edges by default), without their weights;
self loops are not added here but to the graph (``Graph.with_self_loops``); for a degree of 0 the
factor is 0.
"""

from __future__ import annotations

from typing import Any, Literal

from graphtheta.errors import ConfigError

from ..engine.layer.layer import Layer
from ..ops.autodiff.tape import Parameter
from ..ops.functions.dense import matmul
from ..ops.functions.elementwise import add, maximum, minimum, mul, power
from .design import Design, NetworkOptions

NORMALISATIONS = {"sym": -0.5, "row": -1.0}


def degree(node: Any, direction: str) -> Any:
    """Number of edges along which a node receives messages, [n]."""
    if direction == "both":
        return add(node.in_degree, node.out_degree)
    return node.out_degree if direction == "out" else node.in_degree


def degree_factor(node: Any, direction: str, norm: str) -> Any:
    """A power of the degree, 0 where the degree is 0, [n]."""
    count = degree(node, direction)
    return mul(minimum(count, 1), power(maximum(count, 1), NORMALISATIONS[norm]))


class GCN(Layer):
    """Graph convolution.

    Args:
        d_in, d_out: Widths of input and output.
        norm: "sym" or "row".
        bias: Whether to add a bias.

    Raises:
        ConfigError: Unknown norm.
    """

    self_loops = True

    def __init__(self, d_in: int, d_out: int, *, norm: str = "sym", bias: bool = True):
        if norm not in NORMALISATIONS:
            raise ConfigError(
                f"GCN: norm {norm!r} is not known; choose from {', '.join(NORMALISATIONS)}"
            )
        self.weight = Parameter.glorot(d_in, d_out)
        self.bias = Parameter.zeros(d_out) if bias else None
        self.norm = norm

    def transform(self, node: Any) -> dict[str, Any]:
        z = matmul(node.h, self.weight) if node.product_first(self.weight) else node.h
        if self.norm == "row":
            return {"z": z}
        return {"z": z, "factor": degree_factor(node, self.direction, self.norm)}

    def gather(self, edge: Any) -> Any:
        z = edge.src.z * edge.src.factor if self.norm == "sym" else edge.src.z
        return z * edge.weight

    def apply(self, node: Any, total: Any) -> Any:
        factor = (
            node.factor if self.norm == "sym" else degree_factor(node, self.direction, self.norm)
        )
        total = mul(total, factor)
        out = total if node.product_first(self.weight) else matmul(total, self.weight)
        return out if self.bias is None else add(out, self.bias)


class GCNOptions(NetworkOptions):
    """Options of gcn."""

    normalisation: Literal["sym", "row"] = "sym"
    """Normalised adjacency matrix of gcn: D^-1/2 A D^-1/2 (sym) or D^-1 A (row)."""


def _layer(d_in: int, d_out: int, d_edge: int, last: bool, o: GCNOptions) -> tuple[Layer, int]:
    return GCN(d_in, d_out, norm=o.normalisation, bias=o.has_bias(last)), d_out


DESIGN = Design(_layer, GCNOptions)
