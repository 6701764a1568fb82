"""The order of targets: the same batches however targets are spread, each target once an epoch, no
list of all anywhere.
"""

from __future__ import annotations

from types import SimpleNamespace

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.sampling.cluster_nodes import NodesByCluster
from graphtheta.engine.sampling.ranking import ranks_among_all
from graphtheta.engine.strategy.order import BatchOrder, RandomOrder
from graphtheta.samplers.orders import breadth_first as searches
from graphtheta.samplers.orders.breadth_first import breadth_first


def dealt(ids, comm, seed=0):
    """The part of some ids that a rank is dealt, in random order; the last rank has none if there
    are several.
    """
    rng = np.random.default_rng(seed)
    rank = rng.integers(0, max(comm.size - 1, 1), len(ids))
    return rng.permutation(ids[rank == comm.rank])


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize(
    "ids",
    [
        np.zeros(0, np.int64),
        np.array([7]),
        np.arange(140),
        np.arange(5000, 5140),
        np.arange(100) ** 5,
        np.array([3, 2**50, 0, 2**50 + 1]),
        np.random.default_rng(0).choice(10**6, 3000, replace=False),
    ],
    ids=lambda ids: f"{len(ids)} to {ids.max(initial=0)}",
)
def test_ranks_among_all(size, ids):
    def program(comm):
        mine = dealt(ids, comm)
        np.testing.assert_array_equal(
            ranks_among_all(SimpleNamespace(halo_comm=comm), mine),
            np.searchsorted(np.sort(ids), mine),
        )

    run_simulated(size, program)


@pytest.mark.parametrize("size", [1, 4])
def test_rows_are_ranked_by_their_first_column_first(size):
    rows = np.random.default_rng(2).permutation(
        np.stack(np.divmod(np.arange(500) ** 2 % 1009, 7), axis=1)
    )
    rows = np.unique(rows, axis=0)

    def program(comm):
        mine = rows[dealt(np.arange(len(rows)), comm)]
        expected = [np.flatnonzero((rows == row).all(axis=1))[0] for row in mine]
        np.testing.assert_array_equal(
            ranks_among_all(SimpleNamespace(halo_comm=comm), *mine.T), expected
        )

    run_simulated(size, program)


@pytest.mark.parametrize(
    "ids", [np.arange(10_000), np.arange(10_000) ** 4], ids=["dense", "skewed"]
)
def test_ranking_spreads_neighbouring_ids_over_the_workers(ids):

    def program(comm):
        held = []
        all_to_all = comm.all_to_all
        comm.all_to_all = lambda parts: held.append(found := all_to_all(parts)) or found
        ranks_among_all(SimpleNamespace(halo_comm=comm), dealt(ids, comm))
        return sum(map(len, held[0]))

    assert max(run_simulated(5, program)) < 1.3 * 10_000 / 5


@pytest.mark.parametrize("n, batch_size", [(1, 1), (30, 7), (30, 30), (30, 99), (1000, 64)])
def test_batches_are_the_same_for_any_workers(n, batch_size):
    ids = np.random.default_rng(1).choice(10 * n, n, replace=False)

    def batches(comm, seed):
        mine = dealt(ids, comm, seed)
        positions = RandomOrder().positions(
            SimpleNamespace(halo_comm=comm), SimpleNamespace(ids=mine, n_targets=n), 3
        )
        order = BatchOrder(positions, n, batch_size)
        found = []
        assert order.n_batches == -(-n // batch_size)
        for epoch in (0, 1, 0):
            for i in range(order.n_batches):
                own = order.own(epoch, i)
                assert np.all(np.diff(own) > 0)
                found.append(mine[own])
        return found

    def joined(size, seed):
        return [
            np.sort(np.concatenate(parts))
            for parts in zip(*run_simulated(size, batches, seed), strict=True)
        ]

    expected = joined(1, 0)
    k = -(-n // batch_size)
    for epoch in (expected[:k], expected[k : 2 * k]):
        assert [len(batch) for batch in epoch] == [
            min(batch_size, n - i * batch_size) for i in range(k)
        ]
        np.testing.assert_array_equal(np.sort(np.concatenate(epoch)), np.sort(ids))
    for size, seed in ((1, 4), (3, 0), (5, 2)):
        for batch, wanted in zip(joined(size, seed), expected, strict=True):
            np.testing.assert_array_equal(batch, wanted)
    for first, again in zip(expected[:k], expected[2 * k :], strict=True):
        np.testing.assert_array_equal(first, again)
    if k > 1:
        assert any(
            not np.array_equal(a, b) for a, b in zip(expected[:k], expected[k : 2 * k], strict=True)
        )


@pytest.mark.parametrize("size", [1, 3, 5])
def test_nodes_of_clusters_by_number(size):
    graph = graphs.random_graph(40, 130)
    clusters = np.arange(40) * 7 % 6

    def program(comm):
        p = build_partition(graph, comm, "vertex-cut")
        for chosen in (np.arange(6), np.array([1, 4]), np.array([3])):
            members = NodesByCluster(p, clusters[p.masters], 6).members(chosen)
            wanted = np.concatenate([np.flatnonzero(clusters == c) for c in chosen])
            numbers = np.random.default_rng(comm.rank).integers(
                0, len(wanted), 9 * (comm.rank != 1)
            )
            assert members.n == len(wanted)
            np.testing.assert_array_equal(members.ids(numbers), wanted[numbers])

    run_simulated(size, program)


def searched(graph, root):
    """Nodes in the order of a breadth-first search, one after another."""
    near = [set() for _ in range(graph.n_nodes)]
    for a, b in graph.edge_index.T:
        near[a].add(b)
        near[b].add(a)
    found = []
    for start in (np.arange(graph.n_nodes) + root) % graph.n_nodes:
        level = [start] if start not in found else []
        while level:
            found += level
            # the earliest parent of each
            parents = {
                v: rank
                for rank, u in reversed(list(enumerate(level)))
                for v in near[u]
                if v not in found
            }
            level = sorted(parents, key=lambda v: (parents[v], v))
    return np.array(found)


def test_one_worker_does_not_search_level_by_level(monkeypatch):
    """A path has as many levels as nodes, so that a pass over all nodes for each would take time
    for their square.
    """

    def refuse(*given):
        raise AssertionError

    monkeypatch.setattr(searches, "ranks_among_all", refuse)
    ends = np.arange(499)
    partition = build_partition(gt.Graph((ends, ends + 1), 500), SerialComm())
    near = np.empty(500, np.int64)
    near[partition.masters] = next(breadth_first(partition, [100]))
    # the earliest neighbour first, then the lower node
    assert near[100] == 0 and near[99] == 1 and near[101] == 2 and near[499] == 499


@pytest.mark.parametrize("size, placement", [(1, "1d-src"), (3, "1d-dst"), (4, "vertex-cut")])
def test_breadth_first_order_is_that_of_one_queue(size, placement):
    # several components and isolated nodes
    graph = graphs.random_graph(60, 45)

    def program(comm, root):
        p = build_partition(graph, comm, placement)
        return p.masters, next(breadth_first(p, [root]))

    for root in (0, 41):
        found = np.empty(60, np.int64)
        for masters, position in run_simulated(size, program, root):
            found[position] = masters
        np.testing.assert_array_equal(found, searched(graph, root))
