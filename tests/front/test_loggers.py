"""Loggers, against small stand-ins of the packages they write to."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import graphs
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError

GRAPH = graphs.random_graph(40, 160)


class Recorder:
    """Records the calls of its methods."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **keys: self.calls.append(
            (name, *args, keys) if keys else (name, *args)
        )


def fitted(comm: Any, logger: Any, **options: Any) -> gt.Result:
    trainer = gt.Trainer(
        "gcn", GRAPH, comm=comm, epochs=4, eval_every=2, hidden=4, backend="reference"
    )
    return trainer.fit(callbacks=[logger(trainer, **options)])


def test_tensorboard_has_every_metric_by_update(monkeypatch: pytest.MonkeyPatch) -> None:
    writers = []

    def writer(folder: str) -> Recorder:
        writers.append((folder, made := Recorder()))
        return made

    monkeypatch.setitem(sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=writer))
    result = run_simulated(2, fitted, gt.TensorBoard, folder="events")[0]
    # one of two workers writes
    ((folder, recorder),) = writers
    assert folder == "events" and recorder.calls[-1] == ("close",)
    assert [c[2:] for c in recorder.calls if c[1:2] == ("val/accuracy",)] == [
        (row["val_accuracy"], row["step"]) for row in result.history
    ]
    assert ("add_scalar", "loss", result.history[0]["loss"], 2) in recorder.calls
    assert {c[1] for c in recorder.calls[:-1]} >= {"train/f1_macro", "test/ece", "seconds"}


def test_tensorboard_is_in_the_folder_that_training_chooses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    folders: list[str] = []

    def writer(folder: str) -> Recorder:
        folders.append(folder)
        return Recorder()

    monkeypatch.setitem(sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=writer))
    for _ in range(2):
        trainer = gt.Trainer("gcn", dataset="ring", epochs=1, keep=1, backend="reference")
        trainer.fit(callbacks=[gt.TensorBoard(trainer)])
    assert folders == ["runs/ring-gcn-global/tensorboard", "runs/ring-gcn-global-2/tensorboard"]


def test_mlflow_has_the_keys_of_the_job_and_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", mlflow := Recorder())
    result = run_simulated(2, fitted, gt.MLflow, experiment="graphs", uri="runs")[0]
    names = [call[0] for call in mlflow.calls]
    assert names == [
        "set_tracking_uri",
        "set_experiment",
        "start_run",
        "log_params",
        "log_metrics",
        "log_metrics",
        "log_metric",
        "end_run",
    ]
    assert mlflow.calls[3][1]["epochs"] == "4" and mlflow.calls[3][1]["model"] == "gcn"
    _, metrics, keys = mlflow.calls[4]
    assert (
        keys == {"step": 2}
        and metrics["val_accuracy"] == result.history[0]["val_accuracy"]
        and "epoch" not in metrics
    )
    assert mlflow.calls[6] == ("log_metric", "best_epoch", result.best_epoch)


@pytest.mark.parametrize(
    "logger, package", [(gt.TensorBoard, "tensorboardX"), (gt.MLflow, "mlflow")]
)
def test_a_package_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, logger: Any, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=f"pip install {package}"):
        run_simulated(1, fitted, logger)


@pytest.mark.second
def test_the_sweep_of_the_documentation_runs(capsys: pytest.CaptureFixture[str]) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    page = Path(__file__).parents[2].joinpath("docs", "exporting.md").read_text(encoding="utf-8")
    found = re.search(r"```text\n(import optuna\n.*?)```", page, re.DOTALL)
    assert found is not None
    code = found[1]
    smaller = {
        '"cora"': '"sbm:n_nodes=80,n_edges=200"',
        "epochs=100": "epochs=2, backend='reference'",
        "n_trials=30": "n_trials=2",
    }
    for old, new in smaller.items():
        assert old in code
        code = code.replace(old, new)
    exec(compile(code, "exporting.md", "exec"), {})
    assert "'lr': " in capsys.readouterr().out
