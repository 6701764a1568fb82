"""Graphs of several types, given as dicts: how they are joined, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.errors import DataError, ShapeError
from graphtheta.graph.data.typed import lacking
from graphtheta.graph.store.from_graph import write_store

WRITES, HAS = ("author", "writes", "paper"), ("paper", "has", "subject")
EDGES = {WRITES: [[0, 3, 1], [2, 0, 1]], HAS: [[0, 2], [1, 0]]}
# numbered together: papers 0 to 2, authors 3 to 6, subjects 7 and 8
LARGE = 2**53 + 1
X = {"paper": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "subject": sp.eye(2)}


def made(**fields):
    return gt.Graph(EDGES, {"paper": 3, "author": 4}, **{"x": X, **fields})


def test_types_are_numbered_one_after_another():
    g = made()
    assert (g.node_types, g.relations, g.n_types, g.n_relations) == (
        ("paper", "author", "subject"),
        (WRITES, HAS),
        3,
        2,
    )
    assert g.edge_index.tolist() == [[3, 6, 4, 0, 2], [2, 0, 1, 8, 7]]
    assert g.node_columns["type"].tolist() == [0] * 3 + [1] * 4 + [2] * 2 and g.edge_columns[
        "relation"
    ].tolist() == [0, 0, 0, 1, 1]
    assert [g.nodes_of(t).tolist() for t in g.node_types] == [[0, 1, 2], [3, 4, 5, 6], [7, 8]]
    with pytest.raises(
        DataError, match="there is no node type 'venue'; it has 'paper', 'author', 'subject'"
    ):
        g.nodes_of("venue")


def test_features_of_types_are_side_by_side():
    x = sp.csr_array(made().x).toarray()
    expected = np.zeros((9, 4))
    expected[:3, :2] = X["paper"]
    expected[7, 2] = 1
    expected[8, 3] = 1
    np.testing.assert_array_equal(x, expected)


def test_values_of_half_precision():
    """SciPy, which has the features of types that are sparse, has no matrices of it."""
    half = np.array([[1.5, 0.0]] * 3, np.float16)
    x = made(x={"paper": half, "subject": sp.eye(2)}).x.toarray()
    np.testing.assert_array_equal(x[:3, :2], half)
    edge_attr = made(edge_attr={WRITES: half}).edge_attr
    np.testing.assert_array_equal(edge_attr[:3], half)


def test_what_a_type_lacks():
    g = made(
        y={"paper": [1, 0, 1]},
        train={"paper": [True, False, True]},
        edge_attr={HAS: [[2.0], [3.0]], WRITES: [[1.0, 1.0]] * 3},
        edge_weight={HAS: [0.5, 0.25]},
        node_columns={"year": {"paper": [1999, 2001, 2003]}},
        edge_columns={"time": {WRITES: [7, 8, 9]}},
        edge_train={WRITES: [True] * 3},
        edge_y={WRITES: [1.0, 2.0, 3.0]},
    )
    assert (
        g.y.tolist() == [1, 0, 1] + [-1] * 6
        and g.train.tolist() == [True, False, True] + [False] * 6
        and g.n_classes == 2
    )
    assert np.asarray(g.edge_attr).tolist() == [[1, 1, 0]] * 3 + [
        [0, 0, 2],
        [0, 0, 3],
    ] and g.edge_weight.tolist() == [1, 1, 1, 0.5, 0.25]
    assert g.node_columns["year"].tolist() == [1999, 2001, 2003] + [0] * 6 and g.edge_columns[
        "time"
    ].tolist() == [7, 8, 9, 0, 0]
    assert g.edge_train.tolist() == [True] * 3 + [False] * 2 and np.isnan(g.edge_y[3:]).all()
    scores = made(y={"paper": [0.5, 1.5, 2.5]})
    assert scores.label_kind == "regression" and np.isnan(scores.y[3:]).all()


@pytest.mark.parametrize("tags", [0, 2])
def test_relations_without_edges_and_types_without_nodes_may_have_features_or_none(tags):
    tagged = ("paper", "tagged", "tag")
    for given in ({}, {"tag": np.zeros((tags, 2))}):
        g = gt.Graph(
            {WRITES: EDGES[WRITES], tagged: [[], []]},
            {"paper": 3, "author": 4, "tag": tags},
            x={"paper": X["paper"], **given},
            edge_attr={WRITES: [[1.0], [2.0], [3.0]]},
        )
        assert np.asarray(g.edge_attr).tolist() == [[1], [2], [3]] and g.n_relations == 2
        assert (
            g.x.shape == (7 + tags, 4 if given else 2)
            and np.asarray(g.x[:3].toarray())[:, :2].tolist() == X["paper"]
        )
        assert gt.Trainer(
            "rgcn",
            g.replace(y=np.arange(7 + tags) % 2, train=np.arange(7 + tags) < 3),
            hidden=3,
            epochs=1,
            keep=0,
            backend="reference",
        ).fit()


def test_relations_of_reversed_and_inverse_edges_have_the_types_of_their_ends():
    g = made(edge_columns={"time": {WRITES: [7, 8, 9]}})
    assert g.reversed().relations == (("paper", "writes", "author"), ("subject", "has", "paper"))
    for turned in (g.reversed(), g.with_inverse_relations(), g.with_inverse_relations().reversed()):
        types = np.array(turned.node_types)[turned.node_columns["type"][turned.edge_index]]
        codes = turned.edge_columns["relation"]
        named = np.array([turned.relations[code] for code in codes])
        np.testing.assert_array_equal(types.T, named[:, [0, 2]])
        np.testing.assert_array_equal(
            lacking(turned, "edge", "time"), turned.edge_columns["time"] == 0
        )


def test_ids_are_those_of_types():
    g = made(node_ids={"paper": ["a", "b", "c"]})
    assert g.node_ids.tolist() == [
        "paper:a",
        "paper:b",
        "paper:c",
        *(f"author:{i}" for i in range(4)),
        "subject:0",
        "subject:1",
    ]


def test_types_stay_with_the_graph(tmp_path):
    g = made(y={"paper": [1, 0, 1]}).with_inverse_relations()
    assert (
        g.relations
        == (
            WRITES,
            HAS,
            ("paper", "rev_writes", "author"),
            ("subject", "rev_has", "paper"),
        )
        and g.n_relations == 4
    )
    small = g.subset(g.nodes_of("paper"))
    assert (
        small.node_types == g.node_types
        and small.nodes_of("author").tolist() == []
        and small.n_relations == 4
    )
    write_store(g, tmp_path / "typed.store", SerialComm(), "stored")
    again = gt.load(str(tmp_path / "typed.store"))
    assert (again.node_types, again.relations) == (g.node_types, g.relations)
    np.testing.assert_array_equal(again.edge_columns["relation"], g.edge_columns["relation"])
    np.testing.assert_array_equal(again.node_columns["type"], g.node_columns["type"])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"edge_index": {"writes": [[0], [0]]}},
            (
                r"the key 'writes' is no relation; write \{\(\"author\", \"writes\", \"paper\"\):"
                r" edges\}"
            ),
        ),
        (
            {"edge_index": {WRITES: [[0], [0, 1]]}},
            r"\('author', 'writes', 'paper'\): edge_index: src has shape \[1\] and dst \[2\]",
        ),
        (
            {"edge_index": {WRITES: [[0, 9], [0, 1]]}},
            r"edge 1 has author 9, outside 0..3; there are 4 nodes of type 'author'",
        ),
        ({"n_nodes": 9}, r"n_nodes: got 9; give the number of each type"),
        (
            {"x": np.zeros((9, 2))},
            r"x: got ndarray; a graph with types takes a dict by 'paper', 'author', 'subject'",
        ),
        (
            {"x": {"venue": np.zeros((9, 2))}},
            r"x: no relation has nodes of type 'venue'; correct the name, or state its n_nodes",
        ),
        ({"x": {"paper": np.zeros((2, 2))}}, r"x\['paper'\]: expected 3 rows, got 2"),
        (
            {"y": {"paper": [0, 1, 0], "author": [0, 0, 0, 1]}},
            r"y: labels of 2 types; give those of one",
        ),
        ({"edge_attr": {("a", "b", "c"): [[1.0]]}}, r"edge_attr: there is no \('a', 'b', 'c'\)"),
        (
            {"node_columns": {"size": {"paper": [[1, 2]] * 3, "author": [1] * 4}}},
            r"give all types rows of one shape",
        ),
        (
            {"node_columns": {"size": {"paper": sp.eye(3)}}},
            r"size'\]\['paper'\]: a sparse matrix cannot be a column; make it dense",
        ),
        ({"y": {"paper": sp.eye(3)}}, r"y\['paper'\]: a sparse matrix cannot be a column"),
        (
            {
                "node_columns": {
                    "day": {"paper": np.array(["2020-01-01"] * 3, "M8[D]"), "author": [1] * 4}
                }
            },
            r"day'\]: values of the types datetime64\[D\], int64; give all types",
        ),
        (
            {"node_columns": {"time": {"paper": [LARGE] * 3, "author": [0.5] * 4}}},
            r"time'\]\['paper'\]: float64, the type in common .* round 9007199254740993 to 9007",
        ),
        (
            {"node_columns": {"code": {"paper": np.full(3, 2**63 + 1, "u8"), "author": [1] * 4}}},
            r"code'\]\['paper'\]: float64, the type in common .* would round 9223372036854775809",
        ),
        (
            {
                "edge_columns": {
                    "code": {HAS: [[1, 2], [2**24 + 1, 1]], WRITES: np.full((3, 2), 0.5, "f4")}
                }
            },
            r"code'\]\[\('paper', 'has', 'subject'\)\]: edge 1, column 0 is 16777217, which ",
        ),
        (
            {"x": {"paper": [[LARGE]] * 3, "subject": sp.eye(2)}},
            r"x\['paper'\]: node 0, column 0 is 9007199254740993, which float32 would round",
        ),
        (
            {"edge_y": {HAS: [1, LARGE]}},
            r"edge_y\[\('paper', 'has', 'subject'\)\]: edge 1 is 9007199254740993, which float32",
        ),
        (
            {"edge_weight": {HAS: [1, 2**24 + 1], WRITES: [0.5] * 3}},
            r"edge_weight\[\('paper', 'has', 'subject'\)\]: edge 1 is 16777217, which float32",
        ),
    ],
)
def test_dicts_that_do_not_fit(fields, said):
    with pytest.raises((DataError, ShapeError), match=said):
        gt.Graph(
            **{
                "edge_index": EDGES,
                "n_nodes": {"paper": 3, "author": 4, "subject": 2},
                "x": X,
                "where": "mine",
                **fields,
            }
        )


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"strategy": "mini", "batch_size": 5, "fanout": "3"},
        {"strategy": "cluster", "clusters": 4},
    ],
)
def test_every_strategy_trains_on_types(keys):
    rng = np.random.default_rng(0)
    g = gt.Graph(
        {
            WRITES: rng.integers(0, [[30], [20]], (2, 90)),
            HAS: rng.integers(0, [[20], [4]], (2, 30)),
        },
        x={"paper": rng.normal(size=(20, 5)), "subject": sp.eye(4)},
        y={"paper": rng.integers(0, 3, 20)},
        train={"paper": np.arange(20) < 10},
        val={"paper": np.arange(20) >= 10},
    ).with_inverse_relations()
    trainer = gt.Trainer("rgcn", g, epochs=2, hidden=4, bases=2, backend="reference", **keys)
    assert 0 <= trainer.fit().metrics["val_accuracy"] <= 1
    assert trainer.predict()[0].tolist() == g.nodes_of("paper").tolist()
    ids, out = trainer.predict("all")
    assert len(ids) == g.n_nodes and out[g.nodes_of("paper")].shape == (20, 3)
