"""``--recompute`` changes no bit: every published model, strategy and task, on one rank and on
several.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.ops.autodiff import fusion

# large enough for sums that do not depend on where arrays lie
GRAPH = graphs.random_graph(300, 1500)
# a sequence takes as many steps as its longest one has edges, and a hub has hundreds
WITHOUT_HUB = graphs.random_graph(300, 1500, hub=False)
STRATEGIES = {
    "global": {},
    "mini": {"strategy": "mini", "batch_size": 50},
    "sampled": {"strategy": "mini", "batch_size": 50, "fanout": "3"},
    "cluster": {"strategy": "cluster", "clusters_per_batch": 2},
}
MODELS = {
    "gcn": {"model": "gcn", "residual": True},
    "sage": {"model": "sage", "aggregator": "max", "norm": "batch"},
    "in order": {
        "model": "sage",
        "aggregator": "gru",
        "neighbour_order": "src.out_degree",
        "graph": WITHOUT_HUB,
    },
    "gated": {"model": "sage", "aggregator": "gated"},
    "gin": {"model": "gin", "norm": "batch", "jumping": "max"},
    "gat": {"model": "gat", "attention_dropout": 0.4, "feature_dropout": 0.2, "heads": 2},
    "gat_e": {"model": "gat_e", "residual": True, "heads": 2, "direction": "both"},
    "gcnii": {"model": "gcnii", "norm": "batch"},
    "appnp": {"model": "appnp", "propagations": 2, "edge_drop": 0.3},
    "gipa": {"model": "gipa", "norm": "batch", "edge_drop": 0.2, "residual": True, "heads": 2},
    "links": {"model": "gcn", "task": "link", "decoder": "hadamard", "jumping": "concat"},
    "edges": {"model": "gat_e", "task": "edge", "heads": 2},
}
DEEP = {
    "plain": {},
    "residual": {"residual": True, "norm": "batch"},
    "jumping": {"jumping": "concat", "norm": "layer", "residual": True},
    "precomputed": {"dropout": 0.0, "precompute": True},
}


def train(comm, on, **keys):
    """Losses, metrics and weights after two epochs, and the predicted memory of the values."""
    trainer = gt.Trainer(
        comm=comm,
        recompute=on,
        **{"graph": GRAPH, "task": "node", "hidden": 5, "backend": "reference", **keys},
    )
    losses = [trainer.train_epoch(i) for i in range(2)]
    metrics = trainer.measure()
    return np.array([*losses, *metrics.values()]), trainer.model.state(), trainer.setup.bound.values


def compare(size, **keys):
    """The share of the memory that is left."""
    (numbers, state, much), (again, made, less) = (
        run_simulated(size, train, on, **keys)[0] for on in (False, True)
    )
    assert np.array_equal(numbers, again) and all(
        np.array_equal(x, made[name]) for name, x in state.items()
    )
    return less / much


# batches of models of nodes are whole, sampled or clusters in turn
CASES = [
    (model, strategy)
    for i, model in enumerate(MODELS)
    for strategy in STRATEGIES
    if strategy == "global"
    or "task" in MODELS[model]
    or strategy == ("mini", "sampled", "cluster")[i % 3]
]


@pytest.mark.one_in(21)
@pytest.mark.parametrize(("model", "strategy"), CASES)
def test_no_bit_changes(model, strategy):
    for size, dtype in (
        ((1, "float32"), (4, "float64")) if strategy == "global" else ((2, "float64"),)
    ):
        compare(size, layers=3, dtype=dtype, **MODELS[model], **STRATEGIES[strategy])


@pytest.mark.second
@pytest.mark.parametrize(
    ("name", "backend", "smallest"),
    [
        ("plain", "reference", 0),
        pytest.param("plain", "fused", 1 << 16, marks=pytest.mark.fused),
        *((name, "reference", 1 << 16) for name in DEEP),
        *(pytest.param(name, "fused", 0, marks=pytest.mark.fused) for name in DEEP),
    ],
)
def test_deep_networks_keep_their_bits_and_less_memory(monkeypatch, name, backend, smallest):
    monkeypatch.setattr(fusion, "SMALLEST", smallest)
    # every network meets one worker and three
    size = (1, 3)[(list(DEEP).index(name) + (smallest > 0)) % 2]
    assert compare(size, model="gcn", layers=10, backend=backend, **DEEP[name]) < 0.7
