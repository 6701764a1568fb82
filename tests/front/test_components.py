"""Connected components of a stream of edges, and parts that are whole components."""
from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.partition.edge_source import GraphEdges
from graphtheta.engine.partition.partitioner import assign
from graphtheta.partitioners.components import components
from graphtheta.partitioners.report import OneOf
from graphtheta.partitioners.stream import capacity


@pytest.mark.parametrize("sizes, size, whole", [([42, 40, 30, 12, 4, 2], 3, True), ([60, 30, 30], 3, False), ([1] * 50, 4, True)])
def test_whole_components_are_not_cut(sizes, size, whole):
    rng, begins = np.random.default_rng(0), np.append(0, np.cumsum(sizes))
    n = int(begins[-1])
    name = rng.permutation(n)
    # a path through each component, its edges in random order and direction
    chain = np.concatenate([np.stack((name[a: b - 1], name[a + 1: b])) for a, b in pairwise(begins)], axis=1)
    chain = chain[:, rng.permutation(chain.shape[1])]
    graph = gt.Graph(np.where(rng.random(chain.shape[1]) < 0.5, chain, chain[::-1]), n, x=np.ones((n, 1), np.float32))
    of = components(GraphEdges(graph, 16))
    for a, b in pairwise(begins):
        assert set(of[name[a:b]]) == {name[a:b].min()}
    owners, _ = assign(GraphEdges(graph, 16), OneOf(size), "1d-src", "grem", 0)
    assert np.bincount(owners).max() <= capacity(n, size, 0.1)
    assert (owners[graph.src] == owners[graph.dst]).all() == whole
