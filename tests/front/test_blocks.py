"""Samplers without the engine: blocks by original ids as arrays."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from samples import sample

import graphtheta as gt
from graphtheta.errors import ConfigError, DataError
from graphtheta.samplers.neighbour import NeighbourSampler

GRAPH = graphs.random_graph(30, 200)
NAMED = GRAPH.replace(node_ids=np.array([f"v{(7 * i) % 30:02d}" for i in range(30)]))


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("replace", [False, True])
def test_blocks_hold_what_a_view_holds(direction, replace):
    blocks = gt.sample(
        GRAPH, [9, 2, 17], [4, 2], replace=replace, seed=5, step=3, direction=direction
    )
    sampler = NeighbourSampler((2, 4), replace, seed=5)
    expected = sample(
        sampler, layers=(direction, direction), targets=[9, 2, 17], step=3, graph=GRAPH
    )
    ends = (GRAPH.src, GRAPH.dst) if direction == "in" else (GRAPH.dst, GRAPH.src)
    for block, found in zip(blocks, expected, strict=True):
        assert {
            (int(e), direction == "out"): w for e, w in zip(block.edge, block.weight, strict=True)
        } == found
        np.testing.assert_array_equal(block.nodes[block.src], ends[0][block.edge])
        np.testing.assert_array_equal(block.nodes[block.dst], ends[1][block.edge])
        assert np.all(np.diff(block.dst) >= 0) and block.dst.max() < block.n_out
        assert len(np.unique(block.nodes)) == len(block.nodes)
    assert blocks[-1].nodes[:3].tolist() == [9, 2, 17] and blocks[-1].n_out == 3
    assert blocks[0].n_out == len(blocks[1].nodes)
    np.testing.assert_array_equal(blocks[0].nodes[: blocks[0].n_out], blocks[1].nodes)


def test_original_ids_come_back():
    by_number = gt.sample(GRAPH, [9, 2], [3], seed=1)[0]
    by_id = gt.sample(NAMED, NAMED.node_ids[[9, 2]], [3], seed=1)[0]
    assert by_id.nodes.tolist() == NAMED.node_ids[by_number.nodes].tolist()
    for name in ("src", "dst", "edge", "weight"):
        np.testing.assert_array_equal(getattr(by_id, name), getattr(by_number, name))


def test_a_mean_over_blocks_by_hand_is_that_of_a_layer():
    x = np.random.default_rng(0).standard_normal((30, 4))
    (block,) = gt.sample(GRAPH, np.arange(30), [-1])
    total = np.zeros((30, 4))
    np.add.at(total, block.dst, x[block.nodes[block.src]])
    np.testing.assert_allclose(total[np.argsort(block.nodes)], _sums(x), atol=1e-12)


def _sums(x):
    total = np.zeros_like(x)
    np.add.at(total, GRAPH.dst, x[GRAPH.src])
    return total


def test_steps_differ_and_repeat():
    loader = gt.Loader(GRAPH, targets="all", fanout=[3, 3], to="arrays")
    first = loader.sample([4, 5], step=1).blocks
    again = loader.sample([4, 5], step=1).blocks
    later = loader.sample([4, 5], step=2).blocks
    assert (
        [b.edge.tolist() for b in first]
        == [b.edge.tolist() for b in again]
        != [b.edge.tolist() for b in later]
    )


@pytest.mark.parametrize(
    "graph, targets",
    [(GRAPH, []), (graphs.fill([], [], 3), [0, 2]), (graphs.fill([0], [0], 1), [0])],
)
def test_odd_graphs(graph, targets):
    for block in gt.sample(graph, np.array(targets, np.int64), [2, 2]):
        assert block.n_out <= len(block.nodes) and len(block.src) == len(block.dst) == len(
            block.edge
        ) == len(block.weight)
        assert block.nodes[: len(targets)].tolist() == targets


@pytest.mark.parametrize(
    "graph, targets, said",
    [
        (GRAPH, [3, 30], r"the graph has no node .*30.* \(1 unknown ids\)"),
        (GRAPH, [-1], "no node .*-1"),
        (GRAPH, ["a"], "no node .*'a'"),
        (NAMED, ["v03", "v99"], "no node 'v99'"),
        (NAMED, [3], "no node 3"),
        (GRAPH, [3, 3], "an id is given twice"),
        (GRAPH, [[1, 2]], r"shape \[n\], got \[1, 2\]"),
    ],
)
def test_unknown_targets_are_refused(graph, targets, said):
    with pytest.raises(DataError, match=said):
        gt.sample(graph, targets, [2])


def test_what_cannot_be_is_refused():
    for options, said in (
        ({"direction": "both"}, "direction 'both' is not known"),
        ({"sampler": "neighbor"}, "did you mean 'neighbour'"),
        ({"sampler": "neighbour:k=3"}, "no option 'k'"),
    ):
        with pytest.raises(ConfigError, match=said):
            gt.sample(GRAPH, [1], [2], **options)
    with pytest.raises(ConfigError, match="fanout is empty"):
        gt.sample(GRAPH, [1], [])
