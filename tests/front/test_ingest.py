"""Tables become the same store on any workers, and train the same model in every format."""

from __future__ import annotations

import gzip
import sqlite3
from functools import partial

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp
from follows import COLUMNS, EDGES, NODES, imported, stored, tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError
from graphtheta.importing.tables import binary, text


def as_csv(table, separator=","):
    rows = zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True)
    return (
        "\n".join(separator.join(map(str, row)) for row in [table.column_names, *rows]).encode()
        + b"\n"
    )


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(text, "BLOCK", 900)
    monkeypatch.setattr(binary, "ROWS", 50)
    monkeypatch.setattr(binary, "BLOCK", 100)


def files(folder, kind):
    """The two tables in files of a kind; what to pass to import_graph."""
    found = []
    for name, table in zip(("edges", "nodes"), tables(), strict=True):
        if kind == "parquet":
            pq.write_table(table, folder / f"{name}.parquet", row_group_size=70)
        elif kind == "feather":
            pyarrow.feather.write_feather(table, str(folder / f"{name}.feather"), chunksize=70)
        elif kind == "csv.gz":
            (folder / f"{name}.csv.gz").write_bytes(gzip.compress(as_csv(table)))
        elif kind == "tsv.zst":
            with pa.output_stream(str(folder / f"{name}.tsv.zst"), compression="zstd") as stream:
                stream.write(as_csv(table, "\t"))
        elif kind == "folder":
            (folder / name / "deep").mkdir(parents=True)
            n = table.num_rows // 4
            for i, part in enumerate(("a.csv", "b.csv", "deep/c.csv", "deep/d.csv")):
                (folder / name / part).write_bytes(as_csv(table.slice(i * n, n)))
        elif kind == "csv":
            (folder / f"{name}.csv").write_bytes(as_csv(table))
        found.append(folder / (name if kind == "folder" else f"{name}.{kind}"))
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The store of the tables in memory, made by one worker."""
    folder = tmp_path_factory.mktemp("expected") / "store"
    imported(*tables(), folder, **COLUMNS, name="g")
    return folder


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv.zst", "folder", "parquet", "feather"])
def test_every_format_and_number_of_workers_give_the_same_store(kind, expected, tmp_path):
    made = files(tmp_path, kind)
    one = imported(*made, tmp_path / "one", **COLUMNS, name="g")
    assert {name: data for name, data in stored(one).items() if name != "store.json"} == {
        name: data for name, data in stored(expected).items() if name != "store.json"
    }
    for size in (2, 4):
        assert stored(imported(*made, tmp_path / f"{size}", size, **COLUMNS, name="g")) == stored(
            one
        )


def test_the_graph_is_that_of_the_tables(expected):
    edges, nodes = tables()
    graph = gt.load(expected)
    ids = nodes.column("name").to_pylist()
    assert graph.node_ids.tolist() == ids
    assert [ids[i] for i in graph.src] == edges.column("from").to_pylist() and [
        ids[i] for i in graph.dst
    ] == edges.column("to").to_pylist()
    assert [graph.meta["class_names"][c] for c in graph.y] == nodes.column("team").to_pylist()
    assert [
        graph.meta["edge_categories"]["how"][c] for c in graph.edge_columns["how"]
    ] == edges.column("how").to_pylist()
    assert graph.edge_columns["when"].tolist() == edges.column("when").to_pylist()
    assert np.array_equal(
        graph.edge_attr[:, 0], edges.column("weight").to_numpy().astype(np.float32)
    )
    assert graph.train.tolist() == [part == "train" for part in nodes.column("part").to_pylist()]
    x = graph.x.read_begin(np.arange(NODES)).end()
    assert np.array_equal(
        x, np.stack([nodes.column(f"f{i}").to_numpy() for i in (0, 1)], axis=1).astype(np.float32)
    )


def test_losses_and_predictions_are_those_of_arrays(expected):
    edges, nodes = tables()
    graph = gt.load(expected)
    ids = nodes.column("name").to_pylist()
    row = {name: i for i, name in enumerate(ids)}
    part = nodes.column("part").to_pylist()
    team = nodes.column("team").to_pylist()
    arrays = gt.Graph(
        (
            [row[name] for name in edges.column("from").to_pylist()],
            [row[name] for name in edges.column("to").to_pylist()],
        ),
        x=np.stack([nodes.column(f"f{i}").to_numpy() for i in (0, 1)], axis=1),
        y=[int(name[-1]) for name in team],
        node_ids=ids,
        **{mask: np.array([p == mask for p in part]) for mask in ("train", "val", "test")},
    )
    job = {"epochs": 3, "model": "gcn", "dtype": "float64"}

    def run(comm, data):
        trainer = gt.Trainer(graph=data, job=gt.Job(**job), comm=comm)
        return [row["loss"] for row in trainer.fit().history], trainer.predict()

    (losses, found), *_ = run_simulated(1, run, arrays)
    for size in (1, 2):
        (again, predicted), *_ = run_simulated(size, run, graph)
        np.testing.assert_allclose(again, losses, rtol=1e-9)
        assert predicted[0].tolist() == found[0].tolist() == ids


def test_ids_without_a_node_table_are_sorted(tmp_path):
    edges = pa.table({"src": [30, 10, -5, 30], "dst": [10, 2, 30, 30]})
    graph = gt.load(imported(edges, None, tmp_path / "a", 3))
    assert graph.node_ids.tolist() == [-5, 2, 10, 30] and graph.src.tolist() == [3, 2, 0, 3]
    # numbers from 0 without gaps need no ids
    assert (
        gt.load(imported({"src": [0, 1], "dst": [2, 0]}, None, tmp_path / "b", 2)).node_ids is None
    )
    (tmp_path / "zeros.csv").write_text("src,dst\n7,007\n07,7\n")
    assert gt.load(imported(tmp_path / "zeros.csv", None, tmp_path / "c")).node_ids.tolist() == [
        "007",
        "07",
        "7",
    ]
    assert gt.load(
        imported(tmp_path / "zeros.csv", None, tmp_path / "d", id_type="int")
    ).node_ids.tolist() == [7]


def test_files_without_headers_and_with_comments(tmp_path):
    (tmp_path / "snap.txt").write_text(
        "# Directed graph\n# FromNodeId\tToNodeId\n0\t1\n1\t2\n\n2\t0\n"
    )
    graph = gt.load(
        imported(
            tmp_path / "snap.txt",
            None,
            tmp_path / "a",
            2,
            src="0",
            dst="1",
            header=False,
            n_nodes=5,
        )
    )
    assert (
        graph.n_nodes == 5 and graph.src.tolist() == [0, 1, 2] and graph.dst.tolist() == [1, 2, 0]
    )


@pytest.mark.parametrize("size", [1, 3])
def test_duplicates_loops_and_reverse_edges_equal_those_of_a_graph(size, tmp_path):
    rng = np.random.default_rng(1)
    edges = {"src": rng.integers(0, 9, 80), "dst": rng.integers(0, 9, 80), "weight": rng.random(80)}
    graph = gt.Graph((edges["src"], edges["dst"]), 9, edge_weight=edges["weight"])
    for i, (options, wanted) in enumerate(
        {
            (("duplicates", "drop"),): graph.deduplicated(),
            (("self_loops", "drop"),): graph.without_self_loops(),
            (("duplicates", "drop"), ("reverse", "add")): graph.symmetrised(),
        }.items()
    ):
        found = gt.load(
            imported(edges, None, tmp_path / f"{i}", size, edge_weight="weight", **dict(options))
        )
        for field in ("src", "dst", "edge_weight"):
            assert np.array_equal(getattr(found, field), getattr(wanted, field)), (options, field)
    counts = found.meta["import"]
    assert (
        counts["duplicates_dropped"] == 80 - graph.deduplicated().n_edges
        and counts["reverse_added"] > 0
    )
    kept = gt.load(imported(edges, None, tmp_path / "r", size, reverse="add"))
    assert (
        kept.n_edges == 80 + counts["reverse_added"]
        and kept.src[:80].tolist() == edges["src"].tolist()
    )


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("codes", ["numbers", "texts"])
def test_edges_of_different_relations_are_no_duplicates(codes, size, tmp_path):
    rng = np.random.default_rng(3)
    relation = rng.integers(-1, 3, 90)
    edges = {
        "src": rng.integers(0, 6, 90),
        "dst": rng.integers(0, 6, 90),
        "weight": rng.random(90),
        "relation": (
            relation if codes == "numbers" else np.array(["hates", "likes", "knows"])[relation]
        ),
    }
    plain = gt.load(
        imported(
            edges, None, tmp_path / "plain", size, edge_weight="weight", edge_columns=["relation"]
        )
    )
    graph = gt.Graph(
        (plain.src, plain.dst),
        6,
        edge_weight=plain.edge_weight,
        edge_columns=dict(plain.edge_columns),
    )
    wanted = {("duplicates",): graph.deduplicated(), ("duplicates", "reverse"): graph.symmetrised()}
    for keys, expected in wanted.items():
        options = {key: {"duplicates": "drop", "reverse": "add"}[key] for key in keys}
        made, changed = (tmp_path / f"{kind}{len(keys)}" for kind in ("made", "changed"))
        imported(
            edges, None, made, size, edge_weight="weight", edge_columns=["relation"], **options
        )
        change = partial(gt.transform_store, tmp_path / "plain", to=changed, **options)
        run_simulated(size, lambda comm, change=change: change(comm=comm))
        found = [gt.load(folder) for folder in (made, changed)]
        for one in found:
            for field in ("src", "dst", "edge_weight"):
                np.testing.assert_array_equal(
                    np.asarray(getattr(one, field)), getattr(expected, field)
                )
            np.testing.assert_array_equal(
                np.asarray(one.edge_columns["relation"]), expected.edge_columns["relation"]
            )


def test_objects(tmp_path):
    matrix = sp.random(12, 12, 0.2, random_state=0, format="csr")
    scipy.io.mmwrite(tmp_path / "m.mtx", matrix)
    for i, source in enumerate((matrix, tmp_path / "m.mtx")):
        found = gt.load(imported(source, None, tmp_path / f"s{i}", 2))
        np.testing.assert_allclose(found.to_scipy().toarray(), matrix.toarray(), rtol=1e-6)
    named = nx.Graph([("b", "a", {"w": 2.0}), ("a", "c", {"w": 3.0})])
    nx.set_node_attributes(named, {"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 6.0]}, "f")
    found = gt.load(imported(named, None, tmp_path / "n", 2, features="f", edge_weight="w"))
    wanted = gt.Graph.from_networkx(named, x="f", edge_weight="w")
    assert found.node_ids.tolist() == ["b", "a", "c"] and np.array_equal(
        found.edge_index, wanted.edge_index
    )
    assert np.array_equal(found.edge_weight, wanted.edge_weight) and found.x.shape == (3, 2)
    graph = gt.load("sbm:n_nodes=40,n_edges=200")
    plain = {
        "edge_index": graph.edge_index,
        "x": graph.x,
        "y": graph.y,
        "train_mask": graph.train,
        "edge_attr": graph.edge_attr,
    }
    np.savez(tmp_path / "g.npz", **plain)
    pyg = type(
        "Data",
        (),
        {
            **plain,
            "num_nodes": 40,
            "__getitem__": lambda self, key: getattr(self, key),
            "node_attrs": lambda self: ["x", "y", "train_mask"],
            "edge_attrs": lambda self: ["edge_index", "edge_attr"],
        },
    )()
    dgl = type(
        "DGLGraph",
        (),
        {
            "ndata": {"feat": graph.x, "label": graph.y, "train_mask": graph.train},
            "edata": {"feat": graph.edge_attr},
            "edges": lambda self: (graph.src, graph.dst),
            "num_nodes": lambda self: 40,
        },
    )()
    for i, source in enumerate((tmp_path / "g.npz", pyg, dgl)):
        found = gt.load(imported(source, None, tmp_path / f"o{i}", 2))
        assert np.array_equal(found.x.read_begin(np.arange(40)).end(), graph.x) and np.array_equal(
            found.edge_attr, graph.edge_attr
        )
        assert (
            np.array_equal(found.y, graph.y)
            and np.array_equal(found.train, graph.train)
            and np.array_equal(found.src, graph.src)
        )


def test_labels_of_several_classes_times_and_targets(tmp_path):
    times = pa.array([1, 2_500_000, 3], pa.timestamp("us"))
    edges = pa.table(
        {
            "src": [1, 2, 3],
            "dst": [2, 3, 1],
            "day": times,
            "rating": [1.5, None, 2.0],
            "part": ["train", "", "test"],
        }
    )
    nodes = pa.table(
        {
            "id": [1, 2, 3],
            "tags": [["b", "a"], [], None],
            "seen": pa.array([60, 120, 0], pa.timestamp("s")),
            "v": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        }
    )
    graph = gt.load(
        imported(
            edges,
            nodes,
            tmp_path / "a",
            2,
            label="tags",
            node_columns=["seen", "v"],
            edge_columns=["day"],
            edge_label="rating",
            edge_split="part",
        )
    )
    assert graph.multilabel and graph.meta["class_names"] == ["a", "b"]
    assert graph.y[:2].tolist() == [[1, 1], [0, 0]] and np.isnan(graph.y[2]).all()
    assert graph.node_columns["seen"].tolist() == [60, 120, 0] and graph.meta["node_units"] == {
        "seen": "s"
    }
    assert graph.edge_columns["day"].tolist() == [1, 2_500_000, 3] and graph.meta["edge_units"] == {
        "day": "us"
    }
    assert graph.node_columns["v"].shape == (3, 2) and graph.edge_train.tolist() == [
        True,
        False,
        False,
    ]
    assert graph.edge_y[[0, 2]].ravel().tolist() == [1.5, 2.0] and np.isnan(graph.edge_y[1])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("fraction", [False, True])
def test_the_unit_of_times_is_that_of_the_type_whatever_the_values(unit, fraction, tmp_path):
    """Of a column with a type, and of a text whose type is stated."""
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    extra = per_second // 2 if fraction and unit != "s" else 0
    values = [3 * per_second, 5 * per_second + extra]
    texts = ["1970-01-01T00:00:03", "1970-01-01T00:00:05" + (".5" if extra else "")]
    (tmp_path / "e.csv").write_text(
        "src,dst,t\n" + "".join(f"{i},{1 - i},{text}\n" for i, text in enumerate(texts))
    )
    word = {"ns": "time"}.get(unit, f"time_{unit}")
    for name, edges, keys in (
        (
            "typed",
            pa.table({"src": [0, 1], "dst": [1, 0], "t": pa.array(values, pa.timestamp(unit))}),
            {},
        ),
        ("stated", tmp_path / "e.csv", {"types": {"t": word}}),
    ):
        graph = gt.load(imported(edges, None, tmp_path / name, 2, edge_columns=["t"], **keys))
        assert graph.edge_columns["t"].tolist() == values and graph.meta["edge_units"] == {
            "t": unit
        }
    if extra:
        with pytest.raises(
            DataError,
            match=(
                r"(?s)'1970-01-01T00:00:05.5' is not a time in whole seconds.*--types COLUMN:time"
            ),
        ):
            imported(
                tmp_path / "e.csv",
                None,
                tmp_path / "bad",
                edge_columns=["t"],
                types={"t": "time_s"},
            )


def test_queries(tmp_path):
    with sqlite3.connect(":memory:", check_same_thread=False) as base:
        base.execute("create table follows (a text, b text, w real)")
        base.executemany("insert into follows values (?, ?, ?)", [("x", "y", 1.0), ("y", "z", 2.5)])
        query = gt.Query(base, "select a, b, w from follows order by w")
        graph = gt.load(imported(query, None, tmp_path / "a", 2, src="a", dst="b", edge_weight="w"))
        assert graph.node_ids.tolist() == ["x", "y", "z"] and graph.edge_weight.tolist() == [
            1.0,
            2.5,
        ]
        with pytest.raises(DataError, match="no such table: absent; check the query"):
            imported(gt.Query(base, "select * from absent"), None, tmp_path / "b", 2)


class ArrowConnection:
    """A connection whose cursors return Arrow batches, as those of ADBC and DuckDB do."""

    def __init__(self, table):
        self.table = table

    def cursor(self):
        return self

    def execute(self, sql):
        self.sql = sql

    def fetch_record_batch(self):
        return self.table.to_reader(max_chunksize=70)

    def close(self):
        pass


def columns_of(folder):
    return {name: data for name, data in stored(folder).items() if name.endswith(".npy")}


def test_arrow_batches_of_a_connection(tmp_path):
    edges, nodes = tables()
    expected = columns_of(imported(edges, nodes, tmp_path / "a", **COLUMNS))
    queries = (gt.Query(ArrowConnection(table), "select *") for table in (edges, nodes))
    assert columns_of(imported(*queries, tmp_path / "b", 2, **COLUMNS)) == expected


def test_cursors_and_streams(tmp_path):
    with sqlite3.connect(":memory:", check_same_thread=False) as base:
        base.execute("create table follows (a text, b text, w real)")
        base.executemany(
            "insert into follows values (?, ?, ?)",
            [(f"n{i % 7}", f"n{i % 5}", i / 2) for i in range(120)],
        )
        graph = gt.load(
            imported(
                base.execute("select * from follows"),
                None,
                tmp_path / "a",
                src="a",
                dst="b",
                edge_weight="w",
            )
        )
        assert graph.edge_weight.tolist() == [
            i / 2 for i in range(120)
        ] and graph.node_ids.tolist() == [f"n{i}" for i in range(7)]
        # the row of an unknown id is found although the cursor returns it once
        people = pa.table({"id": [f"n{i}" for i in range(6)]})
        with pytest.raises(DataError, match="edges, row 7: column 'a': no node has the id 'n6'"):
            imported(
                base.execute("select * from follows"),
                people.to_reader(),
                tmp_path / "b",
                src="a",
                dst="b",
            )
        with pytest.raises(DataError, match="there are no rows"):
            imported(
                base.execute("select * from follows where w < 0"),
                None,
                tmp_path / "c",
                src="a",
                dst="b",
                id_type="text",
                types={"a": "text", "b": "text"},
            )
        with pytest.raises(DataError, match="the cursor has no result; execute a query first"):
            imported(base.cursor(), None, tmp_path / "d", src="a", dst="b")


@pytest.mark.second
def test_duckdb_and_adbc(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    adbc = pytest.importorskip("adbc_driver_sqlite.dbapi")
    edges, nodes = tables()
    expected = columns_of(imported(edges, nodes, tmp_path / "a", **COLUMNS))
    with duckdb.connect() as base, adbc.connect() as other:
        for name, table in (("follows", edges), ("people", nodes)):
            # a cursor of DuckDB sees no registered objects
            base.register("given", table)
            base.execute(f"create table {name} as from given")
        # two relations of one connection, which has one open result at a time
        assert (
            columns_of(
                imported(
                    base.sql("from follows"), base.sql("from people"), tmp_path / "b", **COLUMNS
                )
            )
            == expected
        )
        queries = [gt.Query(base, f"from {name}") for name in ("follows", "people")]
        assert columns_of(imported(*queries, tmp_path / "c", 2, **COLUMNS)) == expected
        assert (
            columns_of(imported(base.execute("from follows"), nodes, tmp_path / "d", **COLUMNS))
            == expected
        )
        with other.cursor() as cursor:
            cursor.adbc_ingest("follows", edges)
            cursor.execute("select * from follows")
            assert columns_of(imported(cursor, nodes, tmp_path / "e", **COLUMNS)) == expected


def test_pandas_tables(tmp_path):
    pd = pytest.importorskip("pandas")
    edges, nodes = (pd.DataFrame(table.to_pydict()) for table in tables())
    nodes["kind"] = nodes["kind"].astype("category")
    expected = columns_of(imported(*tables(), tmp_path / "a", **COLUMNS))
    # the index is no column, and need not be in order
    for size, rows in ((1, edges), (2, edges.set_index(np.arange(EDGES)[::-1]))):
        assert columns_of(imported(rows, nodes, tmp_path / f"b{size}", size, **COLUMNS)) == expected


def test_ogb_layout(tmp_path):
    raw = tmp_path / "raw"
    split = tmp_path / "split" / "time"
    raw.mkdir()
    split.mkdir(parents=True)
    parts = {
        raw / "edge.csv.gz": "0,1\n1,2\n3,0\n",
        raw / "num-node-list.csv.gz": "4\n",
        raw / "num-edge-list.csv.gz": "3\n",
        raw / "node-feat.csv.gz": "0.5,1\n1.5,2\n2.5,3\n3.5,4\n",
        raw / "node-label.csv.gz": "2\n0\n1\n2\n",
        split / "train.csv.gz": "3\n0\n",
        split / "valid.csv.gz": "1\n",
        split / "test.csv.gz": "2\n",
    }
    for path, content in parts.items():
        path.write_bytes(gzip.compress(content.encode()))
    graph = gt.load(imported(tmp_path, None, tmp_path / "store", 2))
    assert (
        graph.src.tolist() == [0, 1, 3]
        and graph.y.tolist() == [2, 0, 1, 2]
        and graph.x.shape == (4, 2)
    )
    assert np.flatnonzero(graph.train).tolist() == [0, 3] and np.flatnonzero(
        graph.test
    ).tolist() == [2]


IDS = [
    st.one_of(st.integers(-(2**62), 2**62), st.integers(0, 5)),
    st.one_of(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4),
        st.sampled_from(["a", "b", "NA", "nan"]),
    ),
]


@pytest.mark.parametrize("ids", IDS, ids=["int", "text"])
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_random_tables(ids, data, tmp_path_factory):
    """Ids come back exactly; empty ones are bad rows; the order and number of edges is that of the
    input.
    """
    edges = data.draw(st.lists(st.tuples(ids, ids), min_size=1, max_size=30))
    good = [(a, b) for a, b in edges if a != "" and b != ""]
    folder = tmp_path_factory.mktemp("random")
    kind = pa.string() if isinstance(edges[0][0], str) else pa.int64()
    table = pa.table(
        {"src": pa.array([a for a, _ in edges], kind), "dst": pa.array([b for _, b in edges], kind)}
    )
    if not good:
        with pytest.raises(DataError, match="there are no rows but"):
            imported(table, None, folder / "a", 2, on_bad_row="skip")
        return
    one = imported(table, None, folder / "a", on_bad_row="skip")
    graph = gt.load(one)
    names = graph.original_ids.tolist()
    assert [(names[a], names[b]) for a, b in graph.edge_index.T.tolist()] == good
    assert names == sorted(names)
    assert stored(imported(table, None, folder / "b", 3, on_bad_row="skip")) == stored(one)


@pytest.mark.parametrize("split", [True, False])
def test_features_are_standardised_over_the_training_nodes(split, tmp_path):
    edges, nodes = tables()
    nodes = nodes.append_column("large", pa.array(2**40 + 3 * np.arange(NODES))).append_column(
        "same", pa.array(np.full(NODES, 0.1))
    )
    features = ["f0", "large", "same"]
    options = {**COLUMNS, "features": features, "scale": "standard"} | (
        {} if split else {"split": ()}
    )
    folders = [
        imported(edges, nodes, tmp_path / f"{size}.store", size, **options) for size in (1, 2, 3)
    ]
    graph = gt.load(folders[0])
    for folder in folders[1:]:
        assert stored(folder) == stored(folders[0])
    x = np.stack([nodes.column(name).to_numpy() for name in features], axis=1)
    known = graph.train if split else np.ones(NODES, bool)
    mean = x[known].mean(axis=0)
    deviation = x[known].std(axis=0)
    found = graph.x.read_begin(None).end()
    np.testing.assert_allclose(found[:, :2], ((x - mean) / deviation)[:, :2], atol=1e-5)
    assert not found[:, 2].any()
    np.testing.assert_allclose(graph.meta["feature_scale"]["mean"], mean)
    np.testing.assert_allclose(graph.meta["feature_scale"]["deviation"][:2], deviation[:2])


def test_a_scale_without_features_is_refused(tmp_path):
    edges, nodes = tables()
    for table, options in (
        (nodes, {**COLUMNS, "features": ()}),
        (None, {"src": "from", "dst": "to"}),
    ):
        with pytest.raises(ConfigError, match=r"scale=standard .* but none are named"):
            gt.import_graph(edges, table, to=tmp_path / "g", scale="standard", **options)
