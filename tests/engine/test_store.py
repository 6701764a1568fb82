"""Columns and stores: rows as they were given, roles that overlays keep, and reads that are begun
early and ended once.
"""

from __future__ import annotations

import pickle
from threading import Event

import graphs
import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.store import mapped as mapped_columns
from graphtheta.engine.store.column import Decoding, Role
from graphtheta.engine.store.mapped import MappedColumn
from graphtheta.engine.store.memory import MemoryColumn
from graphtheta.engine.store.selected import SelectedColumn
from graphtheta.engine.store.store import ColumnStore
from graphtheta.errors import FormatError, ShapeError, UserFunctionError

X = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
ROWS = np.array([5, 5, 0, 8])


class Slow:
    """A column that notes which reads were begun and ended."""

    dtype = X.dtype
    sparse = False
    nbytes = 0

    def __init__(self):
        self.shape = X.shape
        self.begun = []
        self.ended = []

    def read_begin(self, rows):
        self.begun.append(None if rows is None else rows.tolist())
        number = len(self.begun) - 1
        return type(
            "SlowRead",
            (),
            {"end": lambda _: self.ended.append(number) or (X if rows is None else X[rows])},
        )()


def mapped(folder, values=X):
    np.save(folder / "x.npy", values)
    return MappedColumn(folder / "x.npy")


def store(**columns):
    return ColumnStore(
        9,
        {
            "x": (Role.FEATURE, MemoryColumn(X)),
            "y": (Role.TARGET, MemoryColumn(np.arange(9))),
            **columns,
        },
    )


def kinds(folder):
    """One column of each kind, with the same values."""
    turned = np.arange(9)[::-1]
    return {
        "memory": MemoryColumn(X),
        "sparse": MemoryColumn(sp.csr_array(X)),
        "mapped": mapped(folder),
        "ordered": MemoryColumn(X[::-1].copy(), turned),
        "selected": SelectedColumn(MemoryColumn(X[::-1]), turned, np.float32),
    }


@pytest.mark.parametrize("kind", ["memory", "ordered", "sparse", "mapped", "selected"])
def test_rows_are_those_that_were_given(kind, tmp_path):
    column = kinds(tmp_path)[kind]
    assert (
        column.shape == X.shape and column.dtype == X.dtype and column.sparse == (kind == "sparse")
    )
    for rows, expected in ((ROWS, X[ROWS]), (None, X), (ROWS, X[ROWS]), (ROWS[:0], X[:0])):
        found = column.read_begin(rows).end()
        assert sp.issparse(found) == column.sparse
        np.testing.assert_array_equal(found.toarray() if column.sparse else found, expected)


def test_all_rows_are_not_copied(tmp_path):
    assert MemoryColumn(X).read_begin(None).end() is X
    column = mapped(tmp_path)
    assert np.shares_memory(column.read_begin(None).end(), column.read_begin(None).end())


def test_rows_in_another_order_are_copied_once():
    column = MemoryColumn(X, np.arange(9)[::-1])
    assert not np.shares_memory(column.read_begin(None).end(), X)
    assert column.read_begin(None).end() is column.read_begin(None).end()


def test_bytes_in_memory(tmp_path):
    rows = sp.csr_array(X)
    found = {name: column.nbytes for name, column in kinds(tmp_path).items()}
    assert found == {
        "memory": X.nbytes,
        "ordered": X.nbytes,
        "mapped": 0,
        "selected": X.nbytes,
        "sparse": rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes,
    }
    assert store().nbytes == X.nbytes + np.arange(9).nbytes


def test_a_selected_column_converts_what_it_reads(tmp_path):
    column = SelectedColumn(mapped(tmp_path), ROWS, np.float64)
    found = column.read_begin(np.array([2, 0])).end()
    assert column.dtype == found.dtype == np.float64 and column.shape == (4, 4)
    np.testing.assert_array_equal(found, X[[0, 5]])


@pytest.mark.parametrize(
    "returned, message",
    [
        (X[:3], r"Slow: a read of 4 rows returned ndarray \[3, 4\]; expected ndarray \[4, 4\]"),
        (X[:4, :1], r"returned ndarray \[4, 1\]"),
        (sp.csr_array(X[:4]), "returned csr"),
        (X[:4].tolist(), r"returned list \[\]"),
        (None, "returned NoneType"),
    ],
    ids=str,
)
def test_a_read_returns_what_was_asked_for(returned, message):
    slow = Slow()
    slow.read_begin = lambda rows: type("Wrong", (), {"end": lambda _: returned})()
    with pytest.raises(UserFunctionError, match=message):
        SelectedColumn(slow, ROWS, np.float32).read_begin(None).end()


def test_what_was_read_may_be_changed():
    x = np.asfortranarray(X[ROWS]).view(np.memmap)
    x.flags.writeable = False
    slow = Slow()
    slow.read_begin = lambda rows: type("Frozen", (), {"end": lambda _: x})()
    found = SelectedColumn(slow, ROWS, np.float32).read_begin(None).end()
    assert type(found) is np.ndarray and found.flags.writeable and found.flags.c_contiguous
    np.testing.assert_array_equal(found, X[ROWS])


def test_a_mapped_column_is_pickled_as_its_path(tmp_path):
    large = mapped(tmp_path, np.zeros((1000, 100)))
    text = pickle.dumps(large)
    assert len(text) < 1000 and pickle.loads(text).shape == (1000, 100)


@pytest.mark.parametrize(
    "rows",
    [np.arange(3, 9), np.arange(9)[::-1], np.array([4, 4, 4]), np.array([8, 0, 8, 1, 2, 3] * 50)],
    ids=str,
)
@pytest.mark.parametrize(
    "values",
    [X, X[:, 0].copy(), np.zeros((9, 0), np.float32), np.arange(9) > 4],
    ids=lambda x: str(x.shape),
)
def test_rows_of_a_file_are_read_in_parts_and_put_in_order(values, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_columns, "_PART", 64)
    column = mapped(tmp_path, values)
    found = column.read_begin(rows).end()
    np.testing.assert_array_equal(found, values[rows])
    assert found.flags.writeable and found.dtype == values.dtype
    for wrong in (9, -1):
        with pytest.raises(IndexError, match="of a column of 9 rows"):
            column.read_begin(np.append(rows, wrong))


@pytest.mark.parametrize("in_flight", [1, 2])
def test_rows_of_the_next_batch_are_read_while_one_computes(in_flight, tmp_path, monkeypatch):
    begun, most, together = set(), [], Event()

    class Counted(mapped_columns._RowRead):
        def __init__(self, *args):
            begun.add(self)
            most.append(len(begun))
            if len(begun) == 2:
                together.set()
            super().__init__(*args)

        def end(self):
            assert in_flight == 1 or together.wait(60)
            begun.discard(self)
            return super().end()

    np.save(tmp_path / "x.npy", np.ones((40, 4), np.float32))
    graph = graphs.random_graph(40, 200).replace(x=MappedColumn(tmp_path / "x.npy"))
    comm = SerialComm()
    comm.cores = 2
    trainer = gt.Trainer(
        graph=graph,
        comm=comm,
        strategy="mini",
        batch_size=7,
        views_in_flight=in_flight,
        views_per_step=2,
        epochs=1,
    )
    # a trainer reads rows when it is made, for the digest of its graph
    monkeypatch.setattr(mapped_columns, "_RowRead", Counted)
    trainer.train_epoch(0)
    assert max(most) == in_flight


@pytest.mark.parametrize(
    "content, message",
    [
        (b"not an array", "cannot be mapped as a column"),
        (b"", "cannot be mapped as a column"),
        (None, "cannot be mapped as a column"),
        (np.float32(1), "array of numbers"),
        (np.array(["a", "b"]), "array of numbers"),
        (np.asfortranarray(X), "C order"),
        (np.array([{}, {}]), "cannot be mapped as a column"),
    ],
    ids=str,
)
def test_what_is_no_mapped_column_is_refused(content, message, tmp_path):
    path = tmp_path / "bad.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content, allow_pickle=True)
    with pytest.raises(FormatError, match=rf"bad.npy: .*{message}.*numpy.save"):
        MappedColumn(path)


def test_an_archive_is_no_mapped_column(tmp_path):
    np.savez(tmp_path / "bad.npz", x=X)
    with pytest.raises(FormatError, match="array of numbers"):
        MappedColumn(tmp_path / "bad.npz")


def test_roles():
    s = store(train=(Role.MASK, MemoryColumn(X[:, 0] > 0)))
    assert (
        s.names() == ("x", "y", "train")
        and s.readable() == ("x",)
        and s.names(Role.MASK) == ("train",)
    )
    assert s.role("y") is Role.TARGET and "y" in s and "z" not in s
    for wrong in (
        lambda: s.role("z"),
        lambda: s.column("z"),
        lambda: s.read("z"),
        lambda: s.read_begin(["x", "z"]),
    ):
        with pytest.raises(KeyError, match="z"):
            wrong()


def test_an_overlay_keeps_roles_and_leaves_the_store_below():
    below = store()
    over = below.overlay({"y": np.ones(9), "total": MemoryColumn(X[:, :2])})
    assert over.names() == ("x", "y", "total") and over.readable() == ("x",)
    assert over.role("y") is Role.TARGET and over.role("total") is Role.DERIVED
    assert over.column("x") is below.column("x") and over.read("y").tolist() == [1] * 9
    assert below.read("y").tolist() == list(range(9)) and "total" not in below


def test_rows_of_a_store_are_counted():
    with pytest.raises(ShapeError, match="column 'y' has 4 rows, but its store has 9"):
        store().overlay({"y": np.ones(4)})


def test_empty_keeps_names_roles_and_types():
    s = store(words=(Role.FEATURE, MemoryColumn(sp.csr_array(X)))).empty()
    assert s.n_rows == 0 and s.readable() == ("x", "words") and s.role("y") is Role.TARGET
    assert (
        s.read("x").shape == s.read("words").shape == (0, 4)
        and s.column("words").sparse
        and s.read("y").dtype == np.int64
    )


def test_several_columns_are_read_at_once():
    reads = store().read_begin(["y", "x"], ROWS)
    np.testing.assert_array_equal(reads["x"].end(), X[ROWS])
    assert reads["y"].end().tolist() == ROWS.tolist()


# ---- prefixes


def test_shorter_prefixes_are_cut_and_longer_ones_read():
    slow = Slow()
    reader = store(x=(Role.FEATURE, slow)).prefixes(ROWS)
    for n in (2, 1, 0, 4, 3, 4):
        np.testing.assert_array_equal(reader.read("x", n), X[ROWS[:n]])
    assert slow.begun == [[5, 5], [5, 5, 0, 8]] and slow.ended == [0, 1]


def test_a_read_is_begun_early_and_ended_once():
    slow = Slow()
    reader = store(x=(Role.FEATURE, slow)).prefixes(ROWS)
    reader.read_begin(["x", "y", "x"], 3)
    reader.read_begin(["x"], 2)
    assert slow.begun == [[5, 5, 0]] and slow.ended == []
    np.testing.assert_array_equal(reader.read("x", 2), X[[5, 5]])
    reader.read_begin(["x"], 3)
    np.testing.assert_array_equal(reader.read("x", 3), X[[5, 5, 0]])
    assert slow.begun == [[5, 5, 0]] and slow.ended == [0] and reader.read("y", 1).tolist() == [5]


def test_a_read_that_is_too_short_is_ended_too():
    slow = Slow()
    reader = store(x=(Role.FEATURE, slow)).prefixes(ROWS)
    reader.read_begin(["x"], 1)
    np.testing.assert_array_equal(reader.read("x", 4), X[ROWS])
    assert slow.begun == [[5], [5, 5, 0, 8]] and slow.ended == [0, 1]


class Copies(Slow):
    """A slow column, each read of which returns an array of its own."""

    def read_begin(self, rows):
        read = super().read_begin(rows)
        return Decoding(read, np.copy)


def test_all_rows_are_shared_while_they_are_in_use():
    slow = Copies()
    of = store(x=(Role.FEATURE, slow))
    reader, other = of.prefixes(None), of.prefixes(None)
    reader.read_begin(["x"], 9)
    x = reader.read("x", 9)
    np.testing.assert_array_equal(x, X)
    assert other.read("x", 9) is x and reader.read("x", 0).shape == (0, 4)
    assert slow.begun == [None]
    del x
    assert np.array_equal(other.read("x", 9), X) and slow.begun == [None] * 2
    other.holds = True
    other.read("x", 9)
    assert np.shares_memory(reader.read("x", 9), other.read("x", 9))
    assert slow.begun == [None] * 3 and slow.ended == [0, 1, 2]


def test_an_unknown_column_of_a_prefix_is_a_key_error():
    reader = store().prefixes(ROWS)
    for wrong in (lambda: reader.read("z", 1), lambda: reader.read_begin(["x", "z"], 1)):
        with pytest.raises(KeyError, match="z"):
            wrong()
