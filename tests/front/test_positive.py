"""The positive class of two: its default, its key, what follows it, and where its name stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError
from graphtheta.graph.store.from_graph import write_store
from graphtheta.inference.grown import trained as trained_file
from graphtheta.inference.grown.trained import Trained
from graphtheta.run.checkpoints.weights import read_saved, write_weights
from graphtheta.tasks.evaluation.threshold import Threshold

pytestmark = pytest.mark.reference

N = 90
RNG = np.random.default_rng(3)
SRC, DST = RNG.integers(0, N, (2, 400))
KEYS: dict[str, Any] = {
    "hidden": 4,
    "backend": "reference",
    "dtype": "float64",
    "epochs": 3,
    "scores": "logits",
}
METRICS = ("f1", "auc", "average_precision")


def graph(
    names: tuple[str, str] | None = ("fraud", "ok"), share: float = 0.2, **fields: Any
) -> gt.Graph:
    """A fifth of the nodes are of the first class, which sorts first."""
    y = (np.random.default_rng(1).random(N) >= share).astype(np.int64)
    masks = {name: np.arange(N) % 3 == i for i, name in enumerate(("train", "val", "test"))}
    x = np.random.default_rng(2).normal(size=(N, 3)) + y[:, None]
    meta = {} if names is None else {"class_names": list(names)}
    return gt.Graph(
        (SRC, DST), N, **{"x": x, "y": y, "n_classes": 2, "meta": meta, **masks, **fields}
    )


def trained(
    comm: Any = None, of: gt.Graph | None = None, **keys: Any
) -> tuple[gt.Result, Any, Any, np.ndarray | None]:
    trainer = gt.Trainer("gcn", graph() if of is None else of, comm=comm, **{**KEYS, **keys})
    result = trainer.fit()
    predicted = trainer.predict()
    return (
        result,
        trainer.class_report(),
        trainer.trained(),
        None if predicted is None else predicted[1],
    )


def wanted(out: np.ndarray, positive: int, mask: np.ndarray, threshold: float = 0.5) -> list[float]:
    skl = pytest.importorskip("sklearn.metrics")
    p = np.exp(out - out.max(axis=1, keepdims=True))
    p = (p / p.sum(axis=1, keepdims=True))[mask, positive]
    y = graph().y[mask] == positive
    return [
        skl.f1_score(y, p > threshold),
        skl.roc_auc_score(y, p),
        skl.average_precision_score(y, p),
    ]


@pytest.mark.one_in(13)
@pytest.mark.parametrize("key, positive", [("auto", 0), ("fraud", 0), ("ok", 1), ("0", 0), (1, 1)])
@pytest.mark.parametrize("threshold", ["0.5", "0.3"])
def test_metrics_are_those_of_the_positive_class(key: Any, positive: int, threshold: str) -> None:
    for size in (1, 3):
        result, report, facts, out = run_simulated(
            size, trained, positive=key, threshold=threshold
        )[0]
        assert (
            result.positive == report.positive == ("fraud", "ok")[positive]
            and facts.positive == positive
        )
        found = [result.metrics[f"test_{name}"] for name in METRICS]
        assert found == pytest.approx(wanted(out, positive, graph().test, float(threshold)))
        assert result.metrics["test_f1"] == pytest.approx(report.splits["test"].f1[positive])


@pytest.mark.parametrize("share, name", [(0.2, "a"), (0.8, "b"), (0.5, "b")])
def test_the_default_is_the_rarer_class_of_the_training_rows(share: float, name: str) -> None:
    of = graph(("a", "b"))
    y = of.y.copy()
    rows = np.flatnonzero(of.train)
    y[rows] = np.arange(len(rows)) >= share * len(rows)
    # other rows do not count
    y[~of.train] = 0 if share < 0.5 else 1
    y[np.flatnonzero(of.val)[:5]] = 1 - y[np.flatnonzero(of.val)[0]]
    for size in (1, 2):
        assert run_simulated(size, trained, of.replace(y=y), epochs=0)[0][0].positive == name
    numbered = of.replace(y=y, meta={})
    assert trained(of=numbered, epochs=0)[0].positive == str(int(name == "b"))


def test_ties_of_outputs_are_decided_alike() -> None:
    """A network whose outputs are all equal predicts the first class, in every metric."""
    trainer = gt.Trainer("gcn", graph(), **KEYS)
    for p in trainer.model.parameters():
        p.value = np.zeros_like(p.value)
    for positive in (0, 1):
        trainer.setup.evaluator.positive = positive
        assert trainer.measure()["test_f1"] == pytest.approx(
            trainer.class_report().splits["test"].f1[positive], nan_ok=True
        )


@pytest.mark.parametrize(
    "keys, fields, words",
    [
        (
            {"positive": "frau"},
            {},
            r"no such class \(did you mean 'fraud'\?\); the classes are fraud, ok",
        ),
        ({"positive": "2"}, {"meta": {}}, "no such class; the classes are 0, 1"),
        (
            {"positive": "1"},
            {"y": np.arange(N) % 3, "n_classes": 3, "meta": {}},
            "one of two classes, but the data has 3 classes",
        ),
        (
            {"positive": "1"},
            {"y": np.ones((N, 1), np.float32) / 3, "n_classes": None, "meta": {}},
            "the data has real values",
        ),
        (
            {"positive": "1"},
            {"y": np.ones((N, 2), np.float32), "n_classes": None, "multilabel": True, "meta": {}},
            "several labels",
        ),
        ({"positive": ""}, {}, "expected the name of a class"),
        ({"positive": ["fraud"]}, {}, "expected the name of a class"),
        ({"positive": "fraud", "task": "link"}, {}, "positive=fraud has no meaning with task=link"),
    ],
)
def test_what_does_not_fit_is_an_error(
    keys: dict[str, Any], fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        gt.Trainer("gcn", graph(**fields), **KEYS, **keys)


def test_on_another_graph_it_follows_the_name(tmp_path: Path) -> None:
    trainer = gt.Trainer("gcn", graph(), **KEYS, threshold="f1")
    trainer.fit()
    want = trainer.measure()
    # the same nodes, whose classes sort the other way, with fewer of the other class in training
    other = graph(("ok", "fraud"))
    other = other.replace(y=1 - graph().y)
    found = trainer.on(other)
    assert found.positive == "fraud" and found.class_report().positive == "fraud"
    assert [found.measure()[f"test_{name}"] for name in METRICS] == pytest.approx(
        [want[f"test_{name}"] for name in METRICS]
    )
    # the other class, at the same decisions
    turned = gt.Inference(
        job=trainer.job.change(positive="ok"),
        trained=trainer.trained(),
        graph=graph,
        comm=trainer.comm,
        make=lambda *_: trainer.model,
        arrays={},
    )
    assert turned.positive == "ok"
    report = turned.class_report()
    before = trainer.class_report()
    assert report.splits == before.splits and report.thresholds == pytest.approx(
        [1 - before.thresholds[0]]
    )


@pytest.mark.parametrize("cut", [50.0, -50.0])
def test_chosen_thresholds_that_round_to_0_or_1_decide(cut: float) -> None:
    """As probabilities they are 1 and 2e-22."""
    y = np.array([0, 0, 1, 1])
    out = np.stack((np.zeros(4), cut + np.array([-20.0, -10, 10, 20])), axis=1)
    for positive in (1, 0):
        rows = np.ones(4, bool)
        decided, chosen = Threshold(goal="f1").decided(SerialComm(), y, out, rows, positive)
        assert decided.argmax(axis=1).tolist() == y.tolist()
        carried = Threshold(tuple(chosen.tolist()))
        again, _ = carried.decided(SerialComm(), y, np.sign(out) * 100, rows, positive)
        assert again.argmax(axis=1).tolist() == [int(cut > 0)] * 4


@pytest.mark.usefixtures("without_charts")
def test_the_commands_and_files_say_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_store(graph(), Path("graph.store"), SerialComm())
    job = ["--dataset", "graph.store", "--backend", "reference", "--epochs", "2"]
    assert main(["train", *job, "--out", "run"]) == 0
    assert "positive class: fraud" in capsys.readouterr().out
    assert json.loads(Path("run/result.json").read_text())["positive"] == "fraud"
    assert main(["evaluate", "run"]) == 0
    by_default = capsys.readouterr().out
    assert "positive class: fraud" in by_default
    assert main(["evaluate", "run", "--positive", "ok"]) == 0
    assert "positive class: ok" in capsys.readouterr().out
    assert main(["evaluate", "run", "--dataset", "graph.store"]) == 0
    assert "positive class: fraud" in capsys.readouterr().out
    assert main(["report", "run"]) == 0
    assert "the positive class, fraud" in Path("run/report.html").read_text()
    Path("job.yaml").write_text(
        "dataset: graph.store\nbackend: reference\nepochs: 1\npositive: ok\n"
    )
    assert main(["train", "--config", "job.yaml", "--out", "other"]) == 0
    assert json.loads(Path("other/result.json").read_text())["positive"] == "ok"
    assert main(["train", *job, "--positive", "bad", "--out", "none"]) == 2
    assert "the classes are fraud, ok" in capsys.readouterr().err
    capsys.readouterr()
    assert main(["train", *job, "--seeds", "2", "--out", "seeds"]) == 0
    assert json.loads(Path("seeds/result.json").read_text())["positive"] == "fraud"
    # a run of a version without the key has the metrics of the second class
    lines = Path("run/job.yaml").read_text().splitlines(keepends=True)
    Path("run/job.yaml").write_text(
        "".join(line for line in lines if not line.startswith("positive:"))
    )
    saved = read_saved("run/weights.safetensors")
    facts = json.loads(saved.trained)
    del facts["positive"]
    write_weights(
        Path("run/weights.safetensors"), saved.job, saved.weights, trained=json.dumps(facts)
    )
    for more in ([], ["--dataset", "graph.store"]):
        assert main(["evaluate", "run", *more]) == 0
        assert "positive class: ok" in capsys.readouterr().out
    assert Trained.read_from(json.dumps(facts), "").positive == trained_file.EARLIER_POSITIVE


def test_a_resumed_run_of_an_earlier_version_keeps_its_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {**KEYS, "out": str(tmp_path / "run"), "checkpoint_every": 1, "resume": True}
    dump = gt.Job.model_dump

    def earlier(job: gt.Job, **options: Any) -> dict[str, Any]:
        return {key: value for key, value in dump(job, **options).items() if key != "positive"}

    with monkeypatch.context() as patch:
        patch.setattr(gt.Job, "model_dump", earlier)
        first = gt.Trainer("gcn", graph(), **keys).fit()
    assert first.positive == "fraud"
    trainer = gt.Trainer("gcn", graph(), **{**keys, "epochs": 5})
    assert trainer.fit().positive == "ok"
    with pytest.raises(ConfigError, match=r"positive=fraud, but the run in .* has positive=auto"):
        gt.Trainer("gcn", graph(), **{**keys, "epochs": 6, "positive": "fraud"}).fit()
