"""Stores: what is written is read again, on any number of workers; what is damaged or incomplete is
refused by name.
"""

from __future__ import annotations

import inspect
import json
import os
import pickle
import shutil
import tracemalloc
from functools import partial

import graphs
import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.base.atomic import claim
from graphtheta.base.lazy_array import LazyArray
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.errors import ConfigError, DataError, FormatError, GraphThetaError, ShapeError
from graphtheta.graph.data import lazy, transform
from graphtheta.graph.splits.links import link_split
from graphtheta.graph.store import checksum
from graphtheta.graph.store.from_graph import write_store
from graphtheta.graph.store.manifest import FILE
from graphtheta.graph.store.reader import check_store, read_store
from graphtheta.graph.store.writer import NAMES, StoreWriter
from graphtheta.partitioners.communities import find_clusters
from graphtheta.train.loop import stored_clusters

TEXTS = np.array(["", "ä", "日本", "a\U0001f600b", *(f"node {i}" for i in range(36))])
SPARSE = sp.random(40, 30, 0.1, format="csr", random_state=0, dtype=np.float32)
PLAIN = graphs.random_graph(
    40, 200, name="plain", meta={"source": "a test", "classes": ["a", "b", "c"]}
)
KINDS = {
    "plain": PLAIN,
    "texts": PLAIN.replace(node_ids=TEXTS),
    "integers": PLAIN.replace(node_ids=np.arange(40)[::-1] << 40),
    "sparse": PLAIN.replace(
        x=SPARSE, edge_attr=sp.random(200, 50, 0.1, format="csr", random_state=1)
    ),
    "columns": PLAIN.replace(
        node_columns={"kind": np.arange(40) << 35, "shape": np.ones((40, 2))},
        edge_columns={"größe": np.arange(200)},
    ),
    "several": PLAIN.replace(y=np.eye(40, 3), multilabel=True),
    "values": PLAIN.replace(y=np.random.default_rng(0).normal(size=(40, 1))),
    "bare": gt.Graph([[], []], 3),
    **graphs.odd_graphs(),
}


def part_of(placement, comm, graph):
    """The part of a rank."""
    return build_partition(graph, comm, *placement)


def written(folder, graph=PLAIN, size=1):
    run_simulated(size, lambda comm: write_store(graph, folder, comm))
    return folder


def edited(folder, **changes):
    """Change fields of a manifest, and remove its checksum as in stores of earlier versions."""
    path = folder / FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "checksum": None, **changes}))


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_is_read_as_it_was_written(kind, tmp_path):
    graph = KINDS[kind]
    one, three = written(tmp_path / "one", graph), written(tmp_path / "three", graph, 3)
    assert bytes_of(one) == bytes_of(three)
    found = gt.load(one, split="public" if graph.train is not None else "none")
    assert found.digest() == graph.digest() and (found.name, found.meta, found.n_classes) == (
        graph.name,
        graph.meta,
        graph.n_classes,
    )
    assert found.original_ids.tolist() == graph.original_ids.tolist()
    run_simulated(3, lambda comm: check_store(one, comm))
    # a store is a source too
    assert bytes_of(written(tmp_path / "again", found)) == bytes_of(one)


def test_arrays_are_mapped(tmp_path):
    folder = written(tmp_path / "s", KINDS["columns"])
    check_store(folder, SerialComm())
    found = read_store(folder)
    assert isinstance(found.x, gt.MappedColumn)
    assert sorted(path.name for path in (tmp_path / "s").iterdir())[:3] == [
        "edge.attr.npy",
        "edge.columns.größe.npy",
        "edge.dst.npy",
    ]
    for x in (
        found.src,
        found.dst,
        found.y,
        found.train,
        found.edge_attr,
        found.edge_y,
        found.node_columns["kind"],
    ):
        while isinstance(x, np.ndarray):
            assert not x.flags.writeable and not x.flags.owndata
            x = x.base
        assert type(x).__name__ in ("mmap", "memoryview")


def test_workers_write_rows_in_any_order(tmp_path):
    def program(comm):
        with StoreWriter(tmp_path / "s", comm) as writer:
            for name, dtype in (("src", np.int32), ("dst", np.int64)):
                column = writer.column("edge", name, 10, (), dtype)
                for i in range(comm.rank, 10, comm.size)[::-1]:
                    column.write(i, np.array([(i * (3 if name == "dst" else 1)) % 7], dtype))
            writer.column("node", "more", 7, (2,), np.float16).write(
                0, np.ones((7 * (comm.rank == 1), 2), np.float16)
            )
            writer.finish(7, 10)

    run_simulated(3, program)
    found = gt.load(tmp_path / "s")
    assert found.src.tolist() == [i % 7 for i in range(10)] and found.dst.tolist() == [
        3 * i % 7 for i in range(10)
    ]
    assert found.meta == {"unused_fields": ["node.more"]} and found.src.dtype == np.int64


def trained(comm, source):
    trainer = gt.Trainer(
        graph=gt.load(source, split="public"),
        comm=comm,
        epochs=2,
        dtype="float64",
        hidden=5,
        strategy="mini",
        batch_size=70,
        fanout=(5, 5),
        backend="reference",
    )
    return [trainer.train_epoch(i) for i in range(2)], trainer.measure()


@pytest.mark.second
def test_losses_are_those_of_the_other_sources(tmp_path):
    cora = gt.load("cora")
    dense = cora.replace(x=cora.x.toarray()[:, :64])
    fields = {name: getattr(dense, name) for name in ("x", "y", "train", "val", "test")}
    np.savez(tmp_path / "cora.npz", edge_index=dense.edge_index, **fields)
    sources = {
        "cora": written(tmp_path / "named", cora),
        tmp_path / "cora.npz": written(tmp_path / "dense", dense),
    }
    for other, store in sources.items():
        for size in (1, 3):
            assert run_simulated(size, trained, store) == run_simulated(size, trained, other)


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"version": 2},
            "a store of version 2, but this GraphTheta reads version 1; import the source again",
        ),
        ({"format": "other"}, "not the manifest of a store"),
        ({"n_nodes": "40"}, "field n_nodes: Input should be a valid integer"),
        ({"n_nodes": 39}, "column node.y has 40 rows, but the graph has 39 nodes"),
        ({"n_nodes": 1 << 62}, "but the graph has"),
        ({"columns": []}, "the column edge.src is missing"),
        ({"extra": 1}, "field extra: Extra inputs"),
        ({"n_classes": 2}, "has label 2"),
    ],
    ids=str,
)
def test_a_wrong_manifest_is_refused(changes, message, tmp_path):
    edited(written(tmp_path / "s"), **changes)
    with pytest.raises(GraphThetaError, match=message):
        gt.load(tmp_path / "s")


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "[" * 100_000, '{"format": "graphtheta store", "version": 1}'], ids=len
)
def test_a_manifest_that_is_none_is_refused(text, tmp_path):
    (written(tmp_path / "s") / FILE).write_text(text)
    with pytest.raises(FormatError, match=r"store\.json: .*graphtheta import"):
        gt.load(tmp_path / "s")


@pytest.mark.parametrize(
    "column, changes, message",
    [
        (
            "edge.src",
            {"file": "../s/edge.dst.npy"},
            "the file of column edge.src is '../s/edge.dst.npy'",
        ),
        ("edge.src", {"shape": [199]}, "column edge.src has 199 rows"),
        ("edge.src", {"dtype": "object"}, "dtype: Input should be"),
        ("edge.src", {"name": "../src"}, "name: String should match"),
        ("node.x", {"dtype": "float64"}, "holds .40, 4. of float32"),
        ("node.x", {"shape": [40, 5]}, "node.x.npy: holds"),
        ("edge.src", {"checksums": []}, "has 0 checksums"),
        ("edge.src", {"name": "dst", "file": "edge.dst.npy"}, "a column is listed twice"),
    ],
    ids=str,
)
def test_a_wrong_column_of_a_manifest_is_refused(column, changes, message, tmp_path):
    folder = written(tmp_path / "s")
    columns = json.loads((folder / FILE).read_text())["columns"]
    edited(
        folder,
        columns=[{**c, **changes} if f"{c['group']}.{c['name']}" == column else c for c in columns],
    )
    with pytest.raises(FormatError, match=message):
        gt.load(folder)


def unchecked(folder):
    """A store without sums of pages, as earlier versions wrote them, or as somebody forges one."""
    columns = json.loads((folder / FILE).read_text())["columns"]
    edited(folder, columns=[{**c, "page_sums": []} for c in columns])
    return folder


def patched(folder, column, row, value):
    values = np.lib.format.open_memmap(folder / f"{column}.npy", "r+")
    values[row] = value


@pytest.mark.parametrize(
    "kind, column, row, value, message",
    [
        ("plain", "edge.src", 7, 40, "edge 7 has source 40, outside 0..39"),
        ("plain", "edge.dst", 199, -1, "edge 199 has destination -1"),
        ("sparse", "node.x.indices", 3, 30, "column indices run from"),
        ("sparse", "node.x.indptr", 5, 1 << 30, "must rise from 0"),
        ("sparse", "node.x.shape", 0, -1, "do not make a matrix"),
        ("sparse", "node.x.shape", 1, 1 << 40, "CSR matrix of"),
        ("sparse", "edge.attr.indptr", 200, 0, "must rise from 0"),
        ("texts", "node.ids.offsets", 4, 1 << 50, "must rise from 0"),
        ("texts", "node.ids.offsets", 2, 1, "begins within a character"),
        ("texts", "node.ids.bytes", 0, 255, "not UTF-8"),
        ("plain", "node.y", 3, 9, "node 3 has label 9"),
        ("plain", "edge.weight", 3, np.nan, "edge 3 is nan"),
    ],
)
def test_values_that_are_no_graph_are_refused(kind, column, row, value, message, tmp_path):
    folder = unchecked(written(tmp_path / "s", KINDS[kind]))
    patched(folder, column, row, value)
    with pytest.raises(GraphThetaError, match=message):
        gt.load(folder, split="none")
    with pytest.raises(FormatError, match=rf"{column}.npy: rows 0 to .* are damaged"):
        run_simulated(3, lambda comm: check_store(folder, comm))


def test_a_mask_with_other_bytes_is_refused(tmp_path):
    path = written(tmp_path / "s") / "node.train.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x02")
    with pytest.raises(FormatError, match=r"node\.train\.npy.* has bytes other than 0 and 1"):
        gt.load(tmp_path / "s")


def test_texts_of_very_different_lengths_stay_in_the_file(tmp_path):
    ids = np.array(["x" * 3_000, *map(str, range(1000))])
    graph = gt.Graph([[0], [1]], 1001, x=np.ones((1001, 1)), node_ids=ids)
    gt.load(written(tmp_path / "s", graph), split="none")
    tracemalloc.start()
    found = gt.load(tmp_path / "s", split="none").node_ids
    assert tracemalloc.get_traced_memory()[1] < ids.nbytes / 5
    tracemalloc.stop()
    assert (
        found[[3, 1, 3]].tolist() == ["2", "0", "2"]
        and found[[3, 1]].dtype == "U1"
        and (found == ids).all()
    )


@pytest.mark.parametrize("name", ["node.x.npy", "edge.src.npy", FILE])
def test_a_missing_file_a_pipe_and_a_cut_file_are_refused(name, tmp_path):
    folder = written(tmp_path / "s")
    path = folder / name
    data = path.read_bytes()
    for damage in (lambda: path.write_bytes(data[:-8]), path.unlink, lambda: os.mkfifo(path)):
        damage()
        with pytest.raises(FormatError, match=name):
            read_store(folder)


def test_damage_is_located(tmp_path, monkeypatch):
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 64)
    folder = written(tmp_path / "s", size=3)
    patched(folder, "node.x", (17, 2), 5)
    column = read_store(folder).x
    assert len(column.read_begin(np.arange(16)).end()) == 16
    for rows in (np.array([30, 16]), None):
        with pytest.raises(FormatError, match=r"node\.x\.npy: rows 16 to 19 are damaged"):
            column.read_begin(rows).end()
    with pytest.raises(FormatError, match=r"node\.x\.npy: rows 16 to 19 are damaged"):
        run_simulated(3, lambda comm: check_store(folder, comm))


@pytest.mark.one_in(17)
@pytest.mark.parametrize(
    "kind", [*(name for name, graph in KINDS.items() if graph.n_edges), "int8"]
)
def test_a_changed_bit_is_found_or_changes_nothing(kind, tmp_path, monkeypatch):
    """Anywhere in a store, by reading it as training does."""
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 256)
    monkeypatch.setattr(checksum, "PAGE_BYTES", 64)
    folder = tmp_path / "s"
    if kind == "int8":
        assert (
            main(
                [
                    "import",
                    str(written(tmp_path / "source")),
                    "--to",
                    str(folder),
                    "--feature-type",
                    "int8",
                ]
            )
            == 0
        )
    else:
        written(folder, KINDS[kind])
    digest = read(folder)
    data = bytes_of(folder)
    rng = np.random.default_rng(0)
    for name in sorted(data):
        for at in rng.integers(0, len(data[name]), 12):
            damaged = bytearray(data[name])
            damaged[at] ^= 1 << rng.integers(8)
            (folder / name).write_bytes(damaged)
            try:
                found = read(folder)
            except GraphThetaError as error:
                assert str(folder / name) in str(error)
            else:
                assert found == digest, f"bit of byte {at} of {name}"
        (folder / name).write_bytes(data[name])


def read(folder):
    """Everything that training can read of a store, features in two lists of rows."""
    graph = gt.load(folder, split="none")
    rows = np.arange(0, graph.n_nodes, 3), np.arange(graph.n_nodes)[::-1]
    features = (
        [graph.x.read_begin(r).end().tobytes() for r in rows]
        if hasattr(graph.x, "read_begin")
        else []
    )
    return graph.digest(), graph.meta, graph.original_ids.tolist(), features


def test_a_store_of_an_earlier_version_is_read(tmp_path):
    folder = unchecked(written(tmp_path / "s"))
    assert gt.load(folder, split="public").digest() == PLAIN.digest()
    patched(folder, "node.x", (17, 2), 5)
    assert gt.load(folder, split="public").digest() != PLAIN.digest()


def test_a_writer_that_fails_leaves_no_store(tmp_path):
    def program(comm, work):
        with StoreWriter(tmp_path / "s", comm) as writer:
            columns = [writer.column("edge", name, 6, (), np.int64) for name in ("src", "dst")]
            work(comm, writer, columns)
            writer.finish(3, 6)

    def rows(comm, writer, columns):
        columns[0].write(0, np.zeros(6 * (comm.rank == 0), np.int64))

    def fails(comm, writer, columns):
        with comm.agreed():
            if comm.rank == 1:
                raise DataError("row 7 is bad")

    def meta(comm, writer, columns):
        for c in columns:
            c.write(0, np.zeros(6 * (comm.rank == 0), np.int64))
        writer.finish(3, 6, {"a": object()})

    for work, error, message in (
        (rows, FormatError, r"0 rows of edge.dst.npy were written, expected 6, each once"),
        (fails, DataError, "row 7 is bad"),
        (meta, DataError, "meta cannot be stored as JSON"),
        (
            lambda comm, writer, columns: columns[0].write(5, np.zeros(2, np.int64)),
            ShapeError,
            "rows 5 to 6 are outside of the 6 rows",
        ),
        (
            lambda comm, writer, columns: columns[0].write(0, np.zeros(2)),
            ShapeError,
            "got rows .2. of float64",
        ),
        (
            lambda comm, writer, columns: writer.column("edge", "src", 6, (), np.int64),
            ConfigError,
            "edge.src is added twice",
        ),
        (
            lambda comm, writer, columns: writer.column("edge", "a/b", 6, (), np.int64),
            FormatError,
            "takes no column edge.a/b",
        ),
        (
            lambda comm, writer, columns: writer.column("edge", "a", 6, (), np.longdouble),
            FormatError,
            "takes no column edge.a",
        ),
    ):
        with pytest.raises(error, match=message):
            run_simulated(2, program, work)
        assert list(tmp_path.iterdir()) == []
    assert bytes_of(written(tmp_path / "s", size=2))


def test_an_interrupted_import_is_no_store_and_is_replaced(tmp_path):
    part = tmp_path / "s.part"
    # as a process leaves it that was killed
    os.close(claim(part, NAMES))
    shutil.copytree(written(tmp_path / "other"), part, dirs_exist_ok=True)
    (part / FILE).unlink()
    with pytest.raises(GraphThetaError):
        gt.load(part)
    written(tmp_path / "s")
    assert not part.exists() and gt.load(tmp_path / "s").digest() == PLAIN.digest()


def test_a_folder_in_use_is_not_written(tmp_path):
    with (
        StoreWriter(tmp_path / "s", SerialComm()),
        pytest.raises(ConfigError, match=r"s\.part: another process writes this store"),
    ):
        written(tmp_path / "s", size=2)
    folder = written(tmp_path / "s")
    with pytest.raises(ConfigError, match="s: exists already; choose another folder"):
        written(folder, size=2)
    (tmp_path / "file").touch()
    for wrong, error in (
        (tmp_path / "file", ConfigError),
        (tmp_path / "file" / "below", FormatError),
    ):
        with pytest.raises(error, match="file"):
            written(wrong, size=2)


def loops_of(graph):
    """The graph with a few self loops and repeated in-edges."""
    at = np.arange(0, graph.n_nodes, 7)
    return graph.replace(
        edge_index=tuple(np.concatenate((end, at)) for end in (graph.src, graph.dst)),
        **{
            field: np.concatenate((x, x[: len(at)]))
            for field in (
                "edge_attr",
                "edge_weight",
                "edge_y",
                "edge_train",
                "edge_val",
                "edge_test",
            )
            if (x := getattr(graph, field)) is not None
        },
        edge_columns={
            name: np.concatenate((x, x[: len(at)])) for name, x in graph.edge_columns.items()
        },
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda g: g.with_self_loops(columns={"kind": -1}),
        lambda g: g.with_self_loops("zeros", {"kind": 1 << 40, "size": 2.5}),
        lambda g: g.without_self_loops(),
        lambda g: g.without_self_loops().with_self_loops(columns={"kind": -1}),
    ],
)
def test_changed_edges_are_computed_when_they_are_read(change, tmp_path, monkeypatch):
    monkeypatch.setattr(lazy, "CHUNK", 33)
    monkeypatch.setattr(transform, "CHUNK", 33)
    graph = loops_of(
        PLAIN.replace(
            edge_columns={
                "kind": np.arange(200),
                "size": np.random.default_rng(0).normal(size=(200, 2)),
            }
        )
    )
    plain = change(graph)
    stored = change(read_store(written(tmp_path / "s", graph)))
    assert isinstance(stored.src, LazyArray) and stored.in_files and not plain.in_files
    assert stored.digest() == plain.digest() == pickle.loads(pickle.dumps(stored)).digest()
    some = np.random.default_rng(1).integers(0, plain.n_edges, 50)
    for field in ("src", "dst", "edge_attr", "edge_weight"):
        np.testing.assert_array_equal(getattr(stored, field)[some], getattr(plain, field)[some])
        np.testing.assert_array_equal(
            getattr(stored, field)[30:170:3], getattr(plain, field)[30:170:3]
        )
    for placement in (("1d-src", "hash"), ("vertex-cut", "block")):
        for size in (1, 3):
            parts = [run_simulated(size, partial(part_of, placement), g) for g in (plain, stored)]
            for own, other in zip(*parts, strict=True):
                for x, y in zip(graphs.arrays_of(own), graphs.arrays_of(other), strict=True):
                    np.testing.assert_array_equal(x, y)
                for name in ("weight", "attr", "kind", "size"):
                    np.testing.assert_array_equal(own.edge.read(name), other.edge.read(name))
    assert stored.replace(name="other").digest() == plain.digest()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("loops", ["yes", "no"])
def test_a_model_of_self_loops_trains_on_a_store(loops, tmp_path):
    graph = loops_of(PLAIN)

    def losses(comm, g):
        result = gt.Trainer("gcn", g, comm=comm, self_loops=loops, epochs=2, dtype="float64").fit()
        return [row["loss"] for row in result.history], result.metrics

    plain, stored = (
        run_simulated(3, losses, g) for g in (graph, gt.load(written(tmp_path / "s", graph)))
    )
    assert plain == stored


@pytest.mark.one_in(2)
@pytest.mark.parametrize("masks", [False, True])
def test_links_of_a_store_are_split_by_slices(masks, tmp_path):
    fields = dict.fromkeys(
        (
            "y",
            "edge_y",
            "train",
            "val",
            "test",
            *(() if masks else ("edge_train", "edge_val", "edge_test")),
        )
    )
    graph = loops_of(PLAIN.replace(**fields))
    stored = gt.load(written(tmp_path / "s", graph), split="stored")

    def found(comm, g):
        keys = {"task": "link", "epochs": 2, "dtype": "float64", "backend": "reference"}
        trainer = gt.Trainer("gcn", g, comm=comm, **keys)
        result = trainer.fit()
        return [row["loss"] for row in result.history], result.metrics, trainer.predict()

    whole = run_simulated(1, found, graph)[0]
    split = link_split(graph, seed=0)
    assert split.val.size and whole[2][0].tolist() == split.test.T.tolist()
    own = run_simulated(3, found, stored)[0]
    np.testing.assert_allclose(own[0], whole[0], rtol=1e-9)
    for x, y in zip(own[2], whole[2], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9)


def test_clusters_are_kept_beside_a_store(tmp_path, monkeypatch):
    def found(**options):
        return stored_clusters.clusters_of(
            gt.load(tmp_path / "s", split="stored"), "louvain", **options
        ).tolist()

    def computed(*args, **named):
        given = inspect.signature(find_clusters).bind(*args, **named)
        ran.append(tuple(given.arguments.values())[3:])
        return find_clusters(*args, **named)

    ran = []
    monkeypatch.setattr(stored_clusters, "find_clusters", computed)
    written(tmp_path / "s")
    first = found()
    (path,) = (tmp_path / "s.clusters").iterdir()
    assert found() == first and path.name.startswith("louvain-0-0-")
    found(n_clusters=2)
    assert ran == [("louvain", 0, 0), (str(path),), ("louvain", 2, 0)]
    assert len(list((tmp_path / "s.clusters").iterdir())) == 2
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(FormatError, match="cluster numbers"):
        found()


def test_relations_without_names_are_counted_in_a_store(tmp_path, monkeypatch):
    monkeypatch.setattr(lazy, "CHUNK", 7)
    graph = graphs.random_graph(12, 40, edge_columns={"relation": np.arange(40) % 3})
    write_store(graph, tmp_path / "coded.store", SerialComm(), "stored")
    stored = gt.load(str(tmp_path / "coded.store"))
    for changed in (stored.with_self_loops(columns={"relation": 2}), stored.without_self_loops()):
        assert isinstance(changed.edge_columns["relation"], LazyArray) and changed.n_relations == 3

    def losses(comm, source):
        keys = {
            "strategy": "mini",
            "batch_size": 3,
            "fanout": "2",
            "epochs": 1,
            "backend": "reference",
            "dtype": "float64",
        }
        return [row["loss"] for row in gt.Trainer("gcn", source, comm=comm, **keys).fit().history]

    assert run_simulated(2, losses, stored)[0] == pytest.approx(
        run_simulated(1, losses, graph)[0], rel=1e-9
    )
