"""Learned node features of a job: trained in every strategy, saved, resumed by another number of workers, refused where they cannot be."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError

KEYS: dict[str, Any] = {"embed": 6, "hidden": 5, "epochs": 4, "dtype": "float64", "backend": "reference", "model": "sage", "seed": 4,
                        "optimiser": "sgd", "dropout": 0.2}
STRATEGIES: dict[str, dict[str, Any]] = {
    "global": {}, "mini": {"strategy": "mini", "batch_size": 12, "fanout": (4, 2)},
    "flight": {"strategy": "mini", "batch_size": 12, "views_in_flight": 3, "views_per_step": 2},
    "cluster": {"strategy": "cluster", "clusters": 5, "clusters_per_batch": 2},
}


def graph(x: bool = False) -> gt.Graph:
    sbm = gt.load("sbm:n_nodes=90,n_edges=400")
    return gt.Graph(sbm.edge_index, sbm.n_nodes, x=sbm.x if x else None, y=sbm.y, train=sbm.train, val=sbm.val, test=sbm.test)


def run(comm: Any, **keys: Any) -> dict[str, np.ndarray]:
    trainer = gt.Trainer(graph=graph(), comm=comm, **{**KEYS, **keys})
    found = trainer.fit()
    losses = np.array([row["loss"] for row in found.history])
    values = trainer.setup.tables[0].by_node(comm, 90, trainer.setup.tables[0].values())
    predicted = trainer.predict()
    return {} if predicted is None else {"loss": losses, "x": values, **trainer.model.state(), "predicted": predicted[1]}


def close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("name", STRATEGIES)
def test_two_workers_train_what_one_does(name: str) -> None:
    one = run(SerialComm(), **STRATEGIES[name])
    close(run_simulated(2, run, **STRATEGIES[name])[0], one)
    assert one["loss"][-1] < one["loss"][0]
