"""Stores made of stores: the graphs that changes in memory give, on any number of workers, with
shared files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.base.sparse import is_sparse
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError, FormatError, GraphThetaError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.store.from_graph import write_store
from graphtheta.graph.store.reader import check_store
from graphtheta.importing.rewriting import edges as edges_module
from graphtheta.importing.rewriting import nodes as nodes_module

pytestmark = pytest.mark.reference

N, M = 60, 90


def made(sparse: bool = False, **fields: Any) -> Graph:
    """A graph with isolated nodes, self loops, duplicates, both directions of some edges, and
    columns of every kind.
    """
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, 50, (2, M))
    src[-20:], dst[-20:] = dst[:20].copy(), src[:20].copy()
    src[40:50], dst[40:50] = src[30:40], dst[30:40]
    dst[50:55] = src[50:55]
    x = rng.normal(size=(N, 4)).astype(np.float32)
    given: dict[str, Any] = {
        "node_ids": np.array([f"näme {i * 37 % 61}" for i in range(N)]),
        **fields,
    }
    return gt.Graph(
        (src, dst),
        N,
        x=sp.csr_array(x * (rng.random(x.shape) < 0.2)) if sparse else x,
        y=rng.integers(0, 3, N),
        train=rng.random(N) < 0.6,
        val=np.zeros(N, bool),
        edge_weight=rng.random(M),
        edge_attr=rng.normal(size=(M, 2)),
        node_columns={"shape": rng.integers(0, 9, N)},
        edge_columns={"number": np.arange(M)},
        meta={"class_names": ["a", "b", "c"]},
        **given,
    )


def plain(x: Any) -> Any:
    """Values in memory."""
    if x is None or isinstance(x, np.ndarray):
        return x
    if is_sparse(x):
        return x.toarray()
    return (
        x.read_begin(np.arange(x.shape[0])).end()
        if hasattr(x, "read_begin")
        else np.asarray(x[np.arange(len(x))])
    )


def same(one: Graph, other: Graph) -> None:
    assert (one.n_nodes, one.n_edges, one.n_classes, one.class_names) == (
        other.n_nodes,
        other.n_edges,
        other.n_classes,
        other.class_names,
    )
    for field in (
        "src",
        "dst",
        "x",
        "y",
        "train",
        "val",
        "test",
        "edge_weight",
        "edge_attr",
        "node_ids",
    ):
        np.testing.assert_array_equal(
            plain(getattr(one, field)), plain(getattr(other, field)), err_msg=field
        )
    for field in ("node_columns", "edge_columns"):
        for name, values in getattr(other, field).items():
            np.testing.assert_array_equal(getattr(one, field)[name], values, err_msg=name)


def simple(graph: Graph) -> Graph:
    """Without self loops and duplicates, with reverse edges; ``symmetrised`` keeps the order."""
    return graph.without_self_loops().symmetrised()


STEPS: dict[str, tuple[dict[str, Any], Any]] = {
    "nothing": ({}, lambda g: g),
    "nodes": ({"nodes": "train"}, lambda g: g.subset(g.train)),
    "component": ({"component": "largest"}, lambda g: g.largest_component()),
    "simple": ({"self_loops": "drop", "duplicates": "drop", "reverse": "add"}, simple),
    "relations": ({"self_loops": "drop", "duplicates": "drop", "reverse": "add"}, simple),
    "both": (
        {"nodes": "train", "self_loops": "drop", "duplicates": "drop", "reverse": "add"},
        lambda g: simple(g.subset(g.train)),
    ),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("sparse", [False, True])
def test_stores_are_those_of_changes_in_memory(
    step: str, sparse: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (nodes_module, edges_module):
        monkeypatch.setattr(module, "BLOCK", 7)
    keys, change = STEPS[step]
    graph = made(sparse)
    if step == "relations":
        graph = graph.replace(edge_columns={"relation": np.arange(M) % 3 - 1})
    write_store(graph, tmp_path / "old", SerialComm())
    wanted = change(graph)
    assert (
        wanted.n_edges != graph.n_edges
        or step == "nothing"
        or (step == "component" and wanted.n_nodes < N)
    )
    for size in (1, 2, 3):
        run_simulated(
            size,
            lambda comm, n: gt.transform_store(
                tmp_path / "old", to=tmp_path / f"new{n}", comm=comm, **keys
            ),
            size,
        )
        check_store(tmp_path / f"new{size}", SerialComm())
        same(gt.load(tmp_path / f"new{size}", split="stored"), wanted)
    files = [
        {p.name: p.read_bytes() for p in (tmp_path / f"new{size}").iterdir()} for size in (1, 3)
    ]
    assert files[0] == files[1]


def test_what_does_not_change_is_shared(tmp_path: Path) -> None:
    write_store(made(), tmp_path / "old", SerialComm(), "int8")
    gt.transform_store(tmp_path / "old", to=tmp_path / "new", reverse="add", comm=SerialComm())
    shared = {p.name for p in (tmp_path / "new").iterdir() if p.samefile(tmp_path / "old" / p.name)}
    assert shared == {p.name for p in (tmp_path / "old").iterdir() if p.name.startswith("node.")}
    gt.transform_store(tmp_path / "old", to=tmp_path / "few", nodes="train", comm=SerialComm())
    old, few = (gt.load(tmp_path / name, split="stored") for name in ("old", "few"))
    np.testing.assert_array_equal(plain(few.x), plain(old.x)[old.train])


@pytest.mark.parametrize("size", [1, 2])
def test_edges_have_new_numbers_if_only_nodes_without_edges_are_left_out(
    size: int, tmp_path: Path
) -> None:
    graph = gt.Graph(([1, 2], [2, 1]), 5, edge_weight=[3.0, 4.0])
    write_store(graph, tmp_path / "s", SerialComm())
    mask = np.array([False, True, True, True, True])
    run_simulated(
        size,
        lambda comm: gt.transform_store(tmp_path / "s", to=tmp_path / "t", nodes=mask, comm=comm),
    )
    changed = gt.load(tmp_path / "t")
    same(changed, graph.subset(mask))
    assert changed.edge_index.tolist() == [[0, 1], [1, 0]]


@pytest.mark.second
def test_drawn_graphs_are_changed_as_loops_over_edges_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "bench")
    from fuzz_transforms import search

    counts, faults = search(range(30))
    assert not faults
    assert counts["accepted"] == 30


def test_nodes_without_ids_get_their_numbers(tmp_path: Path) -> None:
    write_store(made(node_ids=None), tmp_path / "old", SerialComm())
    mask = np.arange(N) % 3 == 0
    np.save(tmp_path / "mask.npy", mask)
    run_simulated(
        2,
        lambda comm: gt.transform_store(
            tmp_path / "old", to=tmp_path / "new", nodes=str(tmp_path / "mask.npy"), comm=comm
        ),
    )
    assert np.asarray(gt.load(tmp_path / "new").node_ids).tolist() == np.flatnonzero(mask).tolist()


@pytest.mark.parametrize(
    ("keys", "error", "words"),
    [
        ({"reverse": "yes"}, ConfigError, "reverse is keep or add, got 'yes'"),
        ({"nodes": "test"}, ConfigError, "has no such split"),
        ({"nodes": "no.npy"}, ConfigError, "there is no such file"),
        ({"nodes": np.ones(3, bool)}, DataError, "expected a mask of 60 truth values"),
        ({"nodes": np.zeros(N, bool)}, DataError, "leaves no node"),
        (
            {"nodes": "val", "component": "largest"},
            ConfigError,
            "in one step and the component in the next",
        ),
        ({"store": "."}, FormatError, "is no store"),
    ],
)
def test_faults_are_raised_on_every_rank(
    keys: dict[str, Any], error: type[GraphThetaError], words: str, tmp_path: Path
) -> None:
    write_store(made(), tmp_path / "old", SerialComm())

    def program(comm: Any) -> bool:
        with pytest.raises(error, match=words):
            gt.transform_store(
                **{"store": tmp_path / "old", "to": tmp_path / "new", "comm": comm, **keys}
            )
        return True

    assert run_simulated(2, program) == [True] * 2
    assert not (tmp_path / "new").exists()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_store(made(), tmp_path / "old", SerialComm())
    assert (
        main(
            [
                "transform",
                str(tmp_path / "old"),
                "--component",
                "largest",
                "--to",
                str(tmp_path / "new"),
            ]
        )
        == 0
    )
    assert "nodes dropped" in capsys.readouterr().out
    same(gt.load(tmp_path / "new", split="stored"), made().largest_component())
    assert main(["transform", str(tmp_path / "old")]) == 2
    assert "--to is missing" in capsys.readouterr().err
