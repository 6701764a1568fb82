"""An import that takes what another one found: the same columns of other tables."""

from __future__ import annotations

import json
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from follows import imported, stored

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.store.manifest import Manifest, read_manifest

OPTIONS = {
    "src": "from",
    "dst": "to",
    "edge_attr": "amount",
    "edge_columns": "how",
    "id": "account",
    "features": ["age", "paid", "joined"],
    "one_hot": ["city", "grade"],
    "label": "team",
    "split": "part",
    "node_columns": "kind",
    "scale": "standard",
    "missing": {"age": "mean", "joined": "mode", "city": "own", "grade": "zero", "amount": "own"},
    "missing_indicator": True,
    "types": {"paid": "bool"},
}


def month(n=40, seed=0, cities=("Oslo", "Rome"), **others):
    """Tables of accounts and transfers between them; ``others`` replaces columns."""
    rng = np.random.default_rng(seed)
    nodes = {
        "account": [f"a{i}" for i in range(n)],
        "age": [
            None if i % 7 == 1 else round(float(x), 2) for i, x in enumerate(rng.normal(size=n))
        ],
        "paid": [("yes", "no")[i] for i in rng.integers(0, 2, n)],
        "joined": [None if i % 9 == 2 else f"20{10 + i % 9}-02-0{1 + i % 8}" for i in range(n)],
        "city": [None if i % 5 == 0 else cities[i % len(cities)] for i in range(n)],
        "grade": [None if i % 8 == 3 else i % 3 for i in range(n)],
        "kind": [("person", "firm")[i % 2] for i in range(n)],
        "team": [("red", "blue")[i % 2] for i in range(n)],
        "part": [("train", "val", "test")[i % 3] for i in range(n)],
        **others,
    }
    ends = rng.integers(0, n, (2, 3 * n))
    edges = {
        "from": [f"a{i}" for i in ends[0]],
        "to": [f"a{i}" for i in ends[1]],
        "amount": [None if i % 4 == 0 else float(i % 10) for i in range(3 * n)],
        "how": [("phone", "mail")[i % 2] for i in range(3 * n)],
    }
    return edges, {name: values for name, values in nodes.items() if values is not None}


def in_files(folder, tables, kind, name="new"):
    """The tables as files; paths of edges and nodes."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{name}-{table}.{kind}" for table in ("edges", "nodes")]
    for path, columns in zip(paths, tables, strict=True):
        if kind == "parquet":
            pq.write_table(pa.table(columns), path, row_group_size=11)
            continue
        rows = [columns, *zip(*columns.values(), strict=True)]
        path.write_text(
            "".join(",".join("" if x is None else str(x) for x in row) + "\n" for row in rows)
        )
    return paths


@pytest.fixture
def trained(tmp_path):
    """The store of the first month."""
    return imported(*in_files(tmp_path, month(), "csv", "old"), tmp_path / "old.store", **OPTIONS)


def dense(store):
    graph = gt.load(store)
    return graph.x.read_begin(np.arange(graph.n_nodes)).end()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_same_tables_become_the_same_store(kind, trained, tmp_path):
    tables = in_files(tmp_path, month(), kind)
    for size in (1, 2):
        again = imported(*tables, tmp_path / f"s{size}", size, like=trained, name="new")
    assert stored(again) == stored(tmp_path / "s1")
    first = stored(trained)
    assert {name: data for name, data in stored(again).items() if name != "store.json"} == {
        name: data for name, data in first.items() if name != "store.json"
    }
    assert (
        read_manifest(again).meta["recipe"]["fields"]
        == (read_manifest(trained).meta["recipe"]["fields"])
    )
    # and of that one again
    third = imported(*tables, tmp_path / "third", like=again)
    assert dense(third).tolist() == dense(trained).tolist()


def test_tables_of_several_splits_take_the_statistics_of_one(trained, tmp_path):
    """A scale, means and most frequent values of their own need one training set."""
    edges, nodes = month(again=[("test", "train", "val")[i % 3] for i in range(40)])
    tables = in_files(tmp_path, (edges, nodes), "csv")
    splits = {"split": ["part", "again"]}
    for size in (1, 2):
        store = imported(*tables, tmp_path / f"s{size}", size, like=trained, **splits)
        assert dense(store).tolist() == dense(trained).tolist()
    assert stored(store) == stored(tmp_path / "s1")
    second = gt.load(store, split_index=1)
    assert np.array_equal(second.train, np.arange(40) % 3 == 1)
    with pytest.raises(ConfigError, match="one training set"):
        imported(*tables, tmp_path / "alone", **OPTIONS | splits)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_next_month_has_the_columns_of_the_last_one(kind, trained, tmp_path):
    """Names, scales and fillings are those of the first tables, whatever the new ones hold."""
    tables = month(
        n=9,
        seed=1,
        cities=("Lima", "Rome", "Quito"),
        age=[None] * 8 + [1e6],
        joined=[None] * 9,
        kind=["firm"] * 9,
        team=None,
        part=None,
    )
    new = imported(*in_files(tmp_path, tables, kind), tmp_path / f"{kind}.store", 2, like=trained)
    old, graph = gt.load(trained), gt.load(new)
    for key in ("one_hot", "feature_scale", "node_categories", "edge_categories"):
        assert graph.meta[key] == old.meta[key]
    assert graph.n_features == old.n_features and graph.y is None and graph.train is None
    assert set(graph.node_columns["kind"]) == {0}
    x, scale = dense(new), old.meta["feature_scale"]
    assert not x[:8, 0].any()
    assert np.isclose(x[8, 0], (1e6 - scale["mean"][0]) / scale["deviation"][0])
    mode = read_manifest(trained).meta["recipe"]["fields"]["nodes"]["x"]["parts"][0]["fill"][2]
    assert np.allclose(x[:, 2], (mode - scale["mean"][2]) / scale["deviation"][2], rtol=1e-5)
    # missing cities and those that are unknown are of the category of their own
    names = old.meta["one_hot"]["city"]
    assert names == ["(other)", "Oslo", "Rome"]
    begin = graph.n_features - 3 - len(names)
    known = [city if city == "Rome" else "(other)" for city in tables[1]["city"]]
    assert [names[k] for k in x[:, begin : begin + 3].argmax(axis=1)] == known
    assert graph.meta["import"]["unknown_node_names"] == {
        "city": sum(c in ("Lima", "Quito") for c in tables[1]["city"])
    }
    assert graph.meta["import"]["missing_node_values"]["age"] == 8


def test_unknown_names_without_a_category_are_zeros(tmp_path):
    edges = {"src": [0], "dst": [1]}
    old = imported(edges, {"id": [0, 1], "city": ["Oslo", "Rome"]}, tmp_path / "a", one_hot="city")
    new = imported(edges, {"id": [0, 1], "city": ["Lima", "Rome"]}, tmp_path / "b", 2, like=old)
    assert dense(new).tolist() == [[0, 0], [0, 1]]
    assert gt.load(new).meta["import"]["unknown_node_names"] == {"city": 1}


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    "grades", [[1.0, 2.0, None], ["1.0", "2.0", None], ["1", "2", ""]], ids=str
)
def test_numbers_that_are_names_stay_the_same_names(grades, size, tmp_path):
    """Integers with missing ones are floats in pandas, which a text file shows as 1.0."""
    edges = {"src": [0], "dst": [1]}
    first = {"id": [0, 1, 2], "grade": [2, 1, None]}
    old = imported(edges, first, tmp_path / "a", one_hot="grade", missing="zero")
    new = imported(edges, {"id": [0, 1, 2], "grade": grades}, tmp_path / "b", size, like=old)
    assert dense(new).tolist() == [[1, 0], [0, 1], [0, 0]]


TIMES = [datetime(2020, 1, 1, 12, 0, 0, 500_000), datetime(2021, 2, 1)]
# the same times in other tables: texts, or arrays of a unit
FORMS = {
    "dates": pa.array(TIMES, pa.timestamp("us")).cast(pa.date32(), safe=False),
    "seconds": pa.array([time.replace(microsecond=0) for time in TIMES], pa.timestamp("s")),
    "microseconds": pa.array(TIMES, pa.timestamp("us")),
    "nanoseconds": pa.array(TIMES, pa.timestamp("ns", "UTC")),
    "texts": [f"{TIMES[0]}", f"{TIMES[1]}"],
    "texts of dates": ["2020-01-01", "2021-02-01"],
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("first", FORMS)
def test_dates_as_features_may_come_in_another_unit(first, tmp_path):
    edges = {"src": [0], "dst": [1]}

    def store(form, name, **options):
        nodes = {"id": [0, 1], "joined": FORMS[form]}
        paths = in_files(tmp_path, (edges, nodes), "csv" if "texts" in form else "parquet", name)
        return imported(*paths, tmp_path / f"{name}.store", **options)

    old = store(first, "old", features="joined")
    for form in FORMS:
        plain, new = (
            store(form, f"{kind} {form}", **options)
            for kind, options in (("plain", {"features": "joined"}), ("new", {"like": old}))
        )
        assert dense(new).tolist() == dense(plain).tolist()
    store("texts", "stated", like=old, types={"joined": "time"})


@pytest.mark.parametrize(
    "column, option, words",
    [
        ([1, 2], "features", ("int", "float", "bool")),
        ([0, 1], "label", ("int",)),
        (["a", "b"], "one_hot", ("text",)),
        ([0, 1], "node_columns", ("int",)),
    ],
)
def test_types_may_be_stated_if_they_give_the_same_columns(column, option, words, tmp_path):
    edges = {"src": [0], "dst": [1]}
    old = imported(edges, {"id": [0, 1], "c": column}, tmp_path / "a", **{option: "c"})
    for word in ("int", "float", "bool", "text", "time", "time_s"):
        given = {"like": old, "types": {"c": word}}
        nodes = {"id": [0, 1], "c": [1, 1] if word == "bool" and word in words else column}
        if word in words:
            imported(edges, nodes, tmp_path / word, **given)
        else:
            with pytest.raises(ConfigError, match=r"types \(--types\): 'c' is"):
                imported(edges, nodes, tmp_path / word, **given)


# what the new tables have instead, further options, and what is said
FAULTS = {
    "a column that is missing": (
        {"age": None},
        {},
        r"new-nodes.csv: there is no column 'age'; the columns are .*old.store \(--like\) have it:"
        r" add it, or say which column it is with --rename OLD=NEW",
    ),
    "a bool that is 2": (
        {"paid": ["yes", "no", "2"]},
        {},
        r"new-nodes.csv, line 4: column 'paid': '2' is not true or false",
    ),
    "a class that is new": (
        {"team": ["red", "green", "blue"]},
        {},
        r"new-nodes.csv, line 3: column 'team': .*old.store does not know 'green'; it knows blue,"
        r" red\n(.|\n)*or the label; or import the tables of the store again",
    ),
    "a name of a named column that is new": (
        {"kind": ["firm", "firm", "bank"]},
        {},
        r"new-nodes.csv, line 4: column 'kind': .*old.store does not know 'bank'",
    ),
    "a name where the other import had none missing": (
        {"kind": ["firm", None, "firm"]},
        {},
        r"new-nodes.csv, line 3: column 'kind' has no value",
    ),
    "another column": (
        {},
        {"features": ["age"]},
        r"features \(--features\) is that of .*old.store",
    ),
    "another rule": ({}, {"missing": "zero"}, r"missing \(--missing\) is that of"),
    "another rule of a column": ({}, {"missing": "city=mode"}, r"missing \(--missing\) is that of"),
    "another scale": ({}, {"scale": "none"}, r"scale \(--scale\) is that of"),
    "another type of a feature": (
        {},
        {"types": {"age": "time"}},
        r"types \(--types\): 'age' is float in .*old.store \(--like\), and not time; leave",
    ),
    "another type of labels": ({}, {"types": {"team": "int"}}, r"'team' is text in .*old.store"),
    "another type of an attribute": ({}, {"types": {"amount": "text"}}, "'amount' is float in"),
    "a column that is to be renamed": (
        {},
        {"rename": {"alter": "age"}},
        "no table has the column 'alter'",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_mistake_names_its_row_and_the_remedy(name, trained, tmp_path):
    others, options, said = FAULTS[name]
    paths = in_files(tmp_path, month(n=3, **others), "csv")
    for size in (1, 2):
        with pytest.raises((DataError, ConfigError), match=said):
            imported(*paths, tmp_path / f"s{size}", size, like=trained, **options)


def test_labels_and_splits_may_be_others_or_none(trained, tmp_path):
    paths = in_files(tmp_path, month(team=["green"] * 40, part=None, fold=["test"] * 40), "csv")
    graph = gt.load(imported(*paths, tmp_path / "s", like=trained, label=[], split="fold"))
    assert graph.y is None and graph.test.all()
    skipped = imported(*paths, tmp_path / "t", like=trained, label=None, on_bad_row="skip")
    assert gt.load(skipped).n_nodes == 40
    with pytest.raises(DataError, match="there is no column 'part'"):
        imported(*paths, tmp_path / "u", like=trained, label=None, split="part")


def test_renamed_columns_and_those_of_wrong_rows(trained, tmp_path):
    edges, nodes = month()
    nodes["alter"] = nodes.pop("age")
    new = imported(edges, nodes, tmp_path / "s", 2, like=trained, rename={"alter": "age"})
    assert dense(new).tolist() == dense(trained).tolist()
    # rows that are left out late are observed once more
    nodes["account"] = [*nodes["account"][:-1], "a0"]
    new = imported(
        edges, nodes, tmp_path / "t", 2, like=trained, rename={"alter": "age"}, on_bad_row="skip"
    )
    assert dense(new).tolist() == dense(trained)[:-1].tolist()


LABELS = {
    "classes": ([0, 2, 1], [0, 0, 1], [0, 3, 0], "does not know the class 3; it has 3 classes"),
    "sets of names": (
        [["a"], ["b", "c"], []],
        [["c"], [], None],
        [["d"], [], []],
        "it knows a, b, c",
    ),
    "sets of numbers": ([[0], [2], [1, 2]], [[1], [], None], [[3], [], []], "it knows 0, 1, 2"),
    "matrix": (
        [[0, 1], [1, 1], [0, 0]],
        [[1, 1], [0, 1], None],
        [[0, 2], [0, 1], [1, 1]],
        "it knows",
    ),
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("size", [1, 2])
def test_labels_are_those_of_the_other_store(kind, size, tmp_path):
    first, second, wrong, said = LABELS[kind]
    edges = {"src": [0], "dst": [1]}

    def nodes(label):
        return pa.table({"id": [0, 1, 2], "y": label})

    old = imported(edges, nodes(first), tmp_path / "a", label="y")
    new = imported(edges, nodes(second), tmp_path / "b", size, like=old)
    one, other = gt.load(old), gt.load(new)
    assert (one.label_kind, one.n_classes, one.class_names) == (
        other.label_kind,
        other.n_classes,
        other.class_names,
    )
    assert one.y.shape == other.y.shape
    with pytest.raises(DataError, match=rf"row [12]: column 'y'.*{said}"):
        imported(edges, nodes(wrong), tmp_path / "c", size, like=old)


def test_sparse_features_have_the_width_of_the_other_store(tmp_path):
    edges = {"src": [0], "dst": [1]}

    def nodes(at):
        return pa.table({"id": [0, 1], "at": at, "value": [[1.0] * len(row) for row in at]})

    old = imported(edges, nodes([[7], [1]]), tmp_path / "a", sparse_features=["at", "value"])
    new = gt.load(imported(edges, nodes([[0], [1, 2]]), tmp_path / "b", 2, like=old))
    assert new.n_features == 8
    with pytest.raises(DataError, match=r"row 2: column 'at' has a number outside 0..7"):
        imported(edges, nodes([[0], [8]]), tmp_path / "c", like=old)


def test_what_is_no_store_of_tables_is_refused(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    edges, nodes = month(n=3)
    whole = imported(gt.load("ring:n=10"), None, tmp_path / "whole")
    cases = {
        "nowhere": "nowhere is neither a store nor the folder of a run",
        str(whole): r"whole does not say how columns .*import its tables again with `graphtheta",
    }
    # a store of an earlier version
    old = read_manifest(trained)
    meta = {key: value for key, value in old.meta.items() if key != "recipe"}
    earlier = Manifest(**{**old.model_dump(), "meta": meta, "checksum": None})
    (trained / "store.json").write_text(earlier.text())
    cases[str(trained)] = "old.store does not say how columns of tables became its own"
    run = tmp_path / "run"
    run.mkdir()
    (run / "job.yaml").write_text("dataset: cora\n")
    cases[str(run)] = "run was trained on 'cora', which is no store in this folder"
    for like, said in cases.items():
        with pytest.raises(ConfigError, match=said):
            imported(edges, nodes, tmp_path / "s", like=like)
    damaged = Manifest(**{**old.model_dump(), "meta": {"recipe": {"options": 3}}, "checksum": None})
    (trained / "store.json").write_text(damaged.text())
    with pytest.raises(gt.errors.FormatError, match="recipe is none"):
        imported(edges, nodes, tmp_path / "s", like=trained)


def test_a_table_of_nodes_and_tables_are_needed(trained, tmp_path):
    edges, _ = month(n=3)
    with pytest.raises(ConfigError, match="made with a table of nodes; give that of the new nodes"):
        imported(edges, None, tmp_path / "s", like=trained)
    with pytest.raises(ConfigError, match=r"like .* is for tables, and this is a whole graph"):
        imported(gt.load("ring:n=10"), None, tmp_path / "t", like=trained)


def test_the_command_trains_on_a_month_and_predicts_the_next(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    in_files(tmp_path, month(), "csv", "january")
    in_files(
        tmp_path,
        month(n=20, seed=1, cities=("Lima", "Rome"), team=None, part=None),
        "csv",
        "february",
    )
    flags = [
        *("--src", "from", "--dst", "to", "--edge-attr", "amount", "--id", "account"),
        *("--features", "age,paid,joined", "--one-hot", "city,grade", "--label", "team"),
        *("--split", "part", "--scale", "standard", "--missing", "mean,city=own,grade=mode"),
        "--missing-indicator",
    ]
    tables = ["--edges", "january-edges.csv", "--nodes", "january-nodes.csv"]
    assert main(["import", *tables, *flags, "--to", "january.store"]) == 0
    said = capsys.readouterr().out
    assert (
        "missing edge values: amount 30\nmissing node values: age 6, joined 5, city 8, grade 5"
        in said
    )
    assert "most frequent values of nodes are those of training rows" in said
    job = ["--dataset", "january.store", "--epochs", "2", "--hidden", "4", "--out", "run"]
    assert main(["train", *job]) == 0
    tables = ["--edges", "february-edges.csv", "--nodes", "february-nodes.csv"]
    assert main(["import", *tables, "--like", "run", "--to", "february.store"]) == 0
    said = capsys.readouterr().out
    assert (
        "unknown node names: city 8" in said
        and "without team, part, which january.store has" in said
    )
    assert main(["predict", "run", "--dataset", "february.store", "--to", "out.csv"]) == 0
    rows = (tmp_path / "out.csv").read_text().splitlines()
    assert len(rows) == 21 and rows[1].split(",")[1] in ("red", "blue")
    recipe = json.loads((tmp_path / "february.store" / "store.json").read_text())["meta"]["recipe"]
    assert recipe["options"]["label"] == []
