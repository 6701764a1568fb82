"""Values of nodes as bfloat16: nearly the same training, the same on any number of workers, and
what reads a run again rounds as it did.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.base.bfloat16 import BFLOAT16
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.context import ActiveGraph
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.view import global_view
from graphtheta.errors import ConfigError
from graphtheta.graph.store.from_graph import write_store
from graphtheta.ops.autodiff.tape import Tape
from graphtheta.ops.edge.backend.fused import backend_scope
from graphtheta.ops.rows.bfloat16 import expanded, rounded

UNLABELLED = dict.fromkeys(("edge_y", "edge_train", "edge_val", "edge_test"))
GRAPH = graphs.random_graph(60, 400, **UNLABELLED)
# wide enough to be rounded, and an odd number
FEATURES = np.random.default_rng(3).standard_normal((60, 21)).astype(np.float32)
WIDE = GRAPH.replace(x=FEATURES)
KEYS: dict[str, Any] = {
    "layers": 3,
    "hidden": 32,
    "dropout": 0.3,
    "optimiser": "sgd",
    "lr": 0.05,
    "backend": "reference",
    "partitioner": "vertex-cut",
}
MINI = {"strategy": "mini", "batch_size": 16}
JOBS: dict[str, dict[str, Any]] = {
    "gcn": {"model": "gcn"},
    "gat": {"model": "gat", "heads": 2},
    "max": {"model": "sage", "aggregator": "max"},
    "rgcn": {"model": "gin"},
    "normed": {"model": "gin", "norm": "batch"},
    "mini": {"model": "gcn", **MINI},
    "sampled": {"model": "sage", "fanout": "3,2,2", **MINI},
    "cluster": {"model": "gcn", "strategy": "cluster", "cluster_method": "metis", "clusters": 4},
    "recomputed": {"model": "gcn", "recompute": True},
    "precomputed": {"model": "gcn", "precompute": "yes", "dropout": 0.0},
}


def trained(
    comm: Comm, graph: gt.Graph = WIDE, **keys: Any
) -> tuple[list[float], dict[str, float], int]:
    """Losses of three epochs, test metrics without training, and bytes of the moves."""
    trainer = gt.Trainer(graph=graph, comm=comm, **{**KEYS, **keys})
    metrics = trainer.evaluate("test")
    before = comm.ledger.snapshot()
    losses = [trainer.train_epoch(i) for i in range(3)]
    return losses, metrics, comm.ledger.since(before).get("move", {}).get("bytes", 0)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", JOBS)
def test_workers_change_nothing_but_rounding(name: str) -> None:
    exact = run_simulated(1, trained, **JOBS[name])[0]
    (alone,) = run_simulated(1, trained, values="bfloat16", **JOBS[name])
    assert alone[0] != exact[0]
    np.testing.assert_allclose(alone[0][0], exact[0][0], rtol=2e-2)
    for size in (2, 3):
        several = run_simulated(size, trained, values="bfloat16", **JOBS[name])[0]
        np.testing.assert_allclose(several[0], alone[0], rtol=2e-3)
        np.testing.assert_allclose(several[0][0], alone[0][0], rtol=2e-5)
        assert several[1]["test_loss"] == pytest.approx(alone[1]["test_loss"], rel=2e-5)


def test_modes_agree() -> None:
    """The first batches of independent workers are those that one worker accumulates."""
    keys = {**JOBS["mini"], "values": "bfloat16", "views_per_step": 2}
    alone = run_simulated(1, trained, **keys)[0]
    independent = run_simulated(2, trained, mode="independent", **keys)[0]
    np.testing.assert_allclose(independent[0], alone[0], rtol=2e-3)


# products read the features themselves, without dropout in between
READ = {"model": "sage", "dropout": 0.0}
# type of the features of a store, and keys
KEPT: dict[str, tuple[str, dict[str, Any]]] = {
    "whole": ("stored", READ),
    "attention": ("int8", {**READ, "model": "gat"}),
    "batches": ("float16", {**READ, **MINI}),
    "batches with a cache": ("stored", {**READ, **MINI, "feature_cache": "20"}),
    "independent": ("int8", {**READ, **MINI, "mode": "independent", "feature_cache": "20"}),
    "sampled": ("stored", {**READ, **MINI, "fanout": "3,2,2"}),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", KEPT)
def test_features_in_memory_and_in_files_give_the_same(name: str, tmp_path: Path) -> None:
    """What is rounded does not depend on where features are, or on what caches hold of them."""
    kind, keys = KEPT[name]
    write_store(WIDE, tmp_path / "g.store", SerialComm(), kind)
    stored = gt.load(str(tmp_path / "g.store"))
    held = stored.replace(x=np.asarray(stored.x[:]))
    for size in (1, 2):
        memory, file = (
            run_simulated(size, trained, graph=graph, values="bfloat16", **keys)[0]
            for graph in (held, stored)
        )
        np.testing.assert_allclose(file[0], memory[0], rtol=2e-5)
        assert file[1] == pytest.approx(memory[1], rel=2e-5)


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_workers_send_less(model: str) -> None:
    exact, short = (
        run_simulated(3, trained, values=values, **JOBS[model])
        for values in ("float32", "bfloat16")
    )
    assert sum(r[2] for r in short) < 0.9 * sum(r[2] for r in exact)


@pytest.mark.one_in(4)
@pytest.mark.fused
@pytest.mark.parametrize("name", ["gcn", "gat", "max", "sampled"])
def test_kernels_agree_with_the_reference(name: str) -> None:
    fused, reference = (
        run_simulated(2, trained, values="bfloat16", **{**JOBS[name], "backend": backend})[0]
        for backend in ("fused", "reference")
    )
    np.testing.assert_allclose(fused[0], reference[0], rtol=2e-3)
    np.testing.assert_allclose(fused[0][0], reference[0][0], rtol=2e-5)


class Sum(gt.Layer):
    sum = "sum"

    def gather(self, edge: Any) -> Any:
        return edge.src.h


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("backend", ["reference", pytest.param("fused", marks=pytest.mark.fused)])
def test_sums_are_those_of_rounded_rows(backend: str, stored: bool) -> None:
    """Of features, and of other values of nodes, which may be no numbers."""
    odd = [1e-40, -1e-44, 3.4e38, 1 + 2**-9, 1 + 3 * 2**-9]
    odd += [] if stored else [np.nan, np.inf, -np.inf]
    x = FEATURES.copy()
    x[7, : len(odd)] = odd
    short = expanded(rounded(x)).astype(np.float64)
    expected = np.zeros_like(short)
    with np.errstate(invalid="ignore"):
        np.add.at(expected, GRAPH.dst, short[GRAPH.src])

    def sums(comm: Comm) -> Any:
        graph = GRAPH.replace(x=x) if stored else GRAPH
        partition = build_partition(graph, comm, "vertex-cut", short=True)
        if not stored:
            partition = partition.overlay({"x": x[partition.masters]}, {})
        with backend_scope(backend), Tape(record=False):
            active = ActiveGraph(global_view(partition, ["in"]))
            return partition.masters, Sum()(active, active.x).value

    for size in (1, 3):
        found = np.empty(short.shape, np.float32)
        for masters, rows in run_simulated(size, sums):
            found[masters] = rows
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("keys", [{}, MINI, {**MINI, "mode": "independent"}], ids=str)
def test_features_in_files_are_those_in_memory(keys: dict[str, Any], tmp_path: Path) -> None:
    write_store(WIDE, tmp_path / "store", SerialComm())
    stored = gt.load(str(tmp_path / "store"))

    def losses(comm: Comm, graph: gt.Graph) -> list[float]:
        # narrow enough that the product of the features comes first, and rounds the weights
        how = {**KEYS, "model": "gcn", "hidden": 16, "values": "bfloat16", **keys}
        trainer = gt.Trainer(graph=graph, comm=comm, **how)
        return [trainer.train_epoch(i) for i in range(2)]

    in_memory, in_files = (run_simulated(2, losses, graph)[0] for graph in (WIDE, stored))
    np.testing.assert_allclose(in_files, in_memory, rtol=1e-6)


def test_what_is_stored_short() -> None:
    graph = WIDE.replace(
        node_columns={
            "wide": FEATURES,
            "narrow": FEATURES[:, :4],
            "whole": np.ones((60, 20), np.int64),
        }
    )
    node = build_partition(graph, SerialComm(), short=True).node
    short = {name for name in node.names() if node.coded(name).column.dtype == BFLOAT16}
    assert short == {"x", "wide"}
    assert node.column("x").nbytes == 2 * FEATURES.size
    sparse = WIDE.replace(x=sp.csr_array(np.eye(60, 900, dtype=np.float32)))
    column = build_partition(sparse, SerialComm(), short=True).node.column("x")
    assert column.sparse
    assert column.dtype == np.float32


def test_a_run_is_resumed_and_read_again(tmp_path: Path) -> None:
    keys = {**KEYS, "model": "gcn", "values": "bfloat16", "backend": "reference"}
    whole = gt.Trainer(graph=WIDE, epochs=4, out=str(tmp_path / "whole"), **keys).fit()
    out = str(tmp_path / "half")
    gt.Trainer(graph=WIDE, epochs=2, out=out, **keys).fit()
    resumed = gt.Trainer(graph=WIDE, epochs=4, out=out, resume=True, **keys)
    assert resumed.fit().metrics == whole.metrics
    every = resumed.predict()[1]
    np.testing.assert_array_equal(resumed.on(WIDE).predict()[1], every)
    np.testing.assert_allclose(resumed.predict([4, 2])[1], every[[4, 2]], rtol=1e-3, atol=1e-5)
    with pytest.raises(ConfigError, match="values"):
        gt.Trainer(
            graph=WIDE, epochs=5, out=out, resume=True, **{**keys, "values": "float32"}
        ).fit()


@pytest.mark.parametrize(
    "other, match",
    [
        ({"dtype": "float64"}, "values=bfloat16 has no meaning with dtype=float64"),
        ({"exchange": "skip:threshold=0.1"}, "exchange"),
        ({"strategy": "cluster", "history": "gas"}, "history"),
    ],
)
def test_other_keys_refuse_it(other: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        gt.Job(values="bfloat16", **other)
