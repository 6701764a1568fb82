"""Partitions: every node one master, every edge in one place with its own values, mirrors as the
plans want them.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from typed import typed

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.exchange import Exchange
from graphtheta.engine.partition.partition import MASTER, MIRROR, build_partition
from graphtheta.engine.partition.partitioner import make_partitioner
from graphtheta.engine.store import memory
from graphtheta.engine.store.column import Role
from graphtheta.engine.view.view import PRECOMPUTED
from graphtheta.errors import ConfigError, PartitionError
from graphtheta.graph.data.columns import TAKEN

SIZES = (1, 2, 3, 4, 5, 8)
ODD = graphs.odd_graphs()


def build(graph, size, placement, **options):
    """The partitions of all ranks, without their communicators at work."""
    return run_simulated(size, lambda comm: build_partition(graph, comm, *placement, **options))


def check(graph, parts):
    """All invariants of the partitions of one graph."""
    np.testing.assert_array_equal(
        np.sort(np.concatenate([p.masters for p in parts])), np.arange(graph.n_nodes)
    )
    np.testing.assert_array_equal(
        np.sort(np.concatenate([p.edge_gid for p in parts])), np.arange(graph.n_edges)
    )
    for rank, p in enumerate(parts):
        assert np.all(p.directory.owner(p.masters) == rank)
        degree = np.bincount(np.concatenate((graph.src, graph.dst)), minlength=graph.n_nodes)[
            p.masters
        ]
        np.testing.assert_array_equal(
            np.lexsort((p.masters, -degree)), np.arange(p.n_masters), "many edges first"
        )
        np.testing.assert_array_equal(p.directory.row(p.masters), np.arange(p.n_masters))
        check_mirrors(p, rank)
        check_edges(graph, p)
        for name in ("x", "y", "train", "val", "test"):
            np.testing.assert_array_equal(p.node.read(name), getattr(graph, name)[p.masters])
        check_columns(graph.node_columns, p.node, p.masters)
        check_columns(graph.edge_columns, p.edge, p.edge_gid)
        np.testing.assert_array_equal(
            p.node.read("in_degree"), np.bincount(graph.dst, minlength=graph.n_nodes)[p.masters]
        )
        np.testing.assert_array_equal(
            p.node.read("out_degree"), np.bincount(graph.src, minlength=graph.n_nodes)[p.masters]
        )


def check_columns(given, found, rows):
    for name, x in given.items():
        read = np.dtype(np.float32) if x.dtype.kind == "f" else x.dtype
        assert found.column(name).dtype == read and found.role(name) is Role.FEATURE
        np.testing.assert_array_equal(found.exact(name), x[rows])
        np.testing.assert_array_equal(found.read(name), x[rows].astype(read))


def check_mirrors(p, rank):
    mirrors = p.gid[p.n_masters :]
    order = np.lexsort(p.directory.locate(mirrors)[::-1])
    np.testing.assert_array_equal(order, np.arange(p.n_mirrors))
    assert not np.any(p.directory.owner(mirrors) == rank)
    assert p.n_mirrors == len(
        np.union1d(*(x.mirrors for x in p.relations["edge"].served(False)))
    ), "a mirror that nobody needs"
    src, dst = p.edge_ends()
    for (_, rows), end in zip(p.relations["edge"].served(False), (src, dst), strict=True):
        np.testing.assert_array_equal(rows, np.flatnonzero(np.isin(mirrors, end)))


def check_edges(graph, p):
    src, dst = p.edge_ends()
    np.testing.assert_array_equal(src, graph.src[p.edge_gid])
    np.testing.assert_array_equal(dst, graph.dst[p.edge_gid])
    for name, value in (
        ("attr", graph.edge_attr),
        ("weight", graph.edge_weight),
        ("y", graph.edge_y),
        ("train", graph.edge_train),
    ):
        np.testing.assert_array_equal(p.edge.read(name), value[p.edge_gid])
    core = p.relations["edge"].blocks[0]
    assert (core.src_kind, core.dst_kind, core.start) == (MASTER, MASTER, 0)
    here = lambda end: p.directory.owner(end) == p.halo_comm.rank
    np.testing.assert_array_equal(np.arange(p.n_local_edges) < core.n_edges, here(src) & here(dst))
    rows = {MASTER: p.n_masters, MIRROR: p.n_mirrors}
    for b in p.relations["edge"].blocks:
        assert (
            len(b.in_indptr) == rows[b.dst_kind] + 1 and len(b.out_indptr) == rows[b.src_kind] + 1
        )
        into = np.repeat(np.arange(rows[b.dst_kind]), np.diff(b.in_indptr))
        out_of = np.repeat(np.arange(rows[b.src_kind]), np.diff(b.out_indptr))
        np.testing.assert_array_equal(b.in_src[b.out_edge], out_of)
        np.testing.assert_array_equal(into[b.out_edge], b.out_dst)
        np.testing.assert_array_equal(np.sort(b.out_edge), np.arange(b.n_edges))


@pytest.mark.parametrize("placement", graphs.PLACEMENTS, ids="-".join)
@pytest.mark.parametrize("size", SIZES)
def test_invariants(size, placement):
    graph = typed(graphs.random_graph(40, 130))
    check(graph, build(graph, size, placement))


@pytest.mark.parametrize("name", ODD)
def test_odd_graphs(name):
    graph = typed(ODD[name])
    # half of the placements with each number of workers, the other half with the next
    for i, size in enumerate(SIZES, list(ODD).index(name)):
        for placement in graphs.PLACEMENTS[i % 2 :: 2] if size <= graph.n_nodes else []:
            check(graph, build(graph, size, placement))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from(graphs.PLACEMENTS))
def test_random_graphs(seed, size, placement):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 15))
    e = int(rng.integers(0, 30))
    graph = graphs.fill(rng.integers(0, n, e), rng.integers(0, n, e), n, seed)
    check(graph, build(graph, size, placement, seed=seed))


def test_a_rank_may_own_nothing():
    graph = graphs.fill([0, 1, 1], [1, 0, 1], 3)
    seed = next(s for s in range(99) if len(np.unique(owners_of("hash", graph, 3, s))) < 3)
    parts = build(graph, 3, ("vertex-cut", "hash"), seed=seed)
    assert any(p.n_masters == 0 for p in parts)
    check(graph, parts)


@pytest.mark.parametrize("placement", graphs.PLACEMENTS, ids="-".join)
def test_plans_bring_the_right_nodes(placement):
    graph = graphs.random_graph(40, 130)

    def program(comm):
        p = build_partition(graph, comm, *placement)
        for plan, mirrors in p.relations["edge"].served(False):
            np.testing.assert_array_equal(
                Exchange(comm, plan).to_mirrors({"id": p.masters})["id"],
                p.gid[p.n_masters :][mirrors],
            )

    run_simulated(4, program)


def test_presets_place_edges_as_they_say():
    graph = graphs.random_graph(60, 400)
    for rank, p in enumerate(build(graph, 4, ("1d-src", "hash"))):
        assert (
            np.all(p.directory.owner(p.edge_ends()[0]) == rank)
            and len(p.relations["edge"].sources.mirrors) == 0
        )
    for rank, p in enumerate(build(graph, 4, ("1d-dst", "hash"))):
        assert (
            np.all(p.directory.owner(p.edge_ends()[1]) == rank)
            and len(p.relations["edge"].destinations.mirrors) == 0
        )
    for rank, p in enumerate(build(graph, 4, ("vertex-cut", "hash"))):
        src, dst = p.edge_ends()
        assert np.all(p.directory.owner(src) // 2 == rank // 2) and np.all(
            p.directory.owner(dst) % 2 == rank % 2
        )


def owners_of(name, graph, size, seed=0):
    """Owners of all nodes by a partitioner."""
    program = lambda comm: (
        make_partitioner(name, seed).assign(EdgeSource(graph), comm).owner(np.arange(graph.n_nodes))
    )
    return run_simulated(size, program)[0]


def test_rules_are_balanced_and_in_range():
    graph = graphs.random_graph(4000, 10)
    for size in SIZES:
        for name in ("hash", "block"):
            counts = np.bincount(owners_of(name, graph, size), minlength=size)
            assert len(counts) == size and counts.max() < 1.2 * 4000 / size


@pytest.mark.parametrize("size", [1, 2, 4])
def test_sparse_features_and_types(size):
    x = sp.random(24, 50, 0.1, format="csr", random_state=0, dtype=np.float32)
    graph = graphs.random_graph(x=x)
    for p in build(graph, size, ("vertex-cut", "hash"), dtype=np.float64):
        assert sp.issparse(p.node.read("x")) and p.node.read("x").dtype == np.float64
        np.testing.assert_array_equal(p.node.read("x").toarray(), x.toarray()[p.masters])
        assert (
            p.edge.read("attr").dtype
            == p.edge.read("weight").dtype
            == p.node.read("in_degree").dtype
            == np.float64
        )
        assert p.node.read("y").dtype == np.int64 and p.node.read("train").dtype == bool
        assert p.node.column("x").sparse and p.nbytes() > p.node.column("x").nbytes > 0
    assert build(graph, size, ("vertex-cut", "hash"))[0].edge.read("weight").dtype == np.float32


@pytest.mark.parametrize(
    "dtype, size, shared", [(np.float32, 1, True), (np.float64, 1, False), (np.float32, 2, False)]
)
def test_one_worker_shares_the_features_of_the_graph(dtype, size, shared, monkeypatch):
    graph = graphs.random_graph()
    sources = []
    monkeypatch.setattr(memory, "take_rows", lambda x, rows: sources.append(x) or x[rows])
    for p in build(graph, size, ("1d-src", "hash"), dtype=dtype):
        np.testing.assert_array_equal(p.node.read("x", np.arange(3)), graph.x[p.masters[:3]])
    assert all(np.shares_memory(x, graph.x) == shared for x in sources) and len(sources) == size


def test_named_columns_keep_their_kind():
    (p,) = build(typed(graphs.random_graph()), 1, ("1d-src", "hash"), dtype=np.float64)
    assert {n: p.edge.read(n).dtype.name for n in ("type", "pair", "stamp", "size")} == {
        "type": "int64",
        "pair": "int32",
        "stamp": "int64",
        "size": "float64",
    }
    (plain,) = build(graphs.random_graph(), 1, ("1d-src", "hash"), dtype=np.float64)
    assert p.nbytes() == plain.nbytes() + sum(
        store.column(n).nbytes
        for store, old in ((p.edge, plain.edge), (p.node, plain.node))
        for n in store.names()
        if n not in old
    )


def test_models_may_read_features_only():
    (p,) = build(typed(graphs.random_graph()), 1, ("1d-src", "hash"))
    assert p.node.readable() == ("in_degree", "out_degree", "x", "kind", "code", "wide")
    assert p.edge.readable() == ("weight", "attr", "type", "pair", "stamp", "size")
    for store in (p.node, p.edge):
        assert store.names(Role.TARGET) == ("y",) and store.names(Role.MASK) == (
            "train",
            "val",
            "test",
        )


def test_no_named_column_has_the_name_of_another():
    (p,) = build(graphs.random_graph(), 1, ("1d-src", "hash"))
    assert {*p.node.names(), *p.edge.names(), PRECOMPUTED} <= TAKEN


def test_weights_are_ones_if_there_are_none():
    graph = graphs.random_graph(edge_weight=None, edge_attr=None)
    for p in build(graph, 2, ("1d-src", "hash")):
        np.testing.assert_array_equal(p.edge.read("weight"), 1)
        assert "attr" not in p.edge


@pytest.mark.parametrize("size", [2, 5])
def test_more_ranks_than_nodes(size):
    graph = ODD["one node with a loop"]

    def program(comm):
        with pytest.raises(
            PartitionError, match=f"1 nodes and the job {size} ranks; start at most 1"
        ):
            build_partition(graph, comm)

    run_simulated(size, program)


def test_unknown_rules():
    graph = graphs.random_graph()
    with pytest.raises(ConfigError, match=r"edge placement '2d'.*1d-src, 1d-dst, vertex-cut"):
        build(graph, 1, ("2d", "hash"))
    with pytest.raises(ConfigError, match=r"node partitioner 'mine'.*hash, block"):
        build(graph, 1, ("1d-src", "mine"))


@pytest.mark.parametrize("size", [1, 3])
def test_report(size):
    graph = graphs.random_graph(40, 130)
    reports = run_simulated(size, lambda comm: build_partition(graph, comm, "vertex-cut").report())
    parts = build(graph, size, ("vertex-cut", "hash"))
    assert reports == [reports[0]] * size
    assert reports[0]["replication"] == pytest.approx(sum(len(p.gid) for p in parts) / 40)
    assert reports[0]["edge_imbalance"] == pytest.approx(
        max(p.n_local_edges for p in parts) / 130 * size
    )
    assert reports[0]["border_edges"] == pytest.approx(
        sum(p.n_local_edges - p.relations["edge"].blocks[0].n_edges for p in parts) / 130
    )


@pytest.mark.parametrize("size", [1, 2])
def test_rows_lie_as_caches_like_it(size):
    """Numbers that follow communities stay; where a few nodes have most edges, these come first."""
    n = 40_000
    rng = np.random.default_rng(0)
    node = np.arange(n)
    near = graphs.fill(node, (node + rng.integers(1, 100, n)) % n, n)
    for p in build(near, size, ("1d-src", "hash")):
        assert np.all(np.diff(p.masters) > 0)
    hubs = graphs.fill(n - 1 - rng.integers(0, 50, 3 * n), rng.integers(0, n, 3 * n), n)
    for p in build(hubs, size, ("1d-src", "hash")):
        assert (
            np.count_nonzero(p.masters[:50] >= n - 50) == np.count_nonzero(p.masters >= n - 50) > 0
        )
