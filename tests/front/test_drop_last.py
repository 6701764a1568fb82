"""The last, smaller batch of an epoch is left out: in every order, mode and strategy, with what
looks ahead, in runs that are resumed; errors where no batch is left.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError
from graphtheta.train.reuse.caching.scout import Scout

pytestmark = pytest.mark.reference

# 20 training nodes, so that of 3 batches of 7 the last one has 6 targets
GRAPH = graphs.random_graph(60, 240, hub=False)
GRAPH = GRAPH.replace(
    edge_columns={"time": np.arange(240) % 9}, node_columns={"time": 5 + np.arange(60) % 4}
)
N = int(GRAPH.train.sum())
SIZE = 7
LINKS = GRAPH.replace(y=None, edge_y=None, train=None, val=None, test=None)
EDGES = LINKS.replace(edge_y=GRAPH.edge_y)
WHOLE = gt.whole_graphs(
    [graphs.random_graph(5 + i % 3, 12, seed=i, hub=False) for i in range(11)],
    np.arange(11) % 2,
    train=np.arange(11) < 8,
    val=np.arange(11) >= 8,
)
KEYS: dict[str, Any] = {
    "model": "sage",
    "hidden": 4,
    "layers": 2,
    "dtype": "float64",
    "backend": "reference",
    "strategy": "mini",
    "batch_size": SIZE,
    "fanout": "3,2",
    "seed": 1,
}


def trainer(comm: Comm, graph: gt.Graph = GRAPH, **keys: Any) -> gt.Trainer:
    return gt.Trainer(graph=graph, comm=comm, **{**KEYS, **keys})


def losses(comm: Comm, epochs: int = 2, **keys: Any) -> list[list[float]]:
    """The losses of the views of some epochs."""
    one = trainer(comm, **keys)
    return [
        one.summed(one.training.run(epoch, 0, one.strategy.views_of(epoch)), one.step, [])[
            0
        ].tolist()
        for epoch in range(epochs)
    ]


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"order": "ids"},
        {"order": "balanced"},
        {"order": "proximity:sequences=2"},
        {"fanout": ""},
        {"sampler": "temporal"},
        {"strategy": "cluster", "clusters": 5, "clusters_per_batch": 2, "batch_size": 0},
        {"graph": EDGES, "task": "edge", "batch_size": 33},
        {"graph": LINKS, "task": "link", "batch_size": 33},
        {"graph": WHOLE, "model": "gin", "readout": "sum", "batch_size": 3},
        {"history": "fresh"},
    ],
    ids=str,
)
def test_the_other_batches_are_those_of_a_run_that_keeps_the_last_one(keys: dict[str, Any]) -> None:
    keys = {**keys, "fanout": ""} if "strategy" in keys else keys
    kept, full = (
        run_simulated(1, losses, **keys, drop_last=drop, epochs=1)[0][0] for drop in (False, True)
    )
    assert len(full) == len(kept) - 1 and full == kept[:-1]


def test_batches_of_equal_times_are_shuffled_without_the_smaller_one() -> None:
    def batches(comm: Comm, drop: bool) -> list[set[int]]:
        one = trainer(
            comm, EDGES, task="edge", batch_size=33, sampler="temporal", drop_last=drop
        ).strategy
        return [set(one.task.ids[one.targets(3, i)]) for i in range(one.steps_per_epoch)]

    (kept,), (full,) = (run_simulated(1, batches, drop) for drop in (False, True))
    # the targets of the latest times
    smaller = [batch for batch in kept if batch not in full]
    assert len(smaller) == 1 and len(smaller[0]) < 33
    assert all(len(batch) == 33 for batch in full)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"partitioner": "1d-dst", "mode": "independent"},
        {"partitioner": "vertex-cut", "order": "balanced"},
        {"strategy": "cluster", "clusters": 5, "clusters_per_batch": 2, "batch_size": 0},
        {"graph": LINKS, "task": "link", "batch_size": 33},
        {"graph": WHOLE, "model": "gin", "readout": "sum", "batch_size": 3},
    ],
    ids=str,
)
def test_numbers_of_any_number_of_workers(keys: dict[str, Any]) -> None:
    keys = {"views_per_step": 2, "drop_last": True, **keys}
    keys = {**keys, "fanout": ""} if "strategy" in keys else keys
    (one,) = run_simulated(1, losses, **keys)
    for workers in (2, 3):
        for found in run_simulated(workers, losses, **keys):
            np.testing.assert_allclose(found, one, rtol=1e-9)


@pytest.mark.parametrize(
    "more",
    [
        {"macrobatch": 3},
        {"macrobatch": "auto", "views_in_flight": 2},
        {"feature_cache": "30%", "cache_policy": "belady:window=3"},
        {"feature_cache": "30%", "cache_policy": "belady:window=4", "macrobatch": 2},
    ],
    ids=str,
)
def test_what_looks_ahead_sees_the_same_batches(more: dict[str, Any]) -> None:
    keys = {"mode": "independent", "views_per_step": 2, "drop_last": True, "batch_size": 3}
    plain = run_simulated(2, losses, **keys)
    assert run_simulated(2, losses, **keys, **more) == plain
    assert [len(epoch) for epoch in plain[0]] == [N // 3] * 2


def test_caches_do_not_plan_for_a_batch_that_is_left_out() -> None:
    def groups(comm: Comm) -> list[tuple[int, int, int]]:
        strategy = trainer(comm, drop_last=True).strategy
        scout = Scout(strategy, views_per_step=2, independent=True, own=False)
        return scout.groups_from(0, 0, 2)

    assert run_simulated(2, groups)[0] == [(0, 0, 2), (1, 0, 2)]


@pytest.mark.parametrize("workers", [1, 3])
def test_each_worker_leaves_out_what_its_full_batches_do_not_hold(workers: int) -> None:
    def batches(comm: Comm) -> tuple[list[np.ndarray], np.ndarray]:
        one = trainer(
            comm,
            batch_size=3,
            mode="independent",
            history="hec",
            partitioner="1d-dst",
            drop_last=True,
        ).strategy
        ids = one.task.ids
        own = range(comm.rank, one.steps_per_epoch, comm.size)
        return [ids[one._order.own(1, i)] for i in own], ids

    results = run_simulated(workers, batches)
    each = max(len(ids) for _, ids in results) // 3
    for own, ids in results:
        sizes = [len(batch) for batch in own]
        assert len(own) == each and sum(sizes) == min(len(ids), 3 * each)
        assert max(sizes) <= 3 and max(sizes) - min(sizes) <= 1
        assert len(set(np.concatenate(own).tolist())) == sum(sizes)


def fitted(comm: Comm, folder: Path, **keys: Any) -> tuple[list[dict[str, Any]], np.ndarray]:
    one = trainer(comm, out=str(folder), checkpoint_every=1, resume=True, drop_last=True, **keys)
    rows = [
        {name: x for name, x in row.items() if name not in ("seconds", "time")}
        for row in one.fit().history
    ]
    return rows, np.concatenate([x.ravel() for x in one.model.state().values()])


def test_a_resumed_run_has_the_numbers_of_one_that_was_not_interrupted(tmp_path: Path) -> None:
    whole = run_simulated(2, fitted, tmp_path / "whole", epochs=3)[0]
    # two batches an epoch: inside the second one
    run_simulated(2, fitted, tmp_path / "parts", steps=3)
    found = run_simulated(3, fitted, tmp_path / "parts", epochs=3)[0]
    np.testing.assert_allclose(found[1], whole[1], rtol=1e-9, atol=1e-12)
    assert [row["step"] for row in found[0]] == [row["step"] for row in whole[0]] == [2, 4, 6]
    with pytest.raises(ConfigError, match=r"drop_last=false, but the run in .* has drop_last=true"):
        gt.Trainer(
            graph=GRAPH, **{**KEYS, "out": str(tmp_path / "parts"), "resume": True, "epochs": 4}
        ).fit()


def test_an_adapted_batch_size_is_that_of_a_run_that_keeps_the_last_batch() -> None:
    def sizes(comm: Comm, drop: bool) -> tuple[int, int]:
        # the first guess is more than there is
        one = trainer(comm, batch_size=N + 9, vertex_limit=40, drop_last=drop).strategy
        return one.batch_size, one.steps_per_epoch

    (kept, n), (size, full) = (run_simulated(1, sizes, drop)[0] for drop in (False, True))
    assert size == kept and full == N // size and n == -(-N // size)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"batch_size": N + 1}, f"batch_size={N + 1} is more than the {N} targets"),
        ({"strategy": "global"}, "has no meaning with strategy=global"),
        (
            {"strategy": "cluster", "clusters": 5, "clusters_per_batch": 5},
            r"clusters_per_batch=5 is more than the \d clusters with targets",
        ),
        ({"sampler": "saint_node", "fanout": ""}, "drop_last.*saint_node"),
        ({"graph": EDGES, "task": "edge", "batch_size": 10**6}, "is more than the 80 targets"),
        ({"graph": LINKS, "task": "link", "batch_size": 10**6}, r"is more than the \d+ targets"),
        (
            {"graph": WHOLE, "model": "gin", "readout": "sum", "batch_size": 9},
            "is more than the 8 targets",
        ),
        (
            {"history": "hec", "mode": "independent", "partitioner": "1d-dst", "batch_size": 20},
            r"batch_size=20 is more than the \d+ targets of any worker",
        ),
    ],
    ids=str,
)
def test_errors(keys: dict[str, Any], text: str) -> None:
    keys = {"fanout": "", "batch_size": 0, **keys} if "strategy" in keys else keys
    few = GRAPH.with_masks(np.arange(60) < 2) if "clusters" in keys else GRAPH
    keys = {"graph": few, "batch_size": 0 if "saint" in str(keys) else SIZE, **keys}
    with pytest.raises(ConfigError, match=text):
        run_simulated(2, trainer, **keys, drop_last=True)


@pytest.mark.parametrize("mode", ["cooperative", "independent"])
def test_a_loader_refuses_to_leave_out_all(mode: str) -> None:
    def made(comm: Comm, size: int) -> None:
        gt.Loader(
            GRAPH,
            to="arrays",
            comm=comm,
            mode=mode,
            drop_last=True,
            fanout=[2],
            batch_size=size,
        )

    with pytest.raises(ConfigError, match=rf"{N + 1} is more than the {N} targets"):
        run_simulated(2, made, N + 1)
    if mode == "independent":
        with pytest.raises(ConfigError, match="has 1 of the 2 batches"):
            run_simulated(2, made, N - 1)
