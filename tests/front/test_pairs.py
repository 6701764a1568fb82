"""Programs that docs/coming_from_pyg.md and docs/coming_from_dgl.md show beside each other.

With the same weights, both have the same outputs, and the same losses where nothing is drawn.

Libraries that are not installed skip their tests.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import libraries
import numpy as np
import pytest

import graphtheta as gt

pytestmark = pytest.mark.second

torch = libraries.Later("torch")
PAIRS = Path(__file__).resolve().parents[2] / "docs" / "pairs"
LIBRARIES: dict[str, Callable[[], Any]] = {
    "pyg": lambda: pytest.importorskip("torch_geometric"),
    "dgl": libraries.dgl,
}
NODES, CLASSES = 60, 3
LAYERS = {"first": "first", "last": "last"}
EPOCHS = 3
RELATIONS = (("author", "writes", "paper"), ("paper", "has", "subject"))
SIZES = {"author": (20, 4), "paper": (30, 5), "subject": (6, 3)}


def random_pairs(rng: np.random.Generator, first: int, last: int, n: int) -> np.ndarray:
    """Different pairs of two numbers, [2, n at most]."""
    return np.unique(rng.integers(0, (first, last), (n, 2)), axis=0).T


def undirected(rng: np.random.Generator) -> np.ndarray:
    """Edges in both directions, without loops and duplicates, as most examples of libraries have
    them, [2, n].
    """
    low, high = random_pairs(rng, NODES, NODES, 150)
    low, high = low[low < high], high[low < high]
    return np.stack([np.r_[low, high], np.r_[high, low]])


RNG = np.random.default_rng(0)
ENDS = undirected(RNG)
X = RNG.normal(size=(NODES, 5)).astype(np.float32)
Y = RNG.integers(0, CLASSES, NODES)
# five batches of eight, the last of which is smaller
TRAIN = np.arange(NODES) < 37
ATTRIBUTES = RNG.normal(size=(ENDS.shape[1], 2)).astype(np.float32)


@pytest.fixture
def program() -> Iterator[Callable[[str, str], ModuleType]]:
    """Imports a program by library and name."""
    names: set[str] = set()

    def imported(library: str, name: str) -> ModuleType:
        path = PAIRS / library / f"{name}.py"
        spec = spec_from_file_location(f"pairs_{library}_{name}", path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        # PyTorch Geometric reads the module of a layer there
        sys.modules[spec.name] = module
        names.add(spec.name)
        spec.loader.exec_module(module)
        return module

    yield imported
    for name in names:
        del sys.modules[name]


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    LIBRARIES[request.param]()
    torch.manual_seed(0)
    return str(request.param)


def assert_equal(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layer", ["gcn", "sage", "gat"])
def test_nodes(program: Any, library: str, layer: str) -> None:
    theirs, ours = program(library, "nodes"), program("here", "nodes")
    model = theirs.Net(layer, X.shape[1], CLASSES)
    twin = gt.from_torch(model.state_dict(), ours.Net(layer, X.shape[1], CLASSES), LAYERS)
    data, graph = (one.graph_of(ENDS, X, Y, TRAIN) for one in (theirs, ours))
    assert_equal(ours.predict(twin, graph), theirs.predict(model, data))
    assert_equal(ours.train(twin, graph, EPOCHS), theirs.train(model, data, EPOCHS))


def sampled(program: Any, library: str) -> tuple[Any, Any]:
    """A model for batches, and its twin here."""
    if library == "dgl":
        model = program("dgl", "batches").Net(X.shape[1], CLASSES)
    else:
        model = program("pyg", "nodes").Net("sage", X.shape[1], CLASSES)
    net = program("here", "nodes").Net("sage", X.shape[1], CLASSES)
    return model, gt.from_torch(model.state_dict(), net, LAYERS)


def test_batches_of_all_neighbours(program: Any, library: str) -> None:
    if library == "pyg":
        from torch_geometric import typing

        if not (typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE):
            pytest.skip("NeighborLoader needs pyg-lib or torch-sparse")
    model, twin = sampled(program, library)
    data = program(library, "nodes").graph_of(ENDS, X, Y, TRAIN)
    graph = program("here", "nodes").graph_of(ENDS, X, Y, TRAIN)
    keys = {"fanout": (-1, -1), "batch_size": 8}
    expected = program(library, "batches").train(model, data, EPOCHS, **keys, shuffle=False)
    found = program("here", "batches").train(twin, graph, EPOCHS, **keys, order="ids")
    assert_equal(found, expected)


def test_batches_for_a_model_of_pytorch_geometric(program: Any) -> None:
    LIBRARIES["pyg"]()
    model, twin = sampled(program, "pyg")
    graph = program("here", "nodes").graph_of(ENDS, X, Y, TRAIN)
    keys = {"fanout": (-1, -1), "batch_size": 8, "order": "ids"}
    expected = program("here", "loader").train(model, graph, EPOCHS, **keys)
    assert_equal(program("here", "batches").train(twin, graph, EPOCHS, **keys), expected)


@pytest.mark.parametrize("defaults", [True, False])
def test_sampled_batches_are_trained_on(program: Any, defaults: bool) -> None:
    """Draws differ from those of other libraries; the programs run as the pages show them."""
    LIBRARIES["pyg"]()
    model, twin = sampled(program, "pyg")
    graph = program("here", "nodes").graph_of(ENDS, X, Y, TRAIN)
    keys = {} if defaults else {"fanout": (2, 2), "batch_size": 8}
    for name, trained in (("loader", model), ("batches", twin)):
        losses = program("here", name).train(trained, graph, 20, **keys)
        assert losses[-1] < losses[0], name


def test_links(program: Any, library: str) -> None:
    theirs, ours = program(library, "links"), program("here", "links")
    # both directions of an edge are in one set
    part = np.tile(np.arange(ENDS.shape[1] // 2) % 10, 2)
    known, val, test = part > 1, part == 0, part == 1
    graph = gt.Graph(ENDS, NODES, x=X, edge_train=known, edge_val=val, edge_test=test)
    trainer = ours.trainer_of(graph, EPOCHS)
    model = theirs.Net(X.shape[1])
    gt.from_torch(model.state_dict(), trainer.model, {"layers.0": "first", "layers.1": "last"})
    asked = ENDS[:, test]

    if library == "pyg":
        messages = torch.tensor(X), torch.tensor(ENDS[:, known])
        pairs = torch.tensor(asked)
    else:
        of_nodes = program("dgl", "nodes")
        messages = (of_nodes.graph_of(ENDS[:, known], X, Y, TRAIN),)
        pairs = of_nodes.graph_of(asked, X, Y, TRAIN)
    assert_equal(ours.scores(trainer, asked), theirs.scores(model, *messages, pairs))
    # negatives are drawn, so that training differs
    theirs.train(model, *messages, EPOCHS)
    assert trainer.fit().metrics["test_mrr"] > 0


def test_own_layer(program: Any, library: str) -> None:
    theirs, ours = program(library, "own_layer"), program("here", "own_layer")
    of_theirs, of_ours = program(library, "nodes"), program("here", "nodes")
    widths = X.shape[1], CLASSES, ATTRIBUTES.shape[1]
    model = theirs.Net(*widths)
    parts = [f"{layer}.{part}" for layer in LAYERS for part in ("weight", "score")]
    twin = gt.from_torch(
        model.state_dict(), ours.Net(*widths), dict(zip(parts, parts, strict=True))
    )
    data = of_theirs.graph_of(ENDS, X, Y, TRAIN)
    if library == "pyg":
        data.edge_attr = torch.tensor(ATTRIBUTES)
    else:
        data.edata["feat"] = torch.tensor(ATTRIBUTES)
    graph = of_ours.graph_of(ENDS, X, Y, TRAIN).replace(edge_attr=ATTRIBUTES)
    assert_equal(of_ours.predict(twin, graph), of_theirs.predict(model, data))
    assert_equal(of_ours.train(twin, graph, EPOCHS), of_theirs.train(model, data, EPOCHS))


def test_the_own_layer_passes_the_check(program: Any) -> None:
    gt.check(program("here", "own_layer").Attention(4, 3, 2), d_in=4, d_edge=2)


def test_relations(program: Any, library: str) -> None:
    theirs, ours = program(library, "relations"), program("here", "relations")
    rng = np.random.default_rng(1)
    edges = {
        relation: random_pairs(rng, SIZES[relation[0]][0], SIZES[relation[2]][0], 60)
        for relation in RELATIONS
    }
    x = {name: rng.normal(size=size).astype(np.float32) for name, size in SIZES.items()}
    data, graph = theirs.graph_of(edges, x), ours.graph_of(edges, x)
    model = theirs.Net(data, CLASSES)
    twin = ours.Net(graph.n_features, CLASSES, graph.relations, graph.node_types)
    state = model.state_dict()
    # the columns of all types stand side by side
    state["embed.weight"] = torch.cat(
        [state.pop(f"embed.{name}.weight") for name in graph.node_types], dim=1
    )
    names = {"embed": "embed"}
    for layer in LAYERS:
        for code, relation in enumerate(graph.relations):
            prefix = (
                f"convs.<{'___'.join(relation)}>" if library == "pyg" else f"mods.{relation[1]}"
            )
            names[f"{layer}.layers.{code}"] = f"{layer}.{prefix}"
    gt.from_torch(state, twin, names)
    with torch.no_grad():
        expected = model(data)
    found = gt.forward(twin, graph)
    for name in graph.node_types:
        assert_equal(found[graph.nodes_of(name)], expected[name].numpy())


def test_weights(program: Any, library: str, tmp_path: Path) -> None:
    theirs, ours = program(library, "weights"), program("here", "weights")
    nodes, of_ours = program(library, "nodes"), program("here", "nodes")
    model = nodes.Net("sage", X.shape[1], CLASSES)
    theirs.save(model, tmp_path / "model.pt")
    graph = of_ours.graph_of(ENDS, X, Y, TRAIN)
    trainer = gt.Trainer("sage", graph, hidden=16)
    names = {"layers.0": "first", "layers.1": "last"}
    ours.load(trainer.model, tmp_path / "model.pt", names)
    data = nodes.graph_of(ENDS, X, Y, TRAIN)
    assert_equal(trainer.predict()[1], nodes.predict(model, data))
    # and back: the file of our network fits the one that to_torch makes
    ours.save(trainer.model, tmp_path / "ours.pt", library)
    module = gt.to_torch(gt.Trainer("sage", graph, hidden=16, seed=1).model, library)
    theirs.load(module, tmp_path / "ours.pt")
    with torch.no_grad():
        graph_of_theirs = [data] if library == "dgl" else [data.edge_index]
        out = module(torch.tensor(X), *graph_of_theirs).softmax(dim=-1)
    assert_equal(trainer.predict()[1], out.numpy())
