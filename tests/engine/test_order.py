"""The order of targets: the same batches however targets are spread, each target once an epoch, no list of all anywhere."""
from __future__ import annotations

from types import SimpleNamespace

import graphs
import numpy as np
import pytest

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.order import BatchOrder, NodesByCluster, ranks_among_all


def dealt(ids, comm, seed=0):
    """The part of some ids that a rank is dealt, in random order; the last rank has none if there are several."""
    rng = np.random.default_rng(seed)
    rank = rng.integers(0, max(comm.size - 1, 1), len(ids))
    return rng.permutation(ids[rank == comm.rank])


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("ids", [
    np.zeros(0, np.int64), np.array([7]), np.arange(140), np.arange(5000, 5140), np.arange(100) ** 5, np.array([3, 2**50, 0, 2**50 + 1]),
    np.random.default_rng(0).choice(10**6, 3000, replace=False)], ids=lambda ids: f"{len(ids)} to {ids.max(initial=0)}")
def test_ranks_among_all(size, ids):
    def program(comm):
        mine = dealt(ids, comm)
        np.testing.assert_array_equal(ranks_among_all(SimpleNamespace(halo_comm=comm), mine), np.searchsorted(np.sort(ids), mine))

    run_simulated(size, program)


def test_ranking_spreads_neighbouring_ids_over_the_workers():
    ids = np.arange(10_000)

    def program(comm):
        held, all_to_all = [], comm.all_to_all
        comm.all_to_all = lambda parts: held.append(found := all_to_all(parts)) or found
        ranks_among_all(SimpleNamespace(halo_comm=comm), dealt(ids, comm))
        return sum(map(len, held[0]))

    assert max(run_simulated(5, program)) < 1.3 * 10_000 / 5


@pytest.mark.parametrize("n, batch_size", [(1, 1), (30, 7), (30, 30), (30, 99), (1000, 64)])
def test_batches_are_the_same_for_any_workers(n, batch_size):
    ids = np.random.default_rng(1).choice(10 * n, n, replace=False)

    def batches(comm, seed):
        mine = dealt(ids, comm, seed)
        order, found = BatchOrder(SimpleNamespace(halo_comm=comm), mine, batch_size, 3), []
        assert order.n_batches == -(-n // batch_size)
        for epoch in (0, 1, 0):
            for i in range(order.n_batches):
                own = order.own(epoch, i)
                assert np.all(np.diff(own) > 0)
                found.append(mine[own])
        return found

    def joined(size, seed):
        return [np.sort(np.concatenate(parts)) for parts in zip(*run_simulated(size, batches, seed), strict=True)]

    expected = joined(1, 0)
    k = -(-n // batch_size)
    for epoch in (expected[:k], expected[k:2 * k]):
        assert [len(batch) for batch in epoch] == [min(batch_size, n - i * batch_size) for i in range(k)]
        np.testing.assert_array_equal(np.sort(np.concatenate(epoch)), np.sort(ids))
    for size, seed in ((1, 4), (3, 0), (5, 2)):
        for batch, wanted in zip(joined(size, seed), expected, strict=True):
            np.testing.assert_array_equal(batch, wanted)
    for first, again in zip(expected[:k], expected[2 * k:], strict=True):
        np.testing.assert_array_equal(first, again)
    if k > 1:
        assert any(not np.array_equal(a, b) for a, b in zip(expected[:k], expected[k:2 * k], strict=True))


@pytest.mark.parametrize("size", [1, 3, 5])
def test_nodes_of_clusters_by_number(size):
    graph = graphs.random_graph(40, 130)
    clusters = np.arange(40) * 7 % 6

    def program(comm):
        p = build_partition(graph, comm, "vertex-cut")
        for chosen in (np.arange(6), np.array([1, 4]), np.array([3])):
            members = NodesByCluster(p, clusters[p.masters], 6).members(chosen)
            wanted = np.concatenate([np.flatnonzero(clusters == c) for c in chosen])
            numbers = np.random.default_rng(comm.rank).integers(0, len(wanted), 9 * (comm.rank != 1))
            assert members.n == len(wanted)
            np.testing.assert_array_equal(members.ids(numbers), wanted[numbers])

    run_simulated(size, program)
