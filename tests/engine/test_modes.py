"""Independent mode: the numbers of cooperative workers and of one worker, from views that each
worker computes alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
import scipy.sparse as sp
from ranks import MPIEXEC, needs_mpi, run

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.directory import LocalDirectory
from graphtheta.engine.train.deal import deal, dealt_bytes
from graphtheta.engine.train.fetch import Features
from graphtheta.engine.train.parts import parts_of_views
from graphtheta.engine.train.scatter import scatter
from graphtheta.errors import ConfigError, PartitionError
from graphtheta.models import GAT, EdgeDecoder

RNG = np.random.default_rng(0)
BASE = graphs.random_graph(40, 160)
GRAPH = BASE.replace(
    edge_columns={"time": RNG.integers(0, 100, 160)},
    node_columns={"time": RNG.integers(50, 100, 40)},
)
SPARSE = GRAPH.replace(x=sp.csr_array((RNG.random((40, 6)) < 0.3) * RNG.random((40, 6))))
KEYS: dict[str, Any] = {
    "hidden": 6,
    "dtype": "float64",
    "seed": 3,
    "backend": "reference",
    "optimiser": "sgd",
    "dropout": 0.3,
    "strategy": "mini",
    "batch_size": 4,
    "lr": 0.1,
    "norm": "batch",
}
SAMPLED = {"fanout": "3,2"}
CLUSTER = {"strategy": "cluster", "clusters": 5, "batch_size": 0}


class Valued(gt.Model):
    """Attention over sampled edges with values, then values of stored edges."""

    def __init__(self, d_in: int, d_out: int, d_edge: int):
        self.first = GAT(d_in, 4, heads=1)
        self.decoder = EdgeDecoder(4, d_out, d_edge)
        self.first.direction = "out"

    def forward(self, graph: Any) -> Any:
        return self.decoder(graph, self.first(graph, graph.x))


CASES: dict[str, dict[str, Any]] = {
    "all neighbours": {"model": "gcn"},
    "both directions, maximum": {"model": "sage", "aggregator": "max", "direction": "both"},
    "against edges, sampled": {"model": "sage", "direction": "out", **SAMPLED},
    "attention, sampled": {
        "model": "gat",
        "heads": 2,
        "norm": "none",
        "attention_dropout": 0.4,
        **SAMPLED,
    },
    "edge values": {
        "model": "gat_e",
        "heads": 2,
        "norm": "none",
        "fanout": "3",
        "share_sample": True,
    },
    "edges that drop out": {"model": "gipa", "edge_drop": 0.2},
    "with replacement": {"model": "gcn", "replace": True, **SAMPLED},
    "by weight": {
        "model": "sage",
        "sampler": "weighted:normalise=yes",
        "direction": "both",
        **SAMPLED,
    },
    "by time": {"model": "sage", "sampler": "temporal", **SAMPLED},
    "of few sources": {"model": "sage", "sampler": "labor:kappa=4,iterations=1", **SAMPLED},
    "sources per hop": {"model": "gcn", "sampler": "ladies:weights=published", "fanout": "6,9"},
    "node sets": {
        "model": "gcn",
        "batch_size": 0,
        "sampler": "saint_walk:roots=6,depth=2,coverage=5",
    },
    "clusters": {"model": "gcn", **CLUSTER, "degrees": "view", "diagonal": 0.5, "boundary_hops": 1},
    "links": {
        "model": "sage",
        "task": "link",
        "decoder": "hadamard",
        "negatives": 2,
        "batch_size": 20,
        **SAMPLED,
    },
    "links in clusters": {
        "model": "gcn",
        "task": "link",
        "decoder": "dot",
        **CLUSTER,
        "clusters": 4,
    },
    "stored edges": {
        "model": Valued,
        "task": "edge",
        "batch_size": 12,
        "fanout": "3",
        **dict.fromkeys(("hidden", "dropout", "norm")),
    },
    "no layer over edges": {"model": "mlp"},
    "sparse features": {"model": "gcn", "graph": SPARSE},
    "recomputed": {"model": "gcn", "layers": 3, "recompute": True},
    "in flight": {"model": "gcn", "views_in_flight": 2},
    "stale": {"model": "gcn", "views_in_flight": 3, "staleness": 2},
    "fused": {"model": "gcn", "backend": "fused", **SAMPLED},
}


def trainer(comm: Comm, graph: gt.Graph = GRAPH, **keys: Any) -> gt.Trainer:
    keys = {name: x for name, x in {**KEYS, **keys}.items() if x is not None}
    return gt.Trainer(keys.pop("model", "gcn"), graph, comm=comm, **keys)


def numbers(comm: Comm, independent: bool | None = None, **keys: Any) -> np.ndarray:
    """Losses of two epochs, and everything the model has learnt."""
    one = trainer(comm, **keys)
    assert independent is None or one.setup.independent is independent
    losses = [one.train_epoch(epoch) for epoch in range(2)]
    return np.concatenate([losses, *(x.ravel() for x in one.model.state().values())])


def equal(found: list[np.ndarray], expected: np.ndarray) -> None:
    for rank in found:
        np.testing.assert_array_equal(rank, found[0])
    np.testing.assert_allclose(found[0], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.one_in(9)
@pytest.mark.parametrize(("number", "name"), list(enumerate(CASES)), ids=CASES)
def test_both_modes_have_the_numbers_of_one_worker(number: int, name: str) -> None:
    keys = {**CASES[name], "views_per_step": 3}
    (expected,) = run_simulated(1, numbers, **keys)
    assert np.isfinite(expected).all()
    size, (placement, masters) = 2 + number % 3, graphs.PLACEMENTS[number % len(graphs.PLACEMENTS)]
    equal(
        run_simulated(
            size, numbers, True, mode="independent", **keys, partitioner=placement, masters=masters
        ),
        expected,
    )
    if number % 4 == 0:
        equal(run_simulated(size, numbers, False, **keys), expected)


def test_a_worker_computes_a_view_of_each_step_by_default() -> None:
    (three,) = run_simulated(1, numbers, views_per_step=3)
    equal(run_simulated(3, numbers, True, mode="independent"), three)
    assert not np.allclose(three, run_simulated(1, numbers)[0])


@pytest.mark.parametrize(("size", "views"), [(2, 1), (2, 5), (4, 2), (3, 4)])
def test_groups_may_leave_workers_idle(size: int, views: int) -> None:
    (expected,) = run_simulated(1, numbers, views_per_step=views, **SAMPLED)
    equal(
        run_simulated(size, numbers, True, mode="independent", views_per_step=views, **SAMPLED),
        expected,
    )


@pytest.mark.parametrize(
    "keys", [{}, {"staleness": 1}, {"views_per_step": 7, "staleness": 2}], ids=str
)
def test_groups_in_flight_change_no_bit(keys: dict[str, Any]) -> None:
    one, three = (
        run_simulated(2, numbers, True, mode="independent", **keys, views_in_flight=n)[1]
        for n in (1, 3)
    )
    np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize(
    "name", [name for name, graph in graphs.odd_graphs().items() if graph.n_nodes > 1]
)
def test_odd_graphs(name: str) -> None:
    # targets of one worker only; a class that no node has keeps the loss finite
    graph = graphs.odd_graphs()[name].with_masks(np.arange(graphs.odd_graphs()[name].n_nodes) < 4)
    keys: dict[str, Any] = {
        "graph": graph,
        "masters": "block",
        "views_per_step": 2,
        "batch_size": 1,
    }
    (expected,) = run_simulated(1, numbers, **keys)
    equal(run_simulated(3, numbers, True, mode="independent", **keys), expected)


def dealt(comm: Comm, split: tuple[str, str], **keys: Any) -> dict[int, list[np.ndarray]]:
    """By number of the view, everything that the view of this worker holds."""
    one = trainer(comm, partitioner=split[0], masters=split[1], **keys)
    group = [one.strategy.batch(0, i) for i in range(2)]
    sent = comm.ledger.receivers(comm.size).sum(axis=0)[0]
    view = deal(
        parts_of_views(group, one.strategy.layers),
        one.strategy.layers,
        Features(one.strategy.partition),
    )
    assert comm.ledger.receivers(comm.size).sum(axis=0)[0] - sent == dealt_bytes(
        group, one.strategy.layers
    )
    # the order of a product and a sum, and with it the order of gradients, must be the same
    # everywhere
    assert len(set(comm.all_gather(str([level.counts for level in view.levels])))) == 1
    arrays = [
        view.space.gid,
        *(view.node.read(name, view.space.n) for name in view.partition.node.names()),
    ]
    for level in view.levels:
        arrays += [np.array([level.n_in, level.n_out]), level.gid]
        arrays += [
            x for p in level.passes for s in p.selections for x in (s.row, s.ptr, s.other, s.weight)
        ]
        arrays += [
            view.partition.edge.read(name)[level.stored] for name in view.partition.edge.names()
        ]
    assert comm.rank < 2 or not any(x.any() for x in arrays[:1])
    return {comm.rank: arrays} if comm.rank < 2 else {}


def test_a_view_is_the_same_wherever_it_was_expanded() -> None:
    found = []
    for size, split in (
        (2, graphs.PLACEMENTS[0]),
        (3, graphs.PLACEMENTS[3]),
        (4, graphs.PLACEMENTS[4]),
    ):
        of_rank = run_simulated(size, dealt, split, replace=True, **SAMPLED)
        found.append({view: arrays for mine in of_rank for view, arrays in mine.items()})
    for other in found[1:]:
        for view in (0, 1):
            assert len(found[0][view]) == len(other[view])
            for a, b in zip(found[0][view], other[view], strict=True):
                np.testing.assert_array_equal(a, b)
    assert len(found[0][0][0]) and not np.array_equal(found[0][0][0], found[0][1][0])


def test_a_view_is_computed_without_messages() -> None:
    def program(comm: Comm) -> list[float]:
        one = trainer(comm, mode="independent", **SAMPLED)
        before = comm.ledger.snapshot()
        one.train_epoch(0)
        since = comm.ledger.since(before)
        assert since["gather"]["seconds"] > 0 and since["batch"]["bytes"] > 0
        return [since[stage]["bytes"] for stage in ("transform", "move", "gather", "apply")]

    assert run_simulated(2, program) == [[0.0] * 4] * 2


@pytest.mark.second
@needs_mpi
def test_the_command_trains_independently_under_mpiexec(tmp_path: Path) -> None:
    keys = {
        "dataset": "sbm:n_nodes=120,n_edges=500",
        "epochs": 2,
        "dtype": "float64",
        "backend": "reference",
        "strategy": "mini",
        "batch_size": 8,
        "fanout": "3,2",
        "norm": "batch",
        "optimiser": "sgd",
        "out": str(tmp_path / "run"),
    }
    flags = [word for key, x in keys.items() for word in ("--" + key.replace("_", "-"), str(x))]
    done = run(
        [
            str(MPIEXEC),
            "-n",
            "2",
            sys.executable,
            "-m",
            "graphtheta",
            "train",
            *flags,
            "--mode",
            "independent",
            "--views-in-flight",
            "2",
        ],
        OMP_NUM_THREADS="1",
    )
    assert (
        done.returncode == 0 and "mode=independent; first 2 view(s)" in done.stdout + done.stderr
    ), done.stderr[-2000:]
    rows = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    together = {**keys, "views_per_step": 2, "out": str(tmp_path / "together")}
    expected = gt.Trainer(comm=gt.start(), **together).fit().history
    for row, other in zip(rows, expected, strict=True):
        assert row["loss"] == pytest.approx(other["loss"], rel=1e-9) and row[
            "val_loss"
        ] == pytest.approx(other["val_loss"], rel=1e-9)
    counts = json.loads((tmp_path / "run" / "result.json").read_text())["modes"]
    assert counts["independent"] is True and counts["nodes"] >= counts["unique_nodes"] > 0


def chosen(comm: Comm, **keys: Any) -> Any:
    return (one := trainer(comm, **keys).setup).independent, one.modes


def bound(comm: Comm, **keys: Any) -> int:
    return trainer(comm, **keys).setup.bound.total


def test_auto_decides_alike_and_counts_what_views_share() -> None:
    keys = {"mode": "auto", "views_per_step": 2}
    (independent, counts), other = run_simulated(2, chosen, **keys)
    assert other == (independent, counts) and independent is (counts.faster == "independent")
    assert [own for own, _ in run_simulated(2, chosen, mode="auto")] == [False, False]
    assert run_simulated(1, chosen, mode="independent") == [(False, None)]
    nodes = []
    edges = []
    used = 0
    for i in range(2):
        view = trainer(gt.start()).strategy.batch(0, i)
        nodes.append(view.space.gid)
        edges.append([level.gid for level in view.levels])
        used += sum(level.n_edges for level in view.levels)
    assert (counts.nodes, counts.unique_nodes) == (
        sum(map(len, nodes)),
        len(np.unique(np.concatenate(nodes))),
    )
    assert (counts.edges, counts.unique_edges) == (
        used,
        sum(len(np.unique(np.concatenate(same))) for same in zip(*edges, strict=True)),
    )
    # a worker may hold whole views
    own, together = (
        run_simulated(2, bound, mode=mode)[0] for mode in ("independent", "cooperative")
    )
    assert own > together
    assert "duplicates" in str(counts) and min(counts.sent.values()) > 0


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"strategy": "global", "batch_size": 0, "mode": "independent"},
            "no meaning with strategy=global.*give --strategy mini",
        ),
        (
            {"mode": "independent", "halo": "bf16", "dtype": "float32"},
            "they send none with mode=independent; drop --mode or --halo",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        gt.Job(**{**KEYS, **keys})


def test_a_loop_of_ones_own_is_cooperative() -> None:
    with pytest.raises(ConfigError, match=r"mode=independent has no meaning for gt\.Run"):
        gt.Run("gcn", GRAPH, comm=gt.start(), mode="independent", **KEYS)


def test_rows_are_scattered() -> None:
    def program(comm: Comm) -> None:
        def rows(source: int, target: int) -> dict[str, np.ndarray]:
            n = (source * 2 + target) % 3
            return {
                "a": np.full((n, 2), 10.0 * source + target),
                "b": np.arange(n, dtype=np.int16),
                "c": np.ones(n, bool),
            }

        parts = (
            [rows(comm.rank, q) for q in range(comm.size)],
            [{"one": np.arange(comm.rank * q)} for q in range(comm.size)],
        )
        kinds = [
            {name: np.concatenate([part[name] for part in same]) for name in same[0]}
            for same in parts
        ]
        bounds = [
            np.cumsum([0, *(len(next(iter(part.values()))) for part in same)]) for same in parts
        ]
        first, second = scatter(comm, kinds, bounds)
        expected = [rows(q, comm.rank) for q in range(comm.size)]
        for name, x in first.columns.items():
            np.testing.assert_array_equal(x, np.concatenate([part[name] for part in expected]))
        assert np.diff(first.ptr).tolist() == [len(part["a"]) for part in expected]
        np.testing.assert_array_equal(
            second.columns["one"],
            np.concatenate([np.arange(comm.rank * q) for q in range(comm.size)]),
        )

    for size in (1, 2, 4):
        run_simulated(size, program)


def test_a_local_directory_finds_its_nodes_and_no_others() -> None:
    ids = np.random.default_rng(1).permutation(1000)[:300].astype(np.int64) * 977
    directory = LocalDirectory(ids)
    order = np.random.default_rng(2).permutation(300)
    for kind in (np.int64, np.int32):
        np.testing.assert_array_equal(directory.row(ids[order].astype(kind)), order)
    assert not directory.owner(ids).any() and directory.nbytes > 0
    with pytest.raises(PartitionError, match="no node 5"):
        directory.row(np.array([ids[0], 5]))
    assert len(LocalDirectory(ids[:0]).row(ids[:0])) == 0
