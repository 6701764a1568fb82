"""Directories: all kinds give the same owners and rows, and partitions and views built on any are
the same.
"""

from __future__ import annotations

import equality
import graphs
import numpy as np
import pytest

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.directory import ComputedDirectory, DenseDirectory, TableDirectory
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.located import values_of
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.partition.partitioner import make_partitioner
from graphtheta.engine.partition.table import DistributedTable
from graphtheta.errors import PartitionError

GRAPH = equality.example()


def computed(masters):
    """A directory that computes the owners of a stateless partitioner."""

    def make(comm, mine):
        return ComputedDirectory(
            comm, mine, make_partitioner(masters, 0).assign(EdgeSource(GRAPH), comm).owner
        )

    return make


def kinds(masters):
    return {"dense": None, "table": TableDirectory, "computed": computed(masters)}


@pytest.mark.parametrize("placement", [graphs.PLACEMENTS[0], graphs.PLACEMENTS[-1]], ids="-".join)
@pytest.mark.parametrize("size", [1, 3, 5])
def test_all_kinds_agree(size, placement):
    def program(comm):
        made = {
            name: build_partition(GRAPH, comm, *placement, directory=make)
            for name, make in kinds(placement[1]).items()
        }
        dense = made["dense"]
        assert isinstance(dense.directory, DenseDirectory)
        # other ids on each rank, some twice, and none on the last
        ids = np.random.default_rng(comm.rank).integers(
            0, GRAPH.n_nodes, 30 * (comm.rank < comm.size - 1) + 30 * (comm.size == 1)
        )
        owner, row = dense.directory.locate(ids)
        for name in ("table", "computed"):
            p = made[name]
            for found in (p.directory.locate(ids), (p.directory.owner(ids), p.directory.row(ids))):
                np.testing.assert_array_equal(found[0], owner)
                np.testing.assert_array_equal(found[1], row)
                assert found[0].dtype == found[1].dtype == owner.dtype == np.int32
            for x, y in zip(graphs.arrays_of(p), graphs.arrays_of(dense), strict=True):
                np.testing.assert_array_equal(x, y)
            np.testing.assert_array_equal(values_of(p, ids, p.masters * 10), ids * 10)
        return [made[name].directory.nbytes for name in made]

    dense, table, owned = np.array(run_simulated(size, program)).T
    assert np.all(dense == 8 * GRAPH.n_nodes)
    assert table.sum() == 16 * GRAPH.n_nodes and owned.sum() == 12 * GRAPH.n_nodes


@pytest.mark.second
@pytest.mark.parametrize("size, task", [(3, "node"), (3, "edge"), (5, "link")])
def test_views_and_losses_are_the_same_on_a_table(size, task, monkeypatch):
    expected = run_simulated(size, equality.run, ("vertex-cut", "hash"), task, 0)[0]
    monkeypatch.setattr(
        equality,
        "build_partition",
        lambda *args, **options: build_partition(*args, **options, directory=TableDirectory),
    )
    numbers, edges = run_simulated(size, equality.run, ("vertex-cut", "hash"), task, 0)[0]
    for name, found in numbers.items():
        for x, y in zip(found, expected[0][name], strict=True):
            np.testing.assert_array_equal(x, y)
    for name, levels in edges.items():
        for x, y in zip(levels, expected[1][name], strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("kind", kinds("hash"))
def test_unknown_ids_are_refused(kind):
    def program(comm):
        p = build_partition(GRAPH, comm, directory=kinds("hash")[kind])
        p.directory.locate(np.array([3, GRAPH.n_nodes, -1]))

    with pytest.raises(
        PartitionError, match=rf"the graph has no node {GRAPH.n_nodes}; 2 of the ids"
    ):
        run_simulated(1, program)


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("width", [(), (2,)])
def test_tables(size, width):
    def program(comm):
        keys = np.arange(comm.rank, 100, comm.size)[::-1] ** 3
        values = np.broadcast_to(keys.reshape(-1, *(1 for _ in width)), (len(keys), *width)) + 1
        table = DistributedTable(comm, keys, np.ascontiguousarray(values))
        asked = np.array([27, 5, 0, 99**3, 27]) if comm.rank == 0 else np.zeros(0, np.int64)
        found = table.look_up(asked)
        assert found.shape == (len(asked), *width)
        wanted = np.array([28, -1, 1, 99**3 + 1, 28] if comm.rank == 0 else np.zeros(0, np.int64))
        np.testing.assert_array_equal(
            found.reshape(len(asked), 2 if width else 1),
            np.stack([wanted] * (2 if width else 1), axis=1),
        )
        return table.nbytes

    held = run_simulated(size, program)
    assert sum(held) == 100 * 8 * (1 + (width or (1,))[0]) and max(held) <= sum(held) * (
        1 if size == 1 else 0.8
    )
