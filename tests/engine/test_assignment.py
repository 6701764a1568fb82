"""Partitioners: registered from outside, with options, checked, and free to place edges."""

from __future__ import annotations

from dataclasses import dataclass

import graphs
import numpy as np
import pytest

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.partition.partitioner import (
    EDGE_PLACEMENTS,
    PARTITIONERS,
    Assignment,
    EdgePlacement,
    HashPartitioner,
    Partitioner,
    make_partitioner,
)
from graphtheta.errors import ConfigError, PartitionError

GRAPH = graphs.random_graph(40, 130)


@dataclass(frozen=True)
class Striped(Partitioner):
    """Owners by id modulo the workers; the edges too, by chunk, if asked for."""

    name = "striped"
    shift: int = 0
    seed: int = 0
    edges: bool = False

    def assign(self, source, comm):
        workers = [(chunk.ids + self.shift) % comm.size for chunk in source.chunks()]
        following = iter(workers)
        return Assignment(
            lambda ids: (ids + self.shift) % comm.size,
            (lambda chunk: next(following)) if self.edges else None,
        )


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(PARTITIONERS, "striped", Striped)


def test_edges_come_in_chunks():
    source = EdgeSource(GRAPH, 50)
    chunks = list(source.chunks())
    assert [len(c.ids) for c in chunks] == [50, 50, 30] and (source.n_nodes, source.n_edges) == (
        40,
        130,
    )
    np.testing.assert_array_equal(np.concatenate([c.ids for c in chunks]), np.arange(130))
    for end in ("src", "dst"):
        np.testing.assert_array_equal(
            np.concatenate([getattr(c, end) for c in chunks]), getattr(GRAPH, end)
        )


def test_options_are_read_by_their_types():
    assert make_partitioner("striped:shift=2,edges=yes", 7) == Striped(2, 7, True)
    assert make_partitioner("striped:seed=3", 7) == Striped(0, 3, False)
    assert make_partitioner("hash", 5) == HashPartitioner(5)
    for text, said in (
        ("striped:width=2", "no option 'width'; there is shift, seed, edges"),
        ("striped:shift=two", "shift is 'two'.*type int"),
        ("striped:edges=2", "edges is '2'; expected yes or no"),
        ("block:a=1", "no option 'a'; there is none"),
        ("striped2:shift=1", "node partitioner 'striped2' is not known.*choose from hash, block, "),
    ):
        with pytest.raises(ConfigError, match=said):
            make_partitioner(text, 0)


@pytest.mark.parametrize("edges", ["yes", "no"])
@pytest.mark.parametrize("size", [1, 3])
def test_a_partitioner_may_place_edges_itself(size, edges):
    name = f"striped:shift=1,edges={edges}"
    for rank, p in enumerate(
        run_simulated(size, lambda comm: build_partition(GRAPH, comm, node_partitioner=name))
    ):
        assert np.all((p.masters + 1) % size == rank)
        assert np.all(((p.edge_gid if edges == "yes" else p.edge_ends()[0]) + 1) % size == rank)


def test_an_edge_placement_beside_such_a_partitioner_is_refused():
    with pytest.raises(
        ConfigError,
        match="partitioner=1d-dst has no meaning with masters=striped, which places edges itself",
    ):
        run_simulated(2, lambda comm: build_partition(GRAPH, comm, "1d-dst", "striped:edges=yes"))


@dataclass(frozen=True)
class Turned(EdgePlacement):
    """The workers after the owners of the sources."""

    name = "turned"
    by: int = 1

    def place(self, source, owners, size):
        return lambda chunk: (owners[chunk.src] + self.by) % (size + (self.by > 8))


def test_an_edge_placement_has_options_and_is_checked(monkeypatch):
    monkeypatch.setitem(EDGE_PLACEMENTS, "turned", Turned)
    for rank, p in enumerate(
        run_simulated(3, lambda comm: build_partition(GRAPH, comm, "turned:by=2", "striped"))
    ):
        assert np.all((p.edge_ends()[0] + 2) % 3 == rank)
    with pytest.raises(
        ConfigError, match="partitioner=turned:of=2: there is no option 'of'; there is by"
    ):
        run_simulated(2, lambda comm: build_partition(GRAPH, comm, "turned:of=2"))
    with pytest.raises(
        PartitionError,
        match="partitioner=turned: the workers of 130 edges range from 1 to 2; expected 0 to 1",
    ):
        run_simulated(2, lambda comm: build_partition(GRAPH, comm, "turned:by=10"))


@pytest.mark.parametrize(
    "owner, said",
    [
        (
            lambda ids, rank: ids[1:] % 2,
            (
                r"masters=bad: the owners of 40 nodes have dtype int64 and shape \[39\]; expected"
                r" integers of shape \[40\]"
            ),
        ),
        (lambda ids, rank: ids / 40, r"have dtype float64 and shape \[40\]; expected integers"),
        (lambda ids, rank: ids % 3, "range from 0 to 2; expected 0 to 1"),
        (lambda ids, rank: ids % 3 - 1, "range from -1 to 1; expected 0 to 1"),
        (
            lambda ids, rank: np.where(ids < 10 * rank, 0, 1),
            "masters=bad: 30 of 40 nodes have an owner.*the same on every rank",
        ),
    ],
)
def test_owners_are_checked(owner, said, monkeypatch):
    @dataclass(frozen=True)
    class Bad(Partitioner):
        name = "bad"

        def assign(self, source, comm):
            return Assignment(lambda ids: owner(ids, comm.rank))

    monkeypatch.setitem(PARTITIONERS, "bad", Bad)
    with pytest.raises(PartitionError, match=said):
        run_simulated(2, lambda comm: build_partition(GRAPH, comm, node_partitioner="bad"))
