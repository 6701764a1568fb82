"""Published networks in PyTorch, of layers of the engine.

Apart from their tests, because PyTorch takes long to import.
"""

from __future__ import annotations

import numpy as np
import torch
from machine import Alone

from graphtheta.engine.layer.layer import Layer
from graphtheta.engine.strategy.strategy import whole
from graphtheta.ops import Tape, Var

ACTIVATIONS = {"relu": torch.relu, "elu": torch.nn.functional.elu, "tanh": torch.tanh}
# as published: activation, the layers that it follows, whether there are an embedding and a head,
# and where the network adds residuals
PUBLISHED = {
    "gcn": ("relu", "all", False, "after"),
    "sage": ("relu", "all", False, "after"),
    "gin": ("relu", "all", False, "after"),
    "gine": ("relu", "inner", True, "after"),
    "gat": ("elu", "all", False, "after"),
    "gatv2": ("elu", "all", False, "none"),
    "gat_e": ("elu", "all", False, "none"),
    "gipa": ("relu", "all", True, "before"),
    "transformer": ("relu", "all", False, "after"),
    "appnp": ("relu", "all", False, "after"),
    "gcnii": ("relu", "all", True, "after"),
    "pna": ("relu", "all", False, "after"),
    "rgcn": ("relu", "all", False, "after"),
    "rgat": ("elu", "all", False, "after"),
    "simple_hgn": ("elu", "all", False, "none"),
    "hgt": ("relu", "none", True, "after"),
    "mlp": ("relu", "all", False, "after"),
}


class Started(Alone):
    """A layer that also reads the value in front of the first one."""

    def forward(self, graph):
        return self.layers[0](graph, graph.x, start=graph.node("start"))


class Through(torch.autograd.Function):
    """One layer of the engine as a function of PyTorch."""

    @staticmethod
    def forward(ctx, part, layer, h, start, *parameters):
        model = Alone(layer) if start is None else Started(layer)
        along = [part.direction for part in layer.modules() if isinstance(part, Layer)]
        view = whole(part, along * getattr(layer, "steps", 1))
        given = {"x": h} if start is None else {"x": h, "start": start}
        inputs = {
            name: Var(value.detach().numpy(), view.space, needs_grad=True)
            for name, value in given.items()
        }
        with Tape(training=True) as tape:
            out = model(view, **inputs)
        ctx.taped = tape, out, inputs, layer.parameters()
        return torch.from_numpy(np.array(out.value))

    @staticmethod
    def backward(ctx, g):
        tape, out, inputs, parameters = ctx.taped
        found = tape.backward(out, g.numpy())
        return (
            None,
            None,
            *(
                None if p is None or found.of(p) is None else torch.tensor(found.of(p))
                for p in (inputs["x"], inputs.get("start"), *parameters)
            ),
        )


class Composed:
    """The network of a published model in PyTorch, with the parameters of one of ours."""

    def __init__(self, name, net, part, *, norm, residual, jumping, readout, activation):
        auto, self.activated, self.whole, place = PUBLISHED[name]
        self.act = ACTIVATIONS[auto if activation == "auto" else activation]
        self.place = place if residual else "none"
        self.norm = norm
        self.jumping = jumping
        self.readout = readout
        self.net, self.part = net, part
        self.w = {n: torch.tensor(p.value, requires_grad=True) for n, p in net.named_parameters()}

    def normed(self, i, z):
        if self.norm == "none":
            return z
        scale = self.w[f"norms.{i}.gamma"]
        shift = self.w[f"norms.{i}.beta"]
        axis = 0 if self.norm == "batch" else 1
        centred = z - z.mean(axis, keepdim=True)
        return centred / torch.sqrt((centred**2).mean(axis, keepdim=True) + 1e-5) * scale + shift

    def layer(self, i, h, start):
        layer = self.net.layers[i]
        parameters = [self.w[f"layers.{i}.{n}"] for n, _ in layer.named_parameters()]
        return Through.apply(self.part, layer, h, start, *parameters)

    def __call__(self, x):
        h = x
        w = self.w
        if self.whole:
            h = self.act(h @ w["embed.weights.0"] + w["embed.biases.0"])
        start = h if self.net.starts else None
        reached = []
        n = len(self.net.layers)
        headed = self.whole or self.jumping != "none" or self.readout
        for i in range(n):
            z = self.layer(i, torch.sin(h), start)
            if i < n - 1 or headed:
                skips = z.shape == h.shape
                z = z + h if skips and self.place == "before" else z
                z = self.normed(i, z)
                z = (
                    self.act(z)
                    if self.activated == "all" or (self.activated == "inner" and i < n - 1)
                    else z
                )
                z = z + h if skips and self.place == "after" else z
            h = z
            reached.append(h)
        if self.jumping == "concat":
            h = torch.cat(reached, -1)
        elif self.jumping == "max":
            h = torch.stack(reached).amax(0)
        if self.net.end is not None:
            h = Through.apply(self.part, self.net.end, h, None)
        if headed:
            h = torch.sin(h)
            h = torch.cos(h) if self.readout else h
            h = h @ w["head.weights.0"] + w["head.biases.0"]
        return h
