"""Metrics from outside the package: in every row, by name and by file, for the best model, the same
on any ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError

FILE = Path(__file__).with_name("metric.py")
KEYS = {"epochs": 6, "hidden": 4, "backend": "reference", "dtype": "float64", "lr": 0.1}


@pytest.fixture(autouse=True)
def left_as_found() -> Iterator[None]:
    before = dict(gt.METRICS)
    yield
    for name in set(gt.METRICS) - set(before):
        del gt.METRICS[name]


def trained(size: int, metric: str, graph: gt.Graph) -> gt.Result:
    found = run_simulated(
        size, lambda comm: gt.Trainer("gcn", graph, comm=comm, metric=metric, **KEYS).fit()
    )
    assert all(result.metrics == found[0].metrics for result in found)
    return found[0]


def test_sums_add_up_on_any_ranks() -> None:
    graph = graphs.random_graph(60, 200)
    one, three = (trained(size, f"{FILE}:BALANCED", graph) for size in (1, 3))
    assert one.metrics == pytest.approx(three.metrics, rel=1e-9)
    rows = one.history
    assert [list(row) for row in rows] == [list(row) for row in three.history]
    assert list(one.metrics) == [
        f"{split}_{name}"
        for split in ("train", "val", "test")
        for name in (
            "loss",
            "accuracy",
            "balanced_accuracy",
            "f1_micro",
            "f1_macro",
            "ece",
            "balanced",
        )
    ]
    best = max(rows, key=lambda row: (row["val_balanced"], -row["val_loss"]))
    assert one.best_epoch == best["epoch"] and one.metrics["val_balanced"] == best["val_balanced"]
    # known by its name from now on
    assert trained(3, "balanced", graph).metrics == three.metrics


def test_the_figure_is_that_of_all_rows() -> None:
    graph = graphs.random_graph(60, 200)
    trainer = gt.Trainer("gcn", graph, metric=f"{FILE}:BALANCED", **KEYS)
    metrics = trainer.fit().metrics
    _, out = trainer.predict()
    y = graph.y[graph.test]
    said = out[graph.test].argmax(axis=1)
    assert metrics["test_balanced"] == pytest.approx(
        np.mean([np.mean(said[y == c] == c) for c in np.unique(y)])
    )


def test_what_does_not_add_up_is_gathered_and_smaller_can_be_better() -> None:
    y = np.random.default_rng(0).standard_normal((60, 2)).astype(np.float32)
    graph = graphs.random_graph(60, 200, y=y, n_classes=None)
    one, three = (trained(size, f"{FILE}:MEDIAN_ERROR", graph) for size in (1, 3))
    assert one.metrics == pytest.approx(three.metrics, rel=1e-9)
    assert {"test_mae", "test_rmse", "test_r2", "test_median_error"} <= set(one.metrics)
    assert "test_balanced" not in one.metrics
    assert one.metrics["val_median_error"] == min(row["val_median_error"] for row in one.history)


def test_it_is_refused_where_it_measures_nothing() -> None:
    with pytest.raises(
        ConfigError,
        match=(
            r"metric.py:MEDIAN_ERROR does not measure this task; choose from accuracy, .*balanced"
        ),
    ):
        gt.Trainer("gcn", graphs.random_graph(60, 200), metric=f"{FILE}:MEDIAN_ERROR", **KEYS)
    with pytest.raises(
        ConfigError, match=r"metric=balanced does not measure task=link; give --task node, or"
    ):
        gt.Job(task="link", metric="balanced")


def test_the_commands_take_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    job = ("--dataset", "sbm:n_nodes=60,n_edges=300,classes=3,features=4", "--backend", "reference")
    assert (
        main(["train", *job, "--epochs", "2", "--metric", f"{FILE}:BALANCED", "--out", "run"]) == 0
    )
    assert "test balanced" in capsys.readouterr().out
    assert main(["evaluate", "run", "--on", "test", "--trust"]) == 0
    assert "balanced" in capsys.readouterr().out
