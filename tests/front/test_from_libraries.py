"""``gt.from_pyg`` and ``gt.from_dgl``: names, splits and mistakes. What they hold in common with
imports is tested with every other entrance (``test_every_entrance.py``).
"""

from __future__ import annotations

from pathlib import Path

import libraries
import numpy as np
import pytest
from entrances import DGL, PyG, TypedPyG
from scipy.sparse import csr_array

import graphtheta as gt
from graphtheta.errors import ConfigError, DataError, GraphThetaError, ShapeError

BENCH = Path(__file__).resolve().parents[2] / "bench"
ENDS = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])
MASKS = {
    "train_mask": np.array([True, True, False, False]),
    "test_mask": np.array([False, False, False, True]),
}
NODES = {"x": np.eye(4, dtype=np.float32), "y": np.array([0, 1, 0, 1]), **MASKS}
EDGES = {"time": np.arange(3) * 10, "rating": np.array([0.5, 1.0, 2.0], np.float32)}


def given(kind, nodes=NODES, edges=EDGES):
    """An object of a library with three edges."""
    if kind == "pyg":
        names = {"of_nodes": list(nodes), "of_edges": list(edges)}
        return PyG(edge_index=ENDS[:, :3], num_nodes=4, **names, **nodes, **edges)
    return DGL(*ENDS[:, :3], 4, nodes, edges)


def read(kind, *args, **options):
    return (gt.from_pyg if kind == "pyg" else gt.from_dgl)(given(kind, *args), **options)


@pytest.mark.parametrize("kind", ["pyg", "dgl"])
def test_names_that_are_given_have_the_meaning(kind):
    graph = read(kind, edge_weight="rating", name="g")
    assert graph.name == "g" and graph.edge_weight.tolist() == [0.5, 1, 2]
    assert graph.edge_columns["time"].tolist() == [0, 10, 20] and graph.train.sum() == 2
    nodes = {**NODES, "pos": np.ones((4, 2), np.float32), "kind": np.array([1, 0, 1, 0])}
    graph = read(kind, nodes, EDGES, x="pos", y="kind", edge_y="rating", edge_attr="time")
    assert graph.x.shape == (4, 2) and graph.y.tolist() == [1, 0, 1, 0]
    assert graph.edge_y.tolist() == [0.5, 1, 2] and graph.edge_attr.tolist() == [[0], [10], [20]]


@pytest.mark.parametrize("kind", ["pyg", "dgl"])
def test_masks_of_edges_and_of_several_splits(kind):
    several = np.array([[True, False], [False, True], [False, False], [False, False]])
    nodes = {"x": NODES["x"], "y": NODES["y"], "train_mask": several}
    edges = {**EDGES, "test_mask": np.array([False, True, False])}
    graph = read(kind, nodes, edges)
    assert graph.n_splits == 2 and graph.edge_test.tolist() == [False, True, False]
    assert read(kind, nodes, edges, split_index=1).train.tolist() == [False, True, False, False]
    with pytest.raises(ConfigError, match="there is no split 2, the graph has 2 splits"):
        read(kind, nodes, edges, split_index=2)


def test_the_graph_has_arrays_of_its_own():
    data = given("pyg")
    graph = gt.from_pyg(data)
    data.x[:] = 0
    assert graph.x.sum() == 4
    job = {"epochs": 1, "hidden": 4, "backend": "reference"}
    assert np.isfinite(gt.Trainer("gcn", graph, **job).fit().history[0]["loss"])


MISTAKES = {
    "a graph": (lambda: gt.from_pyg(gt.load("ring:n=4")), "expected a Data, Batch or HeteroData"),
    "arrays": (lambda: gt.from_dgl({"src": [0]}), "expected a graph of DGL"),
    "a name": (lambda: read("pyg", y="labels"), "there is no tensor 'labels' .*there are rating"),
    "a type": (
        lambda: gt.from_pyg(
            TypedPyG({"a": 1}, {("a", "to", "a"): ([0], [0])}, {"a": {}}, {("a", "to", "a"): {}}),
            x="pos",
        ),
        "there is no tensor 'pos'",
    ),
    "two of one": (lambda: read("dgl", {**NODES, "feat": NODES["x"]}), "is a second 'x'"),
    "rows": (
        lambda: gt.from_pyg(given("pyg", {"y": np.array([1, 2])})),
        r"y has shape \[2\], expected a row for each of the 4 nodes",
    ),
    "a number": (lambda: gt.from_pyg(given("pyg", {"y": np.array(1)})), r"y has shape \[\], expec"),
    "sparse labels": (
        lambda: gt.from_pyg(given("pyg", {"y": csr_array(np.eye(4))})),
        "y: a value of type csr_array",
    ),
    "ends": (lambda: gt.from_dgl(DGL(np.array([9]), np.array([0]), 4, {}, {})), "9"),
    "NaN": (lambda: read("pyg", {"x": np.full((4, 1), np.nan)}), "x.*not finite|nan"),
    "an option": (lambda: gt.from_pyg(given("pyg"), split="public"), "no argument 'split'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    make, said = MISTAKES[name]
    with pytest.raises(GraphThetaError, match=said) as told:
        make()
    assert isinstance(told.value, (ConfigError, DataError, ShapeError, TypeError))


@pytest.mark.second
def test_drawn_graphs_of_pyg_have_the_values_of_their_tensors(monkeypatch):
    pytest.importorskip("torch_geometric")
    monkeypatch.syspath_prepend(BENCH)
    from fuzz_objects import search

    counts, faults = search(range(600))
    assert not faults
    assert min(counts["accepted"], counts["refused"]) > 100


@pytest.mark.second
def test_sparse_tensors_of_half_precision():
    torch = pytest.importorskip("torch")
    graph = gt.Graph(ENDS, 4, x=torch.eye(4).half().to_sparse())
    assert graph.x.sum() == 4


@pytest.mark.second
def test_real_graphs_of_pyg():
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric.data")
    tensors = {name: torch.tensor(x) for name, x in (NODES | EDGES).items()}
    masks = torch.rand(4, 10, generator=torch.Generator().manual_seed(0)) < 0.5
    data = pyg.Data(edge_index=torch.tensor(ENDS[:, :3]), **{**tensors, "train_mask": masks})
    del data.test_mask
    data.x.requires_grad_()
    graph = gt.from_pyg(data, edge_y="rating", split_index=3)
    assert np.array_equal(graph.train, masks[:, 3].numpy()) and np.array_equal(graph.x, NODES["x"])
    assert graph.edge_y.tolist() == [0.5, 1, 2]
    hetero = pyg.HeteroData()
    hetero["user"].x = torch.ones(2, 3)
    hetero["item"].num_nodes = 3
    hetero["item"].y = torch.tensor([0, 1, 1])
    hetero["item"].train_mask = torch.tensor([True, True, False])
    hetero["user", "buys", "item"].edge_index = torch.tensor([[0, 1], [2, 0]])
    hetero["user", "buys", "item"].time = torch.tensor([5, 7])
    graph = gt.from_pyg(hetero)
    assert graph.node_types == ("user", "item") and graph.n_nodes == 5
    assert graph.train.sum() == 2 and graph.edge_columns["time"].tolist() == [5, 7]
    small = [
        pyg.Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([k]))
        for k in (0, 1)
    ]
    assert gt.from_pyg(pyg.Batch.from_data_list(small)).y is not None


@pytest.mark.second
def test_real_graphs_of_dgl():
    torch = pytest.importorskip("torch")
    dgl = libraries.dgl()
    graph = dgl.graph((ENDS[0, :3], ENDS[1, :3]), num_nodes=4)
    for name, x in NODES.items():
        graph.ndata[{"x": "feat", "y": "label"}.get(name, name)] = torch.tensor(x)
    for name, x in EDGES.items():
        graph.edata[name] = torch.tensor(x)
    found = gt.from_dgl(graph, edge_weight="rating")
    assert np.array_equal(found.x, NODES["x"]) and found.edge_weight.tolist() == [0.5, 1, 2]
    assert found.train.tolist() == NODES["train_mask"].tolist()
    typed = dgl.heterograph(
        {
            ("a", "to", "b"): (torch.tensor([0, 1]), torch.tensor([1, 2])),
            ("b", "of", "a"): (torch.tensor([2]), torch.tensor([0])),
        }
    )
    typed.nodes["a"].data["label"] = torch.tensor([1, 0])
    typed.edges["of"].data["time"] = torch.tensor([7])
    found = gt.from_dgl(typed)
    assert found.node_types == ("a", "b") and found.edge_columns["time"].tolist() == [0, 0, 7]
