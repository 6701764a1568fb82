"""A kind of task from outside the package: labels, width, metrics and predictions are its own, the
same on any ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError

FILE = Path(__file__).with_name("task_kind.py")
N = 80
KEYS = {
    "epochs": 60,
    "hidden": 8,
    "backend": "reference",
    "dtype": "float64",
    "lr": 0.05,
    "dropout": 0.1,
    "weight_decay": 0,
}


@pytest.fixture(autouse=True)
def left_as_found() -> Iterator[None]:
    before = set(gt.TASKS)
    yield
    for name in set(gt.TASKS) - before:
        del gt.TASKS[name]


def graph(**fields: object) -> gt.Graph:
    """Four classes in a row along one feature, and edges between nodes that are close; some nodes
    without a class.
    """
    rng = np.random.default_rng(0)
    place = np.sort(rng.random(N))
    src = rng.integers(0, N, 4 * N)
    dst = np.clip(src + rng.integers(-3, 4, 4 * N), 0, N - 1)
    part = rng.integers(0, 3, N)
    y = (place * 4).astype(int)
    y[part == 2] = np.where(rng.random(N)[part == 2] < 0.5, y[part == 2], -1)
    x = np.stack((place, np.ones(N)), axis=1)
    return gt.Graph(
        (src, dst),
        N,
        **{
            "x": x,
            "y": y,
            "train": part == 0,
            "val": part == 1,
            "test": (part == 2) & (y >= 0),
            **fields,
        },
    )


@pytest.mark.parametrize(
    "keys", [{}, {"strategy": "mini", "batch_size": 7, "fanout": "3"}], ids=["global", "sampled"]
)
def test_the_same_on_any_ranks(keys: dict[str, object]) -> None:
    def program(comm):
        trainer = gt.Trainer(
            "sage", graph(), comm=comm, task=f"{FILE}:Ordinal", **{**KEYS, "epochs": 5}, **keys
        )
        result = trainer.fit()
        return [row["loss"] for row in result.history], result.metrics, trainer.predict()

    losses, metrics, (ids, classes) = run_simulated(1, program)[0]
    for found in (three := run_simulated(3, program)):
        np.testing.assert_allclose(found[0], losses, rtol=1e-10)
        assert found[1] == pytest.approx(metrics, rel=1e-9)
    np.testing.assert_array_equal(three[0][2][0], ids)
    np.testing.assert_array_equal(three[0][2][1], classes)
    assert {"test_f1_micro", "test_f1_macro", "test_auc", "val_loss"} <= set(
        metrics
    ) and "test_accuracy" not in metrics


def test_classes_are_learned_and_predicted() -> None:
    g = graph()
    trainer = gt.Trainer("sage", g, task=f"{FILE}:Ordinal", **KEYS)
    trainer.fit()
    ids, classes = trainer.predict()
    np.testing.assert_array_equal(ids, np.arange(N))
    assert classes.shape == (N,) and set(classes) == {0, 1, 2, 3}
    assert np.mean(classes[g.test] == g.y[g.test]) > 0.8


def test_it_is_chosen_by_name_and_not_by_auto() -> None:
    gt.Trainer("gcn", graph(), task=f"{FILE}:Ordinal", **KEYS)
    assert gt.Trainer("gcn", graph(), task="ordinal", **KEYS).setup.kind.width == 3
    assert gt.Trainer("gcn", graph(), **KEYS).setup.kind.name == "node"
    with pytest.raises(
        ConfigError,
        match=r"unknown kind of task 'ordnal' \(did you mean 'ordinal'\?\); allowed: auto, node",
    ):
        gt.Job(task="ordnal")


def test_bad_input_is_refused() -> None:
    gt.Trainer("gcn", graph(), task=f"{FILE}:Ordinal", **KEYS)
    with pytest.raises(
        ConfigError,
        match=(
            "metric=accuracy does not measure task=ordinal; give --task node, or another --metric"
        ),
    ):
        gt.Job(task="ordinal", metric="accuracy")
    with pytest.raises(ConfigError, match="negatives=3 has no meaning with task=ordinal"):
        gt.Job(task="ordinal", negatives=3)
    with pytest.raises(
        ConfigError,
        match="negatives=3 has no meaning with task=ordinal; drop --negatives, or give --task link",
    ):
        gt.Trainer("gcn", graph(), task=f"{FILE}:Ordinal", negatives=3, **KEYS)
    with pytest.raises(DataError, match="task 'ordinal' needs one class per node"):
        gt.Trainer("gcn", graph(y=np.arange(N) / N), task="ordinal", **KEYS)


def test_the_commands_take_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    g = graph()
    np.savez(
        "mine.npz",
        edge_index=g.edge_index,
        **{field: getattr(g, field) for field in ("x", "y", "train", "val", "test")},
    )
    job = (
        "--dataset",
        "mine.npz",
        "--split",
        "public",
        "--task",
        f"{FILE}:Ordinal",
        "--backend",
        "reference",
    )
    assert main(["train", *job, "--epochs", "2", "--out", "run"]) == 0
    assert main(["predict", "run", "--to", "classes.csv", "--trust"]) == 0
    head, *rows = Path("classes.csv").read_text().splitlines()
    assert (
        head == "id,prediction"
        and len(rows) == N
        and {row.split(",")[1] for row in rows} <= set("0123")
    )
