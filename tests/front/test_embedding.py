"""Learned node features of a job: trained in every strategy, saved, resumed by another number of workers, refused where they cannot be."""
from __future__ import annotations

import shutil
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.embeddings.saved import gathered_values
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError
from graphtheta.recovery.stopping import Stop, Stopped
from graphtheta.train import trainer as trainer_module

KEYS: dict[str, Any] = {"embedding": 6, "hidden": 5, "epochs": 4, "dtype": "float64", "backend": "reference", "model": "sage", "seed": 4,
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
    values = gathered_values(trainer.setup.tables, trainer.partition)
    predicted = trainer.predict()
    return {} if predicted is None else {"loss": losses, **values, **trainer.model.state(), "predicted": predicted[1]}


def close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("name", STRATEGIES)
def test_two_workers_train_what_one_does(name: str) -> None:
    one = run(SerialComm(), **STRATEGIES[name])
    close(run_simulated(2, run, **STRATEGIES[name])[0], one)
    assert one["loss"][-1] < one["loss"][0]


def test_another_number_of_workers_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {**STRATEGIES["mini"], "out": str(tmp_path / "run"), "keep": 2, "checkpoint_every": 1}

    def halted(comm: Any, steps: int) -> None:
        trainer = gt.Trainer(graph=graph(), comm=comm, **{**KEYS, **keys})
        asked.set(lambda: trainer.step >= steps)
        with pytest.raises(Stopped):
            trainer.fit()

    class Asked(Stop):
        def flags(self) -> list[float]:
            return [float(asked.get()()), 0.0]

    asked: ContextVar[Callable[[], bool]] = ContextVar("asked", default=lambda: False)
    monkeypatch.setattr(trainer_module, "Stop", Asked)
    whole = run(SerialComm(), **STRATEGIES["mini"], out=str(tmp_path / "whole"), keep=0)
    run_simulated(2, halted, 5)
    close(run_simulated(3, run, **keys, resume=True, partitioner="vertex-cut", masters="block")[0], whole)
    shutil.rmtree(tmp_path / "run")
    halted(SerialComm(), 3)
    asked.set(lambda: False)
    for name, x in run(SerialComm(), **keys, resume=True).items():
        np.testing.assert_array_equal(x, whole[name], err_msg=name)


def test_weights_hold_the_rows(tmp_path: Path) -> None:
    def saved(comm: Any) -> np.ndarray | None:
        trainer = gt.Trainer(graph=graph(), comm=comm, **KEYS)
        trainer.fit()
        trainer.save(tmp_path / "weights.safetensors")
        found = trainer.predict()
        return None if found is None else found[1]

    expected = run_simulated(2, saved)[0]
    other = gt.Trainer(graph=graph(), comm=SerialComm(), **{**KEYS, "seed": 5})
    other.load(tmp_path / "weights.safetensors")
    np.testing.assert_allclose(other.predict()[1], expected, rtol=1e-9)
    wider = gt.Trainer(graph=graph(), comm=SerialComm(), **{**KEYS, "embedding": 7})
    with pytest.raises(ConfigError, match=r"have \[90, 6\] as embedding/x, expected \[90, 7\]"):
        wider.load(tmp_path / "weights.safetensors")


@pytest.mark.parametrize("keys", [
    {"strategy": "mini", "mode": "independent"}, {"strategy": "mini", "staleness": 1}, {"clip_norm": 1.0}, {"precompute": "yes"},
    {"strategy": "mini", "feature_cache": "10"}, {"strategy": "mini", "history": "hec"}, {"exchange": "pipegcn"},
], ids=lambda keys: list(keys)[-1])
def test_what_needs_fixed_features_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"embedding=6 makes node features that change in every step.*{list(keys)[-1]}"):
        gt.Trainer(graph=graph(), comm=SerialComm(), **{**KEYS, **keys})


def test_other_mistakes_are_named() -> None:
    with pytest.raises(DataError, match="has features x; drop --embedding"):
        gt.Trainer(graph=graph(x=True), comm=SerialComm(), **KEYS)
    with pytest.raises(DataError, match="learn them with --embedding WIDTH"):
        gt.Trainer(graph=graph(), comm=SerialComm(), **{**KEYS, "embedding": 0})
    with pytest.raises(ConfigError, match="give their width with --embedding"):
        gt.Trainer(graph=graph(), comm=SerialComm(), **{**KEYS, "embedding": 0, "embedding_lr": 0.1})
    with pytest.raises(ConfigError, match=r"embedding=6 has no meaning for gt\.Run"):
        gt.Run(graph=graph(), comm=SerialComm(), **{k: x for k, x in KEYS.items() if k != "epochs"})


def test_the_best_rows_come_back() -> None:
    trainer = gt.Trainer(graph=graph(), comm=SerialComm(), **{**KEYS, "epochs": 12, "embedding_lr": 0.5, "embedding_optimiser": "adagrad"})
    found = trainer.fit()
    assert found.best_epoch < 12
    assert trainer.measure()["val_loss"] == found.metrics["val_loss"]
