"""Every entrance makes the same graph of the same values."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from entrances import DGL, FORMS, Given, content
from follows import imported

import graphtheta as gt
from graphtheta.errors import ConfigError, DataError, ShapeError

NAN = np.nan
# labels of four nodes, what kind they are, and what they become
LABELS = {
    "classes": (np.array([0, 2, 1, 0]), "classes", [0, 2, 1, 0]),
    "classes, one unlabelled": (np.array([0, -1, 1, 0]), "classes", [0, -1, 1, 0]),
    "classes of 8 bits": (np.array([0, 2, 1, 0], np.uint8), "classes", [0, 2, 1, 0]),
    "classes of unsigned 64 bits": (np.array([0, 2, 1, 0], np.uint64), "classes", [0, 2, 1, 0]),
    "two classes as bools": (np.array([True, False, True, True]), "classes", [1, 0, 1, 1]),
    "classes [n, 1]": (np.array([[0], [2], [-1], [0]]), "classes", [0, 2, -1, 0]),
    "bools [n, 1]": (np.array([[True], [False], [True], [True]]), "classes", [1, 0, 1, 1]),
    "0 and 1, [n, 4]": (
        np.array([[0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]),
        "multilabel",
        None,
    ),
    "0 and 1, [n, 2]": (np.array([[0, 1], [1, 0], [1, 0], [0, 1]]), "multilabel", None),
    "0 and 1 of 8 bits": (
        np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]], np.uint8),
        "multilabel",
        None,
    ),
    "bools [n, C]": (
        np.array([[False, True], [True, False], [True, True], [False, True]]),
        "multilabel",
        None,
    ),
    "0 and 1 as floats, some unknown": (
        np.array([[0, 1], [1, NAN], [NAN, 0], [0, 1]], np.float32),
        "multilabel",
        None,
    ),
    "integers [n, C]": (np.array([[5, -1], [1, 7], [2, 2], [0, 1]]), "regression", None),
    "floats": (np.array([0.5, 1.5, -1, NAN]), "regression", [[0.5], [1.5], [-1], [NAN]]),
    "floats [n, 1]": (np.array([[0.5], [1.5], [-1], [2]]), "regression", None),
    "floats [n, C]": (np.array([[0.5, 1], [1, 3], [2, 2], [0, 1]]), "regression", None),
}
# lists of integers of any length are lists of classes, unless all have the same and hold only 0 and
# 1
NO_MATRIX = {"lists", "networkx"}
MATRICES = ("classes [n, 1]", "bools [n, 1]", "integers [n, C]")


def typed(given, *kinds):
    return gt.Graph(
        {("other", "to", "node"): ([0, 1], [0, 1])},
        {kind: 4 if kind == "node" else 2 for kind in kinds},
        y={"node": given.y},
    )


OF_TYPES = {
    "typed": lambda given: typed(given, "node", "other"),
    "typed, the other first": lambda given: typed(given, "other", "node"),
    "typed, imported": lambda given: given.imported(typed(given, "node", "other")),
    "whole graphs": lambda given: gt.whole_graphs([gt.Graph([[0], [1]], 2)] * 4, given.y),
}


def stage(name):
    """What an entrance that needs a library of the second stage is marked with."""
    return [pytest.mark.second] if "real_pyg" in name else []


@pytest.mark.one_in(11, 3)
@pytest.mark.parametrize(
    ("case", "entrance"),
    [
        pytest.param(case, name, marks=stage(name))
        for case, (y, _, _) in LABELS.items()
        for name in [*Given(None, y).entrances(), *OF_TYPES]
        # rows as lists of any length say something else
        if name not in FORMS and not (name in NO_MATRIX and case in MATRICES)
    ],
)
def test_labels(case, entrance, tmp_path):
    y, kind, wanted = LABELS[case]
    given = Given(tmp_path, y)
    wanted = np.asarray(y if wanted is None else wanted, np.float64)
    graph = OF_TYPES[entrance](given) if entrance in OF_TYPES else getattr(given, entrance)()
    found = np.asarray(graph.y, np.float64)
    if entrance in OF_TYPES:
        labelled = graph.nodes_of("graph" if entrance == "whole graphs" else "node")
        rest = np.delete(found, labelled, axis=0)
        assert (rest == -1).all() if kind == "classes" else np.isnan(rest).all()
        found = found[labelled]
    assert graph.label_kind == kind
    assert np.array_equal(found, wanted, equal_nan=True)
    assert graph.n_classes == (
        0
        if kind == "regression"
        else wanted.shape[1]
        if kind == "multilabel"
        else int(wanted.max()) + 1
    )


LINKS = {"src": np.array([0, 1, 1, 3]), "dst": np.array([1, 0, 2, 2])}
# what a graph may have, by the kind of the values
CONTENTS = {
    "no edges": {"src": np.zeros(0, int), "dst": np.zeros(0, int), "n": 3},
    "no edges but all else": {
        "src": np.zeros(0, int),
        "dst": np.zeros(0, int),
        "n": 3,
        "ids": np.array(list("abc")),
        "x": np.eye(3, 2),
        "y": np.array([1, 0, 1]),
        "edge_attr": np.zeros((0, 2)),
        "edge_weight": np.zeros(0),
        "edge_columns": {
            "k": np.zeros(0, int),
            "f": np.zeros(0),
            "t": np.zeros(0, np.str_),
        },
    },
    "ids that are texts": {"ids": np.array(["b", "a", "é x", "10"])},
    "ids with zeros in front": {"ids": np.array(["007", "7", "07", "0"])},
    "ids with quotes and separators": {"ids": np.array(['a"b', "a,b", "a\tb", "a;b"])},
    "ids with line breaks": {"ids": np.array(["a\nb", "a", "b", '"\n'])},
    "ids that look like comments": {"ids": np.array(["#a", "//", "%", "src"])},
    "ids that look like nothing": {"n": 2, "src": [0], "dst": [1], "ids": np.array(["nan", "NA"])},
    "ids in hexadecimal": {"ids": np.array(["0x1f", "0x1F", "0xg", "1f"])},
    "ids beyond 64 bits, as texts": {"ids": np.array([str(2**64), str(2**70), "1", "-1"])},
    "ids that are integers": {"ids": np.array([7, -3, 0, 100])},
    "ids that float64 rounds": {"ids": np.array([2**53 + 1, 2**53, 2**53 - 1, 2**63 - 1])},
    "names of classes": {"y": np.array(["b", "a", None, "7"], object)},
    "features": {"x": np.array([[0.5, -1], [1e-30, 3e38], [2, 0], [0.1, 1]])},
    "features that float32 holds, beyond 2^53": {"x": np.eye(4, 9)[:, :3] * -(2.0**53)},
    "features that are integers": {"x": np.array([[1, 2**24], [0, 0], [3, -4], [5, 6]])},
    "features that are bools": {"x": np.eye(4, 2, dtype=bool)},
    "one feature": {"x": np.arange(4.0)[:, None]},
    "masks": {
        "y": np.array([0, 1, 0, -1]),
        "masks": {"train": [True, False, False, False], "test": [False, True, True, False]},
    },
    "three masks": {
        "y": np.array([0, 1, 0, 1]),
        "masks": {mask: np.arange(4) == k for k, mask in enumerate(("train", "val", "test"))},
    },
    "columns of nodes": {
        "node_columns": {
            "whole": np.array([2**53 + 1, -(2**62), 0, 1]),
            "part": np.array([0.1, 1e300 / 1e290, -3.5, 2]),
            "flag": np.array([True, False, False, True]),
        }
    },
    "columns of edges": {
        "edge_columns": {
            "whole": np.array([2**31, -(2**31), 0, 1]),
            "part": np.array([0.1, 1 / 3, -3.5, 2]),
            "flag": np.array([True, False, False, True]),
        }
    },
    "columns that are texts": {
        "node_columns": {"a": np.array(["x", "y", "x", "true"])},
        "edge_columns": {"b": np.array(["1", "2020-01-01", "null", "a\r\nb"])},
    },
    "columns that are times": {
        "node_columns": {"a": np.array(["1969-12-31", "2020-01-01T00:00:01"] * 2, "M8[s]")},
        "edge_columns": {"b": np.array(["1950-01-01", "2020-01-01T00:00:01"] * 2, "M8[s]")},
    },
    "attributes of edges": {"edge_attr": np.array([[0.5, 1], [2, 3], [4, 5], [-1, 0]])},
    "attributes that are bools": {"edge_attr": np.eye(4, 3, dtype=bool)},
    "weights": {"edge_weight": np.array([0.5, 1, 0, -2])},
    "weights and columns": {
        **LINKS,
        "edge_weight": np.array([0.5, 1, 3, 2]),
        "edge_columns": {"k": np.arange(4)},
    },
    "a node without edges, at the end": {"src": np.array([0, 1]), "dst": np.array([1, 0]), "n": 4},
    "nodes without edges, first": {
        "src": np.array([2]),
        "dst": np.array([3]),
        "n": 4,
        "ids": np.array([9, 8, 7, 6]),
    },
    "self loops": {"src": np.array([0, 1, 1]), "dst": np.array([0, 1, 2]), "n": 3},
    "an edge twice": {"src": np.array([0, 1, 0, 0]), "dst": np.array([1, 2, 1, 0]), "n": 3},
    "an edge twice, with weights": {
        "src": np.array([0, 1, 0, 0]),
        "dst": np.array([1, 2, 1, 0]),
        "n": 3,
        "edge_weight": np.array([1.0, 2, 3, 4]),
    },
    "one node": {
        "src": np.array([0]),
        "dst": np.array([0]),
        "n": 1,
        "y": np.array([0]),
        "x": np.ones((1, 1)),
    },
}
# what the form of a file or an object may change
OF_FORMS = (
    "no edges but all else",
    "ids that are texts",
    "ids with line breaks",
    "names of classes",
    "masks",
    "columns that are texts",
)


@pytest.mark.one_in(11, 3)
@pytest.mark.parametrize(
    ("case", "entrance"),
    [
        pytest.param(case, name, marks=stage(name))
        for case, values in CONTENTS.items()
        for name in Given(None, **values).entrances()
        if name not in FORMS or case in OF_FORMS
    ],
)
def test_every_entrance_makes_the_same_graph(case, entrance, tmp_path):
    given = Given(tmp_path, **CONTENTS[case])
    # networkx lists the edges of one node after those of another
    ordered = "networkx" not in entrance
    found = content(getattr(given, entrance)(), ordered)
    wanted = content(given.arrays(), ordered)
    assert found == wanted


EDGES = {"src": np.arange(3), "dst": np.array([1, 2, 0])}


@pytest.mark.parametrize(
    ("rows", "wanted", "names"),
    [
        ([[0, 2], [], [1]], [[1, 0, 1], [0, 0, 0], [0, 1, 0]], ()),
        ([[0, 2], None, [1]], [[1, 0, 1], [NAN] * 3, [0, 1, 0]], ()),
        ([["b", "a"], ["c"], None], [[1, 1, 0], [0, 0, 1], [NAN] * 3], ("a", "b", "c")),
        ([[0, 1, 0], None, [1, 1, 1]], [[0, 1, 0], [NAN] * 3, [1, 1, 1]], ()),
        ([[True, False], [True, True], [False, False]], [[1, 0], [1, 1], [0, 0]], ()),
        ([[0], [1], [0]], [[1, 0], [0, 1], [1, 0]], ()),
    ],
)
def test_lists_of_labels(rows, wanted, names, tmp_path):
    graph = gt.load(
        gt.import_graph(
            EDGES, pa.table({"id": [0, 1, 2], "y": pa.array(rows)}), to=tmp_path / "s", label="y"
        )
    )
    assert graph.label_kind == "multilabel" and graph.class_names == names
    assert np.array_equal(np.asarray(graph.y, np.float64), wanted, equal_nan=True)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[-1], [0], [1]], "row 1: column 'y' has a list with a negative number"),
        ([[0, None], [0], [1]], "row 1: column 'y' has a list with a missing class"),
        ([[0, 0], [2], [1]], "has the class 0 twice"),
        ([[5, 1, 1], [1, 7, 0], [2, 2, 3]], "has the class 1 twice|has the class 2 twice"),
        ([[0, 10**9], [2], [1]], "more than 65,536 different"),
    ],
)
def test_lists_that_are_no_labels(rows, message, tmp_path):
    with pytest.raises(DataError, match=message):
        gt.import_graph(
            EDGES, pa.table({"id": [0, 1, 2], "y": pa.array(rows)}), to=tmp_path / "s", label="y"
        )


def test_what_is_stated_of_labels_is_kept(tmp_path):
    ring = gt.Graph((EDGES["src"], EDGES["dst"]), 3)
    stated = {
        "more classes than occur": {
            "y": [0, 1, 1],
            "n_classes": 4,
            "meta": {"class_names": list("abcd")},
        },
        "0 and 1 as targets": {"y": [[0, 1], [1, 1], [0, 0]], "multilabel": False},
        "one label": {"y": [[0], [1], [0]], "multilabel": True},
        "names of labels": {"y": [[0, 1], [1, 1], [0, 0]], "meta": {"class_names": ["a", "b"]}},
    }
    for case, fields in stated.items():
        graph = gt.Graph((ring.src, ring.dst), 3, **fields)
        found = gt.load(gt.import_graph(graph, to=tmp_path / case))
        assert (found.label_kind, found.n_classes, found.class_names) == (
            graph.label_kind,
            graph.n_classes,
            graph.class_names,
        ), case
        assert np.array_equal(found.y, graph.y)
    names = gt.load(
        gt.import_graph(
            EDGES,
            {"id": [0, 1, 2], "red": [0, 1, 0], "blue": [True, False, True]},
            to=tmp_path / "names",
            label=["red", "blue"],
        )
    )
    assert names.class_names == ("red", "blue") and names.label_kind == "multilabel"
    with pytest.raises(ConfigError, match="one column of lists"):
        gt.import_graph(
            EDGES,
            pa.table({"id": [0, 1, 2], "a": [[1], [2], [3]], "b": [1, 2, 3]}),
            to=tmp_path / "t",
            label=["a", "b"],
        )
    with pytest.raises(ShapeError, match="different lengths"):
        gt.Graph((ring.src, ring.dst), 3, y=[[0], [1, 2], []])


def test_labels_of_another_graph_are_found_by_their_names():
    rng = np.random.default_rng(0)
    n = 300
    x = rng.normal(size=(n, 4)).astype(np.float32)
    y = np.stack([x[:, 0] > 0, x[:, 1] > 0.8], axis=1)
    rows = np.arange(n)

    def graph(y, names):
        return gt.Graph(
            (rows, np.roll(rows, 1)),
            n,
            x=x,
            y=y,
            train=rows < 200,
            test=rows >= 200,
            meta={"class_names": names},
        )

    trainer = gt.Trainer("mlp", graph(y, ["red", "blue"]), hidden=8, epochs=20, dropout=0.0)
    trainer.fit()
    own = trainer.evaluate("test")
    assert trainer.on(graph(y[:, ::-1], ["blue", "red"])).evaluate("test") == own
    more = np.concatenate([np.zeros((n, 1), bool), y[:, ::-1]], axis=1)
    assert trainer.on(graph(more, ["green", "blue", "red"])).evaluate("test") == own
    fewer = trainer.on(
        graph(np.stack([y[:, 1], np.zeros(n, bool)], axis=1), ["blue", "green"])
    ).evaluate("test")
    assert fewer == trainer.on(graph(y & [False, True], ["red", "blue"])).evaluate("test")
    with pytest.raises(
        DataError,
        match="nodes with the label 'green', which the model does not know; it knows red, blue",
    ):
        trainer.on(graph(y, ["red", "green"])).evaluate("test")


def test_attributes_of_any_name_are_no_ids(tmp_path):
    g = nx.DiGraph()
    for node, number in ((10, 2), (11, 0), (12, 1)):
        g.add_node(node, id=number, id_=0, f=10.0 + node, src=number)
    for node in (10, 11, 12):
        g.add_edge(node, 10 + (node + 1) % 3, src=5, dst=6, id=7)
    options = {
        "features": "f",
        "node_columns": ["id", "id_"],
        "edge_columns": ["id"],
        "edge_weight": "src",
    }
    found = gt.load(gt.import_graph(g, to=tmp_path / "nx", **options))
    assert found.original_ids.tolist() == [10, 11, 12] and found.node_columns["id"].tolist() == [
        2,
        0,
        1,
    ]
    assert found.edge_weight.tolist() == [5, 5, 5] and found.edge_columns["id"].tolist() == [7] * 3
    names = [
        f"{a}{b}"
        for a, b in zip(found.original_ids[found.src], found.original_ids[found.dst], strict=True)
    ]
    assert sorted(names) == sorted(f"{u}{v}" for u, v in g.edges)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("ids", [None, np.array([7, 5, 3, 1]), np.array(list("abcd"))])
def test_named_columns_of_any_name(sparse, ids, tmp_path):
    x = sp.csr_array(np.eye(4, 12, dtype=np.float32)) if sparse else np.eye(4, dtype=np.float32)
    columns = {
        name: np.arange(k, k + 4)
        for k, name in enumerate(
            ("id", "x_indices", "x_values", "n_nodes", "adj", "edge_index", "name")
        )
    }
    graph = gt.Graph(
        (EDGES["src"], EDGES["dst"]),
        4,
        x=x,
        node_ids=ids,
        node_columns=columns,
        edge_columns={"id": [3, 4, 5]},
    )
    made = [gt.import_graph(graph, to=tmp_path / "graph")]
    if ids is None and not sparse:
        dgl = DGL(graph.src, graph.dst, 4, {"feat": x, **columns}, {"id": np.array([3, 4, 5])})
        made.append(gt.import_graph(dgl, to=tmp_path / "dgl"))
    for folder in made:
        found = gt.load(folder)
        assert np.array_equal(found.original_ids, graph.original_ids)
        assert {name: rows.tolist() for name, rows in found.node_columns.items()} == {
            name: rows.tolist() for name, rows in columns.items()
        }
        assert found.edge_columns["id"].tolist() == [3, 4, 5] and np.array_equal(
            found.src, graph.src
        )


@pytest.mark.parametrize(
    ("field", "name", "key"),
    [("node_columns", "type", "a"), ("edge_columns", "relation", ("a", "to", "b"))],
)
def test_columns_that_types_have_themselves(field, name, key):
    with pytest.raises(DataError, match=f"has a column '{name}' of its own.*'{name}_code'"):
        gt.Graph({("a", "to", "b"): ([0], [0])}, {"a": 1, "b": 1}, **{field: {name: {key: [7]}}})


@pytest.mark.one_in(4)
@pytest.mark.parametrize("on_bad_row", ["fail", "skip"])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 2), (2, 3)])
def test_predictions_do_not_depend_on_the_scale_and_names_of_the_import(
    order, on_bad_row, tmp_path
):
    """Features are scaled and one-hot in training; the same nodes in other tables have the same
    outputs.
    """
    n = 24
    edges = {"src": np.arange(n), "dst": np.arange(n)}
    kinds = np.arange(n) % 4
    nodes = {
        "id": np.arange(n),
        "age": 20.0 + np.arange(n) ** 1.5,
        "size": np.full(n, 7.0),
        "kind": np.array(list("abcd"))[kinds],
        "y": (np.arange(n) > 9).astype(int),
    }
    options = {
        "features": ["age", "size"],
        "one_hot": ["kind"],
        "label": "y",
        "on_bad_row": on_bad_row,
    }
    trained = gt.load(
        gt.import_graph(edges, nodes, to=tmp_path / "a", scale="standard", **options),
        split="fraction",
    )
    trainer = gt.Trainer("mlp", trained, hidden=4, epochs=3)
    trainer.fit()
    wanted = dict(zip(*trainer.predict(), strict=True))
    some = np.concatenate([np.flatnonzero(kinds == k) for k in order])
    part = {name: rows[some] for name, rows in nodes.items()}
    for scale in ("none", "standard"):
        other = gt.load(
            gt.import_graph(
                {"src": some, "dst": some}, part, to=tmp_path / f"b-{scale}", scale=scale, **options
            )
        )
        ids, out = trainer.on(other).predict()
        assert ids.tolist() == some.tolist() and np.allclose(
            out, [wanted[i] for i in some.tolist()], atol=1e-5
        )
        rows = other.x.read_begin(np.arange(len(some))).end()
        # values given anew have no scale, but these are the same ones
        in_memory = other.replace(x=rows, meta=other.meta)
        copied = gt.load(gt.import_graph(in_memory, to=tmp_path / f"c-{scale}"))
        assert np.allclose(trainer.on(copied).predict()[1], out, atol=1e-5)
    with pytest.raises(ConfigError, match="features that are read by rows"):
        gt.import_graph(other, to=tmp_path / "t")
    strange = {**part, "kind": np.where(np.arange(len(some)) == 1, "e", part["kind"])}
    other = gt.load(
        gt.import_graph({"src": some, "dst": some}, strange, to=tmp_path / "d", **options)
    )
    with pytest.raises(
        DataError,
        match=(
            "in the one-hot column 'kind' the value 'e', which the model does not know; it knows a,"
            " b, c, d"
        ),
    ):
        trainer.on(other).predict()
    with pytest.raises(DataError, match="one-hot features of y; expected kind"):
        trainer.on(
            gt.load(
                gt.import_graph(
                    edges, nodes, to=tmp_path / "e", features=["age", "size"], one_hot="y"
                )
            )
        ).predict()


@pytest.mark.parametrize("rank_count", [1, 2])
def test_rows_that_are_left_out_do_not_count(rank_count, tmp_path):
    """Scales, classes, names, widths and kinds of columns are those of the rows that are used."""
    nodes = {
        "id": list("abca"),
        "f": [0.0, 1.0, 2.0, 1e6],
        "y": ["A", "B", "A", "Z"],
        "k": ["p", "q", "p", "z"],
        "n": [1, 2, 3, 2**24 + 1],
    }
    edges = {
        "src": list("abx"),
        "dst": list("bca"),
        "how": ["mail", "call", "fax"],
        "w": [1, 2, 2**24 + 1],
        "at": [0.5, 1.5, 2.5],
    }
    lists = {"src": list("ab"), "dst": list("bc")}
    node_options = {
        "features": ["f", "n"],
        "label": "y",
        "one_hot": "k",
        "scale": "standard",
        "node_columns": "k",
    }
    edge_options = {"edge_columns": "how", "edge_attr": ["w", "at"]}
    options = {**node_options, **edge_options, "on_bad_row": "skip", "name": "g"}
    first = (
        {name: rows[:-1] for name, rows in nodes.items()},
        {name: rows[:-1] for name, rows in edges.items()},
    )
    assert len(first[1]["src"]) == len(lists["src"])
    made = [
        gt.load(imported(e, n, tmp_path / f"{i}", rank_count, **options))
        for i, (n, e) in enumerate((first, (nodes, edges)))
    ]
    one, two = made
    assert {**one.meta, "import": 0} == {
        **two.meta,
        "import": 0,
    } and one.n_classes == two.n_classes == 2
    for field in ("src", "dst", "y", "edge_attr"):
        assert np.array_equal(getattr(one, field), getattr(two, field))
    assert np.array_equal(
        one.x.read_begin(np.arange(3)).end(), two.x.read_begin(np.arange(3)).end()
    )
