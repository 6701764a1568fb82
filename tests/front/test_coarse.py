"""Connected components and coarse blocks that workers find together, and parts made of them."""

from __future__ import annotations

from collections import Counter
from itertools import chain, pairwise

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.base.rng import shuffle
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import assign
from graphtheta.partitioners.report import OneOf
from graphtheta.partitioners.stream import capacity
from graphtheta.partitioners.streaming import coarse
from graphtheta.partitioners.streaming.along import HomeEdges
from graphtheta.partitioners.streaming.blocks import IdBlocks
from graphtheta.partitioners.streaming.components import components, whole_components
from graphtheta.partitioners.streaming.degrees import shared_chunks

SIZES = (1, 2, 3, 4)
GRAPHS = {"some": graphs.random_graph(40, 60), **graphs.odd_graphs()}


def joined(size, program, *args):
    """The results of all workers, for blocks of ids, one after another."""
    return np.concatenate(run_simulated(size, program, *args))


def paths(sizes, seed=0):
    """Paths of some numbers of nodes, which have random ids, with edges in random order and
    direction; and the ids of each path.
    """
    rng = np.random.default_rng(seed)
    begins = np.append(0, np.cumsum(sizes))
    n = int(begins[-1])
    name = rng.permutation(n)
    edges = np.concatenate(
        [np.stack((name[a : b - 1], name[a + 1 : b])) for a, b in pairwise(begins)], axis=1
    )
    edges = edges[:, rng.permutation(edges.shape[1])]
    graph = gt.Graph(
        np.where(rng.random(edges.shape[1]) < 0.5, edges, edges[::-1]),
        n,
        x=np.ones((n, 1), np.float32),
    )
    return graph, [name[a:b] for a, b in pairwise(begins)]


def near(graph, v):
    """The other ends of the edges of a node; a loop gives the node."""
    return {*graph.dst[graph.src == v], *graph.src[graph.dst == v]}


@pytest.mark.second
def test_neighbours_receive_what_nodes_send(monkeypatch):
    graph = GRAPHS["some"]
    twice, sends = 2 * np.arange(40), np.arange(40) % 3 > 0

    def program(comm):
        blocks = IdBlocks(comm, 40)
        here = slice(blocks.first, blocks.last)
        return [
            (number, blocks.first + int(v), int(x))
            for number, nodes, values in HomeEdges(EdgeSource(graph, 7), comm).along(
                [twice[here], -twice[here]], sends[here]
            )
            for v, x in zip(nodes, values, strict=True)
        ]

    ends = [*zip(graph.src, graph.dst, strict=True), *zip(graph.dst, graph.src, strict=True)]
    sent = Counter(
        (number, v, sign * 2 * u) for u, v in ends if sends[u] for number, sign in ((0, 1), (1, -1))
    )
    assert Counter(chain.from_iterable(run_simulated(1, program))) == sent
    for step in (1, 7, 1 << 20):
        monkeypatch.setattr("graphtheta.partitioners.streaming.along.CHUNK", step)
        for size in SIZES[1:]:
            # several workers keep each neighbour once
            assert Counter(chain.from_iterable(run_simulated(size, program))) == Counter(set(sent))


def component(graph, comm, chunk=16):
    pairs = ((edges.src, edges.dst) for edges in shared_chunks(EdgeSource(graph, chunk), comm))
    return components(IdBlocks(comm, graph.n_nodes), pairs)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("fewest", [1, 1 << 15])
def test_components_have_their_lowest_ids(size, fewest, monkeypatch):
    """Also if forests are sent several times, since workers have room for few ids."""
    monkeypatch.setattr("graphtheta.partitioners.streaming.components.FEWEST", fewest)
    graph, found = paths([70, 40, 12, 4, 2, 1, 1])
    of = joined(size, lambda comm: component(graph, comm))
    for nodes in found:
        assert set(of[nodes]) == {nodes.min()}


@pytest.mark.parametrize("size", SIZES)
def test_components_of_odd_graphs(size):
    for name, graph in GRAPHS.items():
        expected = np.arange(graph.n_nodes)
        for _ in range(graph.n_nodes):
            lower = np.minimum(expected[graph.src], expected[graph.dst])
            for end in (graph.src, graph.dst):
                np.minimum.at(expected, end, lower)
        np.testing.assert_array_equal(
            joined(size, lambda comm, graph=graph: component(graph, comm)), expected, name
        )


@pytest.mark.parametrize("size", SIZES)
def test_long_paths_need_few_rounds(size, monkeypatch):
    """Ascending ids along a path, of which workers read edges in turn, are the longest chain of
    parents.
    """
    n = 2000
    rounds = []
    order = np.argsort(np.arange(n - 1) % size, kind="stable")
    graph = graphs.fill(order, order + 1, n)
    received = IdBlocks.received
    monkeypatch.setattr(
        IdBlocks,
        "received",
        lambda self, *args: rounds.append(self.comm.rank) or received(self, *args),
    )
    assert set(joined(size, lambda comm: component(graph, comm, n))) == {0}
    assert len(rounds) <= 16 * size


@pytest.mark.parametrize("size", SIZES)
def test_components_go_to_the_emptiest_parts(size):
    """By falling size; loads are those of one component after another, though many of equal size
    are given at once.
    """
    rng = np.random.default_rng(1)
    for sizes in ([30, 12, 12, 12, 5, 5, 1, 1, 1], [1] * 40, [2] * 9 + [1] * 7, [20]):
        name = np.repeat(rng.permutation(len(sizes)), sizes)
        name = np.array([np.flatnonzero(name == number)[0] for number in name])
        for parts in (1, 3, 7):
            load = np.zeros(parts, int)
            for nodes in sorted(sizes, reverse=True):
                load[load.argmin()] += nodes

            def program(comm, room, name=name, parts=parts):
                blocks = IdBlocks(comm, len(name))
                return whole_components(blocks, name[blocks.first : blocks.last], parts, room)

            part = joined(size, program, load.max())
            np.testing.assert_array_equal(np.bincount(part, minlength=parts), load)
            assert all(len(set(part[name == number])) == 1 for number in name)
            assert all(found is None for found in run_simulated(size, program, load.max() - 1))


@pytest.mark.parametrize("hops", [0, 1, 2, 30])
def test_search_finds_the_nearest_sources(hops):
    """A node has a source of as few hops as possible, if hops reach one, through nodes of the same
    source.
    """
    graph = GRAPHS["some"]
    sources = shuffle(5, np.arange(40))[:4]
    name = joined(
        1, lambda comm: coarse.searched(HomeEdges(EdgeSource(graph, 16), comm), 4, hops, 5)[0]
    )
    distance = np.where(np.isin(np.arange(40), sources), 0, 99)
    for hop in range(1, hops + 1):
        for v in range(40):
            if distance[v] == 99 and any(distance[u] == hop - 1 for u in near(graph, v)):
                distance[v] = hop
    for v in range(40):
        assert (name[v] in sources) == (distance[v] < 99)
        if 0 < distance[v] < 99:
            assert any(
                distance[u] == distance[v] - 1 and name[u] == name[v] for u in near(graph, v)
            )
    for size in SIZES[1:]:
        ranks = run_simulated(
            size, lambda comm: coarse.searched(HomeEdges(EdgeSource(graph, 7), comm), 4, hops, 5)
        )
        np.testing.assert_array_equal(np.concatenate([found for found, _ in ranks]), name)
        np.testing.assert_array_equal(
            np.flatnonzero(np.concatenate([is_source for _, is_source in ranks])), np.sort(sources)
        )


@pytest.mark.parametrize("size", SIZES)
def test_sizes_of_coarse_blocks(size):
    name = np.repeat([0, 30, 31, 33, 34, 35], [30, 1, 2, 1, 1, 9])

    def program(comm):
        blocks = IdBlocks(comm, len(name))
        here = slice(blocks.first, blocks.last)
        return coarse.sized(
            blocks, name[here], np.isin(np.arange(len(name)), (30, 31, 35))[here], 4, 10
        )

    ranks = run_simulated(size, program)
    block = np.concatenate([block for block, _ in ranks])
    # three pieces of the first, small ones of sources, small components, and the last
    assert [len(set(block[a:b])) for a, b in ((0, 30), (30, 33), (33, 35), (35, 44))] == [
        3,
        1,
        1,
        1,
    ] and len(set(block)) == 6
    for _, nodes in ranks:
        assert list(nodes) == list(np.bincount(block)) == [10, 10, 10, 9, 3, 2]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("group", [512, 9])
def test_nodes_near_coarse_blocks(size, group, monkeypatch):
    monkeypatch.setattr(coarse, "GROUP", group)
    graph = GRAPHS["some"]
    block = np.random.default_rng(0).integers(0, 70, 40).astype(np.int32)

    def program(comm, second):
        blocks = IdBlocks(comm, 40)
        return list(
            coarse.near_blocks(
                HomeEdges(EdgeSource(graph, 33), comm),
                block[blocks.first : blocks.last],
                70,
                second,
            )
        )

    beside = [near(graph, v) for v in range(40)]
    for second in (0, 0.25):
        for counts in run_simulated(size, program, second):
            assert len(counts) == 70
            for b, found in enumerate(counts):
                inside = set(np.flatnonzero(block == b))
                one = {v for v in range(40) if beside[v] & inside}
                two = {v for v in range(40) if beside[v] & one} - one
                np.testing.assert_array_equal(
                    found,
                    sum(
                        w * np.bincount(block[list(nodes)], minlength=70)
                        for w, nodes in ((1, one), (second, two))
                        if nodes
                    ),
                )


@pytest.mark.second
@pytest.mark.parametrize(
    "sizes, size, whole",
    [([42, 40, 30, 12, 4, 2], 3, True), ([60, 30, 30], 3, False), ([1] * 50, 4, True)],
)
def test_whole_components_are_not_cut(sizes, size, whole):
    graph, _ = paths(sizes)
    owners, _ = assign(EdgeSource(graph, 16), OneOf(size), "1d-src", "grem", 0)
    assert np.bincount(owners).max() <= capacity(graph.n_nodes, size, 0.1)
    assert (owners[graph.src] == owners[graph.dst]).all() == whole
