"""Partitions from mapped edges: equal to the bit to those from arrays, with no array as long as the
graph.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import graphs
import numpy as np
import pytest
import ranks

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition import layout
from graphtheta.engine.partition.directory import ComputedDirectory, DenseDirectory, TableDirectory
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.partition.partitioner import (
    EDGE_PLACEMENTS,
    PARTITIONERS,
    Assignment,
    EdgePlacement,
    Partitioner,
)
from graphtheta.errors import ConfigError, PartitionError
from graphtheta.ops.kernels.partition import row_order
from graphtheta.partitioners.registry import EDGE_PLACEMENTS as ALL_PLACEMENTS

ODD = graphs.odd_graphs()


class ByTable(EdgePlacement):
    """Needs the owners of all nodes."""

    name = "by_table"

    def place(self, source, owners, size):
        return lambda chunk: owners[chunk.src]


@dataclass(frozen=True)
class FromTable(Partitioner):
    """Computes an owner for each node, and a worker for each edge if asked for."""

    name = "from_table"
    edges: bool = False

    def assign(self, source, comm):
        owners = np.arange(source.n_nodes) % comm.size
        comm.barrier() if not self.sequential else None
        return Assignment(
            lambda ids: owners[ids], (lambda chunk: chunk.ids % comm.size) if self.edges else None
        )


def mapped(graph, folder):
    """The same graph with its edges in files."""
    for name in ("src", "dst"):
        np.save(folder / f"{name}.npy", getattr(graph, name))
    return graph.replace(
        edge_index=tuple(np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("src", "dst"))
    )


def build(comm, graph, *placement):
    return build_partition(graph, comm, *placement)


def check(graph, folder, size, placement, **options):
    """Build from arrays and from files."""
    sliced = mapped(graph, folder)
    assert EdgeSource(sliced).mapped and not EdgeSource(graph).mapped

    def program(comm):
        whole, own = (build_partition(g, comm, *placement, **options) for g in (graph, sliced))
        for x, y in zip(graphs.arrays_of(own), graphs.arrays_of(whole), strict=True):
            np.testing.assert_array_equal(x, y)
            assert x.dtype == y.dtype and x.flags.c_contiguous == y.flags.c_contiguous
        assert (own.n_masters, own.n_nodes, own.n_edges) == (
            whole.n_masters,
            whole.n_nodes,
            whole.n_edges,
        )
        ids = np.random.default_rng(comm.rank).integers(0, graph.n_nodes, 20)
        for x, y in zip(own.directory.locate(ids), whole.directory.locate(ids), strict=True):
            np.testing.assert_array_equal(x, y)
        rule = PARTITIONERS.find(placement[-1].partition(":")[0]).by_rule
        assert [type(p.directory) for p in (whole, own)] == [
            DenseDirectory,
            ComputedDirectory if rule else TableDirectory,
        ]
        return own.n_masters

    assert sum(run_simulated(size, program)) == graph.n_nodes


@pytest.mark.one_in(5, 5)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("placement", graphs.PLACEMENTS, ids="-".join)
def test_partitions_are_equal(placement, size, tmp_path, monkeypatch):
    monkeypatch.setattr(EdgeSource.__init__, "__defaults__", (17,))
    check(graphs.random_graph(40, 130), tmp_path, size, placement, seed=3, dtype=np.float64)
    for graph in ODD.values() if placement in (graphs.PLACEMENTS[0], graphs.PLACEMENTS[-1]) else ():
        # an empty file cannot be mapped
        if size <= graph.n_nodes and graph.n_edges:
            check(graph, tmp_path, size, placement)


@pytest.mark.parametrize("size", [1, 3])
def test_orders_of_rows(size, tmp_path, monkeypatch):
    """Misses of the caches of all workers decide, as for a graph in memory."""
    for name, value in {"PAGE": 2, "PAGES": 4, "WINDOW": 50, "SAMPLED": 400}.items():
        monkeypatch.setattr(row_order, name, value)
    monkeypatch.setattr(layout, "FACTORS", (1, 1, 1))
    rng = np.random.default_rng(0)
    node = np.repeat(np.arange(200), 9)
    other = np.tile(np.arange(9), 200)
    ids = rng.permutation(200)
    near = graphs.fill(node, (node + rng.integers(1, 9, 1800)) % 200, 200)
    hubs = graphs.fill(30 * rng.integers(0, 6, 900), rng.integers(0, 200, 900), 200)
    cliques = graphs.fill(ids[node], ids[node // 10 * 10 + (node + other + 1) % 10], 200)
    for graph, expected in ((near, "id"), (hubs, "degree"), (cliques, "leader")):
        check(graph, tmp_path, size, ("vertex-cut", "block"))
        for placement in (("1d-src", "hash"), ("1d-dst", "hash")):
            check(graph, tmp_path, size, placement)
            for p in run_simulated(size, build, mapped(graph, tmp_path), *placement):
                degree = p.node.read("in_degree") + p.node.read("out_degree")
                by_degree = np.lexsort((p.masters, -degree))
                if (np.diff(p.masters) > 0).all():
                    order = "id"
                else:
                    order = "degree" if (np.diff(by_degree) > 0).all() else "leader"
                assert order == expected


@pytest.mark.second
@pytest.mark.parametrize("size", [1, 3])
def test_owners_and_workers_that_follow_no_rule(size, tmp_path, monkeypatch):
    """Placements and sequential partitioners run on rank 0, other partitioners on all ranks."""
    monkeypatch.setattr(EdgeSource.__init__, "__defaults__", (17,))
    monkeypatch.setitem(EDGE_PLACEMENTS, "by_table", ByTable)
    monkeypatch.setitem(PARTITIONERS, "from_table", FromTable)
    np.save(tmp_path / "owners.npy", np.arange(40) % size)
    ours = (
        [*ALL_PLACEMENTS],
        [name for name in PARTITIONERS if name not in ("louvain", "leiden", "metis", "file")],
    )
    pairs = {
        (placement, masters) for placement, masters in zip(ours[0] * 3, ours[1] * 3, strict=False)
    }
    pairs |= {
        ("1d-src", "from_table:edges=yes"),
        ("by_table", "from_table"),
        ("1d-dst", f"file:path={tmp_path}/owners.npy"),
    }
    for pair in sorted(pairs):
        check(graphs.random_graph(40, 130), tmp_path, size, pair)


def test_a_sequential_partitioner_runs_once(tmp_path, monkeypatch):
    """It runs on rank 0; its errors are raised on all ranks."""

    @dataclass(frozen=True)
    class Once(FromTable):
        name = "once"
        sequential = True

        def assign(self, source, comm):
            ran.append(comm.rank)
            if self.edges:
                raise ConfigError("there is no such library")
            return super().assign(source, comm)

    ran = []
    monkeypatch.setitem(PARTITIONERS, "once", Once)
    graph = mapped(graphs.random_graph(40, 130), tmp_path)
    run_simulated(3, build, graph, "1d-src", "once")
    assert ran == [0]

    def fails(comm):
        with pytest.raises(ConfigError, match="there is no such library"):
            build(comm, graph, "1d-src", "once:edges=yes")

    run_simulated(3, fails)
    for p in run_simulated(2, lambda comm: build_partition(graph, comm, directory=TableDirectory)):
        assert isinstance(p.directory, TableDirectory)


@pytest.mark.parametrize("masters", ["hash", "block"])
def test_unknown_ids_are_reported(masters, tmp_path):
    def program(comm):
        p = build_partition(mapped(graphs.random_graph(40, 130), tmp_path), comm, "1d-src", masters)
        with pytest.raises(PartitionError, match="the graph has no node 40; 1 of the ids"):
            p.directory.locate(np.array([3, 40]))

    run_simulated(3, program)


@pytest.mark.second
@ranks.needs_mpi
def test_memory_of_a_worker_shrinks_with_the_number_of_workers(tmp_path):
    n = 1_000_000
    src, dst = np.random.default_rng(0).integers(0, n, (2, 20_000))
    np.save(tmp_path / "src.npy", src)
    np.save(tmp_path / "dst.npy", dst)
    words = [
        sys.executable,
        str(Path(__file__).with_name("sliced_program.py")),
        str(tmp_path),
        str(n),
    ]
    done = [ranks.run(words), ranks.run([str(ranks.MPIEXEC), "-n", "3", *words])]
    assert [p.returncode for p in done] == [0, 0], done
    (one,), three = (json.loads(p.stdout) for p in done)
    for mapped, whole in three:
        # a graph in memory leaves an owner and a row for each of its nodes on every worker, and
        # more while it is divided
        assert mapped < 0.37 * one[0] and mapped < 45 * n < whole
