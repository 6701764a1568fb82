"""Inference on a graph that has grown: the numbers of a pass over all of it, from the rows that can
differ alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
import ranks
from grown_graphs import KEYS, check

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.cli.predict import predict
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, FormatError
from graphtheta.inference.grown import grown as grown_module
from graphtheta.inference.grown.layer_files import LayerFiles
from graphtheta.models import SAGE, SimpleHGN
from graphtheta.tasks.evaluation.threshold import Threshold

pytestmark = pytest.mark.reference

TASKLESS = {"edge_y": None, "edge_train": None, "edge_val": None, "edge_test": None}
N, NEW = 60, 4
RNG = np.random.default_rng(2)
# a graph without hubs, so that changes stay in a part of it
ENDS = np.stack((np.arange(2 * N) % N, (np.arange(2 * N) % N + np.repeat((1, 3), N)) % N))
OLD = graphs.fill(*ENDS, N, **TASKLESS)


def with_relations(graph: gt.Graph) -> gt.Graph:
    return graph.replace(
        edge_columns={"relation": np.arange(graph.n_edges) % 3}, meta={"n_relations": 3}
    )


def appended(both: bool, ids: Any = None, seed: int = 3) -> gt.Graph:
    """The graph with new nodes, whose in-edges come from old and new ones; with ``both``, some
    edges go back.
    """
    rng = np.random.default_rng(seed)
    src = rng.integers(0, N, 3 * NEW)
    dst = np.repeat(np.arange(N, N + NEW), 3)
    src[0] = N + 1
    ends = (
        np.concatenate((ENDS[0], src, dst[:2] if both else src[:0])),
        np.concatenate((ENDS[1], dst, src[1:3] if both else dst[:0])),
    )
    grown = graphs.fill(*ends, N + NEW, seed=9, **TASKLESS)
    x = grown.x.copy()
    e = OLD.n_edges
    x[:N] = OLD.x
    attr = grown.edge_attr.copy()
    weight = grown.edge_weight.copy()
    attr[:e], weight[:e] = OLD.edge_attr, OLD.edge_weight
    return grown.replace(x=x, edge_attr=attr, edge_weight=weight, node_ids=ids)


class Pair(gt.Model):
    """The second layer reads attention weights that the first one made."""

    def __init__(self, d_in: int, d_out: int):
        self.first = SimpleHGN(d_in, 3, 3, 2, d_relation=4, stores_attention=True)
        self.between = SAGE(6, 6)
        self.second = SimpleHGN(6, d_out, 3, 2, d_relation=4, concat=False, beta=0.1)

    def forward(self, graph: Any) -> Any:
        return self.second(graph, self.between(graph, self.first(graph, graph.x)))


class Own(gt.Model):
    """Layers of two directions side by side, a skip to the end, and weights of edges."""

    def __init__(self, d_in: int, d_out: int):
        self.there = Maximum(d_in, 4)
        self.back = Maximum(d_in, 4)
        self.last = Maximum(4, d_out)
        self.back.direction = "out"
        self.skip = gt.Linear(d_in, d_out)

    def forward(self, graph: Any) -> Any:
        return self.last(graph, self.there(graph, graph.x) + self.back(graph, graph.x)) + self.skip(
            graph.x
        )


class Maximum(gt.Layer):
    sum = ("max", "mean")

    def __init__(self, d_in: int, d_out: int):
        self.weight = gt.Parameter.glorot(d_in, d_out)

    def transform(self, node: Any) -> dict[str, Any]:
        return {"z": gt.matmul(node.h, self.weight)}

    def gather(self, edge: Any) -> Any:
        return edge.src.z * edge.weight

    def apply(self, node: Any, total: Any) -> Any:
        return total.max + gt.tanh(total.mean)


Case = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray], np.ndarray, Any]


@pytest.mark.one_in(15)
@pytest.mark.parametrize("model", ["gcn", "sage", "gat", "gat_e", "rgcn", Pair, Own], ids=str)
@pytest.mark.parametrize("both", [False, True])
def test_models(model: Any, both: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grown_module, "MOST", 2.0)
    relational = model in ("rgcn", Pair)
    old, new = (with_relations(g) if relational else g for g in (OLD, appended(both)))
    check(model, old, new, tmp_path / "kept", nodes=[62, 3, 61, 3])


def rows_and_edges(new: gt.Graph) -> tuple[int, int]:
    """Rows and edges of three layers of a GCN, by sets: nodes with other degrees, and what they
    reach.
    """
    degree, before = (np.bincount(g.dst, minlength=N + NEW) for g in (new, OLD.with_self_loops()))
    reached = set(np.flatnonzero(degree != before).tolist())
    rows = 0
    edges = 0
    for _ in range(3):
        reached |= {int(d) for s, d in zip(new.src, new.dst, strict=True) if s in reached}
        rows = rows + len(reached)
        edges = edges + int(degree[list(reached)].sum())
    return rows, edges


@pytest.mark.one_in(9)
@pytest.mark.parametrize(
    ("size", "placement"),
    [(1, ("1d-src", "hash")), (3, ("1d-dst", "block")), (4, ("vertex-cut", "hash"))],
    ids=str,
)
@pytest.mark.parametrize("compare", ["values", "degrees"])
def test_workers(size: int, placement: tuple[str, str], compare: str, tmp_path: Path) -> None:
    keys = {"partitioner": placement[0], "masters": placement[1], "compare": compare}
    for both, changed in ((False, NEW), (True, NEW + 2)):
        work = check("gcn", OLD, appended(both), tmp_path / str(both), size, **keys)
        assert (work.rows, work.edges, work.changed) == (
            *rows_and_edges(appended(both).with_self_loops()),
            changed,
        )


@pytest.mark.one_in(13)
@pytest.mark.parametrize(
    "keys",
    [
        {"direction": "both"},
        {"direction": "out"},
        {"jumping": "concat"},
        {"residual": True, "norm": "batch"},
        {"layers": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("compare", ["values", "degrees"])
def test_options(keys: dict[str, Any], compare: str, tmp_path: Path) -> None:
    check("gcn", OLD, appended(True), tmp_path / "kept", compare=compare, **keys)


def test_degrees_of_relations(tmp_path: Path) -> None:
    """Edges read the degrees of their ends by relation, which an edge elsewhere changes."""
    check(
        "rgcn",
        with_relations(OLD),
        with_relations(appended(True)),
        tmp_path / "kept",
        compare="degrees",
    )


def test_appended_nodes_compute_themselves(tmp_path: Path) -> None:
    """In-edges of new nodes alone: three layers of new rows and their edges, and with less wanted,
    less.
    """
    work = check("sage", OLD, appended(False), tmp_path / "kept")
    assert (work.appended, work.changed, work.rows, work.edges) == (NEW, NEW, 3 * NEW, 3 * 3 * NEW)
    assert (work.all_rows, work.all_edges) == (3 * (N + NEW), 3 * (2 * N + 3 * NEW))


class Seen(Maximum):
    """Records the number of rows that transform gets."""

    rows: list[int] = []

    def transform(self, node: Any) -> dict[str, Any]:
        self.rows.append(node.h.shape[0])
        return super().transform(node)


class SeenTwice(gt.Model):
    def __init__(self, d_in: int, d_out: int):
        self.first = Seen(d_in, 4)
        self.last = Seen(4, d_out)

    def forward(self, graph: Any) -> Any:
        return self.last(graph, gt.relu(self.first(graph, graph.x)))


def test_transform_runs_for_new_nodes_alone(tmp_path: Path) -> None:
    trainer = gt.Trainer(SeenTwice, OLD, epochs=0, dtype="float64", backend="reference")
    trainer.on(OLD).keep_layers(tmp_path / "kept")
    inference = trainer.on(appended(False))
    found = inference.since(tmp_path / "kept")
    Seen.rows.clear()
    out = found.predict()[1]
    # a dry pass runs over no rows
    assert set(Seen.rows) == {0, NEW}
    np.testing.assert_allclose(out, inference.predict()[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [1, 3])
def test_predictions_of_new_nodes_read_their_senders_alone(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No ids, degrees, hashes or outputs of old nodes, although rows are in another order."""
    new = appended(False, np.array([f"n{i}" for i in range(N + NEW)]))
    read = list[tuple[str, int]]()
    # most edges first: new nodes come between old ones
    hub = new.replace(
        edge_index=np.concatenate(
            (new.edge_index, np.stack((np.arange(N), np.full(N, N + 1)))), axis=1
        ),
        edge_attr=None,
        edge_weight=None,
    )
    old = hub.subset(np.arange(N))

    def updated(comm: Any) -> None:
        trainer = gt.Trainer("sage", old, comm=comm, partitioner="1d-dst", **KEYS)
        trainer.on(old).keep_layers(tmp_path / "kept")
        inference = trainer.on(hub)
        whole = inference.predict()
        with monkeypatch.context() as patch:
            if comm.size == 1:
                patch.setattr(LayerFiles, "_copy", counted)
            for compare in ("degrees", "values"):
                found = inference.since(tmp_path / "kept", compare).predict(appended=True)
                if comm.rank == 0:
                    assert found[0].tolist() == [f"n{i}" for i in range(N, N + NEW)]
                    np.testing.assert_allclose(found[1], whole[1][N:], rtol=1e-9, atol=1e-9)

    copy = LayerFiles._copy

    def counted(self: LayerFiles, name: str, rows: np.ndarray, out: np.ndarray) -> None:
        read.append((name, len(rows)))
        copy(self, name, rows, out)

    run_simulated(size, updated)
    if size == 1:
        n = len(set(hub.src[hub.dst >= N].tolist()) & set(range(N)))
        # the first layer reads features, and rows of the same senders are looked up once
        assert read == [("row", n), ("layer-1-sent-z", n), ("layer-2-sent-z", n)] * 2


def test_edges_may_be_written_in_any_order() -> None:
    found = grown_module._LayerValues(None)  # type: ignore[arg-type]
    found.create("m", (9,), np.int64)
    found.write("m", np.array([5, 1, 3]), np.array([50, 10, 30]))
    np.testing.assert_array_equal(found.read("m", np.array([1, 3, 5])), [10, 30, 50])


def test_ids_of_predictions_belong_to_the_caller() -> None:
    trainer = gt.Trainer("sage", OLD, **KEYS)
    ids = trainer.predict()[0]
    ids[:] = 0
    assert trainer.predict()[0].tolist() == list(range(N))


def test_values_and_edges_that_changed(tmp_path: Path) -> None:
    """A changed feature, a changed attribute, a removed edge, another order of nodes and edges."""
    old = OLD.replace(node_ids=np.array([f"n{i}" for i in range(N)]))
    x = old.x.copy()
    attr = old.edge_attr.copy()
    x[5] += 1
    attr[30] += 1
    changed = old.replace(x=x, edge_attr=attr).keep_edges(np.arange(2 * N) != 17)
    work = check("gat_e", old, changed, tmp_path / "kept", layers=2)
    assert work.appended == 0 and work.changed == 3 and 0 < work.rows < work.all_rows / 2
    order = RNG.permutation(N)
    turned = changed.subset(order)
    again = check("gat_e", old, turned, tmp_path / "kept", layers=2)
    assert (again.rows, again.edges, again.changed) == (work.rows, work.edges, work.changed)
    same = check("gat_e", old, old, tmp_path / "kept", layers=2)
    assert same.rows == same.edges == same.changed == 0


@pytest.mark.parametrize("model", ["sage", "rgat"])
def test_an_edge_from_the_first_node_counts(model: str, tmp_path: Path) -> None:
    """The id 0, and the code 0 of its relation, are all that these models read of the edge."""
    old = with_relations(OLD) if model == "rgat" else OLD
    more = {"edge_weight": None, "edge_attr": None}
    src, dst = (np.append(end, new) for end, new in ((old.src, 0), (old.dst, 30)))
    codes = {"relation": np.append(np.arange(old.n_edges) % 3, 0)} if model == "rgat" else {}
    new = graphs.fill(src, dst, N, **TASKLESS, **more).replace(
        x=old.x, edge_columns=codes, meta=old.meta
    )
    work = check(model, old.replace(**more), new, tmp_path / "kept")
    assert work.changed == 1 and work.rows > 0


def classes_of(comm: Any, folder: Path) -> tuple[Any, Any, Any]:
    """Classes of all nodes by a pass over the whole graph and by an update, and of some."""
    two = OLD.replace(y=np.arange(N) * 7 % 5 % 2, n_classes=2)
    placed = {"masters": "grem", "partitioner": "vertex-cut"}
    trainer = gt.Trainer("gcn", two, comm=comm, threshold="f1", **placed, **KEYS)
    trainer.fit()
    inference = trainer.on(two)
    inference.keep_layers(folder)
    # as open_run does it with a threshold that is given
    inference.setup.evaluator.threshold = Threshold(goal="f1")
    update = inference.since(folder)
    some = inference.partition.masters % 3 == 0
    rows = inference.predictions(), update.predictions(), update.predictions(some)
    return tuple(None if x is None else dict(zip(x.ids, x.classes, strict=True)) for x in rows)


def test_a_threshold_that_is_chosen_reads_all_validation_rows(tmp_path: Path) -> None:
    whole, found, some = run_simulated(2, classes_of, tmp_path / "kept")[0]
    assert found == whole and 0 < sum(whole.values()) < N
    assert some == {node: whole[node] for node in range(0, N, 3)}


def kept_twice(comm: Any, folder: Path) -> list[Any]:
    trainer = gt.Trainer("gat", OLD, comm=comm, **KEYS)
    trainer.on(OLD).keep_layers(folder / "first")
    trainer.on(appended(False)).since(folder / "first").keep_layers(folder / "second")
    later = trainer.on(appended(True))
    update = later.since(folder / "second")
    with pytest.raises(
        ConfigError,
        match="later calls read the earlier values from this folder; choose another one",
    ):
        update.keep_layers(folder / "second")
    return [later.predict(), update.predict()]


def test_growing_twice(tmp_path: Path) -> None:
    """Layers are kept on one number of workers and read on another; those of an update are those of
    the whole graph.
    """
    whole, found = run_simulated(3, kept_twice, tmp_path)[0]
    np.testing.assert_allclose(found[1], whole[1], rtol=1e-9, atol=1e-9)

    def on_two(comm: Any) -> Any:
        trainer = gt.Trainer("gat", OLD, comm=comm, **KEYS)
        return trainer.on(appended(True)).since(tmp_path / "second").predict()

    np.testing.assert_allclose(run_simulated(2, on_two)[0][1], whole[1], rtol=1e-9, atol=1e-9)


def test_within_a_memory_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphtheta.inference.forward import limited

    monkeypatch.setattr(limited, "free_now", lambda limit: -1)
    monkeypatch.setattr(
        limited.Limited,
        "divided",
        lambda self, hops: np.array_split(np.arange(self._partition.n_masters), 5),
    )
    check("gat", OLD, appended(True), tmp_path / "kept", inference_memory=1.0)


def test_large_changes_are_a_pass_over_all(tmp_path: Path) -> None:
    new = OLD.replace(x=OLD.x + 1)
    work = check("gat", OLD, new, tmp_path / "kept")
    assert (work.rows, work.edges) == (work.all_rows, work.all_edges) and "computed" in str(work)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "name", [name for name in graphs.odd_graphs() if not name.startswith("one node")]
)
def test_odd_graphs(name: str, tmp_path: Path) -> None:
    old = graphs.odd_graphs()[name].replace(**TASKLESS)
    n, e = old.n_nodes, old.n_edges
    grown = graphs.fill(np.append(old.src, [0, n]), np.append(old.dst, [n, 1]), n + 2, **TASKLESS)
    x = grown.x.copy()
    attr = grown.edge_attr.copy()
    weight = grown.edge_weight.copy()
    x[:n] = old.x
    attr[:e] = old.edge_attr
    weight[:e] = old.edge_weight
    check("gat", old, grown.replace(x=x, edge_attr=attr, edge_weight=weight), tmp_path / "kept", 3)


class Centred(gt.Model):
    def __init__(self, d_in: int, d_out: int):
        self.layer = SAGE(d_in, d_out)

    def forward(self, graph: Any) -> Any:
        h = self.layer(graph, graph.x)
        return h - gt.graph_mean(h)


def test_refusals(tmp_path: Path) -> None:
    """Other weights, damage, another folder, and models and tasks without parts; on all ranks."""

    def since(comm: Any, folder: Path, change: Any = None, **keys: Any) -> None:
        trainer = gt.Trainer("gat", OLD, comm=comm, **{**KEYS, **keys})
        trainer.on(OLD).keep_layers(tmp_path / "kept") if change is None else change(trainer)
        trainer.on(appended(False)).since(
            folder, **({"compare": "dates"} if folder.name == "dates" else {})
        ).predict()

    def keep(model: Any, graph: gt.Graph, **keys: Any) -> Any:
        usual = (
            KEYS
            if isinstance(model, str)
            else {key: KEYS[key] for key in ("epochs", "dtype", "backend")}
        )
        return lambda comm: (
            gt.Trainer(model, graph, comm=comm, **{**usual, **keys})
            .on(graph)
            .keep_layers(tmp_path / "other")
        )

    run_simulated(2, since, tmp_path / "kept")
    with pytest.raises(
        ConfigError,
        match="were computed with other weights, layers or precision; compute them again",
    ):
        run_simulated(2, since, tmp_path / "kept", lambda _: None, seed=4)
    with pytest.raises(
        ConfigError, match=r"compare='dates' is unknown; choose from values, degrees"
    ):
        run_simulated(2, since, tmp_path / "dates", lambda _: None)
    with pytest.raises(FormatError, match="holds no complete values of layers"):
        run_simulated(2, since, tmp_path, lambda _: None)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    with pytest.raises(FormatError, match="holds something else than values of layers"):
        run_simulated(
            2,
            lambda comm: (
                gt.Trainer("gat", OLD, comm=comm, **KEYS).on(OLD).keep_layers(tmp_path / "full")
            ),
        )
    with pytest.raises(ConfigError, match="reads a sum over all nodes"):
        run_simulated(2, keep(Centred, OLD))
    with pytest.raises(ConfigError, match="layers are kept of a task with outputs of nodes"):
        run_simulated(
            2,
            keep(
                "sage",
                OLD.replace(y=None, train=None, val=None, test=None),
                task="link",
                eval_negatives=3,
            ),
        )
    file = tmp_path / "kept" / "part-00000" / "layer-0-sent-z"
    data = bytearray(file.read_bytes())
    data[: len(data)] = b"\x11" * len(data)
    file.write_bytes(data)
    with pytest.raises(
        FormatError, match=r"layer-0-sent-z: row \d+ is damaged: it does not match its checksum"
    ):
        run_simulated(1, since, tmp_path / "kept", lambda _: None)
    file.write_bytes(bytes(data[:-1]))
    with pytest.raises(FormatError, match="layer-0-sent-z: expected a file of"):
        run_simulated(2, since, tmp_path / "kept", lambda _: None)


def test_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, graph in (("old", OLD), ("new", appended(True))):
        np.savez(
            f"{name}.npz",
            edge_index=graph.edge_index,
            x=graph.x,
            y=graph.y,
            train=graph.train,
            val=graph.val,
            test=graph.test,
        )
    assert (
        main(
            [
                "train",
                "--dataset",
                "old.npz",
                "--epochs",
                "1",
                "--hidden",
                "4",
                "--dtype",
                "float64",
                "--out",
                "run",
            ]
        )
        == 0
    )
    assert main(["predict", "run", "--keep-layers", "kept", "--to", "old.out.npz"]) == 0
    assert main(["predict", "run", "--to", "again.out.npz"]) == 0
    np.testing.assert_allclose(
        np.load("old.out.npz")["probability"],
        np.load("again.out.npz")["probability"],
        rtol=1e-9,
        atol=1e-9,
    )
    assert main(["predict", "run", "--dataset", "new.npz", "--to", "whole.npz"]) == 0
    capsys.readouterr()
    assert (
        main(
            [
                "predict",
                "run",
                "--dataset",
                "new.npz",
                "--since",
                "kept",
                "--keep-layers",
                "later",
                "--to",
                "update.npz",
            ]
        )
        == 0
    )
    assert "4 appended and 2 changed nodes: computed" in capsys.readouterr().out
    whole = np.load("whole.npz")["probability"]
    np.testing.assert_allclose(np.load("update.npz")["probability"], whole, rtol=1e-9, atol=1e-9)
    words = ["run", "--dataset", "new.npz", "--since", "later", "--compare", "degrees"]
    assert main(["predict", *words, "--embed", "--format", "npy", "--to", "vectors"]) == 0
    assert (
        main(
            [
                "predict",
                "run",
                "--dataset",
                "new.npz",
                "--since",
                "kept",
                "--appended",
                "--to",
                "new.csv",
            ]
        )
        == 0
    )
    assert [line.split(",")[0] for line in Path("new.csv").read_text().splitlines()] == [
        "id",
        "60",
        "61",
        "62",
        "63",
    ]
    assert json.loads(Path("later/layers.json").read_text())["n_nodes"] == N + NEW
    for wrong, said in (
        (["--appended"], "give its layers with --since"),
        (["--compare", "degrees"], "give its layers with --since"),
    ):
        with pytest.raises(ConfigError, match=said):
            predict(["run", *wrong])


@pytest.mark.second
@ranks.needs_mpi
def test_commands_on_two_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("old.npz", edge_index=OLD.edge_index, x=OLD.x, y=OLD.y, train=OLD.train)
    np.savez("new.npz", edge_index=appended(True).edge_index, x=appended(True).x)
    assert (
        main(
            [
                "train",
                "--dataset",
                "old.npz",
                "--epochs",
                "1",
                "--hidden",
                "4",
                "--dtype",
                "float64",
                "--out",
                "run",
            ]
        )
        == 0
    )
    start = [
        str(ranks.MPIEXEC),
        "-n",
        "2",
        ranks.sys.executable,
        "-m",
        "graphtheta",
        "predict",
        "run",
    ]
    for words in (
        ["--keep-layers", "kept"],
        ["--dataset", "new.npz", "--since", "kept", "--to", "two.npz"],
    ):
        done = ranks.run([*start, *words])
        assert done.returncode == 0, done.stderr
    assert main(["predict", "run", "--dataset", "new.npz", "--to", "one.npz"]) == 0
    np.testing.assert_allclose(
        np.load("two.npz")["probability"], np.load("one.npz")["probability"], rtol=1e-9, atol=1e-9
    )


def test_values_of_layers_with_an_order_of_edges_are_not_kept(tmp_path: Path) -> None:
    trainer = gt.Trainer("sage", OLD, aggregator="lstm", **KEYS)
    with pytest.raises(ConfigError, match=r"SAGE sums messages in the order .* the whole graph"):
        trainer.on(OLD).keep_layers(tmp_path / "kept")
