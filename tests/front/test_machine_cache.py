"""The cache that workers of a machine share: the numbers of a run without one, and fewer bytes
between machines.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import graphs
import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, MemoryLimitError
from graphtheta.train.reuse.caching.registry import CACHE_POLICIES

RNG = np.random.default_rng(2)
GRAPH = graphs.random_graph(60, 240).replace(node_columns={"more": RNG.random((60, 2))})
SPARSE = GRAPH.replace(x=sp.csr_array((RNG.random((60, 9)) < 0.2) * RNG.random((60, 9))))
KEYS: dict[str, Any] = {
    "model": "sage",
    "hidden": 5,
    "dtype": "float64",
    "backend": "reference",
    "strategy": "mini",
    "batch_size": 8,
    "fanout": "3,2",
    "views_per_step": 8,
    "seed": 1,
    "mode": "independent",
    "epochs": 2,
}
POLICIES = ["belady:window=3" if name == "belady" else name for name in CACHE_POLICIES]


def trained(
    comm: Comm, machines: tuple[int, ...], graph: gt.Graph = GRAPH, **keys: Any
) -> tuple[list[float], np.ndarray, int]:
    """Losses of two epochs, counts of the machine's cache, and bytes sent to other machines."""
    comm.machines = np.array(machines)
    one = gt.Trainer(graph=graph, comm=comm, **{**KEYS, **keys})
    other = comm.machines != comm.machines[comm.rank]
    before = comm.ledger.receivers(comm.size)[other, 0].sum()
    losses = [one.train_epoch(epoch) for epoch in range(2)]
    return (
        losses,
        one.caches.machine_counts(),
        int(comm.ledger.receivers(comm.size)[other, 0].sum() - before),
    )


@cache
def plain(
    machines: tuple[int, ...], sparse: bool = False
) -> list[tuple[list[float], np.ndarray, int]]:
    """The run without a cache."""
    return run_simulated(len(machines), trained, machines, SPARSE if sparse else GRAPH)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_shared_cache_changes_no_bit(policy: str) -> None:
    number = POLICIES.index(policy)
    machines = [(0, 0, 1, 1), (0, 1, 0, 1, 1), (5, 2, 2)][number % 3]
    keys = {
        "machine_cache": ["7", "60%", "100%"][number % 3],
        "cache_policy": policy,
        "views_in_flight": 1 + number % 3,
        "feature_cache": ["0", "6"][number % 2],
    }
    found = run_simulated(len(machines), trained, machines, **keys)
    assert [losses for losses, _, _ in found] == [losses for losses, _, _ in plain(machines)]
    assert np.sum([counts for _, counts, _ in found], axis=0).all()
    if policy != "belady:window=3":
        assert sum(sent for _, _, sent in found) < sum(sent for _, _, sent in plain(machines))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "keys",
    [
        {"macrobatch": 2, "fetch_batch": 1},
        {"macrobatch": "auto", "views_in_flight": 3},
        {"order": "proximity:sequences=2", "precompute": True, "dropout": 0.0, "macrobatch": 2},
    ],
    ids=str,
)
def test_it_works_with_macrobatches(keys: dict[str, Any]) -> None:
    machines = (0, 0, 1, 1)
    expected = run_simulated(4, trained, machines, **keys)
    found = run_simulated(4, trained, machines, machine_cache="12", cache_policy="lru", **keys)
    assert [losses for losses, _, _ in found] == [losses for losses, _, _ in expected]


@pytest.mark.one_in(7)
@pytest.mark.parametrize("level", ["feature_cache", "machine_cache"])
@pytest.mark.parametrize("policy", ["lru", "belady:window=4", "s3-fifo"])
def test_rows_of_sparse_features(policy: str, level: str) -> None:
    machines = (0, 0, 1, 1)
    found = run_simulated(4, trained, machines, SPARSE, cache_policy=policy, **{level: "9"})
    assert [losses for losses, _, _ in found] == [
        losses for losses, _, _ in plain(machines, sparse=True)
    ]


def test_with_enough_room_a_row_crosses_once_for_all_workers_of_a_machine() -> None:
    def rows(comm: Comm) -> tuple[int, int]:
        comm.machines = np.arange(6) // 3
        one = gt.Trainer(graph=GRAPH, comm=comm, machine_cache="100%", **{**KEYS, "batch_size": 3})
        for epoch in range(3):
            one.train_epoch(epoch)
        return int(one.caches.machine_counts()[1]), int(comm.machines[comm.rank])

    misses = run_simulated(6, rows)
    for machine in (0, 1):
        assert 0 < sum(n for n, at in misses if at == machine) <= 60


def test_one_machine_needs_none() -> None:
    def line(comm: Comm) -> str:
        return gt.Trainer(graph=GRAPH, comm=comm, machine_cache="9", **KEYS).caches.line

    assert "not used, as all workers are on one machine" in run_simulated(2, line)[0]


def test_counts_are_recorded(tmp_path: Any) -> None:
    def history(comm: Comm) -> list[dict[str, Any]]:
        comm.machines = np.array([0, 0, 1])
        return (
            gt.Trainer(graph=GRAPH, comm=comm, out=str(tmp_path), machine_cache="20", **KEYS)
            .fit()
            .history
        )

    row = run_simulated(3, history)[0][-1]
    assert (
        row["machine_cache_hits"] > 0
        and row["machine_cache_misses"] > 0
        and "cache_hits" not in row
    )


def test_what_means_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="machine_cache=5 has no meaning with mode=cooperative"):
        gt.Job(**{**KEYS, "mode": "cooperative"}, machine_cache="5")
    with pytest.raises(ConfigError, match="expected a number of rows"):
        gt.Job(**KEYS, machine_cache="lots")

    def no_room(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", no_room)
    with pytest.raises(
        MemoryLimitError,
        match=(
            r"no room for .* bytes that the workers of a machine share \(No space left on device\)"
        ),
    ):
        run_simulated(3, trained, (0, 0, 1), machine_cache="5")
