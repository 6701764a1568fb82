"""https://arxiv.org/abs/1810.00826 Graph isomorphism network (Xu, Hu, Leskovec and Jegelka, ICLR
2019).

    h'_v = MLP((1 + eps) h_v + sum over u -> v of h_u)

Transform passes h on, gather reads it at the source, sum adds, apply runs the perceptron. Its
first product is taken before the sum if that is cheaper in the batch: the result is the same.

Departures: none; eps is a fixed number or trained.
"""

from __future__ import annotations

from typing import Any

from ..engine.layer.layer import Layer
from ..ops.autodiff.init import default_dtype
from ..ops.autodiff.tape import Parameter
from ..ops.functions.elementwise import add, mul
from .design import Design, NetworkOptions
from .mlp import MLP


class GIN(Layer):
    """Graph isomorphism layer.

    Args:
        mlp: Perceptron applied to the sum; as published it has batch norm.
        eps: Additional weight of the node's own features.
        train_eps: Whether eps is trained.
    """

    def __init__(self, mlp: MLP, *, eps: float = 0.0, train_eps: bool = False):
        self.mlp = mlp
        self.eps: Parameter | float = (
            Parameter(default_dtype().type(eps), decay=0) if train_eps else eps
        )

    def transform(self, node: Any) -> dict[str, Any]:
        return {"z": self.mlp.start(node.h) if node.product_first(self.mlp.weights[0]) else node.h}

    def gather(self, edge: Any) -> Any:
        return edge.src.z

    def apply(self, node: Any, total: Any) -> Any:
        z = add(
            total,
            (
                mul(node.z, add(self.eps, 1))
                if isinstance(self.eps, Parameter)
                else mul(node.z, 1 + self.eps)
            ),
        )
        return self.mlp.finish(z) if node.product_first(self.mlp.weights[0]) else self.mlp(z)


class GINOptions(NetworkOptions):
    """Options of gin."""

    train_eps: bool = False
    """Learn epsilon, the weight of a node's own features (gin)."""


def _layer(d_in: int, d_out: int, d_edge: int, last: bool, o: GINOptions) -> tuple[Layer, int]:
    return (
        GIN(
            MLP(d_in, (o.hidden,), d_out, norm=o.norm, last_bias=o.has_bias(last)),
            train_eps=o.train_eps,
        ),
        d_out,
    )


DESIGN = Design(_layer, GINOptions)
