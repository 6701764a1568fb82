"""Rows, blocks and plans of a partition, equal to the bit to a formulation by whole-array sorts."""

from __future__ import annotations

from collections import OrderedDict

import graphs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition import blocks
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.partition.partitioner import assign
from graphtheta.errors import PartitionError
from graphtheta.ops.kernels.partition import pairs, row_order
from graphtheta.ops.kernels.partition.pairs import dealt_pairs, occurrences, sorted_pairs

ODD = graphs.odd_graphs()
SMALL_CACHE = {"PAGE": 2, "PAGES": 2, "WINDOW": 8, "SAMPLED": 40}


def plain(graph, comm, placement):
    """All arrays of the topology of a partition by name, in whole-array NumPy."""
    owner, worker = assign(EdgeSource(graph), comm, *placement, 0)
    workers = np.concatenate(
        [np.zeros(0, np.int32), *(worker(chunk) for chunk in EdgeSource(graph).chunks())]
    )
    order, row_of = ordered(graph, owner, workers)
    mine, mirrors = rows(graph, owner, workers, order, row_of, comm.rank)
    edges, src, dst = local_edges(graph, workers, (mine, mirrors), comm.rank)
    far = src >= len(mine), dst >= len(mine)
    src, dst = (
        np.where(mirror, row - len(mine), row).astype(np.int32)
        for row, mirror in zip((src, dst), far, strict=True)
    )
    kind = far[1] * 2 + far[0]
    storage = np.lexsort((edges, src, dst, kind))
    found = {"gid": np.concatenate((mine, mirrors)), "edge gid": edges[storage]}
    for name, row, mirror in (("sources", src, far[0]), ("destinations", dst, far[1])):
        found[f"{name} mirrors"] = used = np.unique(row[mirror])
        owners, wanted = owner[mirrors[used]], row_of[mirrors[used]]
        found[f"{name} rows"] = np.concatenate(
            comm.all_to_all([wanted[owners == q].astype(np.int64) for q in range(comm.size)])
        )
        found[f"{name} received"] = np.searchsorted(owners, np.arange(comm.size + 1))
    sizes = (len(mine), len(mirrors))
    for number in range(4):
        part = storage[kind[storage] == number]
        s, d = src[part], dst[part]
        by_src = np.argsort(s, kind="stable").astype(np.int32)
        found |= {
            f"{number} start": np.count_nonzero(kind < number),
            f"{number} in_src": s,
            f"{number} out_dst": d[by_src],
            f"{number} out_edge": by_src,
            f"{number} in_indptr": bounds(d, sizes[number >> 1]),
            f"{number} out_indptr": bounds(s, sizes[number & 1]),
        }
    return found


def ordered(graph, owner, workers):
    """All nodes by owner, and the row of each, in the order in which caches miss least."""
    best = None
    for factor, order in zip((1, 1, 3), orders(graph), strict=True):
        order = order[np.argsort(owner[order], kind="stable")]
        row_of = np.empty(graph.n_nodes, np.int32)
        for own in range(owner.max() + 1):
            row_of[order[owner[order] == own]] = np.arange(np.count_nonzero(owner == own))
        total = 0
        for rank in range(owner.max() + 1):
            nodes = rows(graph, owner, workers, order, row_of, rank)
            _, src, dst = local_edges(graph, workers, nodes, rank)
            total += factor * misses(src, dst, sum(map(len, nodes)))
        if best is None or total < best[0]:
            best = total, order, row_of
    return best[1:]


def orders(graph):
    """The nodes by degree, by id, and by leader."""
    degree = np.bincount(graph.src, minlength=graph.n_nodes) + np.bincount(
        graph.dst, minlength=graph.n_nodes
    )
    by_degree = np.lexsort((np.arange(graph.n_nodes), -degree))
    place = np.argsort(by_degree)
    leader = np.arange(graph.n_nodes)
    for pair in zip(graph.src, graph.dst, strict=True):
        for v, u in (pair, pair[::-1]):
            if place[u] < place[leader[v]]:
                leader[v] = u
    by_leader = sorted(
        range(graph.n_nodes),
        key=lambda v: (place[leader[leader[v]]], place[leader[v]], place[v]),
    )
    return by_degree, np.arange(graph.n_nodes), np.array(by_leader, int)


def rows(graph, owner, workers, order, row_of, rank):
    """The masters and mirrors of a worker."""
    mine = order[owner[order] == rank]
    edges = workers == rank
    mirrors = np.setdiff1d(np.concatenate((graph.src[edges], graph.dst[edges])), mine)
    return mine, mirrors[np.lexsort((row_of[mirrors], owner[mirrors]))]


def local_edges(graph, workers, nodes, rank):
    """The edges of a worker, and the local rows of their ends."""
    gid = np.concatenate(nodes)
    local = np.full(graph.n_nodes, -1, np.int32)
    local[gid] = np.arange(len(gid))
    edges = np.flatnonzero(workers == rank)
    return edges, local[graph.src[edges]], local[graph.dst[edges]]


def misses(src, dst, n):
    """Misses of a cache that replaces the least recently used page, in windows of the reads."""
    page, room, window = row_order.PAGE, row_order.PAGES, row_order.WINDOW
    if n <= page * room:
        return 0
    period = max(window, window * len(src) // row_order.SAMPLED)
    cache = OrderedDict()
    missed = before = 0
    for row in range(n):
        sources = np.sort(src[dst == row])
        if before % period < window:
            for one in (sources // page).tolist():
                missed += one not in cache
                cache[one] = None
                cache.move_to_end(one)
                if len(cache) > room:
                    cache.popitem(last=False)
        before += len(sources)
    return missed


def bounds(rows, n):
    return np.append(0, np.cumsum(np.bincount(rows, minlength=n)))


def built(p):
    """The same arrays of a partition."""
    edges = p.relations["edge"]
    found = {"gid": p.gid, "edge gid": p.edge_gid}
    for name, (plan, mirrors) in (("sources", edges.sources), ("destinations", edges.destinations)):
        found |= {
            f"{name} mirrors": mirrors,
            f"{name} rows": plan.rows,
            f"{name} received": plan.recv_ptr,
        }
    for number, block in enumerate(edges.blocks):
        assert (block.src_kind, block.dst_kind) == (number & 1, number >> 1)
        for name in ("start", "in_src", "out_dst", "out_edge", "in_indptr", "out_indptr"):
            found[f"{number} {name}"] = getattr(block, name)
    return found


def check(graph, size, placement):
    def program(comm):
        expected = plain(graph, comm, placement)
        p = build_partition(graph, comm, *placement)
        found = built(p)
        assert found.keys() == expected.keys()
        for name, x in expected.items():
            # numbers of edges have 64 bits where there are many
            wide = name.endswith("out_edge") and not pairs.WIDEST
            assert np.asarray(found[name]).dtype == (np.int64 if wide else np.asarray(x).dtype), (
                name
            )
            np.testing.assert_array_equal(found[name], x, name)
        for name, end in (("in_degree", graph.dst), ("out_degree", graph.src)):
            np.testing.assert_array_equal(
                p.node.read(name), np.bincount(end, minlength=graph.n_nodes)[p.masters]
            )

    run_simulated(size, program)


@pytest.fixture
def several_threads(monkeypatch):
    """Small sorts are divided into parts too."""
    monkeypatch.setattr(pairs, "KEYS_PER_THREAD", 1)
    monkeypatch.setattr(pairs, "threads", lambda: 3)


@pytest.fixture
def small_cache(monkeypatch):
    for name, value in SMALL_CACHE.items():
        monkeypatch.setattr(row_order, name, value)


@pytest.mark.parametrize("name", ODD)
def test_odd_graphs(name, several_threads, small_cache):
    # half of the placements with each number of workers, the other half with the next
    for size in range(1, min(4, ODD[name].n_nodes) + 1):
        for placement in graphs.PLACEMENTS[(size + list(ODD).index(name)) % 2 :: 2]:
            check(ODD[name], size, placement)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from(graphs.PLACEMENTS))
def test_random_graphs(seed, size, placement):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 30))
    e = int(rng.integers(0, 200))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL_CACHE.items():
            patch.setattr(row_order, name, value)
        check(graphs.fill(rng.integers(0, n, e), rng.integers(0, n, e), n, seed), size, placement)


@pytest.mark.parametrize("widest", [0, pairs.WIDEST])
def test_a_graph_of_several_chunks(widest, monkeypatch):
    monkeypatch.setattr(pairs, "WIDEST", widest)
    rng = np.random.default_rng(0)
    check(graphs.fill(*rng.zipf(1.3, (2, 300_000)) % 5_000, 5_000), 2, ("vertex-cut", "hash"))


@pytest.mark.parametrize("n", [1, 7, 1000])
@pytest.mark.parametrize("m", [0, 1, 50, 3000])
def test_sorts_of_pairs_are_stable(m, n, several_threads, monkeypatch):
    for name, value in {"BUCKET": 64, "ENTRIES": 16, "DIGIT": 3}.items():
        monkeypatch.setattr(pairs, name, value)
    rng = np.random.default_rng(m)
    high, low = (rng.zipf(1.5, (2, m)) % n).astype(np.int32)
    numbers = rng.permutation(m).astype(np.int32)
    np.testing.assert_array_equal(occurrences(high, n), np.bincount(high, minlength=n))
    for size, expected in ((n, np.lexsort((low, high))), (1, np.argsort(high, kind="stable"))):
        ptr, *columns = sorted_pairs(dealt_pairs(high, low, numbers, n), size)
        np.testing.assert_array_equal(columns, (low[expected], numbers[expected]))
        np.testing.assert_array_equal(ptr, bounds(high, n))
        assert ptr.dtype == np.int64 and all(x.dtype == np.int32 for x in columns)


def test_numbers_that_need_64_bits_keep_them():
    high = np.array([0, 0, 1, 1, 1], np.int32)
    low = np.array([1, 0, 1, 0, 0], np.int32)
    numbers = np.array([0, 1, 2**31, 2**31 + 5, 2**32 + 1])
    assert sorted_pairs(dealt_pairs(high, low, numbers, 2), 1)[2].tolist() == numbers.tolist()
    assert (
        sorted_pairs(dealt_pairs(high, low, numbers, 2), 2)[2].tolist()
        == numbers[[1, 0, 3, 4, 2]].tolist()
    )


def test_a_worker_with_too_many_edges_is_refused(monkeypatch):
    graph = graphs.random_graph(40, 160)
    monkeypatch.setattr(blocks, "MOST_EDGES", 100)
    run_simulated(4, build_partition_of, graph)
    with pytest.raises(PartitionError, match="more than 100; use more workers"):
        run_simulated(1, build_partition_of, graph)


def test_a_worker_with_too_many_nodes_is_refused(monkeypatch):
    """Keys of the ends of edges would be negative."""
    graph = graphs.random_graph(40, 160)
    monkeypatch.setattr(blocks, "MOST_ROWS", 40)
    run_simulated(1, build_partition_of, graph)
    monkeypatch.setattr(blocks, "MOST_ROWS", 39)
    with pytest.raises(PartitionError, match=r"40 nodes on one worker.*use more workers"):
        run_simulated(1, build_partition_of, graph)


def build_partition_of(comm, graph):
    return build_partition(graph, comm).n_local_edges
