"""https://arxiv.org/abs/1609.02907 Graph convolutional network (Kipf and Welling, ICLR 2017).

    h'_v = sum over u -> v of  a_uv d_u^-1/2 d_v^-1/2  W h_u  + b          (norm="sym")
    h'_v = sum over u -> v of  a_uv d_v^-1  W h_u  + b                     (norm="row")
    h'_v = sum over u -> v of  a_uv s_u^-1/2 d_v^-1/2  W h_u  + b          (norm="both")
    h'_v = sum over u -> v of  a_uv  W h_u  + b                            (norm="none")

Gather multiplies by the factor of the source's degree and by the edge weight a_uv, sum adds, apply
scales by the factor of the destination's degree. The product with W is taken before or after the
sum, whichever is cheaper in the batch: the result is the same.

Departures: d counts edges in the layer's direction (in-edges by default), without their weights,
and s those in the other one, which is the norm "both" of DGL;
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

# powers of the degrees of source and destination
NORMALISATIONS = {"sym": (-0.5, -0.5), "row": (0.0, -1.0), "both": (-0.5, -0.5), "none": (0.0, 0.0)}
# the direction of a layer whose receivers are the senders of another
OPPOSITE = {"in": "out", "out": "in", "both": "both"}


def degree(node: Any, direction: str) -> Any:
    """Number of edges along which a node receives messages, [n]."""
    if direction == "both":
        return add(node.in_degree, node.out_degree)
    return node.out_degree if direction == "out" else node.in_degree


def degree_factor(node: Any, direction: str, exponent: float = -0.5) -> Any:
    """A power of the degree, 0 where the degree is 0, [n]."""
    count = degree(node, direction)
    return mul(minimum(count, 1), power(maximum(count, 1), exponent))


class GCN(Layer):
    """Graph convolution.

    Args:
        d_in, d_out: Widths of input and output.
        norm: "sym", "row", "both" or "none".
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
        exponent, _ = NORMALISATIONS[self.norm]
        along = OPPOSITE[self.direction] if self.norm == "both" else self.direction
        return {"z": z, "factor": degree_factor(node, along, exponent)} if exponent else {"z": z}

    def gather(self, edge: Any) -> Any:
        exponent, _ = NORMALISATIONS[self.norm]
        z = edge.src.z * edge.src.factor if exponent else edge.src.z
        return z * edge.weight

    def apply(self, node: Any, total: Any) -> Any:
        _, exponent = NORMALISATIONS[self.norm]
        if self.norm == "sym":
            total = mul(total, node.factor)
        elif exponent:
            total = mul(total, degree_factor(node, self.direction, exponent))
        out = total if node.product_first(self.weight) else matmul(total, self.weight)
        return out if self.bias is None else add(out, self.bias)


class GCNOptions(NetworkOptions):
    """Options of gcn."""

    normalisation: Literal["sym", "row", "both", "none"] = "sym"
    """Normalised adjacency matrix of gcn: D^-1/2 A D^-1/2 (sym), D^-1 A (row), D^-1/2 A S^-1/2
    with the degrees S along which nodes send (both), or A (none).
    """


def _layer(d_in: int, d_out: int, d_edge: int, last: bool, o: GCNOptions) -> tuple[Layer, int]:
    return GCN(d_in, d_out, norm=o.normalisation, bias=o.has_bias(last)), d_out


DESIGN = Design(_layer, GCNOptions)
