"""Attributes of edges at the width of each relation: what is stored, what layers read, and that
numbers are those of one matrix filled up with zeros.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.base.typed_rows import TypedRows
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.errors import ColumnError, ConfigError, DataError
from graphtheta.graph.data import typed
from graphtheta.graph.store.from_graph import write_store
from graphtheta.graph.store.reader import check_store, read_store

RNG = np.random.default_rng(1)
SIZES = {"a": 30, "b": 12}
# one relation has no attributes, and one no edges
WIDTHS = {("a", "near", "a"): 0, ("a", "rates", "b"): 2, ("b", "of", "a"): 19, ("b", "no", "b"): 3}
COUNTS = (70, 80, 60, 0)
ENDS = {
    (s, name, t): (RNG.integers(0, SIZES[s], n), RNG.integers(0, SIZES[t], n))
    for (s, name, t), n in zip(WIDTHS, COUNTS, strict=True)
}
PLAIN = gt.Graph(
    ENDS,
    SIZES,
    x={kind: RNG.standard_normal((n, 4)) for kind, n in SIZES.items()},
    y={"a": RNG.integers(0, 3, 30)},
    train={"a": np.arange(30) < 20},
    edge_attr={
        name: RNG.standard_normal((n, WIDTHS[name]))
        for name, n in zip(WIDTHS, COUNTS, strict=True)
        if WIDTHS[name]
    },
)
GRAPH = PLAIN.with_inverse_relations()
LOOPS = {"relation": -1}
FORMS = {
    "as given": PLAIN,
    "inverse": GRAPH,
    "inverse twice": GRAPH.with_inverse_relations(),
    "loops of means": GRAPH.with_self_loops(columns=LOOPS),
    "loops of zeros": GRAPH.with_self_loops(fill="zeros", columns=LOOPS),
    "both loops": GRAPH.with_self_loops(fill="zeros", columns=LOOPS).with_self_loops(columns=LOOPS),
    "some edges": GRAPH.keep_edges(np.arange(GRAPH.n_edges) % 3 > 0),
    "no edges": GRAPH.keep_edges(np.zeros(GRAPH.n_edges, bool)),
    "some nodes": GRAPH.subset(np.arange(42) % 4 > 0),
    "scaled": GRAPH.with_standardised_edge_attr(),
}


def filled_up(graph: gt.Graph) -> gt.Graph:
    """The graph with one matrix of all attributes, as earlier versions have it."""
    return graph.derived(edge_attr=np.asarray(graph.edge_attr))


@pytest.mark.parametrize("name", FORMS)
def test_a_graph_is_the_same_after_it_was_stored(name: str, tmp_path: Path) -> None:
    graph = FORMS[name]
    assert isinstance(graph.edge_attr, TypedRows)
    assert graph.edge_attr.widths == list(WIDTHS.values())
    whole = np.asarray(graph.edge_attr)
    write_store(graph, tmp_path / "own", SerialComm())
    gt.import_graph(graph, to=tmp_path / "imported")
    # as earlier versions wrote it
    write_store(filled_up(graph), tmp_path / "old", SerialComm())
    read = [read_store(tmp_path / folder) for folder in ("own", "imported", "old")]
    for folder in ("own", "imported", "old"):
        check_store(tmp_path / folder, SerialComm())
    again = [*read, pickle.loads(pickle.dumps(graph)), graph.replace(edge_attr=whole)]
    for other in again:
        assert isinstance(other.edge_attr, TypedRows)
        assert other.edge_attr.widths == graph.edge_attr.widths
        np.testing.assert_array_equal(other.edge_attr, whole)
        np.testing.assert_array_equal(
            other.with_self_loops(columns=LOOPS).edge_attr,
            graph.with_self_loops(columns=LOOPS).edge_attr,
        )
        np.testing.assert_array_equal(
            other.without_self_loops().edge_attr, graph.without_self_loops().edge_attr
        )
    own, _, old = (
        {f.name: f.stat().st_size for f in (tmp_path / k).iterdir()}
        for k in ("own", "imported", "old")
    )
    if graph.n_edges > 100:
        attributes = [
            sum(size for name, size in files.items() if name.startswith("edge.attr"))
            for files in (own, old)
        ]
        assert attributes[0] < attributes[1]


def test_attributes_in_the_columns_of_others_stay_one_matrix() -> None:
    assert isinstance(
        GRAPH.replace(edge_attr=np.asarray(GRAPH.edge_attr) + 1).edge_attr, np.ndarray
    )
    assert isinstance(GRAPH.replace(edge_attr=np.ones((GRAPH.n_edges, 3))).edge_attr, np.ndarray)
    turned = GRAPH.edge_columns["relation"][::-1].copy()
    assert isinstance(GRAPH.replace(edge_columns={"relation": turned}).edge_attr, np.ndarray)
    assert isinstance(GRAPH.replace(edge_columns={}).edge_attr, np.ndarray)


def test_edges_of_a_store_are_not_changed_apart(tmp_path: Path) -> None:
    for folder, graph in (("own", GRAPH), ("old", filled_up(GRAPH))):
        write_store(graph, tmp_path / folder, SerialComm())
    gt.transform_store(tmp_path / "old", to=tmp_path / "less", self_loops="drop")
    np.testing.assert_array_equal(
        read_store(tmp_path / "less").edge_attr, GRAPH.without_self_loops().edge_attr
    )
    with pytest.raises(ConfigError, match="attributes of each relation are stored apart"):
        gt.transform_store(tmp_path / "own", to=tmp_path / "none", self_loops="drop")


def test_values_given_anew_have_no_scale() -> None:
    scaled = GRAPH.with_standardised_edge_attr().with_standardised_features()
    kept = scaled.keep_edges(np.arange(50)).subset(np.arange(20)).with_self_loops(columns=LOOPS)
    assert {"feature_scale", "edge_attr_scale"} <= kept.meta.keys()
    assert "feature_scale" not in scaled.replace(x=GRAPH.x).meta
    assert "edge_attr_scale" in scaled.replace(x=GRAPH.x).meta
    assert "edge_attr_scale" not in scaled.replace(edge_attr=GRAPH.edge_attr).meta
    assert "feature_scale" in scaled.replace(x=GRAPH.x, meta=scaled.meta).meta


def test_a_relation_between_two_types_is_not_symmetric() -> None:
    with pytest.raises(DataError, match=r"'rates'.*with_inverse_relations"):
        PLAIN.symmetrised()
    near = gt.Graph({("a", "near", "a"): ENDS["a", "near", "a"]}, {"a": 30}).symmetrised()
    assert set(zip(near.src, near.dst, strict=True)) == set(zip(near.dst, near.src, strict=True))


class Elementwise(gt.Layer):
    """Reads attributes other than in a product."""

    def __init__(self, d_in: int, d_edge: int):
        self.weight = gt.Parameter.glorot(d_in + d_edge, d_in)
        self.scale = gt.Parameter.ones(d_edge)
        self.wide = gt.Parameter.glorot(d_edge, 24)
        self.narrow = gt.Parameter.glorot(24, d_in)

    def transform(self, node: Any) -> dict[str, Any]:
        return {"z": gt.to_dense(node.h)}

    def gather(self, edge: Any) -> Any:
        own = gt.concat([edge.src.z, edge.attr * self.scale]) @ self.weight
        wide = gt.relu(edge.attr @ self.wide) @ self.narrow
        return gt.relu(own) + gt.softmax(edge.attr[..., 0]) * wide


class Both(gt.Model):
    """The layer, and a decoder-free product for the outputs."""

    def __init__(self, d_in: int, d_out: int, d_edge: int):
        self.layers = [
            Elementwise(d_in, d_edge),
            gt.models.GATE(d_in, d_out, d_edge, 2, concat=False),
        ]

    def forward(self, graph: Any) -> Any:
        return self.layers[1](graph, gt.relu(self.layers[0](graph, graph.x)))


STRATEGIES: dict[str, dict[str, Any]] = {
    "global": {},
    "mini": {"strategy": "mini", "batch_size": 7, "fanout": "3,2"},
    "alone": {"strategy": "mini", "batch_size": 7, "mode": "independent"},
    "cluster": {"strategy": "cluster", "clusters": 4, "clusters_per_batch": 2},
}


def losses(comm: Any, model: Any, graph: gt.Graph, keys: dict[str, Any]) -> list[float]:
    trainer = gt.Trainer(model, graph, comm=comm, epochs=2, dtype="float64", seed=2, **keys)
    return [row["loss"] for row in trainer.fit().history]


def as_one_matrix(monkeypatch: pytest.MonkeyPatch, graph: gt.Graph) -> gt.Graph:
    """The graph with one matrix of all attributes, which graphs made from it have, too."""
    monkeypatch.setattr(typed, "attributes_apart", lambda x, *_: np.asarray(x))
    return filled_up(graph)


def compare(
    monkeypatch: pytest.MonkeyPatch, size: int, model: Any, graph: gt.Graph, **keys: Any
) -> None:
    keys = {"hidden": 4, **keys} if isinstance(model, str) else keys
    own = run_simulated(size, losses, model, graph, keys)[0]
    with monkeypatch.context() as patch:
        one = run_simulated(size, losses, model, as_one_matrix(patch, graph), keys)[0]
    np.testing.assert_allclose(own, one, rtol=1e-9)


@pytest.mark.one_in(3)
@pytest.mark.reference
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("size", [1, 3])
def test_losses_are_those_of_one_matrix(
    monkeypatch: pytest.MonkeyPatch, size: int, strategy: str
) -> None:
    keys = STRATEGIES[strategy]
    compare(monkeypatch, size, Both, GRAPH, backend="reference", **keys)
    compare(monkeypatch, size, "gine", FORMS["loops of means"], backend="reference", **keys)


@pytest.mark.fused
@pytest.mark.parametrize(
    "model", ["gine", *(pytest.param(model, marks=pytest.mark.second) for model in (Both, "gipa"))]
)
def test_losses_of_kernels_are_those_of_one_matrix(
    monkeypatch: pytest.MonkeyPatch, model: Any
) -> None:
    """Products of few and of many columns, whole rows, and the same again by senders."""
    compare(monkeypatch, 2, model, FORMS["loops of means"], backend="fused")


class Along(gt.Model):
    """A layer for each relation that has attributes, made at its width."""

    def __init__(self, d_in: int, d_out: int, relation_widths: list[int]):
        assert relation_widths == [0, 2, 19, 3] * 2
        self.layers = {
            code: gt.models.GATE(d_in, d_out, width)
            for code, width in enumerate(relation_widths)
            if width
        }

    def forward(self, graph: Any) -> Any:
        total: Any = None
        for code, layer in self.layers.items():
            with graph.relation(code):
                out = layer(graph, graph.x)
            total = out if total is None else total + out
        return total


class Sliced(Along):
    """The same from one matrix: each layer multiplies by weights that are 0 in other columns."""

    def __init__(self, d_in: int, d_out: int):
        Along.__init__(self, d_in, d_out, [0, 2, 19, 3] * 2)
        bounds = np.cumsum([0, *WIDTHS.values()])
        for code, layer in self.layers.items():
            weight = np.zeros((bounds[-1], *layer.weight_edge.shape[1:]))
            weight[bounds[code % 4] : bounds[code % 4 + 1]] = layer.weight_edge.value
            layer.weight_edge.value = weight


def outputs(comm: Any, model: Any, graph: gt.Graph, backend: str) -> Any:
    trainer = gt.Trainer(model, graph, comm=comm, dtype="float64", seed=4, backend=backend)
    return trainer.predict()


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("reference", marks=pytest.mark.reference),
        pytest.param("fused", marks=pytest.mark.fused),
    ],
)
def test_along_a_relation_edges_have_its_columns(
    monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    with monkeypatch.context() as patch:
        graph = as_one_matrix(patch, GRAPH)
        one_matrix = run_simulated(1, outputs, Sliced, graph, backend)[0]
    for size in (1, 2):
        own = run_simulated(size, outputs, Along, GRAPH, backend)[0]
        np.testing.assert_allclose(own[1], one_matrix[1], rtol=1e-9)


def sent(comm: Any, model: Any, graph: gt.Graph, keys: dict[str, Any]) -> tuple[Any, int]:
    """Losses, and bytes that this worker sends while it makes batches."""
    found = losses(comm, model, graph, keys)
    books = comm.ledger.snapshot()
    return found, int(books["batch"]["bytes"] + books["fetch"]["bytes"])


@pytest.mark.reference
def test_batches_that_are_dealt_have_no_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that compute batches of their own get attributes at the width of each relation."""
    keys = {**STRATEGIES["alone"], "backend": "reference"}
    own = run_simulated(3, sent, Along, GRAPH, keys)
    with monkeypatch.context() as patch:
        one = run_simulated(3, sent, Sliced, as_one_matrix(patch, GRAPH), keys)
    np.testing.assert_allclose(own[0][0], one[0][0], rtol=1e-9)
    assert 0 < sum(n for _, n in own) < 0.8 * sum(n for _, n in one)


@pytest.mark.reference
def test_a_relation_without_attributes_has_none() -> None:
    class Reads(gt.Model):
        def __init__(self, d_in: int, d_out: int):
            self.layer = gt.models.GATE(d_in, d_out, 1)

        def forward(self, graph: Any) -> Any:
            with graph.relation(0):
                return self.layer(graph, graph.x)

    with pytest.raises(ColumnError, match=r"reads edge.attr"):
        gt.Trainer(Reads, GRAPH)


@pytest.mark.parametrize("size", [1, 4])
def test_a_partition_has_no_zeros(size: int) -> None:
    def stored(comm: Any) -> int:
        x = build_partition(GRAPH, comm).edge.read("attr")
        np.testing.assert_array_equal(x.flat[0], np.concatenate([part.ravel() for part in x.parts]))
        return int(x.nnz)

    edges = 2 * np.array(COUNTS)
    assert sum(run_simulated(size, stored)) == int(edges @ list(WIDTHS.values()))


def test_conformed_to_another_order_of_relations() -> None:
    turned = gt.Graph(
        {name: ENDS[name] for name in reversed(ENDS)},
        SIZES,
        x={
            kind: GRAPH.x.toarray()[GRAPH.nodes_of(kind)][:, 4 * i : 4 * i + 4]
            for i, kind in enumerate(SIZES)
        },
        edge_attr={
            name: PLAIN.edge_attr.blocks[code] for code, name in enumerate(ENDS) if WIDTHS[name]
        },
    ).with_inverse_relations()
    trainer = gt.Trainer(Along, GRAPH, dtype="float64", backend="reference")
    own, other = trainer.predict(), trainer.on(turned).predict()
    np.testing.assert_allclose(own[1], other[1], rtol=1e-9)
