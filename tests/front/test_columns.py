"""Named columns: what they keep, what is refused, and that every change of a graph takes them
along.
"""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.cli.warmup import small
from graphtheta.errors import ConfigError, DataError, GraphThetaError, ShapeError
from graphtheta.graph.data.arrays import COLUMNS, EDGE_FIELDS, NODE_FIELDS
from graphtheta.graph.data.columns import TAKEN
from graphtheta.graph.datasets.reader_npz import read_npz
from graphtheta.graph.splits.links import link_split

sp = pytest.importorskip("scipy.sparse")

EDGES = [[0, 1, 2, 0], [1, 2, 0, 0]]
# around the largest integers of float32, int32 and float64
LARGE = np.array([2**24 + 1, -(2**31) - 5, 2**53 + 1, 2**63 - 1])


def full(**fields):
    pair = np.arange(8).reshape(4, 2)
    return gt.Graph(
        EDGES,
        3,
        **{
            "x": np.eye(3),
            "node_columns": {"kind": [0, 1, 2], "place": [[1.5, 2], [3, 4], [5, 6]]},
            "edge_columns": {
                "type": [0, 1, 0, 2],
                "stamp": LARGE,
                "pair": pair,
                "size": [1.0, 2, 3, 4],
            },
            **fields,
        },
    )


# ---- what is kept


@pytest.mark.parametrize(
    "given, kept",
    [
        *((np.dtype(t), np.int32) for t in ("i1", "i2", "i4", "u1", "u2", ">i4", "?")),
        *((np.dtype(t), np.int64) for t in ("i8", "u4", "u8", ">i8")),
        *((np.dtype(t), np.float32) for t in ("f2", "f4", ">f4")),
        *((np.dtype(t), np.float64) for t in ("f8", ">f8")),
    ],
)
def test_kinds(given, kept):
    a = np.array([1, 0, 1, 1], given)
    column = full(edge_columns={"type": a}).edge_columns["type"]
    assert column.dtype == kept and column.dtype.isnative and np.array_equal(column, a)


def test_integers_are_never_rounded():
    g = full()
    assert np.array_equal(g.edge_columns["stamp"], LARGE)
    assert (
        full(edge_columns={"s": LARGE.astype(np.uint64) >> np.uint64(1)}).edge_columns["s"].dtype
        == np.int64
    )
    assert full(edge_columns={"s": LARGE.tolist()}).edge_columns["s"].tolist() == LARGE.tolist()


def test_columns_are_read_only_and_keep_their_shape():
    g = full()
    assert g.edge_columns["type"].shape == (4,) and g.edge_columns["pair"].shape == (4, 2)
    with pytest.raises(ValueError, match="read-only"):
        g.edge_columns["type"][0] = 7
    with pytest.raises(TypeError):
        g.edge_columns["more"] = g.edge_columns["type"]


def test_nodes_are_counted_by_columns_too():
    assert gt.Graph(EDGES, node_columns={"kind": np.arange(9)}).n_nodes == 9
    assert (
        gt.Graph(np.zeros((2, 0), int), 2, edge_columns={"type": np.zeros(0, int)})
        .edge_columns["type"]
        .dtype
        == np.int64
    )


# ---- what is refused


BAD = {
    "too few rows": (
        {"node_columns": {"kind": [1, 2]}},
        ShapeError,
        ["node_columns['kind']", "3 rows", "[2]"],
    ),
    "three axes": (
        {"edge_columns": {"t": np.zeros((4, 2, 2), int)}},
        ShapeError,
        ["edge_columns['t']", "[4, 2, 2]", "flatten"],
    ),
    "one number": ({"edge_columns": {"t": 3}}, ShapeError, ["edge_columns['t']", "4 rows"]),
    "texts": (
        {"edge_columns": {"t": list("abca")}},
        DataError,
        ["edge_columns['t']", "<U1", "np.unique", "return_inverse"],
    ),
    "times": (
        {"edge_columns": {"t": np.zeros(4, "M8[s]")}},
        DataError,
        ["datetime64", "astype('int64')"],
    ),
    "beyond 64 bits": ({"edge_columns": {"t": [2**70] * 4}}, DataError, ["object"]),
    "some beyond 64 bits": ({"edge_columns": {"t": [1, 2**63 + 1, 2, 3]}}, DataError, ["object"]),
    "some rows beyond 64 bits": (
        {"node_columns": {"t": [[1], [2**63 + 1], [-1]]}},
        DataError,
        ["object"],
    ),
    "unsigned": (
        {"edge_columns": {"t": np.array([1, 2, 2**63, 4], np.uint64)}},
        DataError,
        ["edge 2 is 9223372036854775808", "np.unique"],
    ),
    "complex": ({"node_columns": {"t": [1j, 2, 3]}}, DataError, ["complex"]),
    "sparse": ({"node_columns": {"t": sp.eye_array(3)}}, DataError, ["sparse", "toarray"]),
    "nan": (
        {"node_columns": {"t": [1.0, np.nan, 3]}},
        DataError,
        ["node_columns['t']", "node 1", "nan"],
    ),
    "whole floats": (
        {"edge_columns": {"t": [[1.0], [2], [2**24 + 1], [4]]}},
        DataError,
        ["edge 2, column 0 is 16777217", "16777216", "integers"],
    ),
    "beyond float32": (
        {"edge_columns": {"t": [1.0, 2, 1e300, 4]}},
        DataError,
        ["edge 2 is 1e+300"],
    ),
    "no identifier": (
        {"edge_columns": {"a b": [1] * 4}},
        DataError,
        ["edge_columns", "'a b'", "identifier"],
    ),
    "no name": ({"edge_columns": {7: [1] * 4}}, DataError, ["7", "identifier"]),
    "keyword": ({"edge_columns": {"class": [1] * 4}}, DataError, ["'class'", "identifier"]),
    "underscore": ({"node_columns": {"_kind": [1] * 3}}, DataError, ["'_kind'", "'_'"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_columns_are_refused_in_plain_words(case):
    fields, error, words = BAD[case]
    with pytest.raises(error) as caught:
        full(where="some.npz", **fields)
    assert isinstance(caught.value, GraphThetaError)
    for word in ["some.npz", *words]:
        assert word in str(caught.value)


def test_names_of_other_values_are_refused():
    assert {*NODE_FIELDS, *EDGE_FIELDS} <= TAKEN
    for name in TAKEN:
        for field, n in zip(COLUMNS, (3, 4), strict=True):
            with pytest.raises(DataError, match=f"'{name}' is reserved"):
                full(**{field: {name: np.zeros(n)}})


# ---- x and edge_attr round no integers


@pytest.mark.parametrize(
    "field, n, remedy", [("x", 3, "node_columns"), ("edge_attr", 4, "edge_columns")]
)
@pytest.mark.parametrize("dtype", ["i8", "u8", "i4", "u4", "f8"])
def test_integers_that_float32_would_round_are_refused(field, n, remedy, dtype):
    a = np.ones((n, 2))
    a[2, 1] = 2**25 + 1
    words = (
        rf"{field}: (node|edge) 2, column 1 is 33554433, which float32 would round to 33554432;"
        rf" .*{remedy}"
    )
    with pytest.raises(DataError, match=words):
        full(**{field: a.astype(dtype)})
    a[2, 1] = 2**25 + 4
    assert getattr(full(**{field: a.astype(dtype)}), field)[2, 1] == 2**25 + 4


@pytest.mark.parametrize(
    "value, refused",
    [
        (2**24, False),
        (2**24 + 1, True),
        (-(2**24) - 1, True),
        (2**63 - 1, True),
        (-(2**63), False),
        (2**40, False),
        (2**40 + 1, True),
    ],
)
def test_bounds_of_exact_integers(value, refused):
    x = np.array([0, value, 1])
    if refused:
        with pytest.raises(DataError, match=f"node 1, column 0 is {value},"):
            full(x=x)
    else:
        assert full(x=x).x[1, 0] == value


def test_measurements_may_be_rounded():
    """Columns with fractions, numbers beyond those that float64 counts by, and what the caller has
    rounded himself.
    """
    full(x=np.array([[0.5], [2**24 + 1], [3]]))
    full(x=np.array([[1e30], [2**24 + 1], [3]]))
    full(x=np.array([[1], [2**24 + 1], [3]], np.float32))
    with pytest.raises(DataError, match="column 1 is 16777217"):
        full(x=np.array([[0.5, 1], [2**24 + 1, 2**24 + 1], [3, 3]]))


def test_sparse_features_round_no_integers():
    at = (np.array([0, 1, 2]), np.array([5, 40, 40]))
    with pytest.raises(DataError, match="node 2, column 40 is 16777217"):
        full(x=sp.coo_array((np.array([1, 2, 2**24 + 1]), at), shape=(3, 90)))
    assert full(x=sp.coo_array((np.array([1, 0.5, 2**24 + 1]), at), shape=(3, 90))).x.nnz == 3


# ---- what takes them along


def test_replace_pickle_and_digest():
    g = full()
    assert pickle.loads(pickle.dumps(g)).digest() == g.digest() == full().digest()
    types = [0, 1, 0, 3], np.array([0, 1, 0, 2], np.int32)
    other = [
        g.replace(edge_columns=None),
        g.replace(node_columns={}),
        full(node_columns=None, edge_columns=None),
        *(g.replace(edge_columns={**g.edge_columns, "type": x}) for x in types),
    ]
    assert len({h.digest() for h in [g, *other]}) == 6
    turned = dict(reversed(g.edge_columns.items()))
    assert g.replace(edge_columns=turned).digest() == g.digest()
    assert g.nbytes == full(node_columns=None, edge_columns=None).nbytes + sum(
        x.nbytes for f in COLUMNS for x in getattr(g, f).values()
    )
    # graphs without columns are what they were
    assert gt.Graph(EDGES, 3).digest() == "18f8c6db48f9a2cdc795823d359f407b"


def check_edges(made, old, number):
    """Columns of ``made`` are those of the edges ``number`` of ``old``."""
    assert made.edge_columns.keys() == old.edge_columns.keys()
    for name, x in old.edge_columns.items():
        assert made.edge_columns[name].dtype == x.dtype
        np.testing.assert_array_equal(made.edge_columns[name], x[number])


def check_nodes(made, old, number):
    for name, x in old.node_columns.items():
        assert made.node_columns[name].dtype == x.dtype
        np.testing.assert_array_equal(made.node_columns[name], x[number])


def test_changes_of_a_graph():
    g = full()
    check_edges(g.keep_edges([2, 0]), g, [2, 0])
    check_edges(g.without_self_loops(), g, [0, 1, 2])
    check_edges(g.reversed(), g, [0, 1, 2, 3])
    check_edges(g.symmetrised(), g, [0, 1, 2, 3, 0, 1, 2])
    some = g.subset([2, 0])
    check_nodes(some, g, [2, 0])
    check_edges(some, g, [2, 3])
    twice = gt.Graph(np.tile(EDGES, 2), 3, edge_columns={"type": np.arange(8)})
    check_edges(twice.deduplicated(), twice, [0, 1, 2, 3])
    two = gt.Graph(
        [[0, 3, 4], [1, 4, 5]],
        7,
        node_columns={"kind": np.arange(7)},
        edge_columns={"type": [5, 6, 7]},
    )
    check_nodes(two.largest_component(), two, [3, 4, 5])
    check_edges(two.largest_component(), two, [1, 2])
    for made in (g.with_row_normalised_features(), g.with_masks(None)):
        check_nodes(made, g, [0, 1, 2])
        check_edges(made, g, [0, 1, 2, 3])


def test_links_that_are_held_back_take_their_columns_away():
    g = gt.Graph(
        np.random.default_rng(0).integers(0, 40, (2, 200)),
        40,
        edge_columns={"type": np.arange(200)},
    )
    message = link_split(g).graph
    np.testing.assert_array_equal(message.edge_index, g.edge_index[:, message.edge_columns["type"]])


def test_self_loops():
    g = full()
    with pytest.raises(
        DataError,
        match=(
            r"edge column 'type' holds integers.*2 self loops.*with_self_loops\(columns=\{'type':"
            r" VALUE\}\)"
        ),
    ):
        g.with_self_loops()
    values = {"type": 3, "stamp": 2**40, "pair": [8, 9]}
    made = g.with_self_loops(columns=values)
    check_edges(made.keep_edges(np.arange(4)), g, np.arange(4))
    check_nodes(made, g, [0, 1, 2])
    assert {n: x[4:].tolist() for n, x in made.edge_columns.items()} == {
        "type": [3, 3],
        "stamp": [2**40] * 2,
        "pair": [[8, 9]] * 2,
        "size": [1, 2],
    }
    zeros = g.with_self_loops("zeros", {**values, "pair": 7})
    assert (
        zeros.edge_columns["size"][4:].tolist() == [0, 0]
        and zeros.edge_columns["pair"][4:].tolist() == [[7, 7]] * 2
    )
    assert g.with_self_loops(columns={**values, "size": 0.5}).edge_columns["size"][4:].tolist() == [
        0.5,
        0.5,
    ]
    # where no loop is missing no value is
    assert made.with_self_loops().digest() == made.digest()
    for bad, words in (
        ({"kind": 1}, "no such edge column"),
        ({"type": 1.5}, "'type'.*1.5; expected an integer"),
        ({"pair": [1, 2, 3]}, "expected an integer, or 2 of them"),
        ({"type": 2**63}, "expected an integer"),
        ({"size": "a"}, "'size'.*expected a number"),
        ({"size": np.inf}, "inf"),
    ):
        with pytest.raises(DataError, match=words):
            g.with_self_loops(columns={**values, **bad})
    with pytest.raises(ConfigError, match="'mean' or 'zeros'"):
        g.with_self_loops("ones", values)


def test_a_value_wider_than_its_column_widens_it():
    g = full(edge_columns={"type": np.zeros(4, np.int32)})
    for value, dtype in (
        (2**31 - 1, np.int32),
        (-(2**31), np.int32),
        (2**31, np.int64),
        (True, np.int32),
    ):
        made = g.with_self_loops(columns={"type": value}).edge_columns["type"]
        assert made.dtype == dtype and made[-1] == value


def test_float_columns_of_two_axes_have_means():
    g = full(
        edge_columns={"w": np.arange(8.0).reshape(4, 2)}, edge_attr=np.arange(8.0).reshape(4, 2)
    ).with_self_loops()
    np.testing.assert_array_equal(g.edge_columns["w"], g.edge_attr)
    assert gt.Graph(
        np.zeros((2, 0), int), 2, edge_columns={"w": np.zeros(0)}
    ).with_self_loops().edge_columns["w"].tolist() == [0, 0]


def test_files(tmp_path):
    g = full()
    path = tmp_path / "mine.npz"
    columns = {f"{field}.{name}": x for field in COLUMNS for name, x in getattr(g, field).items()}
    np.savez(path, edge_index=EDGES, x=np.eye(3), edge_columns=np.zeros(2), **columns)
    h = read_npz(path)
    check_nodes(h, g, [0, 1, 2])
    check_edges(h, g, [0, 1, 2, 3])
    assert h.meta["unused_fields"] == ["edge_columns"]
    check_edges(gt.load(path), g, [0, 1, 2, 3])
    for name, x, words in (
        (
            "edge_columns.type",
            np.array(list("abca")),
            "edge_columns['type']: values have dtype <U1",
        ),
        ("edge_columns.a b", np.zeros(4), "'a b'"),
        ("node_columns.kind", np.zeros(4), "expected 3 rows"),
    ):
        np.savez(path, edge_index=EDGES, n_nodes=3, **{name: x})
        with pytest.raises(GraphThetaError) as caught:
            read_npz(path)
        assert str(path) in str(caught.value) and words in str(caught.value)


def test_networkx_and_scipy():
    nx = pytest.importorskip("networkx")
    g = full()
    h = gt.Graph.from_networkx(
        g.to_networkx(),
        x="x",
        node_columns=["kind", "place"],
        edge_columns=["type", "stamp", "pair", "size"],
    )
    order = np.lexsort((g.dst, g.src))
    again = np.lexsort((h.dst, h.src))
    check_nodes(h, g, [0, 1, 2])
    for name, x in g.edge_columns.items():
        np.testing.assert_array_equal(h.edge_columns[name][again], x[order])
    u = nx.Graph([(0, 1, {"type": 5}), (1, 2, {"type": 6})])
    assert sorted(gt.Graph.from_networkx(u, edge_columns="type").edge_columns["type"].tolist()) == [
        5,
        5,
        6,
        6,
    ]
    u.edges[0, 1]["type"] = "bond"
    with pytest.raises(DataError, match=r"edge_columns\['type'\].*np.unique"):
        gt.Graph.from_networkx(u, edge_columns="type")
    with pytest.raises(DataError, match="no attribute 'kind'"):
        gt.Graph.from_networkx(u, node_columns="kind")
    matrix = sp.csr_array(([1.0, 1.0], ([0, 1], [1, 0])), shape=(2, 2))
    assert gt.Graph.from_scipy(matrix, edge_columns={"type": [3, 4]}).edge_columns[
        "type"
    ].tolist() == [3, 4]


def test_words_about_columns(tmp_path, capsys):
    g = full()
    assert "node columns kind, place, edge columns type, stamp, pair, size" in repr(g)
    assert g.summary()["node columns"] == "kind int64, place float32 [2]"
    assert "node columns" not in gt.Graph(EDGES).summary()
    np.savez(
        tmp_path / "mine.npz", edge_index=EDGES, **{"edge_columns.type": np.zeros(4, np.uint8)}
    )
    assert main(["info", "--dataset", str(tmp_path / "mine.npz"), "--split", "none"]) == 0
    assert "edge columns" in (said := capsys.readouterr().out) and "type int32" in said
    json.dumps(g.summary())


def test_small_graphs_for_warming_up_have_the_same_columns():
    g = gt.Graph(
        np.random.default_rng(0).integers(0, 500, (2, 4000)),
        500,
        x=np.ones((500, 2)),
        y=np.arange(500) % 3,
        node_columns={"kind": np.arange(500)},
        edge_columns={"type": np.arange(4000, dtype=np.int32)},
    )
    s = small(g)
    assert (
        s.n_nodes < 100
        and s.node_columns["kind"].dtype == np.int64
        and s.edge_columns["type"].dtype == np.int32
    )
    assert s.n_classes == 3
