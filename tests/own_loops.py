"""What tests of loops of one's own and of their losses share."""

from __future__ import annotations

from typing import Any

import graphs
import numpy as np

GRAPH = graphs.random_graph(60, 260, edge_y=None, edge_train=None, edge_val=None, edge_test=None)
KEYS: dict[str, Any] = {
    "hidden": 5,
    "dtype": "float64",
    "backend": "reference",
    "norm": "batch",
    "dropout": 0.3,
    "optimiser": "sgd",
    "momentum": 0.9,
    "lr": 0.05,
}
MINI = {"strategy": "mini", "batch_size": 9, "fanout": "3,2"}
LINK = {"task": "link", "negatives": 3, "eval_negatives": 5, **MINI}
SIZES = (1, 3)


def weights(session: Any) -> dict[str, np.ndarray]:
    return {name: x.copy() for name, x in session.model.state().items()}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(x, b[name]) for name, x in a.items())


def close(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    for name, x in a.items():
        np.testing.assert_allclose(x, b[name], rtol=1e-8, atol=1e-10)
