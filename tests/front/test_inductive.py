"""A trained model on other graphs: what was derived from the training graph is applied, and what
does not fit is refused.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
import ranks

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.base.console import figure
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError, GraphThetaError
from graphtheta.graph.store.from_graph import write_store

pytestmark = pytest.mark.reference

TASKLESS = {"edge_y": None, "edge_train": None, "edge_val": None, "edge_test": None}
UNLABELLED = {"y": None, "train": None, "val": None, "test": None, **TASKLESS}
KEYS: dict[str, Any] = {"epochs": 1, "hidden": 4, "dtype": "float64", "backend": "reference"}
GRAPH = graphs.random_graph(40, 200, **TASKLESS)
OTHER = graphs.random_graph(30, 120, seed=5, **TASKLESS)
RNG = np.random.default_rng(3)
ENDS = {
    ("a", "to", "b"): RNG.integers(0, 15, (2, 60)),
    ("b", "of", "a"): RNG.integers(0, 15, (2, 60)),
    ("a", "near", "a"): RNG.integers(0, 15, (2, 40)),
}
FEATURES = {"a": RNG.normal(size=(15, 3)), "b": RNG.normal(size=(15, 2))}
ATTRIBUTES = {
    ("a", "to", "b"): RNG.normal(size=(60, 2)),
    ("a", "near", "a"): RNG.normal(size=(40, 1)),
}
CLASSES = RNG.integers(0, 3, 15)
TYPED = gt.Graph(
    ENDS,
    {"a": 15, "b": 15},
    x=FEATURES,
    y={"a": CLASSES},
    train={"a": np.arange(15) < 8},
    val={"a": np.arange(15) > 11},
    edge_attr=ATTRIBUTES,
)


class Columns(gt.Model):
    """Reads named columns of nodes and edges, and weights."""

    def __init__(self, d_in: int, d_out: int):
        self.kinds = gt.Parameter.normal(3, d_in)
        self.layer = Coded(d_in, d_out)

    def forward(self, graph: Any) -> Any:
        return self.layer(graph, graph.x + gt.embedding(self.kinds, graph.node("kind")))


class Coded(gt.Layer):
    def __init__(self, d_in: int, d_out: int):
        self.weight = gt.Parameter.glorot(d_in, d_out)
        self.codes = gt.Parameter.normal(2, d_out)

    def transform(self, node: Any) -> dict[str, Any]:
        return {"z": gt.matmul(node.h, self.weight)}

    def gather(self, edge: Any) -> Any:
        return (edge.src.z + gt.embedding(self.codes, edge.code)) * edge.weight


def columned(
    seed: int,
    kinds: tuple[str, ...] = ("red", "green", "blue"),
    codes: tuple[str, ...] = ("up", "down"),
    **fields: Any,
) -> Any:
    """A graph whose columns have texts; equal seeds have equal texts in any order of the names."""
    graph = graphs.random_graph(24, 90, seed=seed, **TASKLESS)
    rng = np.random.default_rng(seed)
    kind = np.array(["red", "green", "blue"])[rng.integers(0, 3, 24)]
    code = np.array(["up", "down"])[rng.integers(0, 2, 90)]
    meta = {"node_categories": {"kind": list(kinds)}, "edge_categories": {"code": list(codes)}}
    return graph.replace(
        node_columns={"kind": np.array([kinds.index(k) for k in kind])},
        meta={**meta, **fields.pop("meta", {})},
        edge_columns={"code": np.array([codes.index(c) for c in code])},
        **fields,
    )


def outputs(
    comm: Any, model: Any, graph: gt.Graph, others: list[gt.Graph], **keys: Any
) -> list[tuple[np.ndarray, ...] | None]:
    """Ids and predictions of a trainer and of its model on other graphs, with the embedding at the
    end.
    """
    usual = (
        KEYS if isinstance(model, str) else {key: x for key, x in KEYS.items() if key != "hidden"}
    )
    trainer = gt.Trainer(model, graph, comm=comm, **{**usual, **keys})
    trainer.fit()
    found = [trainer, *map(trainer.on, others)]
    # predictions of pairs have no rows of nodes
    nodes = None if keys.get("task") in ("link", "edge") else "all"
    both = [(one.predict(nodes), one.embed()) for one in found]
    return [None if p is None or e is None else (*p, e[1]) for p, e in both]


def alike(model: Any, graph: gt.Graph, others: list[gt.Graph], size: int = 2, **keys: Any) -> None:
    """The graphs give the same numbers in float64."""
    own, *rest = run_simulated(size, outputs, model, graph, others, **keys)[0]
    for ids, out, embedded in rest:
        assert np.array_equal(ids, own[0])
        np.testing.assert_allclose(out, own[1], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(embedded, own[2], rtol=1e-9, atol=1e-9)


@pytest.mark.one_in(3, 3)
@pytest.mark.parametrize(
    "keys",
    [
        {"model": "gcn"},
        {"model": "sage", "norm": "batch", "precompute": "yes", "dropout": 0.0},
        {"model": "gat_e", "layers": 3},
        {"model": "gin", "task": "link", "eval_negatives": 3},
        {"model": "gcn", "structural_features": "degree+pagerank"},
    ],
    ids=lambda keys: keys["model"],
)
@pytest.mark.parametrize("size", [1, 3])
def test_the_same_graph(size: int, keys: dict[str, Any]) -> None:
    graph = GRAPH if keys.get("task") != "link" else GRAPH.replace(**UNLABELLED)
    alike(
        graph=graph,
        others=[graph, graph.replace(**UNLABELLED)],
        size=size,
        partitioner="vertex-cut",
        **keys,
    )


def test_edge_targets() -> None:
    graph = graphs.random_graph(24, 90, y=None, train=None, val=None, test=None)
    alike("gat_e", graph, [graph, graph.replace(**UNLABELLED)], task="edge")


def numbers(
    comm: Any, model: Any, graph: gt.Graph, other: gt.Graph, **keys: Any
) -> tuple[np.ndarray | None, dict[str, float]]:
    trainer = gt.Trainer(model, graph, comm=comm, **{**KEYS, **keys})
    trainer.fit()
    inference = trainer.on(other)
    predicted = inference.predict()
    return None if predicted is None else predicted[1], inference.evaluate()


@pytest.mark.parametrize("model", ["gcn", "sage", "gat_e"])
def test_any_number_of_workers(model: str) -> None:
    alone, measured = run_simulated(1, numbers, model, GRAPH, OTHER)[0]
    assert alone is not None and alone.shape == (30, 3)
    for size, placement in ((2, ("1d-dst", "block")), (4, ("vertex-cut", "hash"))):
        found, again = run_simulated(
            size, numbers, model, GRAPH, OTHER, partitioner=placement[0], masters=placement[1]
        )[0]
        np.testing.assert_allclose(found, alone, rtol=1e-9, atol=1e-9)
        assert again == pytest.approx(measured)


def test_without_masks_all_labelled_nodes_are_tested() -> None:
    y = OTHER.y.copy()
    y[4] = -1
    trainer = gt.Trainer("gcn", GRAPH, **KEYS)
    found = trainer.on(OTHER.replace(y=y, n_classes=3, train=None, val=None, test=None)).evaluate()
    masked = trainer.on(OTHER.replace(y=y, n_classes=3, train=None, val=None, test=y >= 0))
    assert found == masked.evaluate("test") and masked.evaluate("val") == {}
    assert trainer.on(OTHER).evaluate("val")["val_loss"] > 0


def test_scale_of_the_training() -> None:
    scaled = GRAPH.with_standardised_features()
    assert np.abs(scaled.x - GRAPH.x).max() > 0.1
    over_others = GRAPH.replace(train=GRAPH.val, val=GRAPH.train).with_standardised_features()
    alike("gcn", scaled, [GRAPH])
    # scaled by other figures; and a model that was trained on values as they are gets them so
    for graph, other in ((scaled, over_others), (GRAPH, scaled)):
        trainer = gt.Trainer("gcn", graph, **KEYS)
        np.testing.assert_allclose(
            trainer.on(other).predict()[1], trainer.predict()[1], rtol=1e-5, atol=1e-5
        )  # type: ignore[index]
    attributes = GRAPH.with_standardised_edge_attr()
    alike("gat_e", attributes, [GRAPH])


def test_scale_of_a_store(tmp_path: Path) -> None:
    """Features in files are scaled when they are read."""
    write_store(GRAPH, tmp_path / "raw.store", SerialComm())
    alike("gcn", GRAPH.with_standardised_features(), [gt.load(tmp_path / "raw.store")])


def test_scaled_twice() -> None:
    twice = (
        GRAPH.with_standardised_features()
        .replace(train=GRAPH.val, val=GRAPH.train)
        .with_standardised_features()
    )
    trainer = gt.Trainer("gcn", twice, **KEYS)
    np.testing.assert_allclose(
        trainer.on(GRAPH).predict()[1], trainer.predict()[1], rtol=1e-5, atol=1e-5
    )  # type: ignore[index]


def test_types_and_relations_by_name() -> None:
    """Other orders of types and relations, and graphs without some of them."""
    turned = gt.Graph(
        {name: ENDS[name] for name in reversed(ENDS)},
        {"b": 15, "a": 15},
        x={t: FEATURES[t] for t in ("b", "a")},
        edge_attr={name: ATTRIBUTES[name] for name in reversed(ATTRIBUTES)},
    )
    order = np.concatenate((np.arange(15, 30), np.arange(15)))
    for model in ("rgcn", "hgt", "simple_hgn", "gat_e"):
        own, other = run_simulated(2, outputs, model, TYPED, [turned])[0]
        np.testing.assert_allclose(other[1][order], own[1], rtol=1e-9, atol=1e-9)
    only = gt.Graph(
        {("a", "near", "a"): ENDS["a", "near", "a"]},
        {"a": 15},
        x={"a": FEATURES["a"]},
        edge_attr={("a", "near", "a"): ATTRIBUTES["a", "near", "a"]},
    )
    same = TYPED.replace(**UNLABELLED).keep_edges(TYPED.edge_columns["relation"] == 2)
    own, part, whole = run_simulated(1, outputs, "rgcn", TYPED, [only, same])[0]
    np.testing.assert_allclose(part[1], whole[1][:15], rtol=1e-9, atol=1e-9)


def reordered(**fields: Any) -> gt.Graph:
    """The typed graph with its types and relations in another order, and a type more in front."""
    return gt.Graph(
        {name: ENDS[name] for name in reversed(ENDS)},
        {"c": 2, "b": 15, "a": 15},
        x={t: FEATURES[t] for t in ("b", "a")},
        **fields,
    )


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_types_that_the_model_does_not_read_are_reported_by_name(model: str) -> None:
    trainer = gt.Trainer(model, TYPED.replace(edge_attr=None), **KEYS)
    other = trainer.on(reordered())
    ids, out = trainer.predict()  # type: ignore[misc]
    found, again = other.predict()  # type: ignore[misc]
    assert (ids.tolist(), found.tolist()) == (list(range(15)), list(range(17, 32)))
    np.testing.assert_allclose(again, out, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("link_relation", ["to", "0"])
def test_links_of_a_relation_are_those_of_its_name(link_relation: str) -> None:
    masks = {
        name: {relation: np.arange(ends.shape[1]) % 3 == i for relation, ends in ENDS.items()}
        for i, name in enumerate(("edge_train", "edge_val", "edge_test"))
    }
    links = gt.Graph(ENDS, {"a": 15, "b": 15}, x=FEATURES, **masks)
    of_link = {"task": "link", "link_relation": link_relation, "eval_negatives": 2}
    trainer = gt.Trainer("sage", links, **of_link, **KEYS)
    other = trainer.on(reordered(**masks))
    # the types of ends, and the number of held-out links, are those of the relation
    sources, targets = np.arange(3), 15 + np.arange(3)
    expected = trainer.predict_links(sources, targets)
    assert expected is not None
    np.testing.assert_allclose(
        other.predict_links(17 + sources, 2 + np.arange(3)), expected, rtol=1e-9, atol=1e-9
    )
    best = other.top(17 + sources, 2)
    assert best is not None and (best[0] >= 2).all() and (best[0] < 17).all()
    ids = other.predict()[0]  # type: ignore[index]
    assert len(ids) == len(trainer.predict()[0])  # type: ignore[index]


def test_codes_by_name() -> None:
    """Categories and classes have other codes in the other graph."""
    graph = columned(3)
    alike(Columns, graph, [columned(3, ("blue", "red", "green"), ("down", "up"), **UNLABELLED)])
    named = columned(3, meta={"class_names": ["x", "y", "z"]})
    names = {"class_names": ["z", "x", "y"]}
    turned = columned(3, meta=names, y=np.array([1, 2, 0])[named.y], n_classes=3)
    trainer = gt.Trainer(Columns, named, **{key: x for key, x in KEYS.items() if key != "hidden"})
    assert trainer.on(turned).evaluate() == trainer.evaluate()
    assert (
        trainer.on(turned).predictions().classes.tolist() == trainer.predictions().classes.tolist()
    )  # type: ignore[union-attr]


def test_weights_and_thresholds_of_the_training() -> None:
    """Class weights and thresholds are not counted again."""
    two = GRAPH.replace(y=GRAPH.y % 2)
    trainer = gt.Trainer(
        "gcn", two, **{**KEYS, "epochs": 5, "class_weights": "balanced", "threshold": "f1"}
    )
    trainer.fit()
    again = trainer.on(two.replace(train=two.test, val=None, test=two.train))
    expected = trainer.evaluate("train")
    assert again.evaluate("test") == pytest.approx(
        {name.replace("train", "test"): x for name, x in expected.items()}
    )
    thresholds = trainer.class_report().thresholds
    assert again.class_report().thresholds == thresholds and thresholds != [0.5]


def refused(comm: Any, model: Any, graph: gt.Graph, other: gt.Graph, **keys: Any) -> None:
    gt.Trainer(model, graph, comm=comm, **{**KEYS, **keys}).on(other)


COLUMNED = columned(3)
WRONG = {
    "width": (
        "gcn",
        GRAPH,
        {"x": OTHER.x[:, :3]},
        {},
        r"has 3 node features in x; expected 4; give the same columns in the same order",
    ),
    "features": ("gcn", GRAPH, {"x": None}, {}, r"has no node features in x; expected 4"),
    "attributes": (
        "gat_e",
        GRAPH,
        {"edge_attr": None},
        {},
        r"has no edge attributes in edge_attr; expected 3",
    ),
    "weights": (
        "gcn",
        GRAPH,
        {"edge_weight": None},
        {},
        r"has no edge weights; give them, or ones",
    ),
    "labels": (
        "gcn",
        GRAPH,
        {"y": np.full((30, 2), 0.5)},
        {},
        r"has labels of kind regression with 2 columns; expected classes, 3",
    ),
    "classes": (
        "gcn",
        GRAPH,
        {"y": np.arange(30) % 5},
        {},
        r"nodes of the class with code 3, which the model does not know",
    ),
    "column": (
        Columns,
        COLUMNED,
        {"node_columns": {}},
        {},
        r"has no node column 'kind', which the model reads as integers; it has none",
    ),
    "type": (
        Columns,
        COLUMNED,
        {"edge_columns": {"code": np.ones(120, np.float32)}},
        {},
        r"has floats of float32 in the edge column 'code'; expected integers; convert the column",
    ),
    "category": (
        Columns,
        COLUMNED,
        {
            "meta": {
                "node_categories": {"kind": ["grey", "red"]},
                "edge_categories": {"code": ["up"]},
            }
        },
        {},
        (
            r"has in the node column 'kind' the value 'grey', which the model does not know; it"
            r" knows red, green, blue"
        ),
    ),
    "code": (
        Columns,
        COLUMNED,
        {"node_columns": {"kind": np.full(30, 7)}},
        {},
        r"the value with code 7, which the model does not know",
    ),
    "nodes": (
        "gcn",
        GRAPH.replace(x=None),
        {},
        {"embedding": 3},
        r"has other nodes, for which the training on .* learned no features",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit(name: str) -> None:
    model, graph, fields, keys, match = WRONG[name]
    usual = {} if isinstance(model, str) else {"hidden": 16}
    plain = {
        "node_columns": {"kind": np.zeros(30, int)},
        "edge_columns": {"code": np.zeros(120, int)},
    }
    other = OTHER.replace(**UNLABELLED, **plain).replace(**fields)
    other = other.replace(x=None) if "embedding" in keys else other
    with pytest.raises(DataError, match=match):
        run_simulated(2, refused, model, graph, other, **{**usual, **keys})


def test_unknown_types_and_relations() -> None:
    new = gt.Graph({("a", "likes", "b"): [[0], [1]], **ENDS}, {"a": 15, "b": 15}, x=FEATURES)
    with pytest.raises(
        DataError,
        match=r"has edges of the relation \('a', 'likes', 'b'\), which the model does not know",
    ):
        run_simulated(2, refused, "rgcn", TYPED, new)
    new = gt.Graph(
        {("c", "likes", "a"): [[0], [1]], **ENDS}, {"a": 15, "b": 15, "c": 2}, x=FEATURES
    )
    with pytest.raises(
        DataError, match=r"has nodes of the type 'c', which the model does not know; it knows a, b"
    ):
        run_simulated(2, refused, "hgt", TYPED, new)
    exchanged = gt.Graph(
        {name: ENDS[name] for name in reversed(ENDS)},
        {"b": 15, "a": 15},
        x={"b": FEATURES["a"], "a": FEATURES["b"]},
    )
    with pytest.raises(DataError, match=r"has 2 columns in x of type 'a'; expected 3"):
        run_simulated(2, refused, "hgt", TYPED, exchanged)


def test_columns_that_are_not_read() -> None:
    """Another graph may lack what the model does not read."""
    trainer = gt.Trainer("sage", COLUMNED, **KEYS)
    assert (
        len(trainer.on(OTHER.replace(edge_attr=None, edge_weight=None, **UNLABELLED)).predict()[0])
        == 30
    )  # type: ignore[index]


def test_labels_are_needed_to_measure() -> None:
    inference = gt.Trainer("gcn", GRAPH, **KEYS).on(OTHER.replace(**UNLABELLED))
    for measured in (inference.evaluate, inference.class_report):
        with pytest.raises(
            DataError,
            match=(
                r"has no labels of nodes \(y\), so there is nothing to measure; give them, or use"
                r" predict"
            ),
        ):
            measured()
    again = inference.on(GRAPH)
    assert again.evaluate()["test_loss"] > 0


def test_learned_features_of_the_same_nodes() -> None:
    graph = GRAPH.replace(x=None)
    fewer = graph.keep_edges(np.arange(100))
    alike("sage", graph, [graph], embedding=3)
    trainer = gt.Trainer("sage", graph, embedding=3, **KEYS)
    assert trainer.on(fewer).predict()[1].shape == (40, 3)  # type: ignore[index]
    grown = gt.Graph(graph.edge_index, 42)
    with pytest.raises(
        DataError, match=r"has node 40 and 1 more, for which the training on .* learned no features"
    ):
        trainer.on(grown)


def save_npz(path: str, graph: gt.Graph, **fields: Any) -> None:
    np.savez(path, edge_index=graph.edge_index, x=graph.x, edge_weight=graph.edge_weight, **fields)


def test_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_npz("first.npz", GRAPH, y=GRAPH.y, train=GRAPH.train, val=GRAPH.val, test=GRAPH.test)
    save_npz("plain.npz", OTHER)
    save_npz("labelled.npz", OTHER, y=OTHER.y)
    write_store(OTHER.replace(**UNLABELLED), "plain.store", SerialComm())
    flags = [
        "--dataset",
        "first.npz",
        "--epochs",
        "2",
        "--out",
        "run",
        "--symmetric",
        "yes",
        "--normalise-features",
        "standard",
    ]
    assert main(["train", *flags, "--hidden", "4"]) == 0
    assert main(["evaluate", "run", "--dataset", "labelled.npz"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert any(line.startswith("test") for line in shown) and not any(
        line.startswith("train ") for line in shown
    )
    for dataset in ("plain.npz", "plain.store", "labelled.npz"):
        assert main(["predict", "run", "--dataset", dataset, "--to", f"{dataset}.out.npz"]) == 0
    given = gt.open_run("run", OTHER.symmetrised().replace(**UNLABELLED)).predict()
    assert given is not None
    for dataset in ("plain.npz", "plain.store", "labelled.npz"):
        np.testing.assert_allclose(
            np.load(f"{dataset}.out.npz")["probability"], given[1], rtol=1e-5, atol=1e-6
        )
    assert (
        main(
            [
                "predict",
                "run",
                "--dataset",
                "plain.npz",
                "--embed",
                "--format",
                "csv",
                "--to",
                "vectors",
            ]
        )
        == 0
    )
    capsys.readouterr()
    own = gt.open_run("run")
    assert (
        main(["evaluate", "run", "--on", "test"]) == 0
        and figure(own.evaluate()["test_loss"]) in capsys.readouterr().out
    )
    assert (
        main(["evaluate", "run", "--dataset", "plain.npz"]) != 0
        and "has no labels of nodes" in capsys.readouterr().err
    )
    with pytest.raises(ConfigError, match=r"the folder has no job\.yaml"):
        gt.open_run("none")


@pytest.mark.second
@ranks.needs_mpi
def test_commands_on_two_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        main(
            [
                "train",
                "--dataset",
                "sbm:n_nodes=200,n_edges=900",
                "--epochs",
                "1",
                "--hidden",
                "4",
                "--out",
                "run",
            ]
        )
        == 0
    )
    other = ["predict", "run", "--dataset", "sbm:n_nodes=150,n_edges=700,graph_seed=2", "--to"]
    done = ranks.run(
        [str(ranks.MPIEXEC), "-n", "2", ranks.sys.executable, "-m", "graphtheta", *other, "two.npz"]
    )
    assert done.returncode == 0, done.stderr
    assert main(["predict", *other[1:], "one.npz"]) == 0
    np.testing.assert_allclose(
        np.load("two.npz")["probability"], np.load("one.npz")["probability"], rtol=1e-5, atol=1e-6
    )


def test_a_run_on_its_own_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The splits and the component are those of the run, also where they were defaults."""
    monkeypatch.chdir(tmp_path)
    save_npz("own.npz", GRAPH, y=GRAPH.y)
    keys = [
        "--dataset",
        "own.npz",
        "--split",
        "random",
        "--train-per-class",
        "3",
        "--val-per-class",
        "3",
        "--largest-component",
        "yes",
    ]
    assert (
        main(
            ["train", *keys, "--epochs", "2", "--hidden", "4", "--out", "run", "--dtype", "float64"]
        )
        == 0
    )
    trainer = gt.Trainer(job=gt.Job.from_yaml("run/job.yaml"))
    trainer.load("run/weights.safetensors")
    assert gt.open_run("run").measure() == pytest.approx(trainer.measure())
    by_python = gt.Trainer("gcn", GRAPH, out="python", **KEYS)
    by_python.save("python/weights.safetensors")
    Path("python/job.yaml").write_text(by_python.job.to_yaml())
    with pytest.raises(
        ConfigError,
        match="was trained on a graph that was given in Python, not on a dataset; give the graph",
    ):
        gt.open_run("python")
    assert gt.open_run("python", GRAPH).measure() == pytest.approx(by_python.measure())


def test_weights_without_facts(tmp_path: Path) -> None:
    """Files of earlier versions are read, and refused for other graphs."""
    from graphtheta.inference.grown.trained import Trained
    from graphtheta.run.checkpoints.weights import read_saved, write_weights

    trainer = gt.Trainer("gcn", GRAPH, **KEYS)
    write_weights(tmp_path / "w", trainer.job, trainer.model.state())
    trainer.load(tmp_path / "w")
    with pytest.raises(
        ConfigError,
        match=(
            "does not say which graph the model was trained on, because an earlier version wrote it"
        ),
    ):
        Trained.read_from(read_saved(tmp_path / "w").trained, "w")
    with pytest.raises(GraphThetaError, match="damaged"):
        Trained.read_from("{}", "w")


def test_keys_and_options_of_another_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    gt.Trainer(dataset="sbm:normalise_features=row,split=random", **KEYS, out="run").fit()
    other = "sbm:graph_seed=5"
    wanted = gt.open_run("run", dataset=other).evaluate()
    # the scale of the training, named once more
    for dataset, keys in (
        (f"{other},normalise_features=yes", {}),
        (other, {"normalise_features": "row"}),
    ):
        assert gt.open_run("run", dataset=dataset, **keys).evaluate() == wanted
    for dataset, keys in (
        (f"{other},normalise_features=none", {}),
        (other, {"normalise_features": "standard"}),
    ):
        with pytest.raises(ConfigError, match=r"scaled as those of the training graph were \(row"):
            gt.open_run("run", dataset=dataset, **keys)
    with pytest.raises(ConfigError, match="the dataset has split=none, but split=random"):
        gt.open_run("run", dataset=f"{other},split=none", split="random")
    assert (
        gt.open_run("run").evaluate()
        == gt.open_run("run", dataset=other)
        .on(gt.load("sbm:normalise_features=row,split=random"))
        .evaluate()
    )
    # other rows would be held out
    with pytest.raises(ConfigError, match="seed=4 holds out other rows than the training with"):
        gt.open_run("run", seed=4)
    with pytest.raises(ConfigError, match="the dataset has split=random, but split=public is giv"):
        gt.open_run("run", split="public")
    assert main(["evaluate", "run", "--seed", "4"]) == 2 and main(["evaluate", "run"]) == 0
    gt.open_run("run", dataset=other, seed=4)
    # nothing reads them beside a graph
    for key, value in {"split": "random", "normalise_features": "row", "dataset": other}.items():
        with pytest.raises(ConfigError, match=f"{key}=.* has no meaning with a graph that is give"):
            gt.open_run("run", gt.load(other), **{key: value})


@pytest.mark.parametrize("of_run", ["", ":split=random", ":graph_seed=3,self_loops=yes"])
def test_the_dataset_of_the_run_holds_out_the_rows_of_the_training(
    of_run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it is named, and whatever says which rows."""
    monkeypatch.chdir(tmp_path)
    named = f"sbm{of_run}"
    gt.Trainer(dataset=named, **KEYS, split="random", train_per_class=7, out="run").fit()
    measured = gt.open_run("run").evaluate()
    assert gt.open_run("run", dataset=named).evaluate() == measured
    assert main(["evaluate", "run", "--dataset", named]) == 0
    same = named.replace("split=random", "train_per_class=7,split=random")
    assert gt.open_run("run", dataset=same).evaluate() == measured
    others = {
        "split": "fraction",
        "seed": 4,
        "train_per_class": 9,
        "val_per_class": 9,
        "largest_component": "yes",
        "symmetric": "no",
    }
    for key, value in others.items():
        if key + "=" not in of_run:
            with pytest.raises(ConfigError, match=f"{key}={value} holds out other rows than the t"):
                gt.open_run("run", dataset=named, **{key: value})
        text = f"{named.replace('split=random', '')}{',' if of_run else ':'}{key}={value}"
        with pytest.raises(ConfigError, match=f"{key}={value} (holds out|is given)|has {key}="):
            gt.open_run("run", dataset=text.replace(",,", ",").replace(":,", ":"))
    gt.open_run("run", dataset="sbm:graph_seed=9", split="fraction", seed=4)


def test_a_file_is_the_dataset_of_the_run_by_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", edge_index=GRAPH.edge_index, x=GRAPH.x, y=GRAPH.y)
    Path("b.npz").symlink_to("a.npz")
    shutil.copy("a.npz", "c.npz")
    gt.Trainer(dataset="a.npz", **KEYS, split="fraction", out="run").fit()
    measured = gt.open_run("run").evaluate()
    for name in ("a.npz", "./a.npz", str(tmp_path / "a.npz"), "b.npz"):
        assert gt.open_run("run", dataset=name).evaluate() == measured
        with pytest.raises(ConfigError, match="seed=4 holds out other rows"):
            gt.open_run("run", dataset=name, seed=4)
    gt.open_run("run", dataset="c.npz", seed=4)


def test_keys_that_another_graph_does_not_read(tmp_path: Path) -> None:
    graph = GRAPH.replace(y=(GRAPH.y == 0).astype(int), node_columns={"w": np.ones(40)})
    gt.Trainer("gcn", graph, **KEYS, threshold="f1", out=tmp_path).fit()
    for key, value, told in (
        ("class_weights", "balanced", "to which the one of the training is applied (none)"),
        ("sample_weights", "w", "to which the one of the training is applied (none)"),
        ("embedding", 3, "to which the one of the training is applied (0)"),
        ("eval_negatives", 3, "has no meaning with task=node"),
        ("rank_all", True, "has no meaning with task=node"),
    ):
        with pytest.raises(ConfigError) as caught:
            gt.open_run(tmp_path, graph, **{key: value})
        assert told in str(caught.value)
    with pytest.raises(ConfigError, match="there is no split 1, the graph has one split"):
        gt.open_run(tmp_path, graph, split_index=1)
    # a threshold that is given is not replaced by those that the training has chosen
    for value in ("0.001", "0.999"):
        trainer = gt.Trainer("gcn", graph, **KEYS, threshold=value)
        trainer.load(tmp_path / "weights.safetensors")
        assert gt.open_run(tmp_path, graph, threshold=value).evaluate() == trainer.evaluate()
