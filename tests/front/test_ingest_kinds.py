"""Several splits, sparse features and graphs of several types are imported as they are given."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import libraries
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from follows import COLUMNS, NODES, imported, stored, tables

import graphtheta as gt
from graphtheta.base.typed_rows import TypedRows
from graphtheta.errors import ConfigError, DataError
from graphtheta.importing.fields import one_hot
from graphtheta.importing.tables import binary


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(binary, "ROWS", 50)
    monkeypatch.setattr(binary, "BLOCK", 100)


@pytest.mark.parametrize("kind", ["words", "lists"])
def test_several_splits_of_a_table(kind, tmp_path):
    edges, nodes = tables()
    parts = np.random.default_rng(1).integers(0, 4, (NODES, 3))
    if kind == "words":
        columns = {
            f"part{k}": [("train", "Valid", "test", None)[p] for p in parts[:, k]] for k in range(3)
        }
    else:
        columns = {mask: (parts == i).tolist() for i, mask in enumerate(("train", "val", "test"))}
    for name, values in columns.items():
        nodes = nodes.append_column(name, pa.array(values))
    made = [
        imported(
            edges,
            nodes,
            tmp_path / f"{size}",
            size,
            **{**COLUMNS, "split": list(columns)},
            name="g",
        )
        for size in (1, 2)
    ]
    assert stored(made[0]) == stored(made[1])
    graph = gt.load(made[0], split="stored")
    for i, mask in enumerate(("train", "val", "test")):
        assert np.array_equal(getattr(graph, mask), parts == i)
    assert np.array_equal(gt.load(made[0], split_index=2).val, parts[:, 2] == 1)
    bad = nodes.set_column(
        nodes.column_names.index(next(iter(columns))),
        next(iter(columns)),
        pa.array(
            ["dev"] * 59 + ["tost"] if kind == "words" else [[True, False, False]] * 59 + [[True]]
        ),
    )
    said = (
        "row 60: column 'part0': 'tost' is none of"
        if kind == "words"
        else "row 60: column 'train' has a list of 1 numbers, expected 3"
    )
    with pytest.raises(DataError, match=said):
        imported(edges, bad, tmp_path / "bad", **{**COLUMNS, "split": list(columns)[:1]})
    with pytest.raises(ConfigError, match="one training set"):
        imported(
            edges, nodes, tmp_path / "bad", **{**COLUMNS, "split": list(columns)}, scale="standard"
        )


def test_sparse_features_of_a_table_and_of_a_graph(tmp_path):
    edges, nodes = tables()
    x = sp.random(NODES, 40, 0.1, random_state=1, format="csr", dtype=np.float32)
    parts = {
        name: [values[a:b][::-1].tolist() for a, b in zip(x.indptr[:-1], x.indptr[1:], strict=True)]
        for name, values in (("at", x.indices), ("value", x.data))
    }
    for name, lists in parts.items():
        nodes = nodes.append_column(
            name, pa.array(lists, pa.list_(pa.int32() if name == "at" else pa.float32()))
        )
    names = {**COLUMNS, "features": (), "sparse_features": ["at", "value"], "n_features": 40}
    pq.write_table(nodes, tmp_path / "nodes.parquet", row_group_size=7)
    made = [
        imported(edges, tmp_path / "nodes.parquet", tmp_path / f"{size}", size, **names, name="g")
        for size in (1, 3)
    ]
    assert stored(made[0]) == stored(made[1])
    graph = gt.load(made[0])
    assert graph.has_sparse_features and np.array_equal(graph.x.toarray(), x.toarray())
    ring = gt.load("ring:n=60").replace(x=x)
    assert np.array_equal(
        gt.load(imported(ring, None, tmp_path / "ring", 2)).x.toarray(), x.toarray()
    )
    # rows that are left out leave no gap
    again = pa.concat_tables([nodes.slice(0, 5), nodes])
    graph = gt.load(imported(edges, again, tmp_path / "skip", 2, **names, on_bad_row="skip"))
    assert graph.meta["import"]["bad_node_rows"] == 5 and np.array_equal(
        graph.x.toarray(), x.toarray()
    )


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (
            [[0], [1, 2]],
            [[1.0], [2.0]],
            "row 2: columns 'at' and 'value' have lists of 2 and 1 numbers",
        ),
        ([[0], [1, 9]], [[1.0], [2.0, 3.0]], "row 2: column 'at' has a number outside 0..4"),
        ([[3, 3], [1]], [[1.0, 2.0], [2.0]], "row 1: column 'at' lists a feature twice"),
        (
            [[3], [1]],
            [[1.0], [None]],
            "row 2: column 'value' has a list with numbers that are missing",
        ),
        ([[3], None], [[1.0], [2.0]], "row 2: column 'at' has no list"),
        (
            [[3], [1]],
            [[2**24 + 1], [2]],
            "feature 3 has integers such as 16777217, which float32 would round",
        ),
    ],
)
def test_wrong_sparse_features(at, value, message, tmp_path):
    nodes = pa.table({"id": [1, 2], "at": at, "value": pa.array(value, pa.list_(pa.float64()))})
    with pytest.raises(DataError, match=message):
        imported(
            pa.table({"src": [1], "dst": [2]}),
            nodes,
            tmp_path / "s",
            sparse_features=["at", "value"],
            n_features=5,
        )


def test_one_hot_features(tmp_path):
    edges, nodes = tables()
    nodes = nodes.append_column("grade", pa.array(np.arange(NODES) % 11))
    options = {**COLUMNS, "scale": "standard", "one_hot": ["grade", "kind"], "name": "g"}
    made = [imported(edges, nodes, tmp_path / f"{size}", size, **options) for size in (1, 3)]
    assert stored(made[0]) == stored(made[1])
    graph = gt.load(made[0])
    plain = gt.load(
        imported(edges, nodes, tmp_path / "plain", 1, **{**COLUMNS, "scale": "standard"})
    )
    names = {"grade": sorted(map(str, range(11))), "kind": ["ab", "c"]}
    # the scale is that of all columns
    scale = {
        key: [*plain.meta["feature_scale"][key], *[value] * 13]
        for key, value in (("mean", 0.0), ("deviation", 1.0))
    }
    assert graph.meta["one_hot"] == names and graph.meta["feature_scale"] == scale
    assert graph.categories("node", "kind") == ("ab", "c")
    columns = [
        np.array(names[name])[None] == np.array(nodes.column(name).to_pylist()).astype(str)[:, None]
        for name in names
    ]
    x, numbers = (g.x.read_begin(np.arange(NODES)).end() for g in (graph, plain))
    assert np.array_equal(x, np.concatenate([numbers, *columns], axis=1))
    missing = nodes.set_column(
        nodes.column_names.index("grade"), "grade", pa.array([None, *range(1, NODES)])
    )
    for given, message in (
        (missing, "nodes, row 1: column 'grade' has no value"),
        (
            nodes.set_column(6, "grade", pa.array(np.arange(NODES))),
            "'grade' has 60 different names",
        ),
    ):
        with pytest.raises(DataError, match=message), pytest.MonkeyPatch.context() as patch:
            patch.setattr(one_hot, "MOST_NAMES", 20)
            imported(edges, given, tmp_path / "bad", 2, **options)
    sparse = {"one_hot": "kind", "sparse_features": "f0"}
    for given, message in (
        ({"one_hot": "f0"}, "'f0' is named by features"),
        (sparse, "are all features"),
    ):
        with pytest.raises(ConfigError, match=message):
            imported(edges, nodes, tmp_path / "bad", **{**COLUMNS, **given})


YEARS = np.array([1999, 2001, 2003, 2005, 2007])


class TypedDGL:
    """What is read of a DGL graph of several types."""

    def __init__(self, ends, x, y, train):
        self.ntypes = list(x)
        self.canonical_etypes = list(ends)
        self._ends = ends
        self.nodes = {
            name: SimpleNamespace(data={"feat": rows, "_ID": rows}) for name, rows in x.items()
        }
        self.nodes["a"].data.update({"label": y, "train_mask": train})
        self.nodes["b"].data.update({"year": YEARS})
        self.num_nodes = lambda name: len(x[name])

    @property
    def edges(self):
        class Edges(dict):
            def __call__(inner, etype):
                return tuple(self._ends[etype])

        return Edges(
            {
                relation: SimpleNamespace(data={"time": np.arange(len(pair[0]))})
                for relation, pair in self._ends.items()
            }
        )


@pytest.mark.parametrize("kind", ["gt.Graph", "dgl", pytest.param("pyg", marks=pytest.mark.second)])
def test_heterogeneous_graphs(kind, tmp_path):
    rng = np.random.default_rng(0)
    ends = {
        ("a", "to", "b"): rng.integers(0, 4, (2, 9)),
        ("b", "of", "a"): rng.integers(0, 3, (2, 5)),
    }
    x = {
        "a": rng.normal(size=(4, 2)).astype(np.float32),
        "b": rng.normal(size=(5, 3)).astype(np.float32),
    }
    times = {relation: np.arange(pair.shape[1]) for relation, pair in ends.items()}
    wanted = gt.Graph(
        ends,
        {"a": 4, "b": 5},
        x=x,
        y={"a": np.arange(4)},
        train={"a": np.arange(4) < 2},
        node_columns={"year": {"b": YEARS}},
        edge_columns={"time": times},
    )
    graph = TypedDGL(ends, x, np.arange(4), np.arange(4) < 2) if kind == "dgl" else wanted
    if kind == "pyg":
        torch = pytest.importorskip("torch")
        data = pytest.importorskip("torch_geometric.data")
        graph = data.HeteroData({name: {"x": torch.tensor(rows)} for name, rows in x.items()})
        graph["a"].y, graph["a"].train_mask, graph["b"].year = (
            torch.arange(4),
            torch.arange(4) < 2,
            torch.tensor(YEARS),
        )
        for relation, pair in ends.items():
            graph[relation].edge_index, graph[relation].time = (
                torch.tensor(pair),
                torch.arange(pair.shape[1]),
            )
    found = gt.load(imported(graph, None, tmp_path / "s", 2))
    assert found.node_types == ("a", "b") and found.relations == tuple(ends)
    assert isinstance(wanted.x, TypedRows) and isinstance(found.x, TypedRows)
    assert [block.tolist() for block in found.x.blocks] == [rows.tolist() for rows in x.values()]
    assert np.array_equal(found.x.kind, wanted.x.kind) and found.meta["type_widths"] == [2, 3]
    for field in ("src", "dst", "y", "train"):
        assert np.array_equal(getattr(found, field), getattr(wanted, field))
    for columns in ("node_columns", "edge_columns"):
        given = getattr(wanted, columns)
        assert getattr(found, columns).keys() == given.keys()
        assert all(np.array_equal(getattr(found, columns)[name], given[name]) for name in given)
    with pytest.raises(ConfigError, match="compare edges without their relations"):
        imported(graph, None, tmp_path / "t", duplicates="drop")


@pytest.mark.parametrize("size", [1, 3])
def test_rows_of_several_types_in_any_order(size, tmp_path):
    """Each type has its width, also none, when types alternate and nodes with bad values are left
    out.
    """
    rng = np.random.default_rng(3)
    counts = {"a": 90, "b": 40, "none": 30}
    ends = {("a", "to", "b"): (rng.integers(0, 90, 300), rng.integers(0, 40, 300))}
    graph = gt.Graph(ends, counts, x={"a": rng.normal(size=(90, 2)), "b": rng.normal(size=(40, 5))})
    order = rng.permutation(160)
    given = graph.subset(order).replace(node_ids=order)
    found = gt.load(imported(given, None, tmp_path / "s", size))
    assert [block.shape for block in found.x.blocks] == [(90, 2), (40, 5), (30, 0)]
    assert np.array_equal(found.x.toarray(), given.x.toarray().astype(np.float32))
    bad = given.x.mapped(
        [np.where(np.arange(len(x))[:, None] == 3, np.nan, x) for x in given.x.blocks]
    )
    object.__setattr__(given, "x", bad)
    left = ~np.isnan(bad.toarray()).any(axis=1)
    found = gt.load(imported(given, None, tmp_path / "t", size, on_bad_row="skip"))
    assert [block.shape for block in found.x.blocks] == [(89, 2), (39, 5), (30, 0)]
    assert (
        np.array_equal(found.x.toarray(), bad.toarray()[left].astype(np.float32))
        and found.node_ids.tolist() == order[left].tolist()
    )


@pytest.mark.second
def test_real_data_of_pyg(tmp_path):
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data")
    graph = gt.load("sbm:n_nodes=40,n_edges=200")
    train = torch.rand(40, 10, generator=torch.Generator().manual_seed(0)) < 0.5
    given = data.Data(
        x=torch.tensor(graph.x),
        edge_index=torch.tensor(graph.edge_index),
        y=torch.tensor(graph.y),
        train_mask=train,
        edge_attr=torch.tensor(graph.edge_attr),
        age=torch.arange(40),
        source="made up",
    )
    assert gt.load(imported(given, None, tmp_path / "c", 1)).node_columns["age"].tolist() == list(
        range(40)
    )
    found = gt.load(imported(given, None, tmp_path / "s", 2), split="stored")
    assert (
        found.n_splits == 10
        and np.array_equal(found.train, train.numpy())
        and np.array_equal(found.edge_attr, graph.edge_attr)
    )
    assert np.array_equal(found.x.read_begin(np.arange(40)).end(), graph.x) and np.array_equal(
        found.edge_index, graph.edge_index
    )


@pytest.mark.second
def test_real_graphs_of_dgl(tmp_path):
    torch = pytest.importorskip("torch")
    dgl = libraries.dgl()
    graph = gt.load("sbm:n_nodes=40,n_edges=200")
    given = dgl.graph((graph.src, graph.dst), num_nodes=40)
    given.ndata.update(
        {
            "feat": torch.tensor(graph.x),
            "label": torch.tensor(graph.y),
            "train_mask": torch.tensor(graph.train),
            "age": torch.arange(40),
        }
    )
    given.edata["feat"], given.edata["time"] = (
        torch.tensor(graph.edge_attr),
        torch.arange(graph.n_edges),
    )
    found = gt.load(imported(given, None, tmp_path / "s", 2))
    assert np.array_equal(found.x.read_begin(np.arange(40)).end(), graph.x) and np.array_equal(
        found.edge_attr, graph.edge_attr
    )
    assert np.array_equal(found.y, graph.y) and np.array_equal(found.train, graph.train)
    assert found.node_columns["age"].tolist() == list(range(40)) and found.edge_columns[
        "time"
    ].tolist() == list(range(graph.n_edges))
    given.ndata["x"] = given.ndata["feat"]
    with pytest.raises(ConfigError, match="'x' is a second 'x' of the graph"):
        imported(given, None, tmp_path / "t")
    ends = {
        ("a", "to", "b"): (torch.tensor([0, 1]), torch.tensor([1, 2])),
        ("b", "of", "a"): (torch.tensor([2]), torch.tensor([0])),
    }
    typed = dgl.heterograph(ends)
    typed.nodes["a"].data["label"] = torch.tensor([1, 0])
    typed.edges["of"].data["time"] = torch.tensor([7])
    found = gt.load(imported(typed, None, tmp_path / "u"))
    assert (
        found.node_types == ("a", "b")
        and found.edge_columns["time"].tolist() == [0, 0, 7]
        and found.y[:2].tolist() == [1, 0]
    )


@pytest.mark.second
def test_drawn_tables_have_the_values_that_were_written(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "bench")
    from fuzz_tables import search

    counts, faults = search(range(12))
    assert not faults
    # integers beyond 64 bits are refused in columns
    assert counts["accepted"] == 11
