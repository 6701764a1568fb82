"""grem on many workers: parts of one worker, whatever the graph; levels against plain twins; room;
numbers of ids.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.ops.kernels.partition.forest import free_keys, number_ids
from graphtheta.partitioners import grem
from graphtheta.partitioners.stream import capacity
from graphtheta.partitioners.streaming.levels import OfClusters, OfParts, of_source


@cache
def loaded(name):
    if name != "grid":
        return gt.load(name, split="none")
    ids = np.random.default_rng(0).permutation(2000).reshape(40, 50)
    src, dst = (
        np.concatenate((ids[a, b].ravel(), ids[c, d].ravel()))
        for a, b, c, d in (
            (slice(-1), slice(None), slice(None), slice(-1)),
            (slice(1, None), slice(None), slice(None), slice(1, None)),
        )
    )
    return graphs.fill(src, dst, 2000)


def parts(graph, size, comms, **options):
    """Owners of all nodes by one worker, or by ``size``."""

    def program(comm):
        owner = grem.GremPartitioner(seed=7, **options).owners(EdgeSource(graph, 5000), comm, size)
        return owner(np.arange(graph.n_nodes))

    return [program(SerialComm())] if comms == 1 else run_simulated(comms, program)


@pytest.mark.one_in(21, 3)
@pytest.mark.parametrize("size, few", [(2, 1 << 20), (3, 500), (4, 1 << 20), (4, 500)])
@pytest.mark.parametrize(
    "name, options",
    [
        ("sbm:n_nodes=2000,n_edges=16000,classes=8,inside=0.9", {"slack": 0.05}),
        ("rmat:scale=11,edge_factor=8", {}),
        ("rmat:scale=11,edge_factor=8", {"degrees": False}),
        ("grid", {"cycles": 2}),
    ],
)
def test_many_workers_find_what_one_does(size, name, options, few, monkeypatch):
    """Also if the graph of clusters is too large for one worker at first, or always."""
    monkeypatch.setattr(grem, "FEW", few)
    graph = loaded(name)
    (alone,) = parts(graph, size, 1, **options)
    for found in parts(graph, size, size, **options):
        np.testing.assert_array_equal(found, alone)
    assert np.bincount(alone, minlength=size).max() <= capacity(
        graph.n_nodes, size, options.get("slack", 0.1)
    )


@pytest.mark.parametrize("few", [1 << 20, 1500])
def test_cuts_are_small_also_over_several_levels(few, monkeypatch):
    monkeypatch.setattr(grem, "FEW", few)
    graph = loaded("grid")
    (found,) = parts(graph, 4, 1)
    assert np.mean(found[graph.src] != found[graph.dst]) < 0.06


def level_of(graph, comm, size):
    return of_source(EdgeSource(graph, 300), comm, size)


@pytest.mark.parametrize("comms", [1, 3])
def test_clusters_keep_their_room_and_their_edges(comms):
    """A graph of clusters has the sums of a plain twin, and so has that of its clusters."""
    graph = graphs.random_graph(300, 900)
    label = np.random.default_rng(0).integers(0, 60, 300) * 5

    def program(comm):
        level = level_of(graph, comm, 3)
        here = slice(level.blocks.first, level.blocks.last)
        first, inside = level.contracted(label[here].astype(np.int32))
        pairs = (np.arange(first.blocks.first, first.blocks.last) // 7 * 7).astype(np.int32)
        second, again = first.contracted(pairs)
        return (
            first.whole(),
            inside,
            second.whole(),
            again,
            first.loads(np.zeros(len(again), int)).sum(),
        )

    found = run_simulated(comms, program)
    inside, again = (np.concatenate([rank[k] for rank in found]) for k in (1, 3))
    names, expected = np.unique(label, return_inverse=True)
    np.testing.assert_array_equal(inside, expected)
    np.testing.assert_array_equal(again, np.arange(len(names)) // 7)
    for of, (whole, *_) in (
        (expected, [rank[0] for rank in found]),
        (expected // 7, [rank[2] for rank in found]),
    ):
        ends = [(a, b) for a, b in zip(of[graph.src], of[graph.dst], strict=True) if a != b]
        twin = Counter(ends) + Counter((b, a) for a, b in ends)
        rows = np.repeat(np.arange(len(whole.mass)), np.diff(whole.ptr))
        assert dict(zip(zip(rows, whole.near, strict=True), whole.weight, strict=True)) == twin
        np.testing.assert_array_equal(whole.mass, np.bincount(of))
    assert found[0][4] == 300


@pytest.mark.parametrize("comms", [1, 4])
def test_moves_keep_the_room(comms):
    graph = loaded("rmat:scale=11,edge_factor=8")

    def program(comm):
        level = level_of(graph, comm, 4)
        label = np.arange(level.blocks.first, level.blocks.last, dtype=np.int32)
        loads = OfClusters(level.blocks, level.mass.copy(), 4, 30)
        moves = [level.visit(label, loads, key) for key in range(4)]
        level.join_alone(label, loads, 30, 9)
        part = (label % 4).astype(np.int32)
        room = int(level.loads(part).max()) + 2
        level.visit(part, OfParts(comm, level.loads(part), room), 5)
        return label, moves, room, level.loads(part), loads.mass

    found = run_simulated(comms, program)
    label = np.concatenate([rank[0] for rank in found])
    assert found[0][1][0] > 0 and np.bincount(label).max() <= 30 and len(np.unique(label)) < 500
    assert found[0][3].max() <= found[0][2] and found[0][3].sum() == graph.n_nodes
    np.testing.assert_array_equal(
        np.concatenate([rank[0] for rank in found]), run_simulated(1, program)[0][0]
    )


@pytest.mark.parametrize("comms", [1, 2])
def test_leaves_of_a_hub_and_nodes_without_neighbours_are_joined(comms):
    graph = graphs.fill(np.arange(1, 40), np.zeros(39, int), 60)

    def program(comm):
        level = level_of(graph, comm, 2)
        label = np.arange(level.blocks.first, level.blocks.last, dtype=np.int32)
        level.join_alone(label, OfClusters(level.blocks, level.mass.copy(), 2, 10), 10, 1)
        return label

    label = np.concatenate(run_simulated(comms, program))
    assert np.bincount(label).max() <= 10
    # the hub has a leaf as favourite; the others wait for the hub, or for nothing in their block
    assert len(set(label[1:40])) <= 9 and len(set(label[40:])) == 4
    assert not set(label[1:40]) & set(label[40:])


def test_ids_are_numbered_though_their_slots_collide():
    rng = np.random.default_rng(0)
    for ids in (
        np.arange(50) << 20,
        rng.integers(0, 1 << 40, 200),
        np.concatenate((np.arange(40), np.arange(40) + (1 << 7))),
    ):
        ids, keys = np.concatenate((ids, ids[::-1], [3, 4])), free_keys(len(ids), np.int64)
        names = np.empty(len(ids), np.int64)
        out = np.empty(len(ids), np.int64)
        n = number_ids(
            ids=ids,
            first=3,
            last=5,
            keys=keys,
            numbers=np.empty(len(keys), np.int64),
            names=names,
            out=out,
        )
        np.testing.assert_array_equal(np.concatenate(([3, 4], names[:n]))[out], ids)
        assert n == len(set(ids) - {3, 4}) == len(set(names[:n]))
