"""How networks compose their layers, against PyTorch: norm, activation, dropout, residual, jumping.

Only the layers themselves are those of the engine; everything between them is written here once
more. Dropout is replaced by a function that commutes with nothing, so that its place shows.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import graphs
import libraries
import numpy as np
import pytest
from machine import Alone, declared

from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Layer
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.strategy.strategy import whole
from graphtheta.models import build_model
from graphtheta.models import network as network_module
from graphtheta.models.mlp import MLP
from graphtheta.models.network import Network
from graphtheta.models.registry import PUBLISHED as REGISTERED
from graphtheta.ops import Tape, Var, cos, dtype_scope, sin
from graphtheta.ops.autodiff.init import init_scope

pytestmark = pytest.mark.second

torch = libraries.Later("torch")

D = 4
A = 3
C = 3
RELATIONS = 3
TYPES = 2
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


@pytest.fixture(scope="module")
def part():
    rng = np.random.default_rng(8)
    graph = graphs.random_graph(
        seed=8,
        edge_columns={"relation": rng.integers(0, RELATIONS, 90)},
        node_columns={"type": rng.integers(0, TYPES, 24)},
    )
    return build_partition(graph, SerialComm(), dtype=np.float64)


@pytest.fixture(autouse=True)
def visible_dropout(monkeypatch):
    monkeypatch.setattr(network_module, "dropout", lambda h, rate: sin(h))


class Started(Alone):
    """A layer that also reads the value in front of the first one."""

    def forward(self, graph):
        return self.layers[0](graph, graph.x, start=graph.node("start"))


@cache
def through() -> Any:
    """One layer of the engine as a function of PyTorch."""

    class Through(torch.autograd.Function):
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

    return Through


class Composed:
    """The network of a published model in PyTorch, with the parameters of one of ours."""

    def __init__(self, name, net, part, *, norm, residual, jumping, readout, activation):
        auto, self.activated, self.whole, place = PUBLISHED[name]
        self.act = getattr(torch.nn.functional, auto if activation == "auto" else activation)
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
        return through().apply(self.part, layer, h, start, *parameters)

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
            h = through().apply(self.part, self.net.end, h, None)
        if headed:
            h = torch.sin(h)
            h = torch.cos(h) if self.readout else h
            h = h @ w["head.weights.0"] + w["head.biases.0"]
        return h


def ours(net, part, x, weights):
    view = whole(part, probe(net, part).layers)
    x = Var(x, view.space, needs_grad=True)
    with Tape(training=True) as tape:
        out = net(view, x=x)
        found = tape.backward(out, weights)
    return np.array(out.value), {"x": found.of(x)} | {
        n: found.of(p) for n, p in net.named_parameters() if p.requires_grad
    }


@pytest.mark.parametrize("name", PUBLISHED)
def test_networks_compose_as_documented(name, part, monkeypatch):
    # in place of a layer over the members of a graph
    monkeypatch.setattr(network_module, "read_out", lambda layer, graph, h: cos(h))
    assert PUBLISHED.keys() == REGISTERED.keys()
    rng = np.random.default_rng(0)
    ways = product(
        ("none", "batch", "layer"), (False, True), ("none", "concat", "max"), (False, True)
    )
    for i, (norm, residual, jumping, readout) in enumerate(ways):
        # further options take turns
        depth = 1 + (i + i // 3) % 3
        activation = ("auto", "tanh")[(i // 2) % 2]
        direction = ("in", "out", "both")[(i // 4) % 3] if name not in ("mlp", "rgcn") else "in"
        options = {"norm": norm, "residual": residual, "jumping": jumping, "activation": activation}
        with dtype_scope("float64"), init_scope(i):
            net = build_model(
                name,
                D,
                C,
                A,
                relations=RELATIONS,
                types=TYPES,
                layers=depth,
                direction=direction,
                dropout=0.5,
                readout="sum" if readout else "none",
                **options,
                **declared(name, hidden=(4, 6)[i % 2], heads=1 + i % 2, out_heads=2),
            )
        for p in net.parameters():
            p.value = p.value + 0.2 * rng.standard_normal(p.shape)
        theirs = Composed(name, net, part, readout=readout, **options)
        x = torch.tensor(part.node.read("x"), requires_grad=True)
        out = theirs(x)
        weights = rng.standard_normal(out.shape)
        (out * torch.from_numpy(weights)).sum().backward()
        values, gradients = ours(net, part, part.node.read("x"), weights)
        np.testing.assert_allclose(
            values, out.detach().numpy(), rtol=1e-9, atol=1e-11, err_msg=str(options)
        )
        for n, g in gradients.items():
            other = x.grad if n == "x" else theirs.w[n].grad
            np.testing.assert_allclose(
                g,
                other.numpy(),
                rtol=1e-8,
                atol=1e-10 * max(1, np.abs(g).max()),
                err_msg=f"{n}, {options}",
            )


@pytest.mark.parametrize("residual", ["none", "after", "before"])
@pytest.mark.parametrize("headed", [False, True])
def test_without_layers_features_are_dropped_once(part, residual, headed):
    with dtype_scope("float64"):
        head = MLP(D, (), C) if headed else None
        net = Network([], [], dropout=0.5, residual=residual, head=head)
    x = part.node.read("x")
    values, _ = ours(net, part, x, np.ones((len(x), C if headed else D)))
    expected = (
        np.sin(x) if head is None else np.sin(x) @ head.weights[0].value + head.biases[0].value
    )
    np.testing.assert_allclose(values, expected, atol=1e-12)
