"""Labels of whole graphs: numbers on any workers, readouts, statistics, what moves, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError, ShapeError
from graphtheta.models.readouts import Readout, Set2Set, read_out
from graphtheta.ops import dtype_scope

SIZES = [3, 5, 2, 1, 7, 4, 2, 6, 3, 5, 8, 4]
G, N = len(SIZES), sum(SIZES)
OF = np.repeat(np.arange(G), SIZES)


def rings_and_paths() -> list[gt.Graph]:
    rng = np.random.default_rng(0)
    made = []
    for i, n in enumerate(SIZES):
        src = np.arange(n - i % 2)
        dst = (np.arange(n - i % 2) + 1) % max(n, 1)
        ends = np.concatenate((src, dst)), np.concatenate((dst, src))
        made.append(
            gt.Graph(
                ends,
                n,
                x=rng.normal(size=(n, 3)),
                edge_attr=rng.normal(size=(2 * len(src), 2)),
                node_columns={"kind": rng.integers(0, 4, n)},
            )
        )
    return made


GRAPHS = rings_and_paths()
Y = np.arange(G) % 2
MASKS = {"train": np.arange(G) < 8, "val": np.arange(G) >= 8}
WHOLE = gt.whole_graphs(GRAPHS, Y, **MASKS)
KEYS: dict[str, Any] = {
    "layers": 2,
    "hidden": 4,
    "dtype": "float64",
    "backend": "reference",
    "dropout": 0.2,
    "lr": 0.05,
    "seed": 3,
}


def losses(comm, model="gin", graph=WHOLE, **keys):
    trainer = gt.Trainer(model, graph, comm=comm, **{**KEYS, "readout": "sum", **keys})
    return [trainer.train_epoch(epoch) for epoch in range(3)] + list(trainer.evaluate().values())


def test_readout_nodes_have_the_labels_and_masks() -> None:
    nodes = WHOLE.nodes_of("graph")
    np.testing.assert_array_equal(nodes, N + np.arange(G))
    np.testing.assert_array_equal(WHOLE.y[nodes], Y)
    assert (WHOLE.y[:N] == -1).all()
    assert not WHOLE.train[:N].any()
    np.testing.assert_array_equal(WHOLE.train[nodes], MASKS["train"])
    member = WHOLE.edge_columns["relation"] == 1
    np.testing.assert_array_equal(WHOLE.dst[member] - N, OF)
    np.testing.assert_array_equal(WHOLE.x[:N], np.concatenate([g.x for g in GRAPHS]))


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "attention"])
def test_readouts(kind: str) -> None:
    class Alone(gt.Model):
        def __init__(self):
            self.weight = gt.Parameter.glorot(3, 4)
            self.layer = Readout(kind, 4)

        def forward(self, graph):
            return read_out(self.layer, graph, gt.matmul(graph.x, self.weight))

    with dtype_scope("float64"):
        model = Alone()
    h = WHOLE.x[:N] @ model.weight.value
    wanted = np.zeros((G, 4))
    for g in np.unique(OF):
        own = h[g == OF]
        scores = np.exp(own @ model.layer.score.value) if kind == "attention" else None
        wanted[g] = (
            (scores / scores.sum() * own).sum(0)
            if kind == "attention"
            else getattr(own, kind)(axis=0)
        )
    out = gt.forward(model, WHOLE)
    np.testing.assert_allclose(out[N:], wanted, atol=1e-12)
    assert not out[:N].any()


class Read(gt.Model):
    """The features read out by Set2Set."""

    def __init__(self, steps: int = 3):
        self.layer = Set2Set(3, steps)

    def forward(self, graph):
        return read_out(self.layer, graph, graph.x)


def general(steps: int = 3) -> Read:
    """The model with all parameters away from zero."""
    with dtype_scope("float64"):
        model = Read(steps)
        rng = np.random.default_rng(2)
    for p in model.parameters():
        p.value = rng.normal(size=p.shape)
    return model


def test_set2set_equals_its_formula() -> None:
    model = general()
    weight, bias = (p.value for p in (model.layer.step.weight, model.layer.step.bias))
    wanted = []
    for g in range(G):
        h = WHOLE.x[:N][g == OF].astype(float)
        q = r = c = np.zeros(3)
        for _ in range(3):
            gates = np.einsum("i,igw->gw", np.concatenate((q, r)), weight) + bias
            take, keep, give = 1 / (1 + np.exp(-gates[:3]))
            c = keep * c + take * np.tanh(gates[3])
            q = give * np.tanh(c)
            share = np.exp(h @ q)
            r = share @ h / share.sum()
        wanted.append(np.concatenate((q, r)))
    np.testing.assert_allclose(gt.forward(model, WHOLE)[N:], wanted, atol=1e-12)


def test_gradients_of_set2set() -> None:
    model = general(2)
    rng = np.random.default_rng(4)
    seed = rng.normal(size=6)
    _, grads = gt.gradients(lambda h: h * seed, model, WHOLE)
    for p in model.parameters():
        step = rng.normal(size=p.shape)
        kept = p.value
        values = []
        for sign in (1, -1):
            p.value = kept + sign * 1e-6 * step
            values.append((gt.forward(model, WHOLE) * seed).mean())
        p.value = kept
        assert np.isclose(
            (values[0] - values[1]) / 2e-6, (grads[p.name] * step).sum(), rtol=1e-6
        ), p.name


CUT: dict[str, Any] = {"partitioner": "vertex-cut"}
GREM: dict[str, Any] = {"partitioner": "1d-dst", "masters": "grem"}


# each placement of edges meets a global strategy, one of batches, and a readout with parameters
@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("keys", "placement"),
    [
        ({"norm": "batch", "jumping": "concat"}, {}),
        ({"model": "gcn", "readout": "max"}, CUT),
        ({"model": "gat", "readout": "attention", "norm": "batch"}, GREM),
        ({"strategy": "mini", "batch_size": 3, "norm": "batch"}, CUT),
        ({"strategy": "mini", "batch_size": 3, "fanout": "2,2", "readout": "mean"}, GREM),
        ({"strategy": "cluster", "clusters": 4}, CUT),
        ({"model": "gat_e", "strategy": "mini", "batch_size": 2}, GREM),
        ({"model": "gine", "readout": "set2set", "norm": "batch"}, CUT),
        ({"strategy": "mini", "batch_size": 3, "fanout": "2,2", "readout": "set2set"}, {}),
    ],
    ids=str,
)
def test_training_is_the_same_on_any_number_of_workers(
    keys: dict[str, Any], placement: dict[str, Any]
) -> None:
    (one,) = run_simulated(1, losses, **keys)
    for found in run_simulated(3, losses, **keys, **placement):
        np.testing.assert_allclose(found, one, rtol=1e-9, atol=1e-12)


def test_graphs_of_a_list_keep_what_their_numbers_stand_for() -> None:
    def graph(*words: str) -> gt.Graph:
        meta = {"node_categories": {"kind": words}}
        return gt.Graph([[0], [1]], 2, node_columns={"kind": [0, 1]}, meta=meta)

    both = gt.whole_graphs([graph("a", "b"), graph("a", "b")], [0, 1])
    assert both.categories("node", "kind") == ("a", "b")
    with pytest.raises(DataError, match="graph 1 and graph 0 have different node_categories"):
        gt.whole_graphs([graph("a", "b"), graph("b", "a")], [0, 1])


def test_values_of_graphs_of_a_list_fit_together() -> None:
    def graph(time: Any) -> gt.Graph:
        return gt.Graph([[0], [1]], 2, node_columns={"time": np.array(time)})

    exact = [graph([2**53 + 1, 3]), graph([2, 1])]
    assert gt.whole_graphs(exact, [0, 1]).node_columns["time"][:2].tolist() == [2**53 + 1, 3]
    with pytest.raises(
        DataError, match=r"graph 0: node_columns\['time'\]: float64, .* would round"
    ):
        gt.whole_graphs([exact[0], graph([0.5, 1.0])], [0, 1])
    with pytest.raises(
        ShapeError, match=r"'time'\] of graph 1 has rows of shape \[2\], of graph 0"
    ):
        gt.whole_graphs([exact[0], graph([[1, 2], [3, 4]])], [0, 1])


def test_one_graph_with_numbers_is_the_same_graph() -> None:
    first = np.cumsum(SIZES) - SIZES
    ends = [
        np.concatenate([getattr(g, end) + a for g, a in zip(GRAPHS, first, strict=True)])
        for end in ("src", "dst")
    ]
    base = gt.Graph(ends, N, x=np.concatenate([g.x for g in GRAPHS]))
    assert losses(None, graph=gt.whole_graphs(base, Y, graph_of=OF, **MASKS)) == losses(None)


def test_a_graph_without_nodes_has_a_value() -> None:
    base = gt.Graph(([0, 1], [1, 0]), 2, x=np.eye(2))
    graph = gt.whole_graphs(
        base, [0, 1, 0], graph_of=[0, 0], train=[True, True, False], val=[False, False, True]
    )
    for readout in ("sum", "mean", "max", "attention", "set2set"):
        assert np.isfinite(losses(None, graph=graph, readout=readout)).all()


def test_batch_norm_counts_the_nodes_of_the_graphs() -> None:
    class Normed(gt.Model):
        def __init__(self):
            self.norm = gt.BatchNorm(3)

        def forward(self, graph):
            return self.norm(graph.x)

    with dtype_scope("float64"):
        model = Normed()
    out = gt.forward(model, WHOLE, training=True)
    np.testing.assert_allclose(out[:N].mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(out[:N].std(0), 1, rtol=1e-4)


def test_gradients_through_batch_norm() -> None:
    class Normed(gt.Model):
        def __init__(self):
            self.weight = gt.Parameter.glorot(3, 4)
            self.norm = gt.BatchNorm(4)

        def forward(self, graph):
            return gt.tanh(self.norm(gt.matmul(graph.x, self.weight) + 0.3))

    with dtype_scope("float64"):
        model = Normed()
    _, grads = gt.gradients(lambda h: h * h * np.arange(1.0, 5), model, WHOLE, training=True)
    rng = np.random.default_rng(1)
    eps = 1e-6
    for p in model.parameters():
        step = rng.normal(size=p.shape)
        kept = p.value
        values = []
        for sign in (1, -1):
            p.value = kept + sign * eps * step
            values.append((gt.forward(model, WHOLE, training=True) ** 2 * np.arange(1.0, 5)).mean())
        p.value = kept
        assert np.isclose(
            (values[0] - values[1]) / (2 * eps), (grads[p.name] * step).sum(), rtol=1e-5
        ), p.name


def test_nothing_moves_if_graphs_are_whole() -> None:
    def rows(comm, **keys):
        trainer = gt.Trainer("gin", WHOLE, comm=comm, **KEYS, readout="sum", **keys)
        relation = trainer.partition.relations["edge"]
        return (
            relation.sources.plan.n_halo + relation.destinations.plan.n_halo,
            trainer.partition.n_masters,
        )

    found = run_simulated(3, rows, partitioner="1d-dst", masters="grem")
    assert not any(halo for halo, _ in found)
    assert max(n for _, n in found) <= 1.1 * (N + G) / 3 + 1
    assert any(halo for halo, _ in run_simulated(3, rows, partitioner="1d-dst", masters="hash"))


def test_several_labels_with_missing_ones() -> None:
    y = np.where(
        np.random.default_rng(0).random((G, 3)) < 0.3, np.nan, np.arange(3 * G).reshape(G, 3) % 2
    )
    graph = gt.whole_graphs(GRAPHS, y, **MASKS, multilabel=True)
    (one,) = run_simulated(1, losses, graph=graph, metric="auc")
    for found in run_simulated(2, losses, graph=graph, metric="auc"):
        np.testing.assert_allclose(found, one, rtol=1e-9)
    filled = gt.whole_graphs(GRAPHS, np.nan_to_num(y), **MASKS, multilabel=True)
    assert not np.allclose(one, losses(None, graph=filled, metric="auc"))


def test_values_and_sparse_features() -> None:
    base = gt.Graph((GRAPHS[4].src, GRAPHS[4].dst), 7, x=sp.csr_array(np.eye(7)))
    graph = gt.whole_graphs(
        [base] * 4, np.linspace(0, 1, 4)[:, None], train=np.arange(4) < 3, val=np.arange(4) == 3
    )
    assert sp.issparse(graph.x)
    assert np.isfinite(losses(None, graph=graph, readout="mean")).all()


BASE = gt.Graph(([0, 1, 2], [1, 0, 3]), 4, x=np.eye(4))


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (
            lambda: gt.whole_graphs(BASE, [0, 1]),
            ShapeError,
            "give the number of the graph of each of the 4 nodes",
        ),
        (
            lambda: gt.whole_graphs(BASE, [0, 1], graph_of=[0, 0, 1, 5]),
            DataError,
            "node 3 is in graph 5, outside 0..1",
        ),
        (
            lambda: gt.whole_graphs(BASE, [0, 1], graph_of=[0, 0, 0, 1]),
            DataError,
            "edge 2 joins node 2 of graph 0 and node 3 of graph 1",
        ),
        (
            lambda: gt.whole_graphs(WHOLE, Y, graph_of=np.zeros(N + G, int)),
            DataError,
            "has the column 'type' already",
        ),
        (lambda: gt.whole_graphs([]), DataError, "there are no graphs"),
        (
            lambda: gt.whole_graphs([BASE, GRAPHS[0]]),
            DataError,
            "graph 1 has the columns edge_attr, kind, x, graph 0 x",
        ),
        (
            lambda: gt.Trainer("gin", WHOLE),
            ConfigError,
            "whole graphs; choose .* --readout sum, mean, max, attention, set2set",
        ),
        (
            lambda: gt.Trainer(
                "gin", BASE.replace(y=np.arange(4), train=np.ones(4, bool)), readout="sum"
            ),
            ConfigError,
            "drop --readout",
        ),
    ],
)
def test_errors(make, error, text) -> None:
    with pytest.raises(error, match=text):
        make()


@pytest.mark.one_in(5, 5)
@pytest.mark.parametrize("ids", [None, [7, 9, 5, 1], ["c", "a", "b", "d"]])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_predictions_have_a_row_for_each_graph(ids, named, stored, tmp_path):
    def ring(n):
        src = np.arange(n)
        return gt.Graph(
            (src, (src + 1) % n), n, x=np.eye(n, 2), node_ids=src + 10 if named else None
        )

    graph = gt.whole_graphs(
        [ring(n) for n in (3, 4, 5, 2)], [0, 1, 0, 1], train=np.ones(4, bool), ids=ids
    )
    if stored:
        graph = gt.load(gt.import_graph(graph, to=tmp_path / "s"), split="stored")
    wanted = np.arange(4) if ids is None else np.array(ids)
    trainer = gt.Trainer("gin", graph, readout="sum", hidden=4, epochs=1)
    trainer.fit()
    found, values = trainer.predict()
    assert (
        found.dtype.kind == wanted.dtype.kind
        and found.tolist() == wanted.tolist()
        and values.shape == (4, 2)
    )
    some, same = trainer.predict(wanted[[2, 0]])
    assert some.tolist() == wanted[[2, 0]].tolist() and np.allclose(same, values[[2, 0]], atol=1e-5)
    assert (
        trainer.predict(np.array([False, True, False, True]))[0].tolist() == wanted[[1, 3]].tolist()
    )
    assert trainer.write_predictions(tmp_path / "out", "csv") == 4
    assert len(trainer.embed()[0]) == graph.n_nodes


def test_ids_of_graphs_are_checked():
    graphs = [gt.Graph([[0], [1]], 2)] * 2
    with pytest.raises(DataError, match="id 3 belongs to 2 nodes"):
        gt.whole_graphs(graphs, ids=[3, 3])
    with pytest.raises(ShapeError, match="expected 2 rows"):
        gt.whole_graphs(graphs, [0, 1], ids=[3, 4, 5])
