"""Networks: layers one after another, with what stands between them.

    h = x  [embedded]
    for each layer:   h' = act(norm(layer(dropout(h))))  [+ h]
    [jumping knowledge over all h], [head], [decoder of edges or links]

Nothing here knows ranks, partitions or batches; residuals and jumping knowledge are ordinary arithmetic on node
values, cut to the rows that are left.
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
from ..ops.autodiff.tape import Var
from ..ops.functions.dropout import dropout
from ..ops.functions.elementwise import add, maximum
from ..ops.functions.shape import concat
from .mlp import ACTIVATIONS, MLP
from .norm import make_norm

JUMPING: dict[str, Callable[[list[Any]], Any] | None] = {"none": None, "concat": concat, "max": lambda hs: reduce(maximum, hs)}
RESIDUALS = ("none", "after", "before")


class Network(Model):
    """A stack of layers.

    Args:
        layers: In order; called as ``layer(graph, h)``.
        widths: Width of the result of each.
        activation: Between layers: relu, elu, leaky_relu, tanh, gelu or none.
        dropout: Share of the input of every layer, and of the head, set to zero in training.
        norm: "none", "batch" or "layer", after every layer that has an activation. Layers that batch norm follows should add no
            constant: see ``BatchNorm``.
        residual: Whether the input of a layer is added to its output where the widths agree: "none", "after" norm and
            activation (Kipf and Welling, appendix B), or "before" them (GIPA).
        jumping: Jumping knowledge (https://arxiv.org/abs/1806.03536): "none", "concat" or "max" over all layers.
        embed: Applied to the features, with an activation, before the first layer.
        head: Applied to the values of the last layer (or of all, jumping).
        decoder: Layer without a sum, which makes values of edges or links from the node values.
        plain_end: Leave the values of the last layer as they are.

    Raises:
        ConfigError: An option is not known, or max jumping meets layers of different widths.
    """

    def __init__(self, layers: Sequence[Module], widths: Sequence[int], *, activation: str = "relu", dropout: float = 0.0,
                 norm: str = "none", residual: str = "none", jumping: str = "none", embed: MLP | None = None, head: MLP | None = None,
                 decoder: Layer | None = None, plain_end: bool = True):
        choices = {"residual": (residual, RESIDUALS), "jumping": (jumping, JUMPING), "activation": (activation, ACTIVATIONS)}
        for name, (given, allowed) in choices.items():
            if given not in allowed:
                raise ConfigError(f"{name} {given!r} is not known; choose from {', '.join(allowed)}")
        if jumping == "max" and len(set(widths)) > 1:
            raise ConfigError(f"jumping='max' compares layers of equal width, these have {list(widths)}; use jumping='concat'")
        stack: list[Any] = list(layers)
        self.embed, self.layers, self.head, self.decoder = embed, stack, head, decoder
        finished = len(self.layers) - plain_end
        self.norms = [make_norm(norm, w) for w in widths[:finished]]
        self.activation, self.dropout, self.residual, self.jumping = activation, dropout, residual, jumping

    def forward(self, graph: ActiveGraph) -> Var:
        h = graph.x
        if self.embed is not None:
            h = ACTIVATIONS[self.activation](self.embed(h))
        h = self._passed(h)
        reached: list[Any] = []
        again = id(self) in graph.settings.recomputed
        for some in self._ranges():
            run = partial(self._run, some)
            # what runs last is walked back at once
            h, found = recompute(run, graph, h) if again and some.stop < len(self.layers) else run(graph, h)
            reached += found
        join = JUMPING[self.jumping]
        h = h if join is None else join(reached)
        h = h if self.head is None else self.head(self._entered(h))
        out: Var = h if self.decoder is None else self.decoder(graph, h)
        return out

    def pieces(self) -> list[Module]:
        """The network itself, which runs ranges of its layers again and keeps the values between them."""
        return [self]

    def _ranges(self) -> list[range]:
        """The layers in ranges that may be run again."""
        n = len(self.layers)
        # what is kept between two pieces is less than the inside of one layer: more pieces than layers in one
        step = max(1, isqrt(n) // 2)
        return [range(i, min(i + step, n)) for i in range(0, n, step)]

    def _run(self, some: range, graph: ActiveGraph, h: Any) -> tuple[Any, list[Any]]:
        """The value after some layers, and all on the way that jumping knowledge looks at."""
        reached = []
        for i in some:
            z = self.layers[i](graph, self._entered(h))
            h = self._finish(i, z, h) if i < len(self.norms) else z
            if i + 1 < len(self.layers) or self.head is not None:
                h = self._passed(h)
            if self.jumping != "none":
                reached.append(h)
        return h, reached

    # A value that several functions read is computed before the first of them would do so on its way to something else;
    # what one layer alone reads is dropped and computed in one pass.

    def _passed(self, h: Any) -> Any:
        """A value of one layer as it goes to the next, computed: it is all that stays between two pieces."""
        h = h if self._branches else self._drop(h)
        _ = h.value
        return h

    def _entered(self, h: Any) -> Any:
        """The same as the next layer takes it."""
        return self._drop(h) if self._branches else h

    @property
    def _branches(self) -> bool:
        return self.residual != "none" or self.jumping != "none"

    def _drop(self, h: Any) -> Any:
        return dropout(h, self.dropout) if self.dropout else h

    def _finish(self, i: int, z: Any, h: Any) -> Any:
        """Norm, activation and residual after layer i, which made z of h."""
        norm, skips = self.norms[i], self.residual != "none" and z.shape[1:] == h.shape[1:]
        z = add(z, h) if skips and self.residual == "before" else z
        z = ACTIVATIONS[self.activation](z if norm is None else norm(z))
        return add(z, h) if skips and self.residual == "after" else z

    def decay_first_layer_only(self) -> None:
        """Keep weight decay on the first layer (and the embedding) and take it off everything else, as the published GCN."""
        first = {id(p) for module in (self.embed, self.layers[0]) if module is not None for p in module.parameters()}
        for p in self.parameters():
            p.decay = p.decay if id(p) in first else 0.0
