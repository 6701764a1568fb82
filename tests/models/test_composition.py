"""How networks compose their layers, against PyTorch: norm, activation, dropout, residual, jumping.

Only the layers themselves are those of the engine; everything between them is written here once
more. Dropout is replaced by a function that commutes with nothing, so that its place shows.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from covering import covering
from machine import declared

from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.strategy.strategy import whole
from graphtheta.models import build_model
from graphtheta.models import network as network_module
from graphtheta.models.mlp import MLP
from graphtheta.models.network import Network
from graphtheta.models.registry import PUBLISHED
from graphtheta.ops import Tape, Var, cos, dtype_scope, sin
from graphtheta.ops.autodiff.init import init_scope

pytestmark = pytest.mark.second

D = 4
A = 3
C = 3
RELATIONS = 3
TYPES = 2


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
    torch = pytest.importorskip("torch")
    import composed

    # in place of a layer over the members of a graph
    monkeypatch.setattr(network_module, "read_out", lambda layer, graph, h: cos(h))
    assert composed.PUBLISHED.keys() == PUBLISHED.keys()
    rng = np.random.default_rng(0)
    ways = covering(
        ("none", "batch", "layer"),
        (False, True),
        ("none", "concat", "max"),
        (False, True),
        (1, 2, 3),
        ("auto", "tanh"),
        ("in", "out", "both") if name not in ("mlp", "rgcn") else ("in",),
        ((4, 1), (6, 2)),
        begin=list(PUBLISHED).index(name),
    )
    for i, (norm, residual, jumping, readout, depth, activation, direction, width) in enumerate(
        ways
    ):
        hidden, heads = width
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
                **declared(name, hidden=hidden, heads=heads, out_heads=2),
            )
        for p in net.parameters():
            p.value = p.value + 0.2 * rng.standard_normal(p.shape)
        theirs = composed.Composed(name, net, part, readout=readout, **options)
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
