"""APPNP, GCNII and PNA against NumPy, and what they read of the training graph."""

from __future__ import annotations

from typing import Any

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.errors import ConfigError
from graphtheta.models import APPNP, GCNII, PNA
from graphtheta.ops import dtype_scope
from graphtheta.ops.autodiff.init import init_scope

D = 4
# self loops, duplicate edges and isolated nodes
GRAPH = graphs.random_graph(30, 120)


class Alone(gt.Model):
    """A layer on the features, and twice these as first value if it reads one."""

    def __init__(self, layer: Any):
        self.layer = layer
        self.one = gt.Parameter(np.ones(()))

    def forward(self, graph: Any) -> Any:
        start = {"start": graph.x * 2.0} if isinstance(self.layer, GCNII) else {}
        return self.layer(graph, graph.x, **start) * self.one


def values(make: Any) -> tuple[Any, np.ndarray]:
    """A layer, with drawn weights, and its values."""
    with dtype_scope("float64"), init_scope(2):
        layer = make()
    rng = np.random.default_rng(3)
    for p in layer.parameters():
        p.value = rng.normal(size=p.shape) if p.requires_grad else p.value
    return layer, gt.forward(Alone(layer), GRAPH)


def normalised() -> np.ndarray:
    """D^-1/2 A D^-1/2 with the weights of edges, by rows of receivers."""
    n = GRAPH.n_nodes
    degree = np.bincount(GRAPH.dst, minlength=n)
    factor = np.where(degree > 0, np.maximum(degree, 1.0) ** -0.5, 0)
    matrix = np.zeros((n, n))
    np.add.at(matrix, (GRAPH.dst, GRAPH.src), np.asarray(GRAPH.edge_weight, np.float64))
    return factor[:, None] * matrix * factor


def test_appnp_is_the_power_iteration() -> None:
    _, out = values(lambda: APPNP(3, 0.2))
    x = np.asarray(GRAPH.x, np.float64)
    z = x
    for _ in range(3):
        z = 0.8 * normalised() @ z + 0.2 * x
    np.testing.assert_allclose(out, z, atol=1e-10)


@pytest.mark.parametrize("shared", [True, False])
def test_gcnii_is_its_equation(shared: bool) -> None:
    layer, out = values(lambda: GCNII(D, alpha=0.3, beta=0.4, shared=shared))
    x = np.asarray(GRAPH.x, np.float64)
    parts = 0.7 * normalised() @ x, 0.3 * 2 * x
    second = layer.weight if layer.weight_start is None else layer.weight_start
    weights = layer.weight.value, second.value
    expected = sum(0.6 * p + 0.4 * p @ w for p, w in zip(parts, weights, strict=True))
    np.testing.assert_allclose(out, expected, atol=1e-10)


def test_pna_is_its_equation() -> None:
    delta = GRAPH.mean_log_degree()
    layer, out = values(lambda: PNA(D, 6, delta, d_edge=3, towers=2))
    w = {name: p.value for name, p in layer.named_parameters()}
    x = np.asarray(GRAPH.x, np.float64)
    attr = np.asarray(GRAPH.edge_attr, np.float64)
    messages = (
        np.einsum("ed,dtf->etf", x[GRAPH.src], w["weight_src"])
        + np.einsum("ed,dtf->etf", x[GRAPH.dst], w["weight_dst"])
        + np.einsum("ea,atf->etf", attr, w["weight_edge"])
        + w["message_bias"]
    )
    expected = np.zeros((GRAPH.n_nodes, 6))
    for v in range(GRAPH.n_nodes):
        of_node = messages[v == GRAPH.dst]
        n = len(of_node)
        how = (np.mean, np.min, np.max, np.std)
        totals = np.concatenate(
            [f(of_node, axis=0) if n else np.zeros((2, D)) for f in how], axis=-1
        )
        scales = [1, np.log(n + 1) / delta, delta / np.log(max(n, 1) + 1)]
        towers = np.einsum("d,dto->to", x[v], w["root"]) + w["tower_bias"]
        towers += np.einsum("ta,taso,s->to", totals, w["weight"], scales)
        expected[v] = towers.ravel() @ w["mix"] + w["bias"]
    np.testing.assert_allclose(out, expected, atol=1e-9)


def test_the_mean_log_degree_counts_edges_of_a_direction() -> None:
    ends = {"in": GRAPH.dst, "out": GRAPH.src, "both": np.concatenate((GRAPH.src, GRAPH.dst))}
    for direction, end in ends.items():
        expected = np.log1p(np.bincount(end, minlength=GRAPH.n_nodes)).mean()
        assert GRAPH.mean_log_degree(direction) == pytest.approx(expected, rel=1e-14)
    assert gt.Graph(np.zeros((2, 0), int), 3).mean_log_degree() == 0


def test_the_mean_log_degree_of_training_stays_with_the_weights() -> None:
    keys = {"backend": "reference", "hidden": 4, "dtype": "float64", "epochs": 1}
    trainer = gt.Trainer("pna", GRAPH, **keys)
    trainer.fit()
    state = trainer.model.state()
    assert state["layers.0.log_degree"] == pytest.approx(GRAPH.mean_log_degree())
    other = gt.Trainer("pna", graphs.random_graph(30, 60), **keys)
    assert other.model.state()["layers.0.log_degree"] != state["layers.0.log_degree"]
    other.model.load_state(state)
    assert other.model.state()["layers.1.log_degree"] == state["layers.1.log_degree"]


def test_a_fanout_of_appnp_has_a_number_for_each_propagation() -> None:
    keys = {"strategy": "mini", "batch_size": 9, "propagations": 3, "backend": "reference"}
    gt.Trainer("appnp", GRAPH, epochs=1, hidden=4, fanout="3,2,2", **keys).fit()
    with pytest.raises(ConfigError, match="has 2 numbers and propagations=3"):
        gt.Trainer("appnp", GRAPH, fanout="3,2", **keys)
