"""Partitions from mapped edges: equal to the bit to those from arrays, with no array as long as the graph."""
from __future__ import annotations

import json
import sys
from pathlib import Path

import graphs
import numpy as np
import pytest
import ranks

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition import rows
from graphtheta.engine.partition.directory import ComputedDirectory, DenseDirectory, TableDirectory
from graphtheta.engine.partition.edge_source import GraphEdges
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.partition.partitioner import EDGE_PLACEMENTS, PARTITIONERS, Assignment, EdgePlacement, Partitioner
from graphtheta.errors import PartitionError

ODD = graphs.odd_graphs()


class ByTable(EdgePlacement):
    """Needs the owners of all nodes."""

    name = "by_table"

    def place(self, source, owners, comm):
        return lambda chunk: owners[chunk.src]


class FromTable(Partitioner):
    """Computes an owner for each node."""

    name = "from_table"

    def assign(self, source, comm):
        owners = np.arange(source.n_nodes) % comm.size
        return Assignment(lambda ids: owners[ids])


def mapped(graph, folder):
    """The same graph with its edges in files."""
    for name in ("src", "dst"):
        np.save(folder / f"{name}.npy", getattr(graph, name))
    return graph.replace(edge_index=tuple(np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("src", "dst")))


def build(comm, graph, *placement):
    return build_partition(graph, comm, *placement)


def check(graph, folder, size, placement, **options):
    """Build from arrays and from files."""
    sliced = mapped(graph, folder)
    assert GraphEdges(sliced).mapped and not GraphEdges(graph).mapped

    def program(comm):
        whole, own = (build_partition(g, comm, *placement, **options) for g in (graph, sliced))
        for x, y in zip(graphs.arrays_of(own), graphs.arrays_of(whole), strict=True):
            np.testing.assert_array_equal(x, y)
            assert x.dtype == y.dtype and x.flags.c_contiguous == y.flags.c_contiguous
        assert (own.n_masters, own.n_nodes, own.n_edges) == (whole.n_masters, whole.n_nodes, whole.n_edges)
        ids = np.random.default_rng(comm.rank).integers(0, graph.n_nodes, 20)
        for x, y in zip(own.directory.locate(ids), whole.directory.locate(ids), strict=True):
            np.testing.assert_array_equal(x, y)
        assert [type(p.directory) for p in (whole, own)] == [DenseDirectory, ComputedDirectory]
        return own.n_masters

    assert sum(run_simulated(size, program)) == graph.n_nodes


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("placement", graphs.PLACEMENTS, ids="-".join)
def test_partitions_are_equal(placement, size, tmp_path, monkeypatch):
    monkeypatch.setattr(GraphEdges.__init__, "__defaults__", (17,))
    check(graphs.random_graph(40, 130), tmp_path, size, placement, seed=3, dtype=np.float64)
    for graph in ODD.values() if placement in (graphs.PLACEMENTS[0], graphs.PLACEMENTS[-1]) else ():
        # an empty file cannot be mapped
        if size <= graph.n_nodes and graph.n_edges:
            check(graph, tmp_path, size, placement)


@pytest.mark.parametrize("size", [1, 3])
def test_both_orders_of_rows(size, tmp_path, monkeypatch):
    """A sample of the edges of all workers decides, as for a graph in memory."""
    monkeypatch.setattr(rows, "SAMPLED_EDGES", 50)
    monkeypatch.setattr(rows, "CACHED_ROWS", 12)
    rng, node = np.random.default_rng(0), np.arange(200)
    near = graphs.fill(node, (node + rng.integers(1, 9, 200)) % 200, 200)
    hubs = graphs.fill(199 - rng.integers(0, 10, 600), rng.integers(0, 200, 600), 200)
    for graph, by_id in ((near, True), (hubs, False)):
        for placement in (("1d-src", "hash"), ("vertex-cut", "block")):
            check(graph, tmp_path, size, placement)
            for p in run_simulated(size, build, mapped(graph, tmp_path), *placement):
                assert (np.diff(p.masters) > 0).all() == by_id


def test_other_partitioners_read_all_edges(tmp_path, monkeypatch):
    monkeypatch.setitem(EDGE_PLACEMENTS, "by_table", ByTable)
    monkeypatch.setitem(PARTITIONERS, "from_table", FromTable)
    graph = graphs.random_graph(40, 130)
    for placement in (("by_table", "hash"), ("1d-src", "from_table")):
        for p in run_simulated(2, build, mapped(graph, tmp_path), *placement):
            assert isinstance(p.directory, DenseDirectory)
    for p in run_simulated(2, lambda comm: build_partition(mapped(graph, tmp_path), comm, directory=TableDirectory)):
        assert isinstance(p.directory, TableDirectory)


@pytest.mark.parametrize("masters", ["hash", "block"])
def test_unknown_ids_are_reported(masters, tmp_path):
    def program(comm):
        p = build_partition(mapped(graphs.random_graph(40, 130), tmp_path), comm, "1d-src", masters)
        with pytest.raises(PartitionError, match="the graph has no node 40; 1 of the ids"):
            p.directory.locate(np.array([3, 40]))

    run_simulated(3, program)


@ranks.needs_mpi
def test_memory_of_a_worker_shrinks_with_the_number_of_workers(tmp_path):
    n = 1_000_000
    src, dst = np.random.default_rng(0).integers(0, n, (2, 20_000))
    np.save(tmp_path / "src.npy", src)
    np.save(tmp_path / "dst.npy", dst)
    words = [sys.executable, str(Path(__file__).with_name("sliced_program.py")), str(tmp_path), str(n)]
    done = [ranks.run(words), ranks.run([str(ranks.MPIEXEC), "-n", "3", *words])]
    assert [p.returncode for p in done] == [0, 0], done
    (one,), three = (json.loads(p.stdout) for p in done)
    for mapped, whole in three:
        # a graph in memory leaves an owner and a row for each of its nodes on every worker, and more while it is divided
        assert mapped < 0.37 * one[0] and mapped < 45 * n < whole
