"""Priorities: draws of source vertices, and ranks that tie."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from samples import GRAPH, sample

from graphtheta.base.rng import Purpose, bits, key
from graphtheta.engine.sampling.priority import Priority, Ranked, ranked_by, sender_ids
from graphtheta.errors import ConfigError
from graphtheta.samplers.neighbour import NeighbourSampler


class SourcePriority(Priority):
    """One draw for each source vertex, shared by all nodes it sends to: LABOR-0 with a fixed number
    of edges.
    """

    draws = True

    def rank(self, frontier, edges, key):
        return Ranked(edges, sender_ids(frontier.partition, edges), edges.senders, key)


class ByWeight(Priority):
    """The edges of the largest weights; the weights of this graph tie."""

    def rank(self, frontier, edges, key):
        edges = edges.listed()
        return ranked_by(edges, -np.round(frontier.partition.edge.read("weight", edges.stored)))

    def weight(self, frontier, edges, share):
        return None


def expected(graph, ranks, fanout):
    """The edges of the lowest ranks of each destination; equal ones by their numbers."""
    chosen = []
    for node in range(graph.n_nodes):
        edges = np.flatnonzero(graph.dst == node)
        chosen.append(edges[np.lexsort((edges, ranks[edges]))][:fanout])
    return np.sort(np.concatenate(chosen))


@pytest.mark.parametrize("placement", graphs.PLACEMENTS)
@pytest.mark.parametrize("size", [1, 3])
def test_source_draws_choose_the_same_on_any_ranks(size, placement):
    (found,) = sample(
        NeighbourSampler((3,), seed=4, priority=SourcePriority()), size, placement, step=5
    )
    # as many low bits as edge ids need tell parallel edges apart
    low = np.uint64((GRAPH.n_edges - 1).bit_length())
    draws = bits(key(4, Purpose.SAMPLE, 5, 0, 0), GRAPH.src) >> low
    np.testing.assert_array_equal(sorted(edge for edge, _ in found), expected(GRAPH, draws, 3))
    sums = np.bincount(GRAPH.dst[[edge for edge, _ in found]], list(found.values()), minlength=20)
    np.testing.assert_allclose(sums, np.bincount(GRAPH.dst, minlength=20))


@pytest.mark.parametrize("replace", [False, True])
def test_source_draws_over_hops_and_directions(replace):
    sampler = NeighbourSampler((2, 3), replace, seed=4, priority=SourcePriority())
    first = sample(sampler, layers=("out", "both"), targets=[3, 7, 18])
    for size, placement in zip((2, 3, 4, 3), graphs.PLACEMENTS, strict=False):
        assert sample(sampler, size, placement, ("out", "both"), [3, 7, 18]) == first


def test_source_draws_choose_fewer_sources_than_edge_draws():
    def sources(sampler):
        (found,) = sample(sampler)
        return len({int(GRAPH.src[edge]) for edge, _ in found})

    seeds = range(10)
    shared = sum(sources(NeighbourSampler((1,), seed=s, priority=SourcePriority())) for s in seeds)
    assert shared < 0.8 * sum(sources(NeighbourSampler((1,), seed=s)) for s in seeds)


@pytest.mark.parametrize("size", [1, 3])
def test_equal_ranks_are_told_apart_by_edge_ids(size):
    (found,) = sample(NeighbourSampler((4,), priority=ByWeight()), size, ("vertex-cut", "hash"))
    np.testing.assert_array_equal(
        sorted(edge for edge, _ in found), expected(GRAPH, -np.round(GRAPH.edge_weight), 4)
    )
    assert set(found.values()) == {1.0}


def test_replacement_needs_draws():
    with pytest.raises(
        ConfigError, match="those of ByWeight are not random; sample without replacement"
    ):
        NeighbourSampler((2,), replace=True, priority=ByWeight())


def test_ranks_keep_the_order_of_numbers():
    values = np.array([-np.inf, -2.5, -1e-300, 0.0, 3e-308, 1.0, 7e9, np.inf])
    made = ranked_by(None, values).values
    assert (made[:-1] < made[1:]).all()
