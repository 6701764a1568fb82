"""Kept values of layers belong to the operations of a network: changed code is refused, and equal
code defined anew is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError

pytestmark = pytest.mark.reference

KEYS: dict[str, Any] = {"epochs": 1, "dtype": "float64"}
RNG = np.random.default_rng(6)
ENDS, X = RNG.integers(0, 30, (2, 80)), RNG.normal(size=(33, 4))
OLD = gt.Graph(
    ENDS, 30, x=X[:30], y=np.arange(30) % 3, train=np.arange(30) < 20, val=np.arange(30) >= 20
)
NEW = gt.Graph(np.concatenate((ENDS, [[1, 2, 30], [30, 31, 32]]), axis=1), 33, x=X)


def message(edge: Any) -> Any:
    return edge.src.z * 0.5


Stage = Callable[..., Any]


def made(
    gather: Stage = lambda edge: message(edge),
    transform: Stage = lambda node, w: {"z": node.h @ w},
    apply: Stage = lambda node, total: gt.leaky_relu(total, 0.2),
    total: Any = "sum",
    skip: float = 0.5,
) -> type[gt.Model]:
    """A network of two layers, defined anew."""

    class Mine(gt.Layer):
        sum = total

        def __init__(self, d_in: int, d_out: int):
            self.weight = gt.Parameter.glorot(d_in, d_out)

        def transform(self, node: Any) -> Any:
            return transform(node, self.weight)

        def gather(self, edge: Any) -> Any:
            return gather(edge)

        def apply(self, node: Any, total: Any) -> Any:
            return apply(node, total)

    class Net(gt.Model):
        def __init__(self, d_in: int, d_out: int):
            self.first = Mine(d_in, 4)
            self.second = Mine(4, 4)
            self.last = gt.Linear(4, d_out)

        def forward(self, graph: Any) -> Any:
            h = self.first(graph, graph.x)
            return self.last(self.second(graph, h) + skip * h)

    return Net


def since(
    comm: Any, first: type[gt.Model], later: type[gt.Model], folder: Path, **keys: Any
) -> Any:
    """Outputs of a pass over the whole graph and by an update with a network defined later, which
    has the same weights.
    """
    trainer = gt.Trainer(first, OLD, comm=comm, **KEYS, backend="reference")
    trainer.fit()
    trainer.on(OLD).keep_layers(folder)
    again = gt.Trainer(later, OLD, comm=comm, **{**KEYS, "backend": "reference", **keys})
    again.model.load_state(trainer.model.state())
    on = again.on(NEW)
    return on.predict(), on.since(folder).predict()


@gt.primitive("test_code_scaled")
def scaled(x: Any) -> Any:
    return x * 3


gt.defvjp(scaled, x=lambda g, y, x: g * 3)


def other_message(edge: Any) -> Any:
    """Other names of variables, and the same operations."""
    sent = edge.src.z
    return sent * 0.5


SAME = {
    "anew": lambda: (made(), made()),
    "names": lambda: (made(), made(lambda edge: other_message(edge))),
    "primitive": lambda: (
        made(apply=lambda node, total: scaled(total)),
        made(apply=lambda node, total: scaled(total)),
    ),
    "frozen": lambda: (
        made(),
        made(transform=lambda node, w: {"z": node.h @ w} if "a" in {"a", "b"} else {}),
    ),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize(
    ("size", "keys"),
    [(1, {}), (3, {}), (1, {"backend": "fused"}), (2, {"partitioner": "vertex-cut"})],
    ids=str,
)
def test_equal_code_is_taken(name: str, size: int, keys: dict[str, Any], tmp_path: Path) -> None:
    whole, found = run_simulated(size, since, *SAME[name](), tmp_path / "kept", **keys)[0]
    assert found[0].tolist() == whole[0].tolist() and len(whole[0]) == 33
    np.testing.assert_allclose(found[1], whole[1], rtol=1e-9, atol=1e-9)


CHANGED: dict[str, dict[str, Any]] = {
    "constant of a message": {"gather": lambda edge: edge.src.z * 0.25},
    "operation of a message": {"gather": lambda edge: gt.tanh(edge.src.z) * 0.5},
    "other end": {"gather": lambda edge: edge.dst.z * 0.5},
    "column sent": {
        "gather": lambda edge: (edge.src.z + edge.src.more) * 0.5,
        "transform": lambda node, w: {"z": node.h @ w, "more": gt.square(node.h @ w)},
    },
    "transform": {"transform": lambda node, w: {"z": gt.relu(node.h @ w)}},
    "keyword of apply": {"apply": lambda node, total: gt.leaky_relu(total, 0.3)},
    "column read by apply": {
        "apply": lambda node, total: gt.leaky_relu(total * node.out_degree[:, None], 0.2)
    },
    "aggregator": {"total": "mean"},
    "between layers": {"skip": 0.4},
    "array": {"gather": lambda edge: edge.src.z * np.array([0.5, 0.5, 0.5, 0.1])},
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CHANGED)
def test_changed_code_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=(
            r"kept: the code of the network has changed since .*compute them again with keep_layers"
        ),
    ):
        run_simulated(2, since, made(), made(**CHANGED[name]), tmp_path / "kept")


def test_changed_primitives_and_aggregators_are_refused(tmp_path: Path) -> None:
    def network(factor: float, k: int) -> type[gt.Model]:
        @gt.primitive("test_code_factor")
        def times(x: Any) -> Any:
            return x * factor

        gt.defvjp(times, x=lambda g, y, x: g * factor)
        return made(apply=lambda node, total: times(total.sum(-2)), total=gt.TopK(k))

    first = network(2.0, 2)
    trainer = gt.Trainer(first, OLD, **KEYS)
    trainer.on(OLD).keep_layers(tmp_path / "kept")
    for factor, k, same in ((2.0, 2, True), (3.0, 2, False), (2.0, 3, False)):
        other = gt.Trainer(network(factor, k), OLD, **KEYS)
        other.model.load_state(trainer.model.state())
        if same:
            other.on(NEW).since(tmp_path / "kept")
        else:
            with pytest.raises(ConfigError, match="the code of the network has changed"):
                other.on(NEW).since(tmp_path / "kept")
