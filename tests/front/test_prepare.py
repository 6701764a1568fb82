"""Jobs over graphs with named columns: what the trainer takes, what self loops ask for, and the
same numbers everywhere.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError
from graphtheta.models import GCN

N = 60
E = 400
TYPES = 4
SMALL = "sbm:n_nodes=60,n_edges=300,classes=2,features=4,graph_seed=1"
KINDS = 3
KEYS = {"epochs": 2, "hidden": 8, "backend": "reference", "lr": 0.05}


def graph(**fields):
    """Labels follow from the kind of a node and from the types of its in-edges."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, N, (2, E))
    kind = rng.integers(0, KINDS, N)
    code = rng.integers(0, TYPES, E)
    part = rng.permutation(N) % 3
    y = (kind + np.bincount(ends[1], weights=code, minlength=N).astype(int)) % 2
    return gt.Graph(
        ends,
        N,
        **{
            "x": rng.standard_normal((N, 5)),
            "y": y,
            "train": part == 0,
            "val": part == 1,
            "test": part == 2,
            "node_columns": {"kind": kind},
            "edge_columns": {"type": code, "size": rng.random(E)},
            **fields,
        },
    )


class Typed(gt.Layer):
    """Reads everything a column is for."""

    def __init__(self, d, d_out):
        self.w = gt.Parameter.glorot(d, d_out)
        self.kinds = gt.Parameter.normal(KINDS, d_out)
        self.types = gt.Parameter.normal(TYPES + 1, d_out)

    def transform(self, node):
        return {"z": node.h @ self.w + gt.embedding(self.kinds, node.kind)}

    def gather(self, edge):
        return edge.src.z * gt.embedding(self.types, edge.type) * edge.size


class Net(gt.Model):
    def __init__(self, d_in, d_out, hidden):
        self.layer = Typed(d_in, hidden)
        self.end = gt.Parameter.glorot(hidden, d_out)

    def forward(self, graph):
        return gt.relu(self.layer(graph, graph.x)) @ self.end


class WithLoops(Net):
    """A published layer that wants self loops beside one that reads types."""

    def __init__(self, d_in, d_out, hidden):
        super().__init__(d_in, d_out, hidden)
        self.first = GCN(d_in, d_in)

    def forward(self, graph):
        return gt.relu(self.layer(graph, self.first(graph, graph.x))) @ self.end


class OwnType(gt.Layer):
    """Makes an edge value of the name of a column."""

    self_loops = True

    def gather(self, edge):
        return edge.src.h, {"type": gt.cast(edge.weight * 0.0, "int64")}


class Remade(WithLoops):
    def __init__(self, d_in, d_out, hidden):
        super().__init__(d_in, d_out, hidden)
        self.first = OwnType()


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"strategy": "mini", "batch_size": 7},
        {"strategy": "mini", "batch_size": 7, "fanout": "3"},
        {"strategy": "cluster", "clusters": 5, "clusters_per_batch": 2},
    ],
    ids=str,
)
def test_the_same_numbers_on_any_workers(keys, tmp_path):
    np.save(tmp_path / "clusters.npy", np.arange(N) % 5)
    if "clusters" in keys:
        keys = {**keys, "clusters": 0, "cluster_method": str(tmp_path / "clusters.npy")}

    def program(comm, partitioner):
        trainer = gt.Trainer(
            Net, graph(), comm=comm, partitioner=partitioner, dtype="float64", **KEYS, **keys
        )
        losses = [trainer.train_epoch(i) for i in range(2)]
        return losses, trainer.evaluate("test"), trainer.predict()

    losses, metrics, (ids, outputs) = run_simulated(1, program, "1d-src")[0]
    for size, partitioner in ((2, "1d-dst"), (3, "vertex-cut"), (4, "1d-src")):
        again = run_simulated(size, program, partitioner)[0]
        np.testing.assert_allclose(again[0], losses, rtol=1e-12)
        assert again[1] == pytest.approx(metrics, rel=1e-10)
        np.testing.assert_allclose(again[2][1], outputs, rtol=1e-10, atol=1e-12)
        np.testing.assert_array_equal(again[2][0], ids)


@pytest.mark.second
def test_values_of_edges_by_type():
    """A decoder reads the columns of the edges it is asked about."""
    rng = np.random.default_rng(0)

    class Score(gt.Layer):
        sum = None

        def __init__(self):
            self.types = gt.Parameter.zeros(TYPES, 1)
            self.kinds = gt.Parameter.zeros(KINDS, 1)

        def gather(self, edge):
            return (gt.embedding(self.types, edge.type) + gt.embedding(self.kinds, edge.src.kind))[
                ..., 0
            ]

    class Scores(gt.Model):
        def __init__(self):
            self.score = Score()

        def forward(self, graph):
            return self.score(graph, graph.x)

    part = rng.integers(0, 2, E)
    g = graph(y=None, train=None, val=None, test=None)
    g = g.replace(
        edge_y=g.edge_columns["type"] * 1.0 + 5.0 * g.node_columns["kind"][g.src],
        edge_train=part == 0,
        edge_test=part == 1,
    )

    def program(comm):
        keys = {"epochs": 100, "lr": 0.5, "eval_every": 50, "backend": "reference"}
        return gt.Trainer(Scores, g, comm=comm, **keys).fit().metrics["test_r2"]

    found = [run_simulated(size, program)[0] for size in (1, 3)]
    assert found[0] > 0.999 and found == pytest.approx([found[0]] * 2, rel=1e-6)


# ---- self loops


def test_models_that_read_no_codes_are_not_hindered():
    plain = graph(edge_columns=None, node_columns=None)
    expected, found = (gt.Trainer("gcn", g, **KEYS) for g in (plain, graph()))
    assert found.partition.n_edges == expected.partition.n_edges > E
    assert found.train_epoch(0) == expected.train_epoch(0)
    assert (found.partition.edge.read("type")[found.partition.edge_gid >= E] == -1).all()


@pytest.mark.parametrize(
    "keys", [{}, {"self_loops": "yes", "model": Net}, {"recompute": True}], ids=str
)
def test_a_layer_that_reads_codes_wants_them_for_self_loops(keys):
    model = keys.pop("model", WithLoops)
    words = (
        r"Typed reads edge.type, a column without a value for the self loops that the job adds.*"
        r"with_self_loops\(columns=\{'type': VALUE\}\).*self_loops='no'"
    )
    with pytest.raises(DataError, match=words):
        gt.Trainer(model, graph(), **KEYS, **keys)
    gt.Trainer(model, graph(), **KEYS, **{**keys, "self_loops": "no"})
    gt.Trainer(model, graph().with_self_loops(columns={"type": TYPES}), **KEYS, **keys).train_epoch(
        0
    )


def test_a_graph_that_has_all_self_loops_needs_no_values():
    g = graph().with_self_loops(columns={"type": TYPES})
    found = gt.Trainer(WithLoops, g, **KEYS).partition
    assert found.n_edges == g.n_edges > E and found.edge.read("type").min() >= 0


def test_an_edge_value_that_a_layer_makes_is_no_column():
    trainer = gt.Trainer(Remade, graph(), **KEYS)
    assert trainer.partition.edge.read("type").min() == -1 and np.isfinite(trainer.train_epoch(0))


def test_precomputed_messages_want_values_too():
    class First(gt.Layer):
        self_loops = True

        def gather(self, edge):
            return edge.src.h * edge.type

    class Summed(gt.Model):
        def __init__(self, d_in, d_out):
            self.layer = First()
            self.w = gt.Parameter.glorot(d_in, d_out)

        def forward(self, graph):
            return self.layer(graph, graph.x) @ self.w

    keys = {"epochs": 1, "backend": "reference", "precompute": True}
    with pytest.raises(DataError, match=r"First reads edge.type"):
        gt.Trainer(Summed, graph(), **keys)
    gt.Trainer(Summed, graph(), self_loops="no", **keys).train_epoch(0)


def test_loading_with_self_loops_asks_for_values(tmp_path):
    g = graph()
    np.savez(
        tmp_path / "mine.npz",
        edge_index=g.edge_index,
        x=g.x,
        y=g.y,
        **{"edge_columns.type": g.edge_columns["type"]},
    )
    with pytest.raises(
        DataError, match=r"edge column 'type' holds integers.*with_self_loops\(columns="
    ):
        gt.load(tmp_path / "mine.npz", self_loops=True)


# ---- graphs of columns alone


class Tables(gt.Model):
    """Knows a node by its kind alone."""

    def __init__(self, d_in, d_out, hidden):
        assert d_in == 0
        self.kinds = gt.Parameter.normal(KINDS, hidden)
        self.layer = GCN(hidden, hidden)
        self.end = gt.Parameter.glorot(hidden, d_out)

    def forward(self, graph):
        return self.layer(graph, gt.embedding(self.kinds, graph.node("kind"))) @ self.end


def test_columns_take_the_place_of_features():
    for keys in ({}, {"strategy": "mini", "batch_size": 6, "fanout": "3"}):
        gt.Trainer(Tables, graph(x=None), **KEYS, **keys).fit()
    with pytest.raises(ConfigError, match="gcn reads node features and the graph has none"):
        gt.Trainer("gcn", graph(x=None), **KEYS)
    with pytest.raises(DataError, match="no node features x"):
        gt.Trainer(Tables, graph(x=None, node_columns=None), **KEYS)


# ---- commands


@pytest.mark.fused
def test_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    g = graph()
    arrays = {f: getattr(g, f) for f in ("x", "y", "train", "val", "test")}
    np.savez(
        "mine.npz",
        edge_index=g.edge_index,
        **arrays,
        **{f"edge_columns.{n}": x for n, x in g.edge_columns.items()},
        **{f"node_columns.{n}": x for n, x in g.node_columns.items()},
    )
    (tmp_path / "typed.py").write_text(
        "import graphtheta as gt\n\n\nclass Typed(gt.Layer):\n    def __init__(self, d):\n       "
        " self.types = gt.Parameter.normal(4, d)\n\n    def gather(self, edge):\n        return"
        " edge.src.h * gt.embedding(self.types, edge.type)\n\n\nclass Net(gt.Model):\n    def"
        " __init__(self, d_in, d_out):\n        self.layer, self.w = Typed(d_in),"
        " gt.Parameter.glorot(d_in, d_out)\n\n    def forward(self, graph):\n        return"
        " self.layer(graph, graph.x) @ self.w\n"
    )
    job = ("--dataset", "mine.npz", "--model", "typed.py:Net")
    assert main(["train", *job, "--epochs", "2", "--out", "run", "--split", "public"]) == 0
    assert main(["evaluate", "run", "--trust"]) == 0
    assert main(["predict", "run", "--trust"]) == 0
    capsys.readouterr()
    assert main(["explain", *job]) == 0
    assert (
        "reads    src.h [5], edge.type [1]" in (said := capsys.readouterr().out)
        and "back end fused" in said
    )
    assert main(["info", "--dataset", "mine.npz", "--ranks", "2"]) == 0
    assert "type int64, size float64" in capsys.readouterr().out
    assert main(["warmup", *job]) == 0


def test_halos_in_16_bits_round_no_codes():
    """Wide floats are rounded, codes are not: each would look up another row."""

    class Wide(gt.Layer):
        def __init__(self):
            self.codes = gt.Parameter.normal(300, 20)

        def gather(self, edge):
            return (
                edge.src.h
                * edge.size
                * gt.embedding(self.codes, edge.src.code)
                * gt.embedding(self.codes, edge.src.codes[..., 17])
            )

    class Halo(gt.Model):
        def __init__(self, d_in, d_out):
            self.layer = Wide()
            self.w = gt.Parameter.glorot(20, d_out)

        def forward(self, graph):
            return self.layer(graph, graph.x) @ self.w

    rng = np.random.default_rng(0)
    code = rng.integers(257, 300, (N, 20)).astype(np.int32)
    g = graph(x=rng.integers(-2, 3, (N, 20)), node_columns={"code": code[:, 0], "codes": code})

    def program(comm, halo):
        trainer = gt.Trainer(
            Halo, g, comm=comm, partitioner="1d-dst", epochs=1, backend="reference", halo=halo
        )
        return trainer.train_epoch(0)

    # what travels forward is small integers, which 16 bits hold
    assert run_simulated(3, program, "bf16")[0] == run_simulated(3, program, "exact")[0]


@pytest.mark.parametrize("word", ["no", "No", "false"])
def test_the_dataset_says_that_there_are_no_self_loops(word: str, tmp_path: Path) -> None:
    """As the key does, on other graphs too, though the model uses some."""
    keys = {"backend": "reference", "epochs": 1, "hidden": 4}
    text, key = (
        gt.Trainer("gcn", out=tmp_path / name, **keys, **more)
        for name, more in (
            ("text", {"dataset": f"{SMALL},self_loops={word}"}),
            ("key", {"dataset": SMALL, "self_loops": "no"}),
        )
    )
    loaded = gt.load(SMALL)
    assert text.partition.n_edges == loaded.without_self_loops().n_edges
    assert gt.Trainer("gcn", dataset=SMALL, **keys).partition.n_edges > text.partition.n_edges
    assert text.fit().metrics == key.fit().metrics
    other = SMALL.replace("graph_seed=1", "graph_seed=2")
    measured = [
        opened.evaluate()
        for name in ("text", "key")
        for run in [tmp_path / name]
        for opened in (gt.open_run(run, dataset=other), gt.open_run(run, gt.load(other)))
    ]
    assert measured == [measured[0]] * 4
    job = text.job.without_dataset()
    assert gt.Trainer(graph=loaded, job=job).partition.n_edges == text.partition.n_edges
