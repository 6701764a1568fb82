"""Networks: a stack of layers with dropout, norm, activation, residuals, jumping knowledge.

    h = x  [embedded]
    for each layer:   h' = act(norm(layer(dropout(h))))  [+ h]
    [jumping knowledge over all h'], [end(h)], [head([readout](dropout(h)))], [decoder of edges or
    links]

Dropout stands in front of every layer and after the last one where a head follows, before the
readout; a network without layers drops its features once. Residuals and jumping knowledge read the
values without dropout. The last layer of a network without a head has no norm, activation and
residual.

The code is independent of ranks, partitions and batches. Residuals and jumping knowledge are
ordinary arithmetic on node values, restricted to the rows that later layers compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from math import isqrt
from typing import Any

from graphtheta.errors import ConfigError

from ..engine.layer.checkpointing import recompute
from ..engine.layer.context import ActiveGraph
from ..engine.layer.layer import Layer, Model
from ..engine.layer.module import Module
from ..ops.autodiff.fusion import evaluated
from ..ops.autodiff.tape import Var
from ..ops.functions.dropout import dropout
from ..ops.functions.elementwise import add, maximum
from ..ops.functions.shape import concat
from .mlp import ACTIVATIONS, MLP
from .norm import make_norm
from .readouts import read_out

JUMPING: dict[str, Callable[[list[Any]], Any] | None] = {
    "none": None,
    "concat": concat,
    "max": lambda hs: reduce(maximum, hs),
}
RESIDUALS = ("none", "after", "before")
ACTIVATED = ("all", "inner", "none")


class Network(Model):
    """A stack of layers.

    Args:
        layers: In order; called as ``layer(graph, h)``.
        widths: Width of the result of each.
        activation: Activation between layers: relu, elu, leaky_relu, tanh, gelu or none.
        dropout: Dropout probability for the input of every layer, and for the node values that the
            readout and the head read.
        norm: "none", "batch" or "layer", after every layer. Layers before batch norm should have
            no bias: see ``BatchNorm``.
        residual: Whether the input of a layer is added to its output if the widths agree: "none",
            "after" norm and activation (Kipf and Welling, appendix B), or "before" them (GIPA).
        jumping: Jumping knowledge (https://arxiv.org/abs/1806.03536): "none", "concat" or "max"
            over all layers.
        embed: Applied to the features, with an activation, before the first layer.
        head: Applied to the values of the last layer, or to those of all with jumping knowledge.
        readout: Layer that makes the values of whole graphs from those of their nodes, before the
            head; ``models.readout``.
        decoder: Layer without a sum, which computes values of edges or links from the node values.
        plain_end: Apply no norm, activation or residual to the last layer.
        activated: Layers that the activation follows: "all", "inner" (all but the last) or "none".
        starts: Whether layers are given the value in front of the first of them, without dropout,
            as the keyword ``start``.
        end: Called as ``end(graph, h)`` with the values of the last layer, or those of all with
            jumping knowledge.

    Raises:
        ConfigError: An option is not known, there are no layers that ``jumping`` could read, or
            they have different widths with ``jumping="max"``.
    """

    def __init__(
        self,
        layers: Sequence[Module],
        widths: Sequence[int],
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        norm: str = "none",
        residual: str = "none",
        jumping: str = "none",
        embed: MLP | None = None,
        head: MLP | None = None,
        readout: Callable[..., Any] | None = None,
        decoder: Layer | None = None,
        plain_end: bool = True,
        activated: str = "all",
        starts: bool = False,
        end: Module | None = None,
    ):
        choices = {
            "residual": (residual, RESIDUALS),
            "jumping": (jumping, JUMPING),
            "activation": (activation, ACTIVATIONS),
            "activated": (activated, ACTIVATED),
        }
        for name, (given, allowed) in choices.items():
            if given not in allowed:
                raise ConfigError(
                    f"{name} {given!r} is not known; choose from {', '.join(allowed)}"
                )
        if jumping != "none" and not layers:
            raise ConfigError(
                f"jumping={jumping!r} reads the values of layers, and there are none; add layers or"
                " choose jumping='none'"
            )
        if jumping == "max" and len(set(widths)) > 1:
            raise ConfigError(
                f"jumping='max' compares layers of equal width, these have {list(widths)}; use"
                " jumping='concat'"
            )
        stack: list[Any] = list(layers)
        self.embed = embed
        self.layers = stack
        self.end: Any = end
        self.readout = readout
        self.head = head
        self.decoder = decoder
        finished = len(self.layers) - plain_end
        self.norms = [make_norm(norm, w) for w in widths[:finished]]
        # the layers before this one
        self.activated = {"all": finished, "inner": len(self.layers) - 1, "none": 0}[activated]
        self.activation = activation
        self.dropout = dropout
        self.residual = residual
        self.jumping = jumping
        self.starts = starts

    def forward(self, graph: ActiveGraph) -> Var:
        h = graph.x
        if self.embed is not None:
            h = ACTIVATIONS[self.activation](self.embed(h))
        start = evaluated(h) if self.starts else None
        h = self._passed(h)
        reached: list[Any] = []
        checkpointed = id(self) in graph.settings.recomputed
        for segment in self._segments():
            run = partial(self._run, segment)
            # the last segment is backpropagated first, so that checkpointing it would save nothing
            h, collected = (
                recompute(run, graph, evaluated(h), start)
                if checkpointed and segment.stop < len(self.layers)
                else run(graph, h, start)
            )
            reached += collected
        join = JUMPING[self.jumping]
        h = h if join is None else join(reached)
        h = h if self.end is None else self.end(graph, h)
        if self.head is not None or not self.layers:
            h = self._entered(h)
        h = h if self.readout is None else read_out(self.readout, graph, h)
        h = h if self.head is None else self.head(h)
        out: Var = h if self.decoder is None else self.decoder(graph, h)
        return out

    def checkpoint_segments(self) -> list[Module]:
        """The network itself, which makes segments of its layers for gradient checkpointing."""
        return [self]

    def _segments(self) -> list[range]:
        """The layers as segments of gradient checkpointing."""
        n = len(self.layers)
        # a value between segments is smaller than a layer's inside: more segments than layers each
        step = max(1, isqrt(n) // 2)
        return [range(i, min(i + step, n)) for i in range(0, n, step)]

    def _run(self, segment: range, graph: ActiveGraph, h: Any, start: Any) -> tuple[Any, list[Any]]:
        """The value after a segment, and the values in it that jumping knowledge reads."""
        reached = []
        columns = {"start": start} if self.starts else {}
        for i in segment:
            z = self.layers[i](graph, self._entered(h), **columns)
            h = self._finish(i, z, h) if i < len(self.norms) else z
            if i + 1 < len(self.layers) or self.head is not None:
                h = self._passed(h)
            if self.jumping != "none":
                reached.append(h)
        return h, reached

    # Elementwise operations are lazy, and fused when their result is read. A value with several
    # readers is evaluated before dropout, so that no reader evaluates it again; a value with one
    # reader is evaluated after dropout, in one pass, or a block at a time if a product reads it.

    def _passed(self, h: Any) -> Any:
        """The value between two layers, the only one stored between two segments."""
        return evaluated(h) if self._branches else self._drop(h)

    def _entered(self, h: Any) -> Any:
        """The value between two layers as input of the second, or of the readout or head."""
        return self._drop(h) if self._branches else h

    @property
    def _branches(self) -> bool:
        """Whether values between layers are stored without dropout, for other readers than the
        next layer.
        """
        return self.residual != "none" or self.jumping != "none" or self.end is not None

    def _drop(self, h: Any) -> Any:
        return dropout(h, self.dropout) if self.dropout else h

    def _finish(self, i: int, z: Any, h: Any) -> Any:
        """Norm, activation and residual after layer i, which computed z from h."""
        norm = self.norms[i]
        skips = self.residual != "none" and z.shape[1:] == h.shape[1:]
        z = add(z, h) if skips and self.residual == "before" else z
        z = z if norm is None else norm(z)
        z = ACTIVATIONS[self.activation](z) if i < self.activated else z
        return add(z, h) if skips and self.residual == "after" else z

    def decay_first_layer_only(self) -> None:
        """Apply weight decay to the first layer (and the embedding) only, as the published GCN."""
        first = {
            id(p)
            for module in (self.embed, self.layers[0])
            if module is not None
            for p in module.parameters()
        }
        for p in self.parameters():
            p.decay = p.decay if id(p) in first else 0.0
