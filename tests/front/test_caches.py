"""Caches of features: the numbers of a run without one, for every policy, size and number of
workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import PARTITIONERS, Assignment, Partitioner
from graphtheta.engine.store.column import Ready
from graphtheta.engine.store.mapped import MappedColumn
from graphtheta.engine.store.quantised import QuantisedColumn
from graphtheta.errors import ConfigError
from graphtheta.run.job.sizes import rows_of
from graphtheta.train.reuse.caching.registry import CACHE_POLICIES

RNG = np.random.default_rng(2)
GRAPH = graphs.random_graph(50, 200).replace(node_columns={"more": RNG.random((50, 2))})
KEYS: dict[str, Any] = {
    "model": "sage",
    "hidden": 5,
    "dtype": "float64",
    "backend": "reference",
    "strategy": "mini",
    "batch_size": 12,
    "fanout": "3,2",
    "views_per_step": 3,
    "seed": 1,
}
POLICIES = ["belady:window=3" if name == "belady" else name for name in CACHE_POLICIES]
SIZES = ["0", "1", "25", "100%"]


def trained(comm: Comm, graph: gt.Graph, **keys: Any) -> tuple[list[float], np.ndarray, float]:
    """Losses of two epochs, counts of the caches, and bytes sent after the policy's dry runs."""
    one = gt.Trainer(graph=graph, comm=comm, **{**KEYS, **keys})
    before = comm.ledger.receivers(comm.size).sum(axis=0)[0]
    losses = [one.train_epoch(epoch) for epoch in range(2)]
    return (
        losses,
        one.caches.counts(),
        float(comm.ledger.receivers(comm.size).sum(axis=0)[0] - before),
    )


@cache
def plain(size: int, mode: str) -> list[tuple[list[float], np.ndarray, float]]:
    """The run without a cache."""
    return run_simulated(size, trained, GRAPH, mode=mode)


def on_disk(graph: gt.Graph, folder: Path) -> gt.Graph:
    np.save(folder / "x.npy", graph.x)
    return graph.replace(x=gt.MappedColumn(folder / "x.npy"))


@pytest.mark.one_in(11, 3)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_cache_changes_no_bit(policy: str, size: str) -> None:
    number = POLICIES.index(policy) + SIZES.index(size)
    workers = 2 + number % 3
    keys = {"cache_policy": policy} if size != "0" else {}
    found = run_simulated(
        workers,
        trained,
        GRAPH,
        mode="independent",
        feature_cache=size,
        views_in_flight=1 + number % 2,
        **keys,
    )
    for (losses, counts, sent), (expected, none, more) in zip(
        found, plain(workers, "independent"), strict=True
    ):
        assert losses == expected and not none.any()
        assert size == "0" or "belady" in policy or sent <= more
        # every row is kept from its first use on
        assert size != "100%" or policy == "probability" or counts[1] <= 50
    hits, misses = np.sum([counts for _, counts, _ in found], axis=0)
    assert bool(misses) == (size != "0") and (size != "100%" or hits > 0)


@pytest.mark.parametrize("policy", ["lru", "belady:window=3"])
def test_views_whose_features_are_fetched_together_use_a_cache(policy: str) -> None:
    keys = {"batch_size": 6, "views_per_step": 2, "mode": "independent"}
    alone = run_simulated(2, trained, GRAPH, **keys)
    found = run_simulated(
        2,
        trained,
        GRAPH,
        **keys,
        macrobatch=2,
        fetch_batch=2,
        feature_cache="25",
        cache_policy=policy,
    )
    assert [losses for losses, _, _ in found] == [losses for losses, _, _ in alone]
    assert np.sum([counts for _, counts, _ in found], axis=0).all()


@pytest.mark.second
def test_belady_has_the_most_hits() -> None:
    hits = {
        policy: np.sum(
            [
                counts
                for _, counts, _ in run_simulated(
                    2, trained, GRAPH, mode="independent", feature_cache="16", cache_policy=policy
                )
            ],
            axis=0,
        )
        for policy in POLICIES
    }
    assert len({counts.sum() for counts in hits.values()}) == 1
    assert (
        hits["belady:window=3"][0]
        == max(counts[0] for counts in hits.values())
        > hits["fifo"][0]
        > 0
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("policy", POLICIES)
def test_features_in_files_are_cached_too(policy: str, tmp_path: Path) -> None:
    graph = on_disk(GRAPH, tmp_path)
    size = 1 + POLICIES.index(policy) % 3
    for mode in ("cooperative", "independent")[:size]:
        found = run_simulated(
            size, trained, graph, mode=mode, feature_cache="60%", cache_policy=policy
        )
        assert [losses for losses, _, _ in found] == [losses for losses, _, _ in plain(size, mode)]
        assert np.sum([counts for _, counts, _ in found], axis=0).all()


class SparseColumn:
    """Sparse rows that are not in memory."""

    sparse, nbytes, dtype = True, 0, np.dtype(np.float32)

    def __init__(self, values: Any):
        self.values = values
        self.shape = values.shape

    def read_begin(self, rows: np.ndarray | None) -> Any:
        return Ready(self.values if rows is None else self.values[rows])


def test_sparse_features_that_are_not_in_memory_are_cached() -> None:
    values = sp.csr_array(
        (np.arange(450).reshape(50, 9) % 4 == 0) * RNG.random((50, 9)).astype(np.float32)
    )
    expected = run_simulated(2, trained, GRAPH.replace(x=SparseColumn(values)))
    found = run_simulated(
        2, trained, GRAPH.replace(x=SparseColumn(values)), feature_cache="60%", cache_policy="lru"
    )
    assert [losses for losses, _, _ in found] == [losses for losses, _, _ in expected]
    assert np.sum([counts for _, counts, _ in found], axis=0).all()


@pytest.mark.parametrize("mode", ["independent", "cooperative"])
def test_codes_are_cached_and_sent_as_codes(mode: str, tmp_path: Path) -> None:
    codes, scale, zero = (
        RNG.integers(-128, 128, (50, 64)).astype(np.int8),
        *RNG.random((2, 64)).astype(np.float32),
    )
    np.save(tmp_path / "codes.npy", codes)
    column = QuantisedColumn(MappedColumn(tmp_path / "codes.npy"), scale, zero)
    keys = {"mode": mode, "feature_cache": "50%", "cache_policy": "lru"}
    expected = run_simulated(2, trained, GRAPH.replace(x=column.read_begin(None).end()), mode=mode)
    found = run_simulated(2, trained, GRAPH.replace(x=column), **keys)
    assert [losses for losses, _, _ in found] == [losses for losses, _, _ in expected]
    assert np.sum([counts for _, counts, _ in found], axis=0).all()
    if mode == "independent":
        coded = run_simulated(2, trained, GRAPH.replace(x=column), mode=mode)
        # a number of float64 is sent as a byte
        assert sum(sent for _, _, sent in coded) < 0.6 * sum(sent for _, _, sent in expected)


@dataclass(frozen=True)
class ButLast(Partitioner):
    """The last worker owns no node."""

    name = "but_last"
    by_rule = True
    seed: int = 0

    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        return Assignment(lambda ids: (ids % (comm.size - 1)).astype(np.int32))


@pytest.mark.parametrize("mode", ["cooperative", "independent"])
def test_a_worker_without_nodes_has_the_caches_of_the_others(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PARTITIONERS, "but_last", ButLast)
    keys = {"mode": mode, "masters": "but_last"}
    found = run_simulated(
        3,
        trained,
        on_disk(GRAPH, tmp_path),
        feature_cache="25",
        cache_policy="belady:window=3",
        **keys,
    )
    expected = run_simulated(3, trained, GRAPH, **keys)
    assert [losses for losses, _, _ in found] == [losses for losses, _, _ in expected]


def test_features_in_memory_need_no_cache() -> None:
    def line(comm: Comm) -> str:
        return gt.Trainer(graph=GRAPH, comm=comm, feature_cache="9", **KEYS).caches.line

    assert "not used" in run_simulated(1, line)[0]


def test_a_resumed_run_has_the_numbers_of_the_whole_one(tmp_path: Path) -> None:
    class Stop(gt.Callback):
        def on_step(self, now: Any) -> bool:
            return now.step == 3

    def fit(comm: Comm, out: str, callback: Any = (), **more: Any) -> list[dict[str, Any]]:
        keys = {
            "mode": "independent",
            "feature_cache": "10",
            "cache_policy": "belady:window=2",
            "epochs": 3,
            "checkpoint_every": 1,
        }
        return (
            gt.Trainer(graph=GRAPH, comm=comm, out=str(tmp_path / out), **{**KEYS, **keys, **more})
            .fit(callbacks=callback)
            .history
        )

    whole = run_simulated(2, fit, "whole")[0]
    run_simulated(2, fit, "halves", (Stop(),))
    resumed = run_simulated(2, fit, "halves", resume=True)[0]
    assert [row["loss"] for row in resumed] == [row["loss"] for row in whole]
    assert all(row["cache_hits"] + row["cache_misses"] > 0 for row in whole)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"feature_cache": "many"},
            "feature_cache: .*expected a number of rows such as 5000, a size such as 64MiB",
        ),
        ({"feature_cache": "-3"}, "expected a number of rows"),
        ({"feature_cache": "101%"}, "expected a number of rows"),
        (
            {"cache_policy": "lru"},
            (
                "cache_policy=lru has no meaning without a cache; give --feature-cache or"
                " --machine-cache, or drop --cache-policy"
            ),
        ),
        (
            {
                "feature_cache": "5",
                "strategy": "global",
                "batch_size": 0,
                "fanout": "",
                "views_per_step": 1,
            },
            "only with mini or cluster",
        ),
    ],
)
def test_jobs_that_fit_nothing_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        gt.Job(**{**KEYS, **keys})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"cache_policy": "lruu"}, r"cache policy 'lruu' is not known \(did you mean 'lru'\?\)"),
        ({"cache_policy": "belady:windows=3"}, "there is no option 'windows'; there is window"),
    ],
)
def test_what_cannot_be_cached_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        given = {"graph": GRAPH, **KEYS, "mode": "independent", "feature_cache": "5", **keys}
        run_simulated(2, lambda comm: gt.Trainer(comm=comm, **given))


def test_an_unknown_policy_is_refused_where_no_cache_is_used() -> None:
    with pytest.raises(ConfigError, match="did you mean 'belady'"):
        gt.Trainer(
            graph=GRAPH, **{**KEYS, "views_per_step": 1}, feature_cache="5", cache_policy="beladi"
        )


def test_sizes() -> None:
    assert [rows_of(text, 100, 2000) for text in ("0", "70", "1KiB", "0.5 MiB", "10%")] == [
        0,
        70,
        10,
        5242,
        200,
    ]


@pytest.mark.parametrize(
    "text", ["5%KiB", "1KiB%", "1MiBKiB", "-1", "101%", "", "1e300GiB", "nanKiB"]
)
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number of rows"):
        rows_of(text, 100, 2000)
