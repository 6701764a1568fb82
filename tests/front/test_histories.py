"""Historical embeddings: exact limits, numbers that are resumed, what is read, errors."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.store.history import History
from graphtheta.errors import ConfigError

GRAPH = graphs.random_graph(60, 200, hub=False)
KEYS: dict[str, Any] = {"hidden": 6, "layers": 3, "dtype": "float64", "seed": 3, "backend": "reference", "optimiser": "sgd",
                        "dropout": 0.3, "lr": 0.2}
GAS = {"strategy": "cluster", "clusters": 6, "history": "gas"}
GLOBAL_NOW: dict[str, Any] = {"strategy": "global"}


def trained(comm: Comm, epochs: int = 3, **keys: Any) -> np.ndarray:
    """Losses, and everything the model has learnt."""
    one = gt.Trainer(keys.pop("model", "gcn"), GRAPH, comm=comm, **{**KEYS, **keys})
    losses = [one.train_epoch(epoch) for epoch in range(epochs)]
    return np.concatenate([losses, *(x.ravel() for x in one.model.state().values())])


@pytest.mark.parametrize("keys", [{"model": "gcn", "norm": "batch"}, {"model": "gat", "heads": 2, "jumping": "concat"},
                                  {"model": "sage", "direction": "both", "residual": "after"}], ids=str)
def test_all_rows_in_the_batch_are_exact(keys: dict[str, Any]) -> None:
    (exact,) = run_simulated(1, trained, **keys)
    found = run_simulated(3, trained, **{**GAS, "clusters_per_batch": 6}, **keys)
    np.testing.assert_allclose(found[0], exact, rtol=1e-9, atol=1e-12)


def test_as_many_hops_as_the_model_reads_are_exact() -> None:
    clusters = {"strategy": "cluster", "clusters": 6, "clusters_per_batch": 2}
    (gas,) = run_simulated(1, trained, **clusters, history="gas:hops=2", dropout=0.0, epochs=1)
    found = run_simulated(3, trained, **clusters, history="gas:hops=9", dropout=0.0, epochs=1)[1]
    np.testing.assert_allclose(found, gas, rtol=1e-9, atol=1e-12)


def test_numbers_of_any_number_of_workers() -> None:
    # histories belong to nodes, so unlike stale exchange they do not depend on the partition
    (one,) = run_simulated(1, trained, **GAS)
    for found in run_simulated(3, trained, **GAS, partitioner="vertex-cut"):
        np.testing.assert_allclose(found, one, rtol=1e-9, atol=1e-12)
    assert not np.allclose(one, run_simulated(1, trained, **{**GAS, "history": "none"})[0])


def test_every_node_is_computed_once_an_epoch() -> None:
    def count(comm: Comm) -> np.ndarray:
        one = gt.Trainer("gcn", GRAPH.with_masks(np.arange(60) < 4), comm=comm, **{**KEYS, **GAS})
        clusters = [one.strategy.chosen(1, i) for i in range(one.strategy.steps_per_epoch)]
        one.train_epoch(0)
        first = one.strategy.figures()
        one.train_epoch(1)
        second = one.strategy.figures()
        assert first["hit_rate"] < second["hit_rate"] == 1 and second["age"] > 0
        return np.concatenate(clusters)

    (found,) = run_simulated(1, count)
    np.testing.assert_array_equal(np.sort(found), np.arange(6))
