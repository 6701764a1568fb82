"""Every public function, called with what users give it by mistake: one line that names the
argument, and no error of Python.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.errors import ArgumentError, GraphThetaError

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("ignore")]

N, E = 6, 7


class PyG(SimpleNamespace):
    """What is read of a ``Data`` object of PyTorch Geometric; it is iterable, as that is."""

    def __iter__(self):
        return iter([("x", np.ones((3, 2))), ("edge_index", np.ones((2, 2)))])


class Tensor:
    """What looks like an array, and has a type that NumPy does not know, as tensors of PyTorch
    have.
    """

    dtype = SimpleNamespace(is_floating_point=True)
    shape = (6, 2)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )

    def __bool__(self) -> bool:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")


class Net(gt.Model):
    def __init__(self, d_in, d_out):
        self.weight = gt.Parameter.glorot(d_in, d_out)
        self.layer = gt.Layer()

    def forward(self, g):
        return self.layer(g, gt.matmul(g.x, self.weight))


def graph() -> gt.Graph:
    part = np.arange(N) % 3
    return gt.Graph(
        ([0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]),
        N,
        x=np.eye(N),
        y=np.arange(N) % 2,
        train=part == 0,
        val=part == 1,
        test=part == 2,
        edge_attr=np.ones((E, 1)),
        edge_weight=np.ones(E),
        node_columns={"time": np.arange(N)},
        edge_columns={"time": np.arange(E)},
    )


# what is given by mistake, made anew for each call: some of it is used up
WRONG: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "a dict": lambda: {"a": 1},
    "an empty dict": dict,
    "an object of another library": lambda: PyG(x=np.ones((3, 2)), edge_index=np.ones((2, 2), int)),
    "a tensor": Tensor,
    "a text": lambda: "nonsense",
    "an empty text": lambda: "",
    "a text with a null character": lambda: "a\0b",
    "half a character": lambda: "\udc80",
    "bytes": lambda: b"abc",
    "a path": lambda: Path("nowhere"),
    "lists of unequal lengths": lambda: [[1, 2], [3]],
    "arrays of unequal lengths": lambda: [np.ones(2), np.ones(3)],
    "an empty list": list,
    "texts": lambda: ["a", "b"],
    "a negative number": lambda: -1,
    "a fraction": lambda: 1.5,
    "no number": lambda: float("nan"),
    "a complex number": lambda: 1j,
    "a truth value": lambda: True,
    "a set": lambda: {1, 2},
    "a generator": lambda: (i for i in range(3)),
    "a model": lambda: Net(N, 2),
    "a layer": gt.Layer,
    "a graph": graph,
    "a graph of networkx": lambda: nx.path_graph(3),
    "an array of three axes": lambda: np.ones((2, 2, 2)),
    "an array of one number": lambda: np.array(3),
    "an array of objects": lambda: np.array([None, {}], object),
    "dates": lambda: np.array(["2020-01-01"], "M8[D]"),
    "a plain object": object,
}


Call = tuple[Callable[..., Any], dict[str, Any]]
X = np.ones((3, 2))
WEIGHT = gt.Parameter([1.0])
TYPED = {("a", "to", "b"): ([0], [1])}


def graphs() -> dict[str, Call]:
    g = graph()
    return {
        "Graph": (
            gt.Graph,
            dict(
                edge_index=[[0, 1], [1, 2]],
                n_nodes=3,
                x=np.ones((3, 2)),
                y=[0, 1, 0],
                n_classes=2,
                multilabel=False,
                edge_attr=np.ones((2, 1)),
                edge_weight=[1.0, 2.0],
                edge_y=[1.0, 2.0],
                train=[True, False, False],
                edge_train=[True, False],
                node_ids=[5, 6, 7],
                node_columns={"a": [1, 2, 3]},
                edge_columns={"b": [1, 2]},
                name="g",
                meta={},
            ),
        ),
        "Graph with types": (
            gt.Graph,
            dict(
                edge_index=TYPED,
                n_nodes={"a": 1, "b": 2},
                x={"a": np.ones((1, 2))},
                y={"b": [0, 1]},
                edge_attr={("a", "to", "b"): np.ones((1, 1))},
                edge_weight={("a", "to", "b"): [1.0]},
                train={"b": [True, False]},
                node_ids={"a": ["u"]},
                node_columns={"c": {"a": [1], "b": [1, 2]}},
                edge_columns={"d": {("a", "to", "b"): [1]}},
            ),
        ),
        "with_self_loops": (g.with_self_loops, dict(fill="mean", columns={"time": 0})),
        "subset": (g.subset, dict(nodes=[0, 1])),
        "keep_edges": (g.keep_edges, dict(keep=[0, 1])),
        "from_scipy": (gt.Graph.from_scipy, dict(matrix=sp.eye_array(3).tocsr())),
        "from_networkx": (
            gt.Graph.from_networkx,
            dict(g=nx.path_graph(3), x=None, y=None, edge_weight=None, node_columns=()),
        ),
        "load": (gt.load, dict(name_or_path="ring", data_dir=None, split=None, seed=0)),
        "whole_graphs": (
            gt.whole_graphs,
            dict(
                graphs=[gt.Graph([[0], [1]], 2)] * 2,
                y=[0, 1],
                graph_of=None,
                ids=["u", "v"],
                train=[True, False],
            ),
        ),
        "time_split": (gt.time_split, dict(times=np.arange(9), train=0.6, val=0.2, use=None)),
        "import_graph": (
            gt.import_graph,
            dict(
                edges={"src": [0, 1], "dst": [1, 2]},
                nodes={"id": [0, 1, 2], "f": [1.0, 2.0, 3.0], "y": [0, 1, 0]},
                to="imported",
                like=None,
                comm=None,
                separator=None,
                header=True,
                missing="mean",
                missing_indicator=True,
                rename={},
                features=["f"],
                label="y",
                node_columns=["f"],
                types={},
                scale="none",
                src="src",
                id="id",
            ),
        ),
        "transform_store": (
            gt.transform_store,
            dict(store="small.store", to="transformed", nodes=None, component="all", comm=None),
        ),
    }


def training() -> dict[str, Call]:
    trainer = gt.Trainer("gcn", graph(), epochs=1, hidden=4)
    result = trainer.fit()
    trainer.save("w.safetensors")

    def job(**keys: Any) -> Any:
        return gt.Trainer("gcn", graph(), epochs=1, **keys)

    return {
        "Trainer": (
            gt.Trainer,
            dict(
                model="gcn",
                graph=graph(),
                job=gt.Job(epochs=1),
                comm=None,
                loss=None,
                lr_schedule=None,
                groups=None,
                freeze=(),
                epochs=1,
            ),
        ),
        "keys": (
            job,
            dict(
                strategy="mini",
                batch_size=2,
                lr=0.1,
                fanout="2,2",
                sampler="neighbour",
                dropout=0.1,
                seed=0,
                optimiser="adam",
                metric="accuracy",
                task="node",
                masters="hash",
                partitioner="1d-src",
                order="random",
            ),
        ),
        "fit": (trainer.fit, dict(log=None, callbacks=())),
        "evaluate": (trainer.evaluate, dict(split="test")),
        "predict": (trainer.predict, dict(nodes=[0])),
        "write_predictions": (trainer.write_predictions, dict(folder="parts", format="csv")),
        "top": (trainer.top, dict(nodes=[0], k=3)),
        "on": (trainer.on, dict(graph=graph())),
        "save": (trainer.save, dict(path="w.safetensors")),
        "load weights": (trainer.load, dict(path="w.safetensors")),
        "Run": (gt.Run, dict(model="gcn", graph=graph(), loss=None)),
        "open_run": (gt.open_run, dict(run="run", graph=None, comm=None, trust=False)),
        "forward": (gt.forward, dict(model=Net(N, 2), graph=graph(), training=False, seed=0)),
        "gradients": (gt.gradients, dict(loss=gt.mean, model=Net(N, 2), graph=graph())),
        "explain": (gt.explain, dict(model="gcn", graph=graph())),
        "check": (gt.check, dict(layer=gt.Layer(), d_in=3, node_columns={}, self_loops="auto")),
        "check_gradients": (
            gt.check_gradients,
            dict(loss=lambda: gt.mean(gt.square(WEIGHT * 2)), parameters=[WEIGHT], eps=1e-6),
        ),
        "preset": (gt.preset, dict(name="cora-gcn")),
        "Job.from_yaml": (gt.Job.from_yaml, dict(path="job.yaml")),
        "relation_report": (gt.relation_report, dict(trainer=trainer, split="test")),
        "plot": (gt.plot, dict(runs=result, metrics="all")),
        "save a plot": (gt.plot(result).save, dict(path="curves.svg")),
        "TensorBoard": (gt.TensorBoard, dict(trainer=trainer, folder="tb")),
        "to_torch": (gt.to_torch, dict(model=trainer.model, library="pyg", metadata=None)),
        "to_onnx": (gt.to_onnx, dict(part=gt.MLP(3, [4], 2), path=None, stage="", dtype="float32")),
    }


def parts() -> dict[str, Call]:
    g = graph()
    return {
        "sample": (
            gt.sample,
            dict(graph=g, targets=[0, 1], fanout=[2], sampler="neighbour", seed=0),
        ),
        "Loader": (
            gt.Loader,
            dict(graph=g, to="arrays", drop_last=True, prefetch=0, comm=None, fanout=[2]),
        ),
        "partition_report": (
            gt.partition_report,
            dict(graph=g, n_workers=2, masters="hash", partitioner="1d-src", clusters=None),
        ),
        "compare_partitions": (
            gt.compare_partitions,
            dict(graph=g, n_workers=2, pairs=("pregel",)),
        ),
        "pagerank": (
            gt.pagerank,
            dict(graph=g, damping=0.85, tolerance=1.0, iterations=9, masters="hash", comm=None),
        ),
        "components": (gt.components, dict(graph=g)),
        "bfs": (gt.bfs, dict(graph=g, source=0)),
        "betweenness": (gt.betweenness, dict(graph=g, sources=3, seed=0)),
        "random_walks": (gt.random_walks, dict(graph=g, paths=2, length=3, p=1.0)),
        "analyse": (gt.analyse, dict(graph=g, algorithm=gt.ALGORITHMS.find("degree")())),
        "Linear": (gt.Linear, dict(d_in=3, d_out=2, bias=True)),
        "MLP": (
            gt.MLP,
            dict(d_in=3, hidden=[4], d_out=2, activation="relu", dropout=0.0, norm="none"),
        ),
        "BatchNorm": (gt.BatchNorm, dict(d=3)),
        "TransE": (gt.TransE, dict(width=4, relations=2, margin=9.0, norm=1)),
        "RotatE": (gt.RotatE, dict(width=4, relations=2, margin=9.0)),
        "per_relation": (
            gt.per_relation,
            dict(layers=lambda r: gt.Layer(), relations=2, types=(), combine="sum", width=0),
        ),
        "TopK": (gt.TopK, dict(k=2)),
        "MappedColumn": (gt.MappedColumn, dict(path="x.npy")),
        "Parameter": (gt.Parameter, dict(value=[1.0, 2.0], decay=1.0, name="")),
        "Parameter.glorot": (lambda a, b: gt.Parameter.glorot(a, b), dict(a=2, b=3)),
        "Adam": (
            gt.Adam,
            dict(
                parameters=[gt.Parameter([1.0])],
                lr=0.1,
                weight_decay=0.0,
                betas=(0.9, 0.99),
                eps=1e-8,
            ),
        ),
        "register_model": (gt.register_model, dict(name="other", design=None)),
        "Bns": (gt.Bns, dict(rate=0.1, seed=0)),
        **{
            f"{name}.find": (getattr(gt, name).find, dict(name="other"))
            for name in ("SAMPLERS", "ORDERS", "TASKS", "PARTITIONERS", "METRICS", "AGGREGATORS")
        },
    }


def by_position(function: Callable[..., Any], x: Any) -> Any:
    """Primitives take their values by position."""
    return function(x)


def operations() -> dict[str, Call]:
    one = ("exp", "cos", "relu", "gelu", "sigmoid", "softplus", "absolute", "square", "silu")
    more = ("leaky_relu", "elu", "log_softmax", "layer_norm", "graph_mean", "to_dense", "softmax")
    return {
        **{name: (partial(by_position, getattr(gt, name)), dict(x=X)) for name in (*one, *more)},
        **{
            name: (getattr(gt, name), dict(x=X, axis=-1))
            for name in ("max", "sum", "mean", "std", "cumsum")
        },
        "flatten": (partial(by_position, gt.flatten), dict(x=X)),
        "maximum": (gt.maximum, dict(x=X, y=X)),
        "power": (gt.power, dict(x=X, exponent=2)),
        "cast": (gt.cast, dict(x=X, dtype="float32")),
        "clip": (gt.clip, dict(x=X, low=0.0, high=1.0)),
        "concat": (gt.concat, dict(values=[X, X], axis=-1)),
        "stack": (gt.stack, dict(values=[X, X], axis=-1)),
        "dropout": (gt.dropout, dict(x=X, rate=0.5)),
        "embedding": (gt.embedding, dict(table=X, index=np.array([0, 1]))),
        "linear": (gt.linear, dict(x=X, w=np.ones((2, 3)), b=None)),
        "pick": (gt.pick, dict(x=X, index=np.array([0, 1, 0]))),
        "typed_matmul": (
            gt.typed_matmul,
            dict(x=X, w=np.ones((2, 2, 2)), index=np.array([0, 1, 0])),
        ),
        "where": (gt.where, dict(mask=X > 0, x=X, y=X)),
    }


GROUPS = {make.__name__: make for make in (graphs, training, parts, operations)}
# a function of the user's is called, and says itself what it needs
CALLS_IT = {("gradients", "loss"), ("check_gradients", "loss"), ("per_relation", "layers")}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    gt.import_graph(graph(), to="small.store")


@pytest.mark.second
@pytest.mark.parametrize("group", GROUPS)
def test_wrong_arguments_are_named(group: str) -> None:
    faults = []
    for name, (function, given) in GROUPS[group]().items():
        for parameter in given:
            for kind, mistake in WRONG.items():
                for made in ("imported", "transformed", "parts"):
                    shutil.rmtree(made, ignore_errors=True)
                try:
                    function(**{**given, parameter: mistake()})
                except GraphThetaError as error:
                    if "\n" in str(error) or len(str(error)) > 500:
                        faults.append(f"{name}({parameter}={kind}): {error!r:.300}")
                except Exception as error:
                    if (name, parameter) not in CALLS_IT:
                        faults.append(f"{name}({parameter}={kind}): {type(error).__name__} {error}")
    assert not faults, "\n".join(faults)


@pytest.mark.second
def test_tensors_of_pytorch_are_named() -> None:
    torch = pytest.importorskip("torch")
    learned = torch.ones(6, 2, requires_grad=True)
    for call in (
        lambda: gt.relu(learned),
        lambda: gt.linear(X, learned.T),
        lambda: gt.concat([learned, learned]),
        lambda: gt.dropout(learned, 0.5),
        lambda: gt.Trainer("gcn", learned),
        lambda: gt.Parameter(learned),
    ):
        with pytest.raises(GraphThetaError, match="Tensor"):
            call()


WORDS: dict[str, tuple[Callable[[], Any], str]] = {
    "a wrong keyword": (
        lambda: gt.Graph([[0], [1]], 2, train_mask=[True, False]),
        (
            r"Graph: there is no argument 'train_mask' \(did you mean 'train'\?\); it takes"
            r" edge_index, n_nodes, x, y,"
        ),
    ),
    "a graph of PyTorch Geometric": (
        lambda: gt.Graph(PyG()),
        (
            r"edge_index: a value of type PyG is no array; .*gt.load\(gt.import_graph\(graph,"
            r" to='my.store'\)\)"
        ),
    ),
    "a dict for a model": (
        lambda: gt.Trainer({"layers": 2}, graph()),
        (
            r"Trainer: model is \{'layers': 2\}; expected a text or a gt.Model \(whose forward"
            r" calls layers\) or a function"
        ),
    ),
    "a path for a graph": (
        lambda: gt.Trainer("gcn", "cora.npz"),
        r"Trainer: graph is 'cora.npz'; expected a gt.Graph, such as gt.load\('sbm'\)",
    ),
    "an argument too many": (
        lambda: gt.degree(graph(), 3),
        "degree: too many positional arguments; it takes graph",
    ),
    "an argument too few": (lambda: gt.bfs(graph()), "bfs: missing a required argument: 'source'"),
    "a word for a number": (
        lambda: gt.bfs(graph(), source=None),
        "bfs: source is None; expected a whole number or a text",
    ),
    "a class for its object": (
        lambda: gt.check(gt.Layer),
        r"check: layer is the class Layer; expected an object of it, such as Layer\(...\)",
    ),
    "a list for a dict": (
        lambda: gt.Graph([[0], [1]], 2, node_columns=[1, 2]),
        r"Graph: node_columns is \[1, 2\]; expected a dict by name",
    ),
    "one of a dict": (
        lambda: gt.per_relation({"a": gt.Layer(), "b": gt.Linear(2, 2)}, ["a", "b"]),
        r"per_relation: layers\['b'\] is a value of type Linear; expected an object of type Layer",
    ),
    "one of several": (
        lambda: gt.sample(graph(), [0], [2, "all"]),
        r"sample: fanout\[1\] is 'all'; expected a whole number",
    ),
}


@pytest.mark.parametrize("case", WORDS.values(), ids=WORDS)
def test_messages_about_arguments(case: tuple[Callable[[], Any], str]) -> None:
    attempt, words = case
    with pytest.raises(GraphThetaError, match=words):
        attempt()


def test_an_argument_error_is_a_type_error() -> None:
    with pytest.raises(TypeError) as caught:
        gt.degree({})
    assert isinstance(caught.value, ArgumentError)


def test_annotations_of_checked_functions_exist() -> None:
    """They are read when a function is called first."""
    seen = 0
    for name in gt.__all__:
        public = getattr(gt, name)
        members = list(vars(public).values()) if isinstance(public, type) else [public]
        for function in (getattr(member, "__func__", member) for member in members):
            if hasattr(function, "__wrapped__"):
                seen += bool(get_type_hints(function))
    assert seen > 60
