"""Ranks that were given other jobs, graphs or models: one error on all of them, that says what
differs and where.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from ranks import MPIEXEC, needs_mpi
from ranks import run as run_command

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError, GraphThetaError, MemoryLimitError
from graphtheta.run.agreement import digest
from graphtheta.run.agreement.digest import changed, graph_digests, model_digests

pytestmark = pytest.mark.reference

N, E = 40, 200
KEYS: dict[str, Any] = {"epochs": 1, "backend": "reference"}


def graph(**changes: Any) -> gt.Graph:
    """A graph with an array in each field."""
    rng = np.random.default_rng(0)
    part = np.arange(N) % 3
    half = np.arange(E) % 2 == 0
    fields: dict[str, Any] = {
        "x": rng.normal(size=(N, 4)),
        "y": rng.integers(0, 3, N),
        "train": part == 0,
        "val": part == 1,
        "test": part == 2,
        "edge_attr": rng.normal(size=(E, 2)),
        "edge_weight": rng.random(E),
        "edge_y": rng.random(E),
        "edge_train": half,
        "edge_val": ~half,
        "node_ids": [f"n{i}" for i in range(N)],
        "node_columns": {"age": np.arange(N)},
        "edge_columns": {"time": np.arange(E) / 7},
        "meta": {"class_names": ["a", "b", "c"]},
    }
    return gt.Graph(rng.integers(0, N, (2, E)), N, **{**fields, **changes})


class Net(gt.Model):
    """A model whose constructor may draw what no seed determines; it does if ``draws`` says so."""

    draws = ""

    def __init__(self, d_in: int, d_out: int):
        rng = np.random.default_rng(None if self.draws else 0)
        self.layer = gt.Layer()
        self.weight = gt.Parameter.glorot(d_in, d_out)
        if self.draws == "parameter":
            self.weight = gt.Parameter(rng.normal(size=(d_in, d_out)).astype(np.float32))
        self.noise = rng.normal(size=d_out).astype(np.float32)
        self.settings = {"scale": [1.0, float(rng.random())], "name": "net"}
        self.layer.keep = rng.random() < 2

    def forward(self, g: Any) -> Any:
        return self.layer(g, gt.matmul(g.x, self.weight) + self.noise)


def drawing(what: str) -> type[Net]:
    return type("Net", (Net,), {"draws": what})


def other(x: Any) -> Any:
    """An array with another first row."""
    x = np.array(x)
    x[0] = "other" if x.dtype.kind == "U" else not x[0] if x.dtype.kind == "b" else x[0] + 1
    return x


# by name: from the number of a rank to its model, graph and keys; the error, and words in it
Given = tuple[Any, gt.Graph, dict[str, Any]]
Case = tuple[Callable[[int], Given], type[GraphThetaError], str]
JOBS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "learning rate": ({"lr": 0.1}, {"lr": 0.2}),
    "dropout": ({"dropout": 0.1}, {"dropout": 0.2}),
    "fan-out": ({"strategy": "mini", "fanout": "3"}, {"strategy": "mini", "fanout": "4"}),
    "partitioner": ({}, {"partitioner": "vertex-cut"}),
    "patience": ({"patience": 1}, {"patience": 2}),
    "clipping": ({"clip_norm": 1.0}, {"clip_norm": 2.0}),
    "seed": ({}, {"seed": 1}),
    "folder": ({}, {"out": "elsewhere", "keep": 0}),
}


def job_case(keys: dict[str, Any], others: dict[str, Any]) -> Case:
    key = next(key for key in others if keys.get(key) != others[key])
    return lambda rank: (None, graph(), others if rank else keys), ConfigError, f"the job: {key}="


def graph_case(field: str) -> Case:
    def given(rank: int) -> Given:
        whole = graph()
        return (
            "gcn",
            whole.replace(**{field: other(getattr(whole, field))}) if rank == 1 else whole,
            {},
        )

    return given, DataError, f"the graph: {field} on rank 1 is not that on rank 0"


def model_case(what: str, name: str) -> Case:
    return lambda rank: (drawing(what), graph(), {}), ConfigError, f"the model Net: {name} on"


CASES: dict[str, Case] = {
    **{f"job: {name}": job_case(*keys) for name, keys in JOBS.items()},
    **{
        f"graph: {field}": graph_case(field)
        for field in ("x", "y", "edge_attr", "edge_weight", "edge_y", "node_ids")
    },
    "job: model": (
        lambda rank: ("sage" if rank else "gcn", graph(), {}),
        ConfigError,
        "the job: model=",
    ),
    "graph: edges": (
        lambda rank: ("gcn", graph().reversed() if rank else graph(), {}),
        DataError,
        "the graph: src on",
    ),
    "graph: order": (
        lambda rank: ("gcn", graph().subset(np.roll(np.arange(N), rank)), {}),
        DataError,
        "the graph: src on ranks 1, 2",
    ),
    "graph: split": (
        lambda rank: ("gcn", graph(train=np.arange(N) % 3 == 2 * (rank > 0), test=None), {}),
        DataError,
        "the graph: train on rank 0 is not that on rank 1",
    ),
    "graph: no split": (
        lambda rank: ("gcn", graph(**{} if rank else {"val": None}), {}),
        DataError,
        "val is on rank 1, but not on rank 0",
    ),
    "graph: more nodes": (
        lambda rank: ("gcn", gt.load(f"sbm:n_nodes={100 + rank}"), {}),
        DataError,
        "the graph: number of nodes",
    ),
    "graph: names": (
        lambda rank: ("gcn", graph(meta={"class_names": ["abc", "cba"][rank > 0]}), {}),
        DataError,
        "meta['class_names'] on",
    ),
    "model: parameter": model_case("parameter", "weight"),
    "model: array": model_case("array", "noise"),
    "groups": (
        lambda rank: ("gcn", graph(), {"groups": {"layers.0.*": {"lr": 1.0 + rank}}}),
        ConfigError,
        "groups on",
    ),
    "freeze": (
        lambda rank: ("gcn", graph(), {"freeze": ["layers.0.*"][rank:]}),
        ConfigError,
        "freeze on",
    ),
    "lr_schedule": (
        lambda rank: ("gcn", graph(), {"lr_schedule": lambda step: 1.0 + rank}),
        ConfigError,
        "lr_schedule on",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_ranks_that_differ_raise_one_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given, kind, words = CASES[name]

    def program(comm: Any) -> str:
        model, data, keys = given(comm.rank)
        with pytest.raises(kind) as caught:
            gt.Trainer(model, data, comm=comm, **{**KEYS, **keys})
        return str(caught.value)

    told = run_simulated(3, program)
    assert len(set(told)) == 1 and words in told[0] and "rank" in told[0], told
    assert "on all ranks" in told[0] or "give all ranks" in told[0]


def test_ranks_that_are_alike_train() -> None:
    seeded = type("Net", (Net,), {})
    run_simulated(3, lambda comm: gt.Trainer(seeded, graph(), comm=comm, **KEYS).fit())


def test_too_little_memory_on_one_rank_ends_all() -> None:
    def program(comm: Comm) -> str:
        def make(d_in: int, d_out: int, d_edge: int) -> gt.Model:
            if comm.rank == 1:
                raise MemoryError("unable to allocate 8 GiB")
            return Net(d_in, d_out)

        with pytest.raises(MemoryLimitError) as caught:
            gt.Trainer(make, graph(), comm=comm, **KEYS)
        return str(caught.value)

    told = "the graph and the weights do not fit into memory: unable to allocate 8 GiB"
    first, second = run_simulated(2, program)
    assert second.startswith(told) and first == f"rank 1: {second}"


@pytest.mark.parametrize("way", [gt.Trainer, gt.Run])
def test_the_graph_of_an_inference_is_compared_too(way: type) -> None:
    def program(comm: Any) -> str:
        keys = {key: x for key, x in KEYS.items() if key != "epochs" or way is gt.Trainer}
        session = way("gcn", graph(), comm=comm, **keys)
        with pytest.raises(DataError) as caught:
            session.on(graph(y=other(graph().y)) if comm.rank else graph())
        return str(caught.value)

    assert all("the graph: y on rank" in told for told in run_simulated(2, program))


def stores(folder: Path, *several: gt.Graph) -> list[gt.Graph]:
    for i, one in enumerate(several):
        gt.import_graph(one, to=str(folder / f"{i}.store"))
    return [gt.load(str(folder / f"{i}.store")) for i in range(len(several))]


def test_stores_are_compared_by_what_they_say_of_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # no row that differs is read
    monkeypatch.setattr(digest, "MOST_READ", 1)
    monkeypatch.setattr(digest, "PLACE", 1)
    x = np.array(graph().x)
    x[N // 2] += 1
    a, b, c = (graph_digests(one) for one in stores(tmp_path, graph(), graph(x=x), graph()))
    assert changed(a, b) == ["store"] and a == c


def test_of_files_some_rows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "MOST_READ", 64)
    monkeypatch.setattr(digest, "PLACE", 16)
    reads = []
    monkeypatch.setattr(
        digest, "_of_rows", lambda x, begin, end, **_: reads.append((begin, end)) or 0
    )
    np.save(tmp_path / "x.npy", np.arange(2000, dtype=np.float32).reshape(1000, 2))
    graph_digests(gt.Graph([[], []], 1000, x=gt.MappedColumn(tmp_path / "x.npy")))
    assert reads == [(0, 2), (332, 334), (665, 667), (998, 1000)]


def values(x: Any) -> Any:
    """Another array of the same form, or sparse matrix."""
    if sp.issparse(x):
        return sp.csr_array((x.data + 1, x.indices, x.indptr), x.shape)
    return other(x)


GRAPHS: dict[str, Callable[[], gt.Graph]] = {
    "dense": graph,
    "sparse": lambda: graph(x=sp.eye_array(N).tocsr()),
    "multilabel": lambda: graph(y=np.eye(3)[np.arange(N) % 3].astype(int), meta={}),
    "empty": lambda: gt.Graph([[], []], 3, x=np.zeros((3, 0))),
    "large": lambda: gt.Graph([[], []], 1 << 20, x=np.ones((1 << 20, 5))),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_change_of_an_array_changes_its_digest_alone(name: str) -> None:
    whole = GRAPHS[name]()
    before = graph_digests(whole)
    assert graph_digests(whole, threads=3) == before and graph_digests(GRAPHS[name]()) == before
    for field in ("x", "y", "edge_attr", "edge_weight", "edge_y", "node_ids"):
        x = getattr(whole, field)
        if x is not None and np.prod(x.shape) and not (field == "y" and whole.multilabel):
            after = graph_digests(whole.replace(**{field: values(x)}))
            assert [n.partition("_data")[0] for n in before if before[n] != after.get(n)] == [
                field
            ], field
    for field in ("node_columns", "edge_columns"):
        for column, x in getattr(whole, field).items():
            after = graph_digests(whole.replace(**{field: {column: other(x)}}))
            assert [n for n in before if before[n] != after[n]] == [f"{field}.{column}"]


def test_digests_of_a_model_are_those_of_its_values() -> None:
    one, two = (gt.Trainer(drawing("array"), graph(), **KEYS).model for _ in range(2))
    a = model_digests(one)
    b = model_digests(two)
    assert a.keys() == b.keys() and {name for name in a if a[name] != b[name]} == {
        "noise",
        "settings.scale.1",
    }


SCRIPT = """
import numpy as np
import graphtheta as gt
rank = gt.start().rank
graph = gt.load("sbm:n_nodes=60,n_edges=300")
gt.Trainer("gcn", graph, epochs=1, backend="reference", {}).fit()
"""


@pytest.mark.second
@needs_mpi
@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("lr=0.1 + rank", "the job: lr=1.1 on rank 1, but lr=0.1 on rank 0"),
        ("freeze=['layers.0.*'][rank:]", "freeze on rank 1 is not that on rank 0"),
    ],
)
def test_real_ranks_end_with_one_message(keys: str, told: str) -> None:
    done = run_command(
        [str(MPIEXEC), "-n", "2", sys.executable, "-c", SCRIPT.format(keys)], OMP_NUM_THREADS="1"
    )
    assert done.returncode == 2 and done.stderr.count(told) == 1, done.stderr
    assert "Traceback" not in done.stderr
