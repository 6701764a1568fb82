"""Stale halo exchange: exact limits, numbers that are resumed, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError

GRAPH = graphs.random_graph(60, 300)
KEYS: dict[str, Any] = {
    "hidden": 6,
    "dtype": "float64",
    "seed": 3,
    "backend": "reference",
    "optimiser": "sgd",
    "dropout": 0.3,
    "lr": 0.2,
    "partitioner": "1d-dst",
}
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"model": "gcn", "norm": "batch"},
    "mean": {"model": "sage", "layers": 3},
    "attention": {"model": "gat", "heads": 2},
}
# options at which an exchange is exact
LIMITS = ("bns:rate=1", "pipegcn:refresh=1,feat_corr=0.9", "skip:threshold=0")
STALE = ("bns:rate=0.3", "pipegcn", "pipegcn:feat_corr=0.9,grad_corr=0.8", "skip:threshold=0.8")


def trained(comm: Comm, epochs: int = 4, **keys: Any) -> np.ndarray:
    """Losses, and everything the model has learnt."""
    one = gt.Trainer(keys.pop("model", "gcn"), GRAPH, comm=comm, **{**KEYS, **keys})
    losses = [one.train_epoch(epoch) for epoch in range(epochs)]
    return np.concatenate([losses, *(x.ravel() for x in one.model.state().values())])


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("exchange", LIMITS)
def test_limits_are_exact(name: str, exchange: str) -> None:
    (exact,) = run_simulated(1, trained, **MODELS[name])
    for found in run_simulated(3, trained, exchange=exchange, **MODELS[name]):
        np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-12)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("exchange", STALE)
def test_one_worker_is_exact_and_several_are_near(exchange: str) -> None:
    (exact,), (one,) = run_simulated(1, trained), run_simulated(1, trained, exchange=exchange)
    np.testing.assert_array_equal(one, exact)
    several = run_simulated(3, trained, exchange=exchange)
    np.testing.assert_array_equal(several[0], several[2])
    again = run_simulated(3, trained, exchange=exchange)[1]
    np.testing.assert_array_equal(several[1], again)
    # the loss of the first epoch differs only if it does not wait
    assert np.isclose(several[0][0], exact[0]) is not np.bool_(exchange.startswith("bns"))
    assert not np.allclose(several[0], exact, rtol=1e-6) and np.allclose(
        several[0][:4], exact[:4], rtol=0.5
    )


def fitted(comm: Comm, folder: Path, epochs: int, **keys: Any) -> np.ndarray:
    """Losses of all epochs, and everything the model has learnt after a run that may continue
    another one.
    """
    one = gt.Trainer(
        "sage",
        GRAPH,
        comm=comm,
        **{**KEYS, **keys},
        out=str(folder),
        checkpoint_every=1,
        resume=True,
        epochs=epochs,
    )
    result = one.fit()
    return np.concatenate(
        [[row["loss"] for row in result.history], *(x.ravel() for x in one.model.state().values())]
    )


@pytest.mark.one_in(4)
@pytest.mark.parametrize("exchange", STALE)
def test_a_resumed_run_has_the_numbers_of_one_that_was_not_interrupted(
    exchange: str, tmp_path: Path
) -> None:
    whole = run_simulated(3, fitted, tmp_path / "whole", 6, exchange=exchange)[0]
    run_simulated(3, fitted, tmp_path / "parts", 3, exchange=exchange)
    np.testing.assert_array_equal(
        run_simulated(3, fitted, tmp_path / "parts", 6, exchange=exchange)[0], whole
    )


def test_values_of_another_partition_are_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_simulated(3, fitted, tmp_path, 2, exchange="pipegcn")
    found = run_simulated(2, fitted, tmp_path, 4, exchange="pipegcn")[0]
    assert np.isfinite(found).all() and "are dropped" in caplog.text


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"exchange": "bns:rate=2"}, "rate is 2.0"),
        ({"exchange": "skip:threshold=-1"}, "threshold is -1"),
        ({"exchange": "pipegcn:feat_corr=1"}, "feat_corr is 1"),
        ({"exchange": "pipegcn:refresh=-1"}, "refresh is -1"),
        ({"exchange": "bsn"}, "did you mean 'bns'"),
        ({"exchange": "bns:p=1"}, "no option 'p'"),
        ({"exchange": "bns", "partitioner": "1d-src"}, "give --partitioner 1d-dst"),
        ({"exchange": "bns", "direction": "both"}, "one --direction"),
        ({"exchange": "bns", "task": "link"}, "excludes its targets"),
        ({"exchange": "bns", "recompute": True}, "drop --recompute or --exchange"),
        ({"exchange": "bns", "strategy": "mini"}, "only with global"),
    ],
)
def test_errors(keys: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        run_simulated(2, trained, **keys)


def test_against_edges() -> None:
    keys = {"model": "sage", "direction": "out", "partitioner": "1d-src"}
    (exact,) = run_simulated(1, trained, **keys)
    np.testing.assert_allclose(
        run_simulated(2, trained, exchange="skip:threshold=0", **keys)[0],
        exact,
        rtol=1e-9,
        atol=1e-12,
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("layers", [1, 2])
def test_values_of_edges_are_audited(layers: int) -> None:
    def rows(comm: Comm, exchange: str) -> list[dict[str, Any]]:
        keys = {
            **KEYS,
            "task": "edge",
            "layers": layers,
            "audit": 2,
            "epochs": 4,
            "exchange": exchange,
        }
        return gt.Trainer("sage", GRAPH, comm=comm, **keys).fit().history

    names = ("audit_outputs", "audit_embeddings", "audit_gradients")
    exact, stale = (
        run_simulated(3, rows, exchange)[0] for exchange in ("skip:threshold=0", "bns:rate=0.3")
    )
    assert (
        all(row[name] < 1e-12 for row in exact for name in names if name in row)
        and "audit_outputs" in exact[-1]
    )
    assert all(stale[-1][name] > 0 for name in names)
