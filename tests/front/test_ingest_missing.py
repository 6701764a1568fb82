"""Features of true and false, dates and missing values, from text and from typed files alike."""

from __future__ import annotations

import datetime
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from follows import imported, stored

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError, GraphThetaError
from graphtheta.importing.fields import statistics
from graphtheta.importing.fields.dates import PARTS, encoded
from graphtheta.importing.tables import binary, text

EDGES = {"src": [0, 1], "dst": [1, 2]}
UTC = datetime.timezone(datetime.timedelta(0))
# times of which the day, the day of the week (Monday is 0) and the month (January is 0) are known
DATES = {
    "1970-01-01T00:00:00": (0.0, 3, 0),
    "1969-12-31T23:59:59": (-1 / 86_400, 2, 11),
    "1900-02-28T12:00:00": (-25_508.5, 2, 1),
    "2000-02-29T00:00:00": (11_016.0, 1, 1),
    "2024-02-29T06:00:00": (19_782.25, 3, 1),
    "1600-02-29T00:00:00": (-135_081.0, 1, 1),
}


def columns(n=60):
    """Columns with missing values, by name; and the types of a typed table."""
    rng = np.random.default_rng(3)
    lacks = rng.random((5, n)) < 0.2
    given = {
        "age": [round(float(x), 3) for x in rng.normal(40, 10, n)],
        "visits": rng.integers(0, 4, n).tolist(),
        "paid": (rng.random(n) < 0.5).tolist(),
        "joined": [
            datetime.date(1960, 1, 1) + datetime.timedelta(int(x))
            for x in rng.integers(0, 20_000, n)
        ],
        "city": [("Oslo", "Rome", 'a "b", c')[k] for k in rng.integers(0, 3, n)],
    }
    out = {
        name: [None if lack else value for value, lack in zip(values, lacks[i], strict=True)]
        for i, (name, values) in enumerate(given.items())
    }
    out["part"] = [("train", "val", "test", "train")[i % 4] for i in range(n)]
    return out


def as_text(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return ("No", "YES")[value]
    return '"' + value.replace('"', '""') + '"' if isinstance(value, str) else str(value)


def written(folder, given, kind):
    """A table of nodes in a file, and edges between the first of them."""
    path = folder / f"nodes.{kind}"
    given = {"id": list(range(len(next(iter(given.values()))))), **given}
    if kind == "parquet":
        pq.write_table(pa.table(given), path, row_group_size=17)
    else:
        rows = [
            ",".join(given),
            *(",".join(map(as_text, row)) for row in zip(*given.values(), strict=True)),
        ]
        path.write_text("\n".join(rows) + "\n")
    return path


def dense(store):
    graph = gt.load(store)
    return graph.x.read_begin(np.arange(graph.n_nodes)).end()


def reference(given, rule, split, scale=False):
    """The same features by plain NumPy, without the names."""
    train = np.array([part == "train" for part in given["part"]])
    rows = train if split else np.ones(len(train), bool)
    out, marks = [], []
    for name in ("age", "visits", "paid", "joined"):
        raw = [
            (x - datetime.date(1970, 1, 1)).days if isinstance(x, datetime.date) else x
            for x in given[name]
        ]
        x = np.array([np.nan if value is None else float(value) for value in raw])
        lacks = np.isnan(x)
        if rule == "mean":
            x[lacks] = x[rows & ~lacks].mean()
        elif rule == "mode":
            values, counts = np.unique(x[rows & ~lacks], return_counts=True)
            x[lacks] = values[np.argmax(counts)]
        numbers = encoded(x) if name == "joined" else x[:, None]
        plain = encoded(np.where(lacks, np.nan, x)) if name == "joined" else numbers
        if scale:
            used = plain[rows & ~lacks]
            numbers = (numbers - used.mean(axis=0)) / used.std(axis=0)
        out.append(np.where(np.isnan(numbers), 0, numbers))
        marks.append(lacks)
    return np.concatenate(out, axis=1), np.stack(marks, axis=1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rule", ["mean", "mode", "zero", "own"])
@pytest.mark.parametrize("split", [False, True])
def test_missing_values_are_those_of_the_rule_in_every_format(rule, split, tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK", 300)
    given = columns()
    options = {
        "features": ["age", "visits", "paid", "joined"],
        "one_hot": ["city"],
        "split": ["part"] if split else [],
        "missing": {"": rule, "city": "mode" if rule == "mean" else rule},
        "missing_indicator": rule == "mode",
        "name": "g",
    }
    stores = {}
    for kind in ("csv", "parquet"):
        path = written(tmp_path, given, kind)
        made = [
            imported(EDGES, path, tmp_path / f"{kind}{size}", size, **options) for size in (1, 2)
        ]
        assert stored(made[0]) == stored(made[1])
        stores[kind] = dense(made[0])
    np.testing.assert_array_equal(stores["csv"], stores["parquet"])
    numbers, marks = reference(given, rule, split)
    if rule in ("own", "mode"):
        city = np.array([value is None for value in given["city"]])[:, None]
        marks = np.concatenate([marks, city], axis=1) if rule == "mode" else marks
        numbers = np.concatenate([numbers, marks], axis=1)
    x = stores["csv"]
    np.testing.assert_allclose(x[:, : numbers.shape[1]], numbers, rtol=1e-5, atol=1e-5)
    names = gt.load(tmp_path / "csv1").meta["one_hot"]["city"]
    assert names == sorted(["Oslo", "Rome", 'a "b", c'] + ["(other)"] * (rule == "own"))
    inside = [i for i, part in enumerate(given["part"]) if part == "train" or not split]
    counts = {name: sum(given["city"][i] == name for i in inside) for name in names}
    absent = {"own": "(other)", "zero": None}.get(
        rule, min(names, key=lambda name: (-counts[name], name))
    )
    wanted = [[name == (city or absent) for name in names] for city in given["city"]]
    np.testing.assert_array_equal(x[:, numbers.shape[1] :], np.array(wanted, np.float32))
    lacking = gt.load(tmp_path / "csv1").meta["import"]["missing_node_values"]
    assert lacking == {
        name: given[name].count(None) for name in ("age", "visits", "paid", "joined", "city")
    }


def test_scaled_features_are_those_of_the_values_that_are_present(tmp_path):
    given = columns()
    path = written(tmp_path, given, "parquet")
    options = {"features": ["age", "visits", "paid", "joined"], "split": "part", "missing": "mean"}
    x = dense(imported(EDGES, path, tmp_path / "s", 2, **options, scale="standard"))
    wanted, marks = reference(given, "mean", True, scale=True)
    np.testing.assert_allclose(x, wanted, rtol=1e-4, atol=1e-5)
    assert not x[:, :3][marks[:, :3]].any()


@pytest.mark.parametrize("kind", ["csv", "parquet", "parquet of texts", "zones", "ns"])
def test_dates_before_1970_leap_days_and_zones(kind, tmp_path):
    times = list(DATES)[: 5 if kind == "ns" else 6]
    since = [datetime.datetime.fromisoformat(when) for when in times]
    if kind == "zones":
        # the same moments, told in a zone of three hours and a half
        zone = datetime.timezone(datetime.timedelta(hours=3, minutes=30))
        since = [when.replace(tzinfo=UTC).astimezone(zone) for when in since]
        times = [when.isoformat() for when in since]
    given = {"when": times if kind != "ns" else pa.array(since, pa.timestamp("ns"))}
    if kind == "parquet":
        given = {"when": since}
    path = written(tmp_path, given, "csv" if kind in ("csv", "zones") else "parquet")
    x = dense(
        imported(
            EDGES,
            path,
            tmp_path / "s",
            2,
            features="when",
            **({"types": {"when": "time_s"}} if kind == "parquet of texts" else {}),
        )
    )
    for row, (day, weekday, month) in zip(x, DATES.values(), strict=False):
        angles = 2 * np.pi * np.array([weekday / 7, month / 12])
        wanted = [day, *np.stack([np.sin(angles), np.cos(angles)], axis=1).ravel()]
        np.testing.assert_allclose(row, np.array(wanted, np.float32), rtol=1e-6, atol=1e-6)
    assert x.shape[1] == len(PARTS)


def test_the_last_microsecond_of_a_day_is_of_that_day(tmp_path):
    last = pa.array(
        [int(np.datetime64("2023-12-31T23:59:59.999999999").astype("int64"))] * 3,
        pa.timestamp("ns"),
    )
    x = dense(imported(EDGES, {"id": [0, 1, 2], "when": last}, tmp_path / "s", features="when"))
    np.testing.assert_allclose(x[0, 1:3], [np.sin(12 * np.pi / 7), np.cos(12 * np.pi / 7)], 1e-6)
    np.testing.assert_allclose(x[0, 3:], [np.sin(22 * np.pi / 12), np.cos(22 * np.pi / 12)], 1e-6)


@pytest.mark.parametrize(
    "values",
    [
        ["yes", "no", "Yes", "NO"],
        ["true", "False", "TRUE", "false"],
        ["Y", "n", "y", "N"],
        [" yes", "no ", "1", "0"],
        [True, False, True, False],
        [1, 0, 1, 0],
        [1.0, 0.0, 1.0, 0.0],
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("is_stated", [False, True])
def test_true_and_false_in_any_words(values, kind, is_stated, tmp_path):
    if kind == "csv":
        (tmp_path / "n.csv").write_text(
            "id,paid\n" + "".join(f"{i},{value}\n" for i, value in enumerate(values))
        )
        path = tmp_path / "n.csv"
    else:
        path = written(tmp_path, {"paid": values}, "parquet")
    options = {"types": {"paid": "bool"}} if is_stated else {}
    x = dense(imported(EDGES, path, tmp_path / "s", 2, features="paid", **options))
    assert x[:, 0].tolist() == [1, 0, 1, 0]


# what is given, the options, and what is said of it; files are nodes.csv and nodes.parquet
FAULTS = {
    "a bool that is 2": (
        {"paid": ["yes", "no", "2"]},
        {"features": "paid", "types": {"paid": "bool"}},
        r"nodes.(csv, line 4|parquet, row 3): column 'paid': '2' is not true or false"
        r"(.|\n)*--types COLUMN:float",
    ),
    "a number that is a text": (
        {"age": ["1.5", "old", "2"]},
        {"features": "age", "missing": "mean"},
        r"nodes.(csv, line 3|parquet, row 2): column 'age': 'old' is not a number",
    ),
    "a day that is none": (
        {"when": ["2024-02-29", "2023-02-29", "2024-01-01"]},
        {"features": "when", "types": {"when": "time_s"}},
        r"nodes.(csv, line 3|parquet, row 2): column 'when': '2023-02-29' is not a time",
    ),
    "a missing number": (
        {"age": [1.5, None, 2.0]},
        {"features": "age"},
        r"nodes.(csv, line 3|parquet, row 2): column 'age' has no value"
        r"(.|\n)*--missing mean or --missing COLUMN=own",
    ),
    "a missing date": (
        {"when": [datetime.date(2020, 1, 1), None, datetime.date(2020, 1, 1)]},
        {"features": "when"},
        r"nodes.(csv, line 3|parquet, row 2): column 'when' has no value(.|\n)*--missing",
    ),
    "a missing name beside means": (
        {"city": ["Oslo", None, "Rome"], "age": [1.0, 2.0, 3.0]},
        {"one_hot": "city", "features": "age", "missing": "mean"},
        r"nodes.(csv, line 3|parquet, row 2): column 'city' has no value(.|\n)*COLUMN=own",
    ),
    "no value of which there is a mean": (
        {"age": [None, None, None]},
        {"features": "age", "types": {"age": "float"}, "missing": "mean"},
        r"nodes.(csv|parquet): column 'age' has no value in any row, so that it has no mean; give"
        r" --missing age=zero",
    ),
    "no value in training rows": (
        {"age": [1.0, None, None], "part": ["test", "train", "train"]},
        {"features": "age", "split": "part", "missing": "mode"},
        r"column 'age' has no value in any training row, so that it has no mode",
    ),
    "an infinite number": (
        {"age": [1.0, float("inf"), 2.0]},
        {"features": "age", "missing": "mean"},
        r"nodes.(csv, line 3|parquet, row 2): column 'age': inf is no float32 number",
    ),
    "a huge integer": (
        {"n": ["16777217", "5", "6"]},
        {"features": "n", "missing": "zero"},
        r"column 'n' has integers such as \d+, which float32 would round",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_mistake_names_its_row_and_the_remedy(name, kind, tmp_path):
    given, options, said = FAULTS[name]
    path = written(tmp_path, given, kind)
    for size in (1, 2):
        with pytest.raises(DataError, match=said):
            imported(EDGES, path, tmp_path / f"s{size}", size, **options)


def test_rows_of_wrong_values_are_skipped_and_do_not_count(tmp_path):
    given = {"age": ["1.5", "old", "", "4.5", "9"], "part": ["train", "train", "val", "train", ""]}
    options = {"features": "age", "split": "part", "missing": "mean", "on_bad_row": "skip"}
    for kind in ("csv", "parquet"):
        path = written(tmp_path, given, kind)
        store = imported({"src": [0], "dst": [2]}, path, tmp_path / f"{kind}", 2, **options)
        assert dense(store)[:, 0].tolist() == [1.5, 3.0, 4.5, 9.0]
        assert gt.load(store).meta["import"]["bad_node_rows"] == 1


@pytest.mark.parametrize("size", [1, 2])
def test_many_different_values_have_no_mode_on_any_number_of_workers(size, monkeypatch):
    monkeypatch.setattr(statistics, "MOST_CLASSES", 3)

    def mode(comm, n_different):
        frequencies = statistics.Frequencies("age")
        values = np.arange(8.0)[comm.rank :: size] % n_different
        frequencies.add(pa.array(values), np.zeros(len(values), bool))
        return frequencies.agree(comm)

    assert run_simulated(size, partial(mode, n_different=3)) == [(0.0, False)] * size
    with pytest.raises(DataError, match=r"more than 3 different values.*give --missing age=mean"):
        run_simulated(size, partial(mode, n_different=6))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"missing": "median"}, "unknown rule 'median'.*allowed: error, mean, mode, zero, own"),
        ({"missing": "agee=mean"}, r"'agee' is no column of .*\(did you mean 'age'\?\)"),
        ({"missing": "city=mean"}, "'city' is no column of numbers, .*give city=own or city=mode"),
        ({"missing": "age=mean,age=zero"}, "two rules for the same columns; drop one of them"),
        ({"missing": "mean,zero"}, "two rules for the same columns; drop one of them"),
        ({"missing_indicator": True}, "are errors; say what stands for them"),
        ({"missing": "note=zero", "node_columns": "note"}, "named columns are stored as they are"),
        ({"rename": {"alter": "age"}}, "no table has the column 'alter'"),
        ({"rename": {"note": "age"}}, "there is a column 'age' already; rename it as well"),
        ({"rename": {"note": "a", "city": "a"}}, "two columns get the same name"),
        (
            {"missing": "mean", "split": ["part", "again"]},
            "a mean or mode for missing values .* needs one training set",
        ),
    ],
    ids=str,
)
def test_options_that_do_not_fit(options, said, tmp_path):
    given = {"age": [1.0, None], "city": ["a", "b"], "note": ["x", "y"], "part": ["", "train"]}
    nodes = {"id": [0, 1], **given, "again": given["part"]}
    with pytest.raises(ConfigError, match=said):
        imported(
            {"src": [0], "dst": [1]},
            nodes,
            tmp_path / "s",
            **{"features": "age", "one_hot": "city", **options},
        )


def test_edge_attributes_and_named_texts(tmp_path):
    edges = {
        "src": [0, 1, 2, 0],
        "dst": [1, 2, 0, 2],
        "price": [1.0, None, 3.0, 100.0],
        "how": ["mail", "mail", None, "phone"],
        "part": ["train", "train", "train", "test"],
    }
    nodes = {"id": [0, 1, 2], "kind": ["a", None, "b"]}
    options = {
        "edge_attr": "price",
        "edge_columns": "how",
        "edge_split": "part",
        "node_columns": "kind",
        "missing": {"": "own", "price": "mean", "how": "mode"},
        "missing_indicator": True,
    }
    graph = gt.load(imported(edges, nodes, tmp_path / "s", 2, **options))
    assert graph.edge_attr.tolist() == [[1, 0], [2, 1], [3, 0], [100, 0]]
    assert graph.edge_columns["how"].tolist() == [0, 0, 0, 1]
    assert graph.categories("node", "kind") == ("(other)", "a", "b")
    assert graph.node_columns["kind"].tolist() == [1, 0, 2]


def test_lists_with_missing_ones(tmp_path):
    nodes = pa.table({"id": [0, 1, 2], "v": pa.array([[1.0, 2.0], None, [3.0, 6.0]])})
    for rule, row in {"mean": [2, 4], "zero": [0, 0], "own": [0, 0, 1]}.items():
        x = dense(imported(EDGES, nodes, tmp_path / rule, 2, features="v", missing=rule))
        assert x[1].tolist() == row
    with pytest.raises(DataError, match=r"row 2: column 'v' has no list(.|\n)*--missing zero"):
        imported(EDGES, nodes, tmp_path / "bad", features="v")


def test_masks_in_any_order_say_which_rows_are_training(tmp_path):
    nodes = {
        "id": [0, 1, 2],
        "x": [1.0, None, 9.0],
        "test": [True, False, False],
        "train": [False, False, True],
    }
    for scale, wanted in (("none", [1.0, 9.0, 9.0]), ("standard", [0.0, 0.0, 0.0])):
        store = imported(
            EDGES,
            nodes,
            tmp_path / scale,
            features="x",
            split=["test", "train"],
            missing="mean",
            scale=scale,
        )
        assert dense(store)[:, 0].tolist() == wanted


def test_names_are_the_same_in_all_formats(tmp_path):
    """Numbers and bools that are names do not depend on how a format writes them."""
    given = {"grade": [1.0, 2.0, 3.5], "paid": [True, False, True]}
    (tmp_path / "n.csv").write_text("id,grade,paid\n0,1.0,True\n1,2.0,False\n2,3.5,TRUE\n")
    names = []
    for nodes in (tmp_path / "n.csv", {"id": [0, 1, 2], **given}):
        store = imported(EDGES, nodes, tmp_path / f"{len(names)}", one_hot=["grade", "paid"])
        names.append(gt.load(store).meta["one_hot"])
    assert names[0] == names[1] == {"grade": ["1", "2", "3.5"], "paid": ["false", "true"]}


@pytest.mark.parametrize("kind", ["csv", "parquet", "memory"])
def test_renamed_columns(kind, tmp_path):
    given = {"alter": [1.0, 2.0, 3.0], "Stadt": ["a", "b", "a"]}
    nodes = (
        {"id": [0, 1, 2], **given, "junk": [object()] * 3}
        if kind == "memory"
        else written(tmp_path, given, kind)
    )
    edges = {"von": [0, 1], "dst": [1, 2]}
    options = {
        "rename": {"alter": "age", "Stadt": "city", "von": "src"},
        "features": "age",
        "one_hot": "city",
    }
    store = imported(edges, nodes, tmp_path / "s", 2, **options)
    assert dense(store).tolist() == [[1, 1, 0], [2, 0, 1], [3, 1, 0]]
    with pytest.raises(GraphThetaError, match="there is no column 'alter'"):
        imported(edges, nodes, tmp_path / "bad", **{**options, "features": "alter"})


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(binary, "ROWS", 16)


@pytest.mark.parametrize("values", ["1,NULL,2", "true,nan,FALSE", "2.5,#N/A,-1", None])
def test_missing_numbers_and_bools_are_no_names(values, tmp_path):
    nodes = {"id": [1, 2, 3], "kind": pa.array([1.0, np.nan, 2.0])}
    if values is not None:
        nodes = tmp_path / "nodes.csv"
        rows = zip((1, 2, 3), values.split(","), strict=True)
        nodes.write_text("id,kind\n" + "".join(f"{i},{value}\n" for i, value in rows))
    options = {"one_hot": "kind", "missing": "own", "to": tmp_path / "store"}
    graph = gt.load(gt.import_graph({"src": [1], "dst": [2]}, nodes, **options))
    names = graph.meta["one_hot"]["kind"]
    assert len(names) == 3 and names[np.asarray(graph.x)[1].argmax()] == "(other)"


def test_masked_values_in_memory_are_missing(tmp_path):
    nodes = {
        "id": [1, 2, 3],
        "age": np.ma.masked_array([1.0, 9.0, 2.0], mask=[0, 1, 0]),
        "kind": np.ma.masked_array(["a", "a", "b"], mask=[0, 1, 0]),
    }
    edges = {"src": [1, 2], "dst": [2, 3]}
    options = {"features": "age", "missing": "zero", "label": "kind"}
    gt.import_graph(edges, nodes, to=tmp_path / "store", **options)
    graph = gt.load(tmp_path / "store")
    assert np.asarray(graph.x)[:, 0].tolist() == [1, 0, 2] and graph.y.tolist() == [0, -1, 1]
    edges["src"] = np.ma.masked_array([1, 2], mask=[1, 0])
    with pytest.raises(DataError, match="edges, row 1: column 'src' has no id"):
        gt.import_graph(edges, nodes, to=tmp_path / "other", **options)
