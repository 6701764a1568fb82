"""Names instead of codes: classes of predictions, and categories of columns, as texts from an
import to the last table.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.simulated import run_simulated

NAMES = ["a,b", "näive", 'so "far"\r\n']
GRAPH = graphs.random_graph(60, 260, node_ids=np.array([f"n{i}" for i in range(60)])).replace(
    meta={"class_names": NAMES}
)
KEYS: dict[str, Any] = {"epochs": 0, "hidden": 5, "dtype": "float64", "backend": "reference"}


def write(comm: Any, folder: Path, form: str) -> Any:
    run = gt.Trainer("sage", GRAPH, comm=comm, **KEYS)
    run.write_predictions(folder / form, form)
    return run.predictions()


@pytest.mark.parametrize("size", [1, 3])
def test_every_format_has_the_class_of_each_row(size: int, tmp_path: Path) -> None:
    rows, *_ = (run_simulated(size, write, tmp_path, form)[0] for form in ("csv", "parquet", "npy"))
    wanted = dict(
        zip(rows.ids.tolist(), [NAMES[k] for k in rows.values.argmax(axis=1)], strict=True)
    )
    assert len(wanted) == 60 and len(set(wanted.values())) > 1
    assert dict(zip(rows.ids.tolist(), rows.classes.tolist(), strict=True)) == wanted
    found: dict[str, dict[str, str]] = {form: {} for form in ("csv", "parquet", "npy")}
    for rank in range(size):
        part = f"part-{rank:05}-of-{size:05}"
        with (tmp_path / "csv" / f"{part}.csv").open(newline="", encoding="utf-8") as file:
            head, *lines = csv.reader(file)
        assert head == ["id", "class", *(f"probability_{name}" for name in NAMES)]
        found["csv"] |= {line[0]: line[1] for line in lines}
        table = pq.read_table(tmp_path / "parquet" / f"{part}.parquet")
        assert table.column_names == ["id", "class", "probability"]
        found["parquet"] |= dict(
            zip(table["id"].to_pylist(), table["class"].to_pylist(), strict=True)
        )
        ids, classes = (
            np.load(tmp_path / "npy" / f"{part}.{name}.npy").tolist() for name in ("id", "class")
        )
        found["npy"] |= dict(zip(ids, classes, strict=True))
    assert found == dict.fromkeys(found, wanted)
    assert json.loads((tmp_path / "npy" / "_SUCCESS").read_text())["columns"] == NAMES


def test_classes_follow_the_threshold_and_are_numbers_without_names() -> None:
    graph = GRAPH.replace(y=GRAPH.y % 2, meta={"class_names": NAMES})
    found = [
        gt.Trainer("sage", graph, **KEYS, threshold=threshold, positive=1).predictions()
        for threshold in ("0.5", "0.999999")
    ]
    assert (
        np.array_equal(found[0].classes, found[0].values.argmax(axis=1)) and found[0].columns == ()
    )
    assert not found[1].classes.any() and found[0].classes.any()


def test_from_texts_in_a_table_to_names_in_every_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    teams = ("red", "green", "blue")
    edges = pa.table(
        {
            "from": rng.integers(0, 30, 90),
            "to": rng.integers(0, 30, 90),
            "how": [("car", "bus")[k % 2] for k in range(90)],
        }
    )
    nodes = pa.table(
        {
            "id": range(30),
            "age": rng.normal(size=30),
            "team": [teams[i % 3] for i in range(30)],
            "part": [("train", "val", "test")[i % 5 // 2] for i in range(30)],
        }
    )
    gt.import_graph(
        edges,
        nodes,
        to="s",
        src="from",
        dst="to",
        edge_columns="how",
        id="id",
        features="age",
        label="team",
        split="part",
    )
    graph = gt.load("s")
    assert graph.class_names == ("blue", "green", "red") and graph.categories("edge", "how") == (
        "bus",
        "car",
    )
    assert main(["info", "--dataset", "s"]) == 0
    shown = capsys.readouterr().out
    assert "blue, green, red" in shown and "how int32 (bus, car)" in shown
    assert (
        main(
            [
                "train",
                "--dataset",
                "s",
                "--epochs",
                "1",
                "--hidden",
                "4",
                "--backend",
                "reference",
                "--out",
                "run",
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert main(["evaluate", "run", "--classes", "--on", "test"]) == 0
    assert "green" in capsys.readouterr().out
    assert main(["predict", "run", "--to", "p.csv"]) == 0 and main(["predict", "run"]) == 0
    with open("p.csv", newline="") as file:
        head, *lines = csv.reader(file)
    assert head == ["id", "class", *(f"probability_{name}" for name in ("blue", "green", "red"))]
    with np.load("run/predictions.npz") as saved:
        assert saved["class"].tolist() == [line[1] for line in lines] and saved[
            "columns"
        ].tolist() == ["blue", "green", "red"]


def test_a_column_of_relations_names_them() -> None:
    part = np.array([0, 0, 0, 0, 1, 2])
    graph = gt.Graph(
        ([0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]),
        5,
        edge_columns={"relation": [0, 1, 0, 1, 0, 1]},
        edge_train=part == 0,
        edge_val=part == 1,
        edge_test=part == 2,
        meta={"edge_categories": {"relation": ["is", "has"]}},
    )
    trainer = gt.Trainer("gcn", graph, task="triple", embedding=4, self_loops="no", **KEYS)
    assert {name for name, _ in gt.relation_report(trainer)} == {"has"}
