"""https://arxiv.org/abs/2007.02133 GCNII: deep graph convolutions with the first value in every
layer (Chen et al., ICML 2020).

    m_v  = (1 - alpha) sum over u -> v of  a_uv d_u^-1/2 d_v^-1/2 h_u
    h'_v = ((1 - beta) I + beta W) (m_v + alpha start_v)            beta = log(theta / l + 1)

l is the number of the layer, and start the embedded features. GCNII* has separate weights for m
and for alpha start. Gather multiplies by the factor of the source's degree and by the edge weight,
sum adds, apply scales, adds the start value and multiplies by the weights.

Departures: those of ``models/gcn.py``. No dropout stands before the embedding of the features.
"""

from __future__ import annotations

from math import log
from typing import Any

from pydantic import Field

from ..engine.layer.layer import Layer
from ..ops.autodiff.tape import Parameter
from ..ops.functions.dense import matmul
from ..ops.functions.elementwise import add, mul
from .design import Design, TeleportOptions
from .gcn import degree_factor


class GCNII(Layer):
    """Graph convolution with initial residual and identity map, called as
    ``layer(graph, h, start=h_0)``.

    Args:
        d: Width of input, output and start value.
        alpha: Share of the start value.
        beta: Share of the product with the weights, against the identity.
        shared: Whether messages and start value have the same weights.
    """

    self_loops = True

    def __init__(self, d: int, *, alpha: float = 0.1, beta: float = 1.0, shared: bool = True):
        self.weight = Parameter.glorot(d, d)
        self.weight_start = None if shared else Parameter.glorot(d, d)
        self.alpha = alpha
        self.beta = beta

    def transform(self, node: Any) -> dict[str, Any]:
        factor = degree_factor(node, self.direction)
        return {"z": mul(node.h, factor), "factor": factor}

    def gather(self, edge: Any) -> Any:
        return edge.src.z * edge.weight

    def apply(self, node: Any, total: Any) -> Any:
        messages = mul(total, mul(node.factor, 1 - self.alpha))
        start = mul(node.start, self.alpha)
        if self.weight_start is None:
            return self._mapped(add(messages, start), self.weight)
        return add(self._mapped(messages, self.weight), self._mapped(start, self.weight_start))

    def _mapped(self, x: Any, weight: Parameter) -> Any:
        return add(mul(x, 1 - self.beta), mul(matmul(x, weight), self.beta))


class GCNIIOptions(TeleportOptions):
    """Options of gcnii."""

    theta: float = Field(0.5, ge=0, allow_inf_nan=False)
    """Strength of the weights of layer l against the identity, log(theta / l + 1) (gcnii)."""
    shared_weights: bool = True
    """The same weights for messages and start value; false is GCNII* (gcnii)."""


def _layer(
    d_in: int, d_out: int, d_edge: int, last: bool, o: GCNIIOptions, *, number: int
) -> tuple[Layer, int]:
    layer = GCNII(d_in, alpha=o.alpha, beta=log(o.theta / number + 1), shared=o.shared_weights)
    return layer, d_in


# an embedding before the layers, which all read it, and a head after them
DESIGN = Design(_layer, GCNIIOptions, whole=True, starts=True)
