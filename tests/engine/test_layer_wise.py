"""Layer-wise samplers: numbers of vertices, frequencies, unbiased sums, and the same sets on any
ranks.
"""

from __future__ import annotations

from itertools import permutations

import graphs
import numpy as np
import pytest
from samples import GRAPH, averages, same_sample, sample

from graphtheta.errors import ConfigError
from graphtheta.samplers.ladies import LadiesSampler
from graphtheta.samplers.pladies import PladiesSampler

KINDS = [
    (LadiesSampler, {}),
    (LadiesSampler, {"weight": "weight", "normalise": True}),
    (LadiesSampler, {"weights": "published"}),
    (LadiesSampler, {"weights": "published", "weight": "weight", "layer_dependency": True}),
    (PladiesSampler, {}),
    (PladiesSampler, {"skip": True, "kappa": 3}),
]


def importance(graph):
    """Sum of squares of the row-normalised adjacency, by source."""
    degree = np.bincount(graph.dst, minlength=graph.n_nodes)
    return np.bincount(graph.src, 1 / degree[graph.dst] ** 2.0, graph.n_nodes)


def sources(graph, found):
    return np.unique(graph.src[[e for e, _ in found]])


@pytest.mark.parametrize(("made", "options"), KINDS)
def test_samples_do_not_depend_on_ranks(made, options):
    sampler = made((5, 6), 4, **options)
    expected = sample(sampler, layers=("both", "in"), targets=[3, 7, 18], step=5)
    assert all(expected)
    for size, placement in zip((2, 3, 4, 8), graphs.PLACEMENTS[::-1], strict=False):
        assert same_sample(
            sample(sampler, size, placement, ("both", "in"), [3, 7, 18], step=5), expected
        )


@pytest.mark.parametrize("made", [LadiesSampler, PladiesSampler])
def test_all_edges_of_a_chosen_vertex_are_kept(made):
    (found,) = sample(made((6,)), 3, ("vertex-cut", "hash"))
    chosen = sources(GRAPH, found)
    assert {e for e, _ in found} == set(np.flatnonzero(np.isin(GRAPH.src, chosen)).tolist())
    assert len(chosen) == 6 or made is PladiesSampler
    for vertex in chosen:
        assert len({w for (e, _), w in found.items() if GRAPH.src[e] == vertex}) == 1


@pytest.mark.parametrize("made", [LadiesSampler, PladiesSampler])
def test_weights_of_a_vertex_are_one_on_average(made):
    steps, n = 500, 7
    found = averages(GRAPH, made((n,), 3), range(20), steps)
    by_vertex = np.zeros((steps, 20))
    by_vertex[:, GRAPH.src] = found
    present = np.unique(GRAPH.src)
    mean = by_vertex.mean(axis=0)
    error = by_vertex.std(axis=0) / np.sqrt(steps)
    assert (np.abs(mean - 1)[present] <= 4 * error[present] + 1e-9).all()
    counts = np.count_nonzero(by_vertex, axis=1)
    if made is LadiesSampler:
        assert (counts == n).all()
    else:
        assert abs(counts.mean() - n) < 4 * counts.std() / np.sqrt(steps)


def test_pladies_includes_vertices_in_proportion_to_their_importance():
    steps, n = 500, 7
    found = averages(GRAPH, PladiesSampler((n,)), range(20), steps)
    p = importance(GRAPH)
    low = 0.0
    high = 1e9
    for _ in range(200):
        c = (low + high) / 2
        low, high = (c, high) if np.minimum(c * p, 1).sum() < n else (low, c)
    expected = np.minimum(c * p, 1)
    times = np.zeros(20)
    for vertex in np.unique(GRAPH.src):
        times[vertex] = np.count_nonzero(found[:, np.flatnonzero(GRAPH.src == vertex)[0]])
    free = (expected > 0) & (expected < 1)
    chi_square = (
        (times - steps * expected)[free] ** 2 / (steps * expected * (1 - expected))[free]
    ).sum()
    assert abs(chi_square - free.sum()) < 4 * np.sqrt(2 * free.sum())
    weights = found.max(axis=0)
    np.testing.assert_allclose(
        weights[weights > 0], 1 / expected[GRAPH.src][weights > 0], rtol=3e-4
    )


def test_ladies_draws_in_proportion_to_importance():
    steps = 600
    found = averages(GRAPH, LadiesSampler((1,)), range(20), steps)
    p = importance(GRAPH) / importance(GRAPH).sum()
    chosen = GRAPH.src[(found > 0).argmax(axis=1)]
    times = np.bincount(chosen, minlength=20)
    some = p > 0
    chi_square = ((times - steps * p)[some] ** 2 / (steps * p[some])).sum()
    assert abs(chi_square - some.sum() + 1) < 4 * np.sqrt(2 * some.sum())


def published(graph, chosen):
    """The published estimate from some vertices: by edge of the graph, the entry of D^-1 Q P S
    times the degree of the row, 0 for edges from other vertices.
    """
    p = importance(graph) / importance(graph).sum()
    degree = np.bincount(graph.dst, minlength=graph.n_nodes)
    entries = np.where(
        np.isin(graph.src, chosen), 1 / degree[graph.dst] / (len(chosen) * p[graph.src]), 0
    )
    rows = np.bincount(graph.dst, entries, graph.n_nodes)
    return entries / np.where(rows > 0, rows, 1)[graph.dst] * degree[graph.dst]


@pytest.mark.parametrize("options", [{}, {"normalise": True}, {"kappa": 2, "mega_batch": True}])
def test_published_weights_are_those_of_the_paper(options):
    sampler = LadiesSampler((6,), 5, weights="published", **options)
    (found,) = sample(sampler, 3, ("vertex-cut", "hash"))
    (usual,) = sample(LadiesSampler((6,), 5, **options), 2)
    assert found.keys() == usual.keys()
    expected = published(GRAPH, sources(GRAPH, found))
    for (edge, _), weight in found.items():
        np.testing.assert_allclose(weight, expected[edge], rtol=1e-9)


def test_published_weights_have_the_expectation_of_the_published_program():
    # vertices are drawn one after another in proportion to p among those that are left
    p = importance(GRAPH) / importance(GRAPH).sum()
    expected = np.zeros(GRAPH.n_edges)
    for pair in permutations(np.flatnonzero(p).tolist(), 2):
        chance = p[pair[0]] * p[pair[1]] / (1 - p[pair[0]])
        expected += chance * published(GRAPH, pair)
    steps = 1500
    found = averages(GRAPH, LadiesSampler((2,), 3, weights="published"), range(20), steps)
    error = found.std(axis=0) / np.sqrt(steps)
    off = np.abs(found.mean(axis=0) - expected)
    assert (off <= 4 * error + 1e-9).all()
    # which is not that of unbiased sums
    assert (np.abs(expected - 1) > 4 * error).any()


def test_published_weights_differ_where_all_vertices_are_kept():
    (found,) = sample(LadiesSampler((100,), weights="published"), 2)
    expected = published(GRAPH, np.unique(GRAPH.src))
    np.testing.assert_allclose(
        [found[edge, False] for edge in range(GRAPH.n_edges)], expected, rtol=1e-9
    )
    (found,) = sample(LadiesSampler((-1,), weights="published"), 2)
    assert set(found.values()) == {1.0}


@pytest.mark.parametrize("made", [LadiesSampler, PladiesSampler])
def test_few_candidates_are_all_kept(made):
    for n in (100, -1):
        (found,) = sample(made((n,)), 2, targets=[3, 7])
        assert {e for e, _ in found} == set(np.flatnonzero(np.isin(GRAPH.dst, [3, 7])).tolist())
        assert set(found.values()) == {1.0}


def test_receiving_nodes_are_kept_with_skip():
    targets = range(3, 12)
    (found,) = sample(PladiesSampler((3,), skip=True), 3, ("1d-dst", "hash"), targets=targets)
    between = np.isin(GRAPH.src, targets) & np.isin(GRAPH.dst, targets)
    assert all(found[int(e), False] == 1 for e in np.flatnonzero(between))


def test_weights_of_a_node_sum_to_its_degree_if_normalised():
    (found,) = sample(LadiesSampler((6,), normalise=True), 3, ("vertex-cut", "hash"))
    sums = np.bincount(GRAPH.dst[[e for e, _ in found]], list(found.values()), minlength=20)
    np.testing.assert_allclose(sums[sums > 0], np.bincount(GRAPH.dst, minlength=20)[sums > 0])


@pytest.mark.parametrize("name", graphs.odd_graphs())
def test_odd_graphs(name):
    graph = graphs.odd_graphs()[name]
    for made, options in KINDS[1:]:
        first = sample(
            made((2, 2), **options),
            layers=("in", "both"),
            targets=range(graph.n_nodes),
            graph=graph,
        )
        size = min(3, graph.n_nodes)
        found = sample(
            made((2, 2), **options),
            size,
            graphs.PLACEMENTS[4],
            ("in", "both"),
            range(graph.n_nodes),
            graph=graph,
        )
        assert same_sample(found, first)


def test_unknown_weights():
    with pytest.raises(ConfigError, match=r"got 'publishd', expected inverse or published \(did"):
        LadiesSampler((2,), weights="publishd")


def test_bad_fanouts():
    with pytest.raises(ConfigError, match="expected a positive number for each hop, or -1"):
        LadiesSampler((0,))
