"""What users receive of predictions: probabilities or logits, of the nodes that have targets or of
all, by their own ids, in the columns that they choose, in every format.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.special import expit, softmax

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError
from graphtheta.inference.outputs.predictions import COLUMNS, DEFAULT_COLUMNS

pytestmark = pytest.mark.reference

KEYS = {"epochs": 1, "hidden": 4, "dtype": "float64", "backend": "reference", "keep": 0}
DRAWN = np.random.default_rng(0)
N = 40
PART = np.arange(N) % 4
MASKS = {"train": PART == 0, "val": PART == 1, "test": PART == 2}
ENDS = DRAWN.integers(0, N, (2, 150))
X = DRAWN.normal(size=(N, 3))
CLASSES = np.where(np.arange(N) % 8 == 7, -1, np.arange(N) % 3)
LABELS = np.where(X > 0, 1.0, 0.0)
IDS = [f"n{i}" for i in range(N)]
NAMES = {"class_names": ["cat", "dog, wild", "ünit"]}
PAPERS = gt.Graph(
    {("author", "writes", "paper"): ENDS, ("paper", "cites", "paper"): ENDS[::-1]},
    x={"author": X, "paper": X[:, :2]},
    y={"paper": CLASSES},
    **{name: {"paper": mask} for name, mask in MASKS.items()},
    node_ids={kind: [f"{kind[0]}:{i}" for i in range(N)] for kind in ("author", "paper")},
    meta=NAMES,
)
TASKS: dict[str, tuple[str, gt.Graph, dict[str, Any]]] = {
    "classes": ("sage", gt.Graph(ENDS, x=X, y=CLASSES, **MASKS, node_ids=IDS, meta=NAMES), {}),
    "labels": ("sage", gt.Graph(ENDS, x=X, y=LABELS, **MASKS, multilabel=True), {}),
    "values": ("sage", gt.Graph(ENDS, x=X, y=X[:, :1] * 3, **MASKS), {}),
    "link": ("sage", gt.Graph(ENDS, x=X), {"task": "link"}),
    "types": ("rgcn", PAPERS, {}),
    "threshold": (
        "sage",
        gt.Graph(ENDS, x=X, y=np.arange(N) % 2, **MASKS),
        {"threshold": 0.9, "positive": "1"},
    ),
}


def made(name: str, comm: Any = None, **keys: Any) -> gt.Trainer:
    model, graph, task = TASKS[name]
    trainer = gt.Trainer(model, graph, comm=comm, **{**KEYS, **task, **keys})
    trainer.fit()
    return trainer


def all_columns(name: str) -> str:
    absent = {"labels": {"class", "confidence"}, "values": {"class", "confidence"}}
    of_links = {"class", "confidence", "label", "split"}
    left_out = of_links if name == "link" else absent.get(name, set())
    return ",".join(column for column in COLUMNS if column not in left_out)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", TASKS)
def test_probabilities_are_those_of_logits_on_any_number_of_workers(name: str) -> None:
    def program(comm: Any) -> Any:
        shown, raw = (made(name, comm, scores=scores) for scores in ("probabilities", "logits"))
        columns = all_columns(name)
        return shown.predictions(columns=columns), raw.predict(), shown.predict()

    first = None
    for size in (1, 2, 3):
        rows, (ids, logits), (_, shares) = run_simulated(size, program)[0]
        kind = {"classes": "classes", "types": "classes", "threshold": "classes"}.get(name, name)
        of = {"classes": lambda x: softmax(x, axis=1), "values": lambda x: x}.get(kind, expit)
        np.testing.assert_allclose(rows.values, of(logits), rtol=1e-12)
        np.testing.assert_array_equal(rows.values, shares)
        assert rows.name == ("prediction" if name == "values" else "probability")
        assert len(ids) == len(rows.ids)
        if first is None:
            first = rows
        np.testing.assert_allclose(rows.values, first.values, rtol=1e-9)
        for column, values in rows.fields.items():
            if values.dtype.kind != "f":
                np.testing.assert_array_equal(values, first.fields[column])
        if rows.classes is not None:
            codes = rows.classes
            if len(rows.columns):
                codes = np.array([rows.columns.index(name) for name in rows.classes])
            of_class = rows.values[np.arange(len(codes)), codes]
            np.testing.assert_array_equal(rows.others["confidence"], of_class)
            if name != "threshold":
                np.testing.assert_array_equal(codes, rows.values.argmax(axis=1))


def test_only_nodes_of_the_type_that_has_labels_by_their_own_ids(tmp_path: Path) -> None:
    trainer = made("types")
    rows = trainer.predictions(columns="label,split")
    assert rows.ids.tolist() == [f"p:{i}" for i in range(N)]
    names = np.append(NAMES["class_names"], "")
    np.testing.assert_array_equal(rows.others["label"], names[CLASSES])
    splits = np.array(["train", "val", "test", ""])
    np.testing.assert_array_equal(rows.others["split"], splits[PART])
    every = trainer.predictions(nodes="all")
    assert every.ids.tolist() == PAPERS.original_ids.tolist()
    ids, some = trainer.predict()
    assert ids.tolist() == [f"paper:p:{i}" for i in range(N)]
    np.testing.assert_array_equal(some, trainer.predict("all")[1][PAPERS.nodes_of("paper")])
    # ids that are asked for may be those of any type
    np.testing.assert_allclose(
        trainer.predict(["author:a:3", "paper:p:0"])[1], trainer.predict("all")[1][[3, N]]
    )
    # a graph without labels has the targets of the training
    trainer.save(tmp_path / "weights.safetensors")
    bare = PAPERS.replace(y=None, train=None, val=None, test=None)
    assert trainer.on(bare).predict()[0].tolist() == ids.tolist()


def test_whole_graphs_have_a_row_each() -> None:
    pairs = [gt.Graph([[0], [1]], x=X[2 * i : 2 * i + 2]) for i in range(5)]
    every = np.ones(5, bool)
    molecules = gt.whole_graphs(pairs, np.arange(5) % 2, ids=[*"vwxyz"], train=every)
    trainer = gt.Trainer("gin", molecules, **KEYS, readout="sum")
    rows = trainer.predictions()
    assert rows.ids.tolist() == [*"vwxyz"] and rows.values.shape == (5, 2)
    assert len(trainer.predictions(nodes="all").ids) == molecules.n_nodes == 15


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("form", ["csv", "parquet", "npy", "file.csv", "file.npz"])
def test_every_format_has_the_same(
    name: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphtheta.inference.outputs.file import write_file

    trainer = made(name)
    columns = all_columns(name)
    rows = trainer.predictions(columns=columns)
    if form.startswith("file"):
        write_file(tmp_path / form, rows)
        # an earlier output is replaced, whatever its columns were
        write_file(tmp_path / form, trainer.predictions())
        write_file(tmp_path / form, rows)
    else:
        trainer.write_predictions(tmp_path / "out", form, columns=columns)
    fields = {"id": rows.ids, **rows.fields}
    part = tmp_path / "out" / "part-00000-of-00001"
    if form == "npy":
        found = {key: np.load(f"{part}.{key}.npy") for key in fields}
    elif form == "file.npz":
        with np.load(tmp_path / form) as saved:
            found = {key: saved[key] for key in fields}
    elif form == "parquet":
        table = pq.read_table(f"{part}.parquet")
        found = {
            key: np.array(table[key].to_pylist()) for key in fields if key in table.schema.names
        }
    else:
        path = tmp_path / form if form.startswith("file") else Path(f"{part}.csv")
        with path.open(newline="", encoding="utf-8") as file:
            titles, *lines = csv.reader(file)
        width = sum(1 if x.ndim == 1 else x.shape[1] for x in rows.flat.values())
        assert len(titles) == len(set(titles)) == width and len(lines) == len(rows.ids)
        first = titles.index(f"{rows.name}_0") if f"{rows.name}_0" in titles else None
        last = np.array([line[-1] for line in lines])
        found = {"split": last} if "split" in fields else {}
        assert first is None or float(lines[0][first]) == rows.values.reshape(len(lines), -1)[0, 0]
    for key, values in found.items():
        np.testing.assert_array_equal(values, fields[key])


def test_the_form_of_earlier_versions() -> None:
    """Logits of all nodes, under the earlier titles."""
    rows = made("types", scores="logits").predictions(nodes="all")
    assert (rows.name, len(rows.ids), rows.written) == ("prediction", 2 * N, ("class", "values"))
    assert DEFAULT_COLUMNS == ("class", "scores")


@pytest.mark.parametrize(
    "name, asked, message",
    [
        ("classes", {"columns": "klass"}, "unknown column 'klass' \\(did you mean 'class'"),
        ("classes", {"columns": "class,class"}, "class is given twice"),
        ("classes", {"columns": "id"}, "nothing is written beside the ids"),
        ("classes", {"columns": ""}, "unknown column ''"),
        ("classes", {"nodes": "papers"}, "nodes='papers': choose from targets, all"),
        ("labels", {"columns": ["class"]}, "task=node have no class .* choose from id, scores"),
        ("values", {"columns": "confidence"}, "task=node have no confidence"),
        ("link", {"columns": "label"}, "task=link have no label .* choose from id, scores$"),
        ("link", {"nodes": "all"}, "those of pairs of nodes; drop --nodes"),
    ],
)
def test_choices_that_a_task_does_not_have(
    name: str, asked: dict[str, Any], message: str, tmp_path: Path
) -> None:
    def program(comm: Any) -> bool:
        model, graph, task = TASKS[name]
        trainer = gt.Trainer(model, graph, comm=comm, **{**KEYS, **task})
        for call in (
            lambda: trainer.predictions(**asked),
            lambda: trainer.write_predictions(tmp_path / "out", "csv", **asked),
        ):
            with pytest.raises(ConfigError, match=message):
                call()
        return True

    assert run_simulated(2, program) == [True] * 2
    assert not (tmp_path / "out").exists()


def test_through_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "--dataset sbm:n_nodes=60,n_edges=200,classes=3 --epochs 1 --hidden 4"
    train = ["train", *words.split(), "--backend", "reference", "--out", "run"]
    assert main([*train, "--save-predictions", "--scores", "logits"]) == 0
    with np.load("run/predictions.npz") as saved:
        logits = saved["prediction"]
    # the run keeps the key, which can be changed
    ask = ["predict", "run", "--scores", "probabilities", "--to", "p.csv"]
    assert main([*ask, "--columns", "class,confidence,label,split"]) == 0
    titles, *lines = Path("p.csv").read_text().splitlines()
    assert titles == "id,class,confidence,label,split" and len(lines) == 60
    most = softmax(logits, axis=1).max(axis=1)
    np.testing.assert_allclose([float(line.split(",")[2]) for line in lines], most, rtol=1e-5)
    assert main(ask) == 0
    assert Path("p.csv").read_text().startswith("id,class,probability_0,probability_1")
    capsys.readouterr()
    for wrong in (["--columns", "klass"], ["--nodes", "some"], ["--embed", "--columns", "class"]):
        assert main(["predict", "run", *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_matrices_and_curves_of_the_class_report() -> None:
    """The same numbers on any number of workers, and those of scikit-learn."""
    metrics = pytest.importorskip("sklearn.metrics")

    def program(comm: Any) -> Any:
        trainer = made("classes", comm)
        return trainer.class_report(), trainer.predictions(columns="class,label,split,scores")

    reports = [run_simulated(size, program)[0] for size in (1, 2, 3)]
    report, rows = reports[0]
    assert all(other == report for other, _ in reports)
    for i, split in enumerate(("train", "val", "test")):
        chosen = (i == PART) & (CLASSES >= 0)
        names = NAMES["class_names"]
        said = [names.index(name) for name in rows.classes[chosen]]
        true = CLASSES[chosen]
        matrix = metrics.confusion_matrix(true, said, labels=range(3))
        np.testing.assert_array_equal(report.confusion[split], matrix)
        for code, points in enumerate(report.curves[split]):
            for threshold, precision, recall in points:
                above = rows.values[chosen, code] > threshold
                right = true == code
                assert precision == pytest.approx(right[above].mean())
                assert recall == pytest.approx(above[right].mean())
            assert not points or points[0][2] == 1
    of_labels = made("labels").class_report()
    assert of_labels.confusion == {} and len(of_labels.curves["test"]) == 3
    assert made("values").class_report().curves == {}


@pytest.mark.parametrize("labels", ["values", "several labels"])
def test_types_with_labels_are_told_on_a_worker_without_nodes(labels: str, tmp_path: Path) -> None:
    y = X[:, :1] if labels == "values" else LABELS
    graph = gt.Graph(
        {("author", "writes", "paper"): ENDS},
        x={"author": X, "paper": X},
        y={"paper": y},
        multilabel=labels != "values",
        **{name: {"paper": mask} for name, mask in MASKS.items()},
    )
    np.save(tmp_path / "owners.npy", np.zeros(graph.n_nodes, np.int64))

    def program(comm: Any) -> Any:
        trainer = gt.Trainer(
            "sage", graph, comm=comm, **KEYS, masters=f"file:path={tmp_path}/owners.npy"
        )
        trainer.fit()
        return trainer.predict()

    (ids, one), (other_ids, two) = run_simulated(1, program)[0], run_simulated(2, program)[0]
    assert len(ids) == N
    np.testing.assert_array_equal(ids, other_ids)
    np.testing.assert_allclose(one, two, rtol=1e-9)
