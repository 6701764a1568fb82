"""Runs that leave the finite numbers, and metrics that are not defined: an error or plain words,
and files that stay valid.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import DivergedError
from graphtheta.inspect.reports.run import read_run
from graphtheta.run.checkpoints.checkpoint import steps_in
from graphtheta.run.checkpoints.progress import Progress
from graphtheta.train.loop.trainer import is_finite
from graphtheta.train.reuse.staleness.audit import ERRORS

pytestmark = pytest.mark.reference

KEYS: dict[str, Any] = {
    "hidden": 4,
    "backend": "reference",
    "optimiser": "sgd",
    "weight_decay": 0.0,
}
JOB = (
    "--dataset",
    "sbm:n_nodes=80,n_edges=300,classes=2,features=4",
    "--backend",
    "reference",
    "--hidden",
    "4",
    "--norm",
    "none",
    "--optimiser",
    "sgd",
    "--weight-decay",
    "0",
)


def strict(path: Path) -> list[Any]:
    """What a parser reads that knows JSON and nothing else, from each line of a file or from the
    whole of it.
    """

    def refuse(name: str) -> None:
        raise AssertionError(f"{path} holds {name}, which is no JSON")

    text = path.read_text(encoding="utf-8")
    return [
        json.loads(part, parse_constant=refuse)
        for part in (text.splitlines() if path.suffix == ".jsonl" else [text])
    ]


def breaks_at(last: int) -> Any:
    """A learning rate with which the last of some updates makes everything infinite."""
    return lambda update: 1e38 if update == last - 1 else 1.0


@pytest.mark.parametrize(
    "strategy",
    [{}, {"strategy": "mini", "batch_size": 50}, {"embedding": 3}],
    ids=["global", "mini", "embedding"],
)
def test_the_last_update_is_checked_on_every_rank(strategy: dict[str, Any]) -> None:
    graph = gt.load("sbm:n_nodes=80,n_edges=300,classes=2,features=4")
    graph = graph.replace(x=None) if "embedding" in strategy else graph
    updates = 4 * gt.Trainer("gcn", graph, **KEYS, **strategy).strategy.steps_per_epoch

    def program(comm: Any) -> tuple[str, int, bool, int]:
        trainer = gt.Trainer(
            "gcn",
            graph,
            comm=comm,
            lr_schedule=breaks_at(updates),
            lr=1e3,
            clip_norm=1e-2,
            epochs=4,
            **KEYS,
            **strategy,
        )
        rows: list[dict[str, Any]] = []
        with pytest.raises(DivergedError) as error:
            trainer.fit(callbacks=[Rows(rows)])
        whole = trainer.model.state() | {
            table.name: table.values() for table in trainer.setup.tables
        }
        return (
            str(error.value),
            error.value.best_epoch,
            all(map(is_finite, whole.values())),
            len(rows),
        )

    for size in (1, 2):
        for text, best, finite, rows in run_simulated(size, program):
            assert (
                f"after step {updates} the model has NaN or infinite values in " in text
                and "lower --lr" in text
            )
            # the best model before the update is not lost, and neither are the rows
            assert 1 <= best <= 3 and finite and rows == 3


@pytest.mark.parametrize("task", ["node", "link"])
def test_a_model_whose_outputs_overflow_has_diverged(task: str) -> None:
    """Weights may be finite where what is computed from them is not."""

    def program(comm: Any) -> str:
        graph = gt.load("sbm:n_nodes=80,n_edges=300,classes=2,features=4")
        keys = {**KEYS, "task": task, "epochs": 1, "lr": 1e36}
        trainer = gt.Trainer("gcn", graph, comm=comm, **keys)
        with pytest.raises(DivergedError) as error:
            trainer.fit()
        assert all(map(is_finite, trainer.model.state().values()))
        return str(error.value)

    for text in run_simulated(2, program):
        assert re.match("after step 1 the loss of an evaluation is (nan|inf);", text)


class Rows(gt.Callback):
    def __init__(self, rows: list[dict[str, Any]]):
        self.rows = rows

    def on_evaluation(self, now: Any) -> None:
        self.rows.append(dict(now.row))


def test_the_command_fails_and_keeps_the_best_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("graphtheta.train.loop.build.schedule_of", lambda job: breaks_at(5))
    assert (
        main(
            [
                "train",
                *JOB,
                "--epochs",
                "5",
                "--lr",
                "1e3",
                "--clip-norm",
                "0.01",
                "--checkpoint-every",
                "1",
                "--out",
                "run",
            ]
        )
        == 1
    )
    captured = capsys.readouterr()
    assert "after step 5 the model has NaN or infinite values" in captured.err
    assert "run/weights.safetensors holds the best model before, of epoch" in captured.err
    run = Path("run")
    assert not (run / "result.json").exists() and len(strict(run / "metrics.jsonl")) == 4
    # no checkpoint holds what is not finite
    assert steps_in(run / "checkpoints")[0][0] == 4
    assert main(["evaluate", "run"]) == 0
    # before the first evaluation there is nothing to keep
    monkeypatch.setattr("graphtheta.train.loop.build.schedule_of", lambda job: breaks_at(1))
    assert (
        main(
            ["train", *JOB, "--epochs", "1", "--lr", "1e3", "--clip-norm", "0.01", "--out", "none"]
        )
        == 1
    )
    assert (
        "holds the best model" not in capsys.readouterr().err
        and not Path("none/weights.safetensors").exists()
    )


def test_files_of_a_run_with_undefined_metrics_are_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("graphtheta.train.loop.prepare.load", lambda *_, **keys: one_class())
    assert (
        main(
            [
                "train",
                "--dataset",
                "sbm",
                "--backend",
                "reference",
                "--epochs",
                "2",
                "--trace",
                "--out",
                "run",
            ]
        )
        == 0
    )
    captured = capsys.readouterr()
    assert (
        captured.err.count(
            "auc of the val set is not defined (NaN): all its known labels are of one class"
        )
        == 1
    )
    result, *_ = strict(Path("run/result.json"))
    assert result["metrics"]["val_auc"] is None and result["metrics"]["test_auc"] is not None
    for path in (*Path("run").glob("*.json"), *Path("run").glob("*.jsonl")):
        strict(path)
    # the report reads them
    assert np.isnan(read_run(Path("run")).rows[0]["val_auc"])
    assert main(["report", "run"]) == 0


def one_class() -> gt.Graph:
    graph = gt.load("sbm:n_nodes=80,n_edges=300,classes=2,features=4")
    y = graph.y.copy()
    y[graph.val] = 1
    return graph.replace(y=y)


def test_what_is_not_defined_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    def said(graph: gt.Graph, **keys: Any) -> list[str]:
        caplog.clear()
        for size in (1, 2):
            run_simulated(
                size,
                lambda comm: gt.Trainer("gcn", graph, comm=comm, epochs=3, **KEYS, **keys).fit(),
            )
        texts = [text for text in caplog.messages if "not defined" in text]
        assert len(texts) == 2 * len(set(texts))
        return sorted(set(texts))

    assert said(one_class()) == [
        "auc of the val set is not defined (NaN): all its known labels are of one class"
    ]
    values = one_class()
    y = np.random.default_rng(0).normal(size=(80, 1)).astype(np.float32)
    y[values.val] = 7
    values = values.replace(y=y, n_classes=None)
    assert said(values) == [
        "r2 of the val set is not defined (NaN): all its targets of a column are equal"
    ]
    assert not said(gt.load("sbm:n_nodes=80,n_edges=300,classes=2,features=4"))


def test_of_equal_metrics_a_loss_that_is_nan_is_the_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = gt.Trainer("gcn", one_class(), epochs=4, **KEYS)
    measure = trainer.measure
    losses = iter([np.nan, 0.6, np.nan, 0.7])
    monkeypatch.setattr(
        trainer,
        "measure",
        lambda: measure() | {"val_accuracy": 0.9, "val_loss": next(losses)},
    )
    assert trainer.fit().best_epoch == 2


@pytest.mark.parametrize("weight", [0.0, np.nan])
def test_an_audit_of_a_dead_network_says_so(
    weight: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Outputs that are all equal do not tell old values from new ones."""
    graph = gt.load("sbm:n_nodes=80,n_edges=300,classes=2,features=4")

    def program(comm: Any) -> list[dict[str, float]]:
        trainer = gt.Trainer(
            "gcn",
            graph,
            comm=comm,
            exchange="pipegcn",
            partitioner="1d-dst",
            audit=1,
            epochs=2,
            **KEYS,
        )
        found = []
        for value in (None, weight):
            for p in trainer.model.parameters():
                p.value = p.value if value is None else np.full_like(p.value, value)
            run = Progress()
            trainer._audit(run)
            found.append(run.audit)
        return found

    for alive, dead in run_simulated(2, program):
        assert (
            np.isfinite([alive[name] for name in ERRORS]).all()
            and np.isnan([dead[name] for name in ERRORS]).all()
        )
    (text,) = [text for text in caplog.messages if "the network has died" in text]
    assert ("are NaN or infinite" if np.isnan(weight) else "are the same for all targets") in text
