"""Features that are read by rows: the graph keeps them where they are, and says what cannot be done
with them.
"""

from __future__ import annotations

import pickle

import graphs
import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.directory import ComputedDirectory
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.store.memory import MemoryColumn
from graphtheta.errors import DataError, ShapeError
from graphtheta.graph.data import arrays

PLAIN = graphs.random_graph(40, 200, edge_y=None, edge_train=None, edge_val=None, edge_test=None)


def mapped(folder, x=PLAIN.x):
    np.save(folder / "x.npy", x)
    return PLAIN.replace(x=gt.MappedColumn(folder / "x.npy"))


def trained(comm, graph, keys):
    trainer = gt.Trainer(
        graph=graph, comm=comm, epochs=2, dtype="float64", hidden=5, backend="reference", **keys
    )
    return (
        [trainer.train_epoch(i) for i in range(2)],
        trainer.measure(),
        trainer.partition.node.column("x").nbytes,
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "global"},
        {"strategy": "mini", "batch_size": 7},
        {"task": "link", "strategy": "mini"},
    ],
    ids=str,
)
def test_training_from_a_file_equals_training_from_memory(keys, tmp_path):
    for size in (1, 3):
        *found, held = run_simulated(size, trained, mapped(tmp_path), keys)[0]
        *expected, before = run_simulated(size, trained, PLAIN, keys)[0]
        assert found == expected and held == 0 < before


@pytest.mark.parametrize(
    "values, strategy, copies",
    [("float32", "global", 1), ("bfloat16", "global", 1), ("float32", "mini", 2)],
)
def test_features_in_a_file_are_copied_once_for_steps_over_the_whole_graph(
    values, strategy, copies, tmp_path, monkeypatch
):
    wide = np.random.default_rng(3).standard_normal((40, 24)).astype(np.float32)
    graph = mapped(tmp_path, wide)
    read = []
    begin = gt.MappedColumn.read_begin

    def watched(column, rows):
        read.extend([column] if rows is not None and len(rows) == len(wide) else [])
        return begin(column, rows)

    monkeypatch.setattr(gt.MappedColumn, "read_begin", watched)
    keys = {"batch_size": 40, "fanout": "1,1"} if strategy == "mini" else {}
    trainer = gt.Trainer(graph=graph, strategy=strategy, values=values, dropout=0.5, **keys)
    read.clear()
    for epoch in range(2):
        trainer.train_epoch(epoch)
        trainer.measure()
    assert len(read) == copies


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "mini", "batch_size": 7, "fanout": "2"},
        {"strategy": "mini", "batch_size": 7, "mode": "independent"},
        {"task": "edge", "partitioner": "random"},
        {"strategy": "cluster", "clusters": 4},
    ],
    ids=str,
)
def test_training_on_mapped_edges_equals_training_in_memory(keys, tmp_path):
    whole = graphs.random_graph(40, 200) if keys.get("task") == "edge" else PLAIN
    for name in ("src", "dst"):
        np.save(tmp_path / f"{name}.npy", getattr(whole, name))
    sliced = whole.replace(
        edge_index=tuple(
            np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("src", "dst")
        )
    )
    keys = {"model": "sage", **keys}
    found, expected = (run_simulated(3, trained, g, keys)[0] for g in (sliced, whole))
    assert found == expected
    kinds = run_simulated(
        3, lambda comm: type(gt.Trainer(graph=sliced, comm=comm, **keys).partition.directory)
    )
    assert kinds == [ComputedDirectory] * 3


def test_a_mapped_array_is_copied_by_the_worker_that_reads_it(tmp_path):
    np.save(tmp_path / "x.npy", PLAIN.x)
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    g = PLAIN.replace(x=x)
    assert all(np.shares_memory(other.x, x) for other in (g, g.with_self_loops(), g.reversed()))
    for p in run_simulated(3, lambda comm: build_partition(g, comm)):
        assert p.node.column("x").nbytes == p.n_masters * x[0].nbytes
        np.testing.assert_array_equal(p.node.read("x"), PLAIN.x[p.masters])


def test_the_graph_is_described_as_with_an_array(tmp_path, monkeypatch):
    g = mapped(tmp_path)
    monkeypatch.setattr(arrays, "ROWS_AT_ONCE", 7)
    assert (
        g.digest()
        == PLAIN.digest()
        == g.with_self_loops()
        .without_self_loops()
        .replace(
            edge_index=PLAIN.edge_index, edge_attr=PLAIN.edge_attr, edge_weight=PLAIN.edge_weight
        )
        .digest()
    )
    assert mapped(tmp_path, PLAIN.x + 1).digest() != PLAIN.digest()
    assert (
        g.nbytes == PLAIN.nbytes - PLAIN.x.nbytes and g.n_features == 4 and repr(g) == repr(PLAIN)
    )
    assert g.summary()["features"] == 4 and not g.summary()["sparse features"]
    again = pickle.loads(pickle.dumps(g))
    assert isinstance(again.x, gt.MappedColumn) and again.digest() == g.digest()


def test_other_graphs_of_it_keep_the_column(tmp_path):
    g = mapped(tmp_path)
    for other in (
        g.with_self_loops(),
        g.reversed(),
        g.symmetrised(),
        g.keep_edges([1, 2]),
        g.with_masks(g.train),
        g.deduplicated(),
    ):
        assert other.x is g.x
    names = g.to_networkx().nodes(data="x")
    np.testing.assert_array_equal([x for _, x in names], PLAIN.x)


def test_a_sparse_column():
    x = sp.random(40, 30, 0.1, format="csr", random_state=0, dtype=np.float32)
    given = PLAIN.replace(x=x)
    column = PLAIN.replace(x=MemoryColumn(x))
    assert column.summary()["sparse features"] and "30 sparse features" in repr(column)
    np.testing.assert_array_equal([x for _, x in column.to_networkx().nodes(data="x")], x.toarray())
    for size in (1, 3):
        found, expected = (
            run_simulated(size, trained, g, {"strategy": "mini", "batch_size": 7})[0]
            for g in (column, given)
        )
        assert found[:2] == expected[:2]


@pytest.mark.parametrize(
    "work",
    ["subset", "largest_component", "with_row_normalised_features", "with_standardised_features"],
)
def test_what_needs_all_values_is_refused(work, tmp_path):
    g = mapped(tmp_path)
    with pytest.raises(DataError, match="x is a feature store that is read by rows"):
        getattr(g, work)(*([[0, 1]] if work == "subset" else []))


@pytest.mark.parametrize(
    "x, error, message",
    [
        (
            np.zeros((39, 4), np.float32),
            ShapeError,
            r"x: expected 40 rows, one per node, got shape \[39, 4\]",
        ),
        (np.zeros(40, np.float32), ShapeError, r"x: expected shape \[40, d\], got \[40\]"),
        (np.zeros((40, 4), np.int32), DataError, "x: the column has values of dtype int32"),
    ],
    ids=["rows", "axes", "integers"],
)
def test_columns_that_do_not_fit_are_refused(x, error, message, tmp_path):
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(error, match=message):
        gt.Graph(PLAIN.edge_index, 40, x=gt.MappedColumn(tmp_path / "x.npy"))


def test_half_a_column_is_refused():
    half = type("Half", (), {"read_begin": None, "shape": (40, 4), "dtype": np.dtype("f4")})()
    with pytest.raises(
        DataError,
        match="Half has the method read_begin of a feature store, but no attribute sparse",
    ):
        PLAIN.replace(x=half)


def test_edges_have_no_such_columns(tmp_path):
    with pytest.raises(
        DataError, match="edge_attr: a feature store that is read by rows cannot hold edge values"
    ):
        PLAIN.replace(edge_attr=mapped(tmp_path).x)
