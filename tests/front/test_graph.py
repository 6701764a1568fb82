"""Graphs: what is refused and how it is said; changes that make new graphs; scipy and networkx."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

from graphtheta.base.typed_rows import TypedRows
from graphtheta.errors import ConfigError, DataError, GraphThetaError, ShapeError
from graphtheta.graph.data.graph import Graph

pytestmark = pytest.mark.reference

sp = pytest.importorskip("scipy.sparse")

EDGES = [[0, 1, 2, 0], [1, 2, 0, 0]]


def mask(*rows: int, n: int = 3) -> np.ndarray:
    out = np.zeros(n, bool)
    out[list(rows)] = True
    return out


def nan_at(shape: tuple[int, ...], *where: int) -> np.ndarray:
    out = np.zeros(shape, np.float32)
    out[where] = np.nan
    return out


def sparse_with_inf() -> object:
    return sp.csr_array(([np.inf], ([2], [7])), shape=(3, 9))


BAD = {
    "edges transposed": (
        {"edge_index": np.zeros((4, 2), int)},
        ShapeError,
        ["edge_index", "[2, n_edges]", "[4, 2]", "transpose"],
    ),
    "edges flat": ({"edge_index": np.zeros(4, int)}, ShapeError, ["edge_index", "[4]", "row 0"]),
    "ends differ": (
        {"edge_index": (np.zeros(3, int), np.zeros(2, int))},
        ShapeError,
        ["src", "[3]", "[2]"],
    ),
    "float ids": (
        {"edge_index": np.ones((2, 2))},
        DataError,
        ["edge_index", "float64", "node_ids"],
    ),
    "id too large": (
        {"edge_index": [[0, 1], [1, 7]], "n_nodes": 3},
        DataError,
        ["edge 1", "destination 7", "0..2", "n_nodes"],
    ),
    "negative id": (
        {"edge_index": [[0, -4], [1, 1]], "n_nodes": 3},
        DataError,
        ["edge 1", "source -4"],
    ),
    "no nodes": ({"edge_index": np.zeros((2, 0), int)}, DataError, ["n_nodes", "0 nodes"]),
    "x rows": (
        {"x": np.zeros((2, 4)), "n_nodes": 3},
        ShapeError,
        ["x", "expected 3 rows", "[2, 4]"],
    ),
    "x axes": ({"x": np.zeros((3, 4, 1))}, ShapeError, ["x", "[3, 4, 1]"]),
    "x nan": ({"x": nan_at((3, 5), 1, 4)}, DataError, ["x", "node 1", "column 4", "nan"]),
    "x overflow": (
        {"x": np.full((3, 2), 1e200)},
        DataError,
        ["node 0", "column 0", "1e+200", "6 such values"],
    ),
    "x text": ({"x": np.full((3, 2), "a")}, DataError, ["x", "<U1"]),
    "x sparse inf": ({"x": sparse_with_inf()}, DataError, ["node 2", "column 7", "inf"]),
    "x sparse rows": (
        {"x": sp.csr_array((5, 9)), "n_nodes": 3},
        ShapeError,
        ["x", "3 rows", "[5, 9]"],
    ),
    "y rows": ({"y": [0, 1], "n_nodes": 3}, ShapeError, ["y", "3 rows"]),
    "y beyond int64": (
        {"y": np.array([0, 2**63 + 5, 1], np.uint64)},
        DataError,
        ["y", "the largest label is 9223372036854775813"],
    ),
    "y beyond classes": (
        {"y": [0, 5, 1], "n_classes": 2},
        DataError,
        ["y", "node 1", "label 5", "0..1", "n_classes"],
    ),
    "y below -1": ({"y": [0, -2, 1]}, DataError, ["node 1", "label -2"]),
    "multilabel value": (
        {"y": [[0, 1], [0, 3.0], [1, 1]], "multilabel": True},
        DataError,
        ["node 1", "column 1", "3.0", "0, 1 or NaN"],
    ),
    "y infinite": ({"y": [0.0, np.inf, 1.0]}, DataError, ["y", "node 1", "inf"]),
    "mask of ids": ({"train": [0, 1, 2]}, DataError, ["train", "int64", "mask[numbers] = True"]),
    "mask rows": ({"train": mask(0, n=4), "n_nodes": 3}, ShapeError, ["train", "3 rows", "[4]"]),
    "masks overlap": (
        {"train": mask(0, 1), "test": mask(1, 2)},
        DataError,
        ["train and test", "1 nodes", "node 1"],
    ),
    "unlabelled in mask": (
        {"y": [0, -1, 1], "val": mask(1)},
        DataError,
        ["val", "node 1", "no label"],
    ),
    "edge mask rows": ({"edge_train": mask(0)}, ShapeError, ["edge_train", "4 rows", "[3]"]),
    "edge masks overlap": (
        {"edge_train": mask(0, n=4), "edge_val": mask(0, n=4)},
        DataError,
        ["edge_train and edge_val", "edge 0"],
    ),
    "edge target unknown": (
        {"edge_y": nan_at((4,), 2), "edge_test": mask(2, n=4)},
        DataError,
        ["edge_test", "edge 2", "no target"],
    ),
    "edge_attr nan": (
        {"edge_attr": nan_at((4, 2), 3, 0)},
        DataError,
        ["edge_attr", "edge 3", "column 0"],
    ),
    "edge_weight shape": ({"edge_weight": np.ones((4, 2))}, ShapeError, ["edge_weight", "[4, 2]"]),
    "edge_weight nan": ({"edge_weight": nan_at((4,), 2)}, DataError, ["edge_weight", "edge 2"]),
    "ids repeat": (
        {"node_ids": ["a", "b", "a"]},
        DataError,
        ["node_ids", "id a", "node 0", "unique"],
    ),
    "values masked": (
        {"x": np.ma.masked_array(np.ones((3, 1)), mask=[[0], [1], [0]])},
        DataError,
        ["x", "1 values are masked"],
    ),
    "labels masked": (
        {"y": np.ma.masked_array([0, 1, 1], mask=[1, 0, 1])},
        DataError,
        ["y", "2 values are masked"],
    ),
    "edges masked": (
        {"edge_index": np.ma.masked_array(EDGES, mask=np.arange(8).reshape(2, 4) == 3)},
        DataError,
        ["edge_index", "1 values are masked"],
    ),
    "ids of floats": ({"node_ids": [1.0, 2.0, 3.0]}, DataError, ["node_ids", "float64"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_plain_words(case):
    fields, error, words = BAD[case]
    with pytest.raises(error) as caught:
        Graph(**{"edge_index": EDGES, "where": "some.npz", **fields})
    assert isinstance(caught.value, GraphThetaError)
    for word in ["some.npz", *words]:
        assert word in str(caught.value)


def full() -> Graph:
    return Graph(
        EDGES,
        x=np.eye(3),
        y=[0, 1, -1],
        edge_attr=np.arange(8.0).reshape(4, 2),
        edge_weight=[1, 2, 3, 4],
        edge_y=[1, 2, 3, 4],
        train=mask(0),
        val=mask(1),
        edge_train=mask(0, 3, n=4),
        node_ids=["a", "b", "c"],
        name="tiny",
    )


def test_canonical_types():
    g = full()
    assert (g.n_nodes, g.n_edges, g.n_features, g.n_edge_features, g.n_classes) == (3, 4, 3, 2, 2)
    assert g.src.dtype == g.dst.dtype == g.y.dtype == np.int64
    assert g.x.dtype == g.edge_attr.dtype == g.edge_weight.dtype == g.edge_y.dtype == np.float32
    assert Graph(EDGES, x=np.zeros((3, 2), np.float32)).x.dtype == np.float32


@pytest.mark.parametrize(
    ("y", "multilabel", "kind", "n_classes"),
    [
        ([0, 2, -1], None, "classes", 3),
        ([True, False, True], None, "classes", 2),
        (np.array([[0, 1], [1, 1], [np.nan, 0]]), None, "multilabel", 2),
        (np.array([[0], [1], [0]]), True, "multilabel", 1),
        (np.array([[0, 1], [1, 1], [1, 0]]), False, "regression", 0),
        (np.array([0.5, 2.0, np.nan]), None, "regression", 0),
        (None, None, "none", 0),
    ],
)
def test_kinds_of_labels(y, multilabel, kind, n_classes):
    g = Graph(EDGES, 3, y=y, multilabel=multilabel)
    assert (g.label_kind, g.n_classes) == (kind, n_classes)
    assert g.replace(name="other").label_kind == kind


def test_a_graph_does_not_change():
    g = full()
    with pytest.raises(AttributeError, match="replace"):
        g.x = None
    with pytest.raises(ValueError, match="read-only"):
        g.x[0, 0] = 7
    with pytest.raises(DataError, match="no field 'colour'"):
        g.replace(colour=1)


def test_sparse_features_stay_sparse_only_if_sparse():
    thin = sp.random_array((50, 40), density=0.05, rng=np.random.default_rng(0))
    g = Graph([[0], [1]], x=thin)
    assert sp.issparse(g.x) and g.x.format == "csr" and g.x.dtype == np.float32
    assert isinstance(Graph([[0], [1]], x=sp.csr_array(np.ones((3, 3)))).x, np.ndarray)
    repeated = sp.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(2, 9))
    assert Graph([[0], [1]], x=repeated).x.toarray()[0, 1] == 3


def test_self_loops():
    g = full().with_self_loops()
    assert list(zip(g.src.tolist(), g.dst.tolist(), strict=True)) == [
        (0, 1),
        (1, 2),
        (2, 0),
        (0, 0),
        (1, 1),
        (2, 2),
    ]
    # node 1 has one in-edge with attributes [0, 1], node 2 one with [2, 3]
    np.testing.assert_array_equal(g.edge_attr[4:], [[0, 1], [2, 3]])
    np.testing.assert_array_equal(g.edge_weight[4:], [1, 1])
    assert np.isnan(g.edge_y[4:]).all() and not g.edge_train[4:].any()
    assert (full().with_self_loops("zeros").edge_attr[4:] == 0).all()
    assert g.with_self_loops().digest() == g.digest()
    assert g.without_self_loops().n_edges == 3
    with pytest.raises(ConfigError, match="'mean' or 'zeros'"):
        g.with_self_loops("ones")


def test_symmetrised_copies_attributes_and_merges():
    g = Graph([[0, 1, 0, 2, 2], [1, 0, 1, 0, 2]], edge_attr=[1, 2, 3, 4, 5]).symmetrised()
    found = {
        (s, d): a
        for s, d, a in zip(g.src.tolist(), g.dst.tolist(), g.edge_attr[:, 0].tolist(), strict=True)
    }
    assert found == {(0, 1): 1, (1, 0): 2, (2, 0): 4, (0, 2): 4, (2, 2): 5}
    assert g.n_edges == 5


def test_edges_of_two_relations_are_no_duplicates():
    ends = [[0, 0, 0, 1], [1, 1, 1, 0]]
    codes = {"relation": [0, 1, 0, 1]}
    g = Graph(ends, 2, edge_columns=codes)
    assert g.n_relations == 2 and Graph(ends, 2).n_relations == 0
    assert g.deduplicated().edge_columns["relation"].tolist() == [0, 1, 1]
    both = g.symmetrised()
    assert list(
        zip(*both.edge_index.tolist(), both.edge_columns["relation"].tolist(), strict=True)
    ) == [(0, 1, 0), (0, 1, 1), (1, 0, 1), (1, 0, 0)]


# codes of two relations with names, and codes of none: those of self loops, as the documentation
# advises, and others
OUTSIDE = [[2], [-1], [7], [-1, 2], [-5, 3, 2], [-(2**62), 2**62]]


@pytest.mark.parametrize("outside", OUTSIDE, ids=str)
def test_codes_of_no_relation_are_told_apart(outside):
    rng = np.random.default_rng(len(outside))
    ends = {
        ("a", "r", "a"): rng.integers(0, 9, (2, 40)),
        ("a", "s", "a"): rng.integers(0, 9, (2, 40)),
    }
    g = Graph(ends, {"a": 9}, edge_weight={key: rng.random(40) for key in ends})
    codes = np.append(np.asarray(g.edge_columns["relation"]), np.resize(outside, 20))
    g = Graph(
        (
            np.append(g.src, np.arange(20) % 9),
            np.append(g.dst, np.append(np.arange(15) % 9, [1, 1, 2, 2, 3])),
        ),
        9,
        meta=dict(g.meta),
        edge_columns={"relation": codes, "type": codes},
        node_columns={"type": np.zeros(9, int)},
    )

    def triples(graph):
        return list(
            zip(
                graph.src.tolist(),
                graph.dst.tolist(),
                graph.edge_columns["relation"].tolist(),
                strict=True,
            )
        )

    every = triples(g)
    assert triples(g.deduplicated()) == list(dict.fromkeys(every))
    assert triples(g.symmetrised()) == list(dict.fromkeys(every + [(d, s, r) for s, d, r in every]))
    both = g.with_inverse_relations()
    moved = {r: r + 2 if r >= 2 else r for r in outside} | {0: 0, 1: 1}
    turned = [
        (d, s, r + 2 if r in (0, 1) else moved[r]) for s, d, r in every if r in (0, 1) or s != d
    ]
    assert triples(both) == [(s, d, moved[r]) for s, d, r in every] + turned
    assert (
        both.n_relations == 4
        and both.edge_columns["relation"].dtype == g.edge_columns["relation"].dtype
    )


def test_inverse_relations_are_as_many_as_the_graph_states():
    g = Graph(
        [[0, 1], [1, 2]], 3, edge_columns={"relation": [0, 2]}, meta={"n_relations": 5}
    ).with_inverse_relations()
    assert g.n_relations == 10 and g.edge_columns["relation"].tolist() == [0, 2, 5, 7]


def test_inverse_relations():
    g = Graph(
        [[0, 1], [1, 2]],
        edge_attr=[[1.0], [2.0]],
        edge_y=[5.0, 6.0],
        edge_train=[True, False],
        edge_columns={"relation": [1, 0]},
    )
    both = g.with_inverse_relations()
    assert both.edge_index.tolist() == [[0, 1, 1, 2], [1, 2, 0, 1]] and both.edge_attr[
        :, 0
    ].tolist() == [1, 2, 1, 2]
    assert both.edge_columns["relation"].tolist() == [1, 0, 3, 2] and both.n_relations == 4
    assert (
        both.edge_train.tolist() == [True, False, False, False] and np.isnan(both.edge_y[2:]).all()
    )
    with pytest.raises(
        DataError, match=r"no relations to invert; give their codes.*symmetrised\(\)"
    ):
        Graph([[0], [1]]).with_inverse_relations()


def test_deduplicated_and_reversed():
    g = Graph([[0, 1, 0], [1, 0, 1]], edge_weight=[1, 2, 3])
    assert g.deduplicated().edge_weight.tolist() == [1, 2]
    assert g.reversed().src.tolist() == [1, 0, 1]


def test_largest_component_keeps_original_ids():
    g = Graph([[0, 3, 4], [1, 4, 5]], 7, y=np.arange(7), x=np.arange(7.0)).largest_component()
    assert g.original_ids.tolist() == [3, 4, 5]
    assert g.y.tolist() == [3, 4, 5] and g.n_classes == 7
    assert (g.src.tolist(), g.dst.tolist()) == ([0, 1], [1, 2])
    # of equally large ones that of the lowest node
    assert Graph([[3, 0], [2, 1]], 4).largest_component().original_ids.tolist() == [0, 1]


def test_subset():
    g = full().subset([2, 0])
    assert g.node_ids.tolist() == ["c", "a"]
    assert sorted(zip(g.src.tolist(), g.dst.tolist(), strict=True)) == [(0, 1), (1, 1)]
    assert g.y.tolist() == [-1, 0] and g.train.tolist() == [False, True]
    for nodes, words in (
        ([0, 0], "twice"),
        ([5], "outside"),
        ([0.5], "float64"),
        (np.ones(9, bool), "mask over 3"),
    ):
        with pytest.raises(GraphThetaError, match=words):
            full().subset(nodes)


def test_scaling():
    x = np.array([[2.0, 2.0], [0, 0], [-1, 3]])
    np.testing.assert_allclose(
        Graph(EDGES, x=x).with_row_normalised_features().x, [[0.5, 0.5], [0, 0], [-0.25, 0.75]]
    )
    wide = sp.csr_array(([1.0, 3.0], ([0, 0], [1, 8])), shape=(3, 9))
    out = Graph(EDGES, x=wide).with_row_normalised_features().x
    assert sp.issparse(out)
    np.testing.assert_allclose(out.toarray()[0, [1, 8]], [0.25, 0.75])
    g = Graph(EDGES, x=[[1.0, 7], [3, 7], [100, 7]], train=mask(0, 1)).with_standardised_features()
    np.testing.assert_allclose(g.x, [[-1, 0], [1, 0], [98, 0]])
    g = Graph(
        EDGES, edge_attr=[1.0, 2, 3, 9], edge_train=mask(0, 2, n=4)
    ).with_standardised_edge_attr()
    np.testing.assert_allclose(g.edge_attr[:, 0], [-1, 0, 1, 7])
    with pytest.raises(DataError, match="no x"):
        Graph(EDGES).with_row_normalised_features()


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("size", [1e-45, 1e-40, 1.0, 3e38])
def test_rows_of_any_size_are_normalised(size, dense):
    """Also where the sum of a row, or its inverse, is no float32."""
    x = np.zeros((3, 40), np.float32)
    x[::2, :4] = size
    scaled = Graph(EDGES, x=x if dense else sp.csr_array(x)).with_row_normalised_features().x
    expected = np.zeros((3, 40))
    expected[::2, :4] = 0.25
    np.testing.assert_array_equal(scaled if dense else scaled.toarray(), expected)


def test_digest_tells_graphs_apart():
    g = full()
    assert g.digest() == full().digest() == pickle.loads(pickle.dumps(g)).digest()
    changed = [
        g.replace(edge_weight=[1, 2, 3, 5]),
        g.replace(train=mask(2), y=None),
        g.reversed(),
        g.replace(n_classes=3),
        g.replace(x=sp.csr_array((3, 30))),
    ]
    assert len({h.digest() for h in [g, *changed]}) == 6
    assert g.nbytes == sum(
        a.nbytes
        for a in (
            g.src,
            g.dst,
            g.x,
            g.y,
            g.edge_attr,
            g.edge_weight,
            g.edge_y,
            g.train,
            g.val,
            g.edge_train,
            g.node_ids,
        )
    )


def test_training_is_required_only_for_training():
    full().require_training()
    for masks, words in (({}, "no training mask"), ({"train": mask()}, "empty training set")):
        with pytest.raises(DataError, match=words):
            Graph(EDGES, **masks).require_training()


def test_words_about_a_graph():
    assert (
        repr(full())
        == "Graph(tiny: 3 nodes, 4 edges, 3 features, 2 edge attributes, 2 classes, split 1/1/-)"
    )
    figures = full().summary()
    assert (
        figures["self loops"] == 1 and figures["train"] == 1 and figures["largest in-degree"] == 2
    )


def test_scipy_round_trip():
    matrix = sp.csr_array(([2.0, 3.0, 1.0], ([0, 1, 2], [1, 2, 2])), shape=(4, 4))
    g = Graph.from_scipy(matrix, y=[0, 1, 0, 1])
    assert (g.src.tolist(), g.dst.tolist(), g.n_nodes) == ([0, 1, 2], [1, 2, 2], 4)
    assert (g.to_scipy() != matrix).nnz == 0
    assert Graph.from_scipy(sp.eye_array(3)).edge_weight is None
    with pytest.raises(ShapeError, match="square"):
        Graph.from_scipy(sp.csr_array((2, 3)))
    with pytest.raises(ShapeError, match="scipy sparse"):
        Graph.from_scipy(np.eye(3))


def test_networkx_round_trip():
    nx = pytest.importorskip("networkx")
    g = full()
    h = Graph.from_networkx(
        g.to_networkx(),
        x="x",
        y="y",
        edge_attr="edge_attr",
        edge_weight="edge_weight",
        edge_y="edge_y",
    )
    assert h.node_ids.tolist() == ["a", "b", "c"] and h.n_edges == 4
    np.testing.assert_array_equal(h.x, g.x)
    order = np.lexsort((g.dst, g.src))
    again = np.lexsort((h.dst, h.src))
    np.testing.assert_array_equal(h.edge_attr[again], g.edge_attr[order])

    u = nx.Graph()
    u.add_node(10, pos=(1.0, 2.0), size=3)
    u.add_node(20, pos=(4.0, 5.0), size=6)
    u.add_edge(10, 20, w=7.0)
    u.add_edge(20, 20, w=8.0)
    k = Graph.from_networkx(u, x=["pos", "size"], edge_weight="w")
    assert k.n_edges == 3 and sorted(k.edge_weight.tolist()) == [7, 7, 8]
    assert k.x.tolist() == [[1, 2, 3], [4, 5, 6]] and k.node_ids.tolist() == [10, 20]
    u.add_node("z", pos=(0, 0), size=1)
    with pytest.raises(DataError, match="all integers"):
        Graph.from_networkx(u, x=["pos", "size"])
    u.add_node(30)
    with pytest.raises(DataError, match="node 30 has no attribute 'pos'"):
        Graph.from_networkx(nx.relabel_nodes(u, {"z": 40}), x=["pos", "size"])


def test_importing_graphs_is_light():
    code = (
        "import sys, graphtheta.graph.datasets.dataset; print([m for m in ('scipy', 'networkx',"
        " 'numba', 'mpi4py') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_arrays_of_a_graph_are_its_own():
    """Nothing that is done to the arrays that were given, or to objects that share their memory,
    changes a graph; nor are they locked.
    """
    n, e = 6, 8
    given = {
        "x": np.ones((n, 2), np.float32),
        "y": np.arange(n) % 2,
        "train": np.ones(n, bool),
        "node_ids": np.arange(n) + 5,
        "edge_attr": np.ones((e, 2), np.float32),
        "edge_weight": np.ones(e, np.float32),
        "edge_y": np.ones(e, np.float32),
        "edge_train": np.ones(e, bool),
    }
    columns = {
        "node_columns": {"a": np.ones(n, np.int64), "b": np.ones((n, 2), np.float32)},
        "edge_columns": {"c": np.ones(e, np.int32)},
    }
    pair = np.arange(2 * e).reshape(2, e) % n
    base = np.ones((n, 4), np.float32)
    sparse = sp.csr_array(np.eye(n, 9, dtype=np.float32))
    graphs = [
        Graph(pair, n, **given, **columns),
        Graph((pair[0], pair[1]), n, x=base[:, :2]),
        Graph(pair, n, x=sparse),
        Graph(pair, n, y=base, multilabel=True),
        Graph(
            {("a", "to", "b"): pair},
            {"a": n, "b": n},
            x={"a": base, "b": given["x"]},
            y={"b": given["y"]},
        ),
    ]
    wanted = [graph.digest() for graph in graphs]
    for x in (
        pair,
        base,
        sparse.data,
        *given.values(),
        *columns["node_columns"].values(),
        *columns["edge_columns"].values(),
    ):
        x[...] = 0 if x.dtype != np.bool_ else False
    sparse.indices[...] = 1
    assert [graph.digest() for graph in graphs] == wanted
    for graph in graphs:
        again = graph.replace(name="other")
        assert np.shares_memory(again.src, graph.src) and (
            graph.x is None
            or graph.has_sparse_features
            or isinstance(graph.x, TypedRows)
            or np.shares_memory(again.x, graph.x)
        )


@pytest.mark.second
def test_a_tensor_that_changes_afterwards_changes_no_graph():
    torch = pytest.importorskip("torch")
    tensor = torch.ones(3, 2)
    graph = Graph([[0], [1]], 3, x=tensor)
    tensor *= 0
    assert graph.x.sum() == 6
