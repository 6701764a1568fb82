"""A lazy random walk as a layer: a mean of the node's own value and those of its neighbours."""

from typing import Any

from pydantic import Field

import graphtheta as gt


class Lazy(gt.Layer):
    """h'_v = (1 - stay) * mean of W h_u over u -> v + stay * W h_v + b."""

    sum = "mean"

    def __init__(self, d_in: int, d_out: int, stay: float, bias: bool = True):
        self.weight = gt.Parameter.glorot(d_in, d_out)
        self.bias = gt.Parameter.zeros(d_out) if bias else None
        self.stay = stay

    def transform(self, node: Any) -> dict[str, Any]:
        return {"z": gt.matmul(node.h, self.weight)}

    def gather(self, edge: Any) -> Any:
        return edge.src.z

    def apply(self, node: Any, total: Any) -> Any:
        out = (1 - self.stay) * total + self.stay * node.z
        return out if self.bias is None else out + self.bias


class LazyOptions(gt.NetworkOptions):
    """Options of the model, in addition to those of every network."""

    stay: float = Field(0.5, ge=0, lt=1)
    """Share of the node's own value."""


def layer(d_in: int, d_out: int, d_edge: int, last: bool, options: LazyOptions) -> tuple[Lazy, int]:
    """One layer of the network, and the width of its values."""
    return Lazy(d_in, d_out, options.stay, bias=options.has_bias(last)), d_out


lazy = gt.Design(layer, LazyOptions, activation="tanh")
gt.register_model("lazy", lazy)
