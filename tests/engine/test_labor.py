"""LABOR: published probabilities, frequencies and variances, and the same sets on any ranks."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from samples import GRAPH, averages, same_sample, sample

from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.sampling.parallel import parallel_of
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.datasets.dataset import load
from graphtheta.partitioners.registry import EDGE_PLACEMENTS
from graphtheta.samplers.labor import LaborSampler
from graphtheta.samplers.neighbour import NeighbourSampler

KINDS = [
    {},
    {"iterations": 1},
    {"star": True, "normalise": True},
    {"sequential": True},
    {"replace": True},
    {"weight": "weight"},
    {"weight": "weight", "iterations": 2},
    {"kappa": 4, "layer_dependency": True},
    {"kappa": 4, "sequential": True},
    {"weight": "weight", "sequential": True},
]
# edges of three receiving nodes with shared sources, without duplicates
SOURCES = (range(3, 40), range(20, 50), range(3, 60, 4))
SHARED = graphs.fill(
    *np.array([(s, d) for d, sources in enumerate(SOURCES) for s in sources]).T, 60
)


def published(graph: Graph, receivers, k, iterations, values=None):
    """Inclusion probabilities of the edges into some nodes by the fixed point of the paper; full
    rows have the least c.
    """
    edges = np.flatnonzero(np.isin(graph.dst, receivers))
    src, dst = graph.src[edges], graph.dst[edges]
    a = np.ones(len(edges)) if values is None else values[edges]
    degree, total, squares = (
        np.bincount(dst, x, graph.n_nodes) for x in (np.ones(len(a)), a, a * a)
    )
    least = np.minimum(degree, k)
    with np.errstate(invalid="ignore", divide="ignore"):
        target = total**2 / least - total**2 / degree + squares
    c = np.ones(graph.n_nodes)
    pi = a
    for turn in range(iterations + 1):
        if turn:
            most = np.zeros(graph.n_nodes)
            np.maximum.at(most, src, c[dst] * pi)
            pi = most[src]
        for _ in range(3000):
            v = np.bincount(dst, a * a / np.minimum(1, c[dst] * pi), graph.n_nodes)
            with np.errstate(invalid="ignore"):
                c = np.where(degree > 0, c * v / target, 1)
        need = np.zeros(graph.n_nodes)
        np.maximum.at(need, dst, 1 / pi)
        c = np.where(degree <= k, need, c)
    return edges, np.minimum(1, c[dst] * pi)


@pytest.mark.one_in(13)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_samples_do_not_depend_on_ranks(kind):
    sampler = LaborSampler((2, 3), 4, **kind)
    layers = ("out", "both") if kind.get("star") else ("in", "in")
    expected = sample(sampler, layers=layers, targets=[3, 7, 18], step=5)
    assert min(map(len, expected)) > 2
    for size, placement in zip((2, 3, 4, 8), graphs.PLACEMENTS[::-1], strict=False):
        assert same_sample(sample(sampler, size, placement, layers, [3, 7, 18], step=5), expected)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", [{"star": True}, {"weight": "weight", "iterations": 3}], ids=str)
def test_no_decision_depends_on_rounding(kind):
    graph = graphs.random_graph(40, 500, seed=3)

    def program(comm):
        p = build_partition(graph, comm, "vertex-cut", "hash")
        found = []
        for step in range(12):
            (level,) = k_hop_view(
                p, p.masters < 30, ["in"], sampler=LaborSampler((4,), step, **kind), step=step
            ).levels
            (sweep,) = level.passes
            found += [
                (step, int(e), float(w).hex())
                for s in sweep.selections
                for e, w in zip(p.edge_gid[s.stored], s.weight, strict=True)
            ]
        return found

    expected = set(run_simulated(1, program)[0])
    for size in (2, 4):
        assert {x for part in run_simulated(size, program) for x in part} == expected


@pytest.mark.parametrize(
    ("iterations", "weighted"), [(0, False), (1, False), (4, False), (0, True), (2, True)]
)
def test_probabilities_are_the_published_ones(iterations, weighted):
    name, values = ("weight", GRAPH.edge_weight) if weighted else ("", None)
    edges, p = published(GRAPH, [1, 3, 7, 12], 3, iterations, values)
    sampler = LaborSampler((3,), iterations=iterations, weight=name)
    found = averages(GRAPH, sampler, [1, 3, 7, 12], 25)
    chosen = found > 0
    assert np.count_nonzero(chosen.any(axis=0)) > 0.7 * len(edges)
    expected = np.full(GRAPH.n_edges, np.nan)
    expected[edges] = 1 / p
    np.testing.assert_allclose(
        found[chosen], np.broadcast_to(expected, found.shape)[chosen], rtol=1e-5
    )


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "kind", [{}, {"iterations": 1}, {"star": True}, {"weight": "weight"}, {"kappa": 3}], ids=str
)
def test_vertices_are_included_as_often_as_their_largest_probability(kind):
    # draws of kappa=3 are independent after three steps
    steps = 400
    sampler = LaborSampler((5,), 2, **kind)
    found = averages(SHARED, sampler, [0, 1, 2], steps, stride=3)
    vertex = np.zeros((steps, 60), bool)
    largest = np.zeros(60)
    for i, weights in enumerate(found):
        vertex[i, SHARED.src[weights > 0]] = True
        np.maximum.at(largest, SHARED.src[weights > 0], 1 / weights[weights > 0])
    # a vertex draws once: the largest probability of its edges is that of the vertex
    free = (largest > 0) & (largest < 1)
    mean = steps * largest[free]
    variance = steps * largest[free] * (1 - largest[free])
    chi_square = ((vertex[:, free].sum(axis=0) - mean) ** 2 / variance).sum()
    assert abs(chi_square - free.sum()) < 4 * np.sqrt(2 * free.sum())
    assert vertex[:, largest == 1].all()


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"star": True},
        {"sequential": True},
        {"replace": True},
        {"weight": "weight", "iterations": 1},
        {"weight": "weight", "sequential": True},
    ],
    ids=str,
)
def test_sums_are_unbiased(kind):
    found = averages(SHARED, LaborSampler((5,), 1, **kind), [0, 1, 2], 400)
    value = np.random.default_rng(0).standard_normal(SHARED.n_edges) + 1
    for node in range(3):
        into = SHARED.dst == node
        sums = found[:, into] @ value[into]
        assert abs(sums.mean() - value[into].sum()) < 4 * sums.std() / np.sqrt(len(sums))


@pytest.mark.second
def test_the_variance_is_that_of_neighbour_sampling():
    value = np.random.default_rng(1).standard_normal(SHARED.n_edges)
    into = SHARED.dst == 0
    value[into] -= value[into].mean()

    def variance(sampler, mean=0):
        return (averages(SHARED, sampler, [0, 1, 2], 500)[:, into] @ (value[into] + mean)).var()

    expected = variance(NeighbourSampler((8,)))
    for kind in ({}, {"iterations": 1}, {"star": True}):
        assert variance(LaborSampler((8,), **kind)) == pytest.approx(expected, rel=0.3)
    # of values with a mean, the number of edges counts too, unless weights are normalised
    assert variance(LaborSampler((8,)), mean=2) > 2 * expected
    assert variance(LaborSampler((8,), normalise=True), mean=2) == pytest.approx(expected, rel=0.3)


def test_weights_of_a_node_sum_to_its_degree_if_normalised():
    (found,) = sample(LaborSampler((3,), normalise=True), 3, ("vertex-cut", "hash"))
    sums = np.bincount(GRAPH.dst[[e for e, _ in found]], list(found.values()), minlength=20)
    degree = np.bincount(GRAPH.dst, minlength=20)
    np.testing.assert_allclose(sums[sums > 0], degree[sums > 0])
    assert np.count_nonzero(sums) > 10


@pytest.mark.second
@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"sequential": True},
        {"replace": True},
        {"sequential": True, "kappa": 2},
        {"replace": True, "kappa": 2},
    ],
    ids=str,
)
def test_parallel_edges_are_chosen_as_often_as_others(kind):
    # each of 12 nodes has two edges from one vertex and two from others
    ends = [(12 + 3 * node + source, node) for node in range(12) for source in (0, 0, 1, 2)]
    graph = graphs.fill(*np.array(ends).T, 48)
    steps = 300
    found = averages(
        graph, LaborSampler((1,), **kind), range(12), steps, stride=kind.get("kappa", 1)
    )
    by_edge = found.reshape(steps, 12, 4).mean(axis=1)
    mean = by_edge.mean(axis=0)
    error = by_edge.std(axis=0) / np.sqrt(steps)
    assert (np.abs(mean - 1) < 4 * error).all(), mean
    assert (error < 0.04).all()


PLACES = [
    ("random", "hash"),
    ("hdrf", "block"),
    ("libra", "hash"),
    ("vertex-cut", "hash"),
    ("1d-src", "block"),
]


@pytest.mark.one_in(7)
@pytest.mark.parametrize("placement", PLACES, ids=" ".join)
def test_parallel_edges_are_numbered_alike_wherever_they_are_stored(placement):
    assert placement[0] in EDGE_PLACEMENTS
    ends = np.random.default_rng(2).integers(0, 6, (2, 120))
    graph = graphs.fill(*ends, 12)
    pair = ends[0] * 12 + ends[1]
    expected = [np.count_nonzero(pair[:e] == pair[e]) for e in range(120)]

    def program(comm):
        p = build_partition(graph, comm, *placement)
        number = parallel_of(p, p.relations["edge"])
        found = np.zeros(120, int)
        found[p.edge_gid] = number if len(number) else 0
        return comm.all_sum(found).tolist()

    for size in (1, 2, 4):
        assert run_simulated(size, program)[0] == expected
    kinds = (
        {"sequential": True},
        {"replace": True},
        {"sequential": True, "kappa": 3},
        {"sequential": True, "weight": "weight"},
    )
    # every kind of sampler with one of the directions
    for i, kind in enumerate(kinds):
        layers = (("in",), ("out",), ("both",))[(i + PLACES.index(placement)) % 3]
        sampler = LaborSampler((3,), **kind)
        alone = sample(sampler, layers=layers, targets=range(12), graph=graph, step=1)
        assert same_sample(
            sample(sampler, 3, placement, layers, range(12), graph=graph, step=1), alone
        )


@pytest.mark.parametrize(
    "kind",
    [{"sequential": True}, {"replace": True}, {"sequential": True, "weight": "weight"}],
    ids=str,
)
def test_a_node_keeps_its_fanout(kind):
    (found,) = sample(LaborSampler((4,), **kind), 3, ("vertex-cut", "hash"))
    ids = np.array([e for e, _ in found])
    degree = np.bincount(GRAPH.dst, minlength=20)
    times = (
        np.array(list(found.values())) * 4 / degree[GRAPH.dst[ids]]
        if "replace" in kind
        else np.ones(len(ids))
    )
    np.testing.assert_allclose(times, np.round(times))
    expected = np.where(degree > 0, 4, 0) if "replace" in kind else np.minimum(degree, 4)
    np.testing.assert_array_equal(
        np.bincount(GRAPH.dst[ids], np.round(times), minlength=20), expected
    )


def test_all_edges_of_small_nodes_and_of_no_fanout_are_kept():
    edges = set(np.flatnonzero(GRAPH.dst == 3).tolist())
    for kind in KINDS[:3]:
        (found,) = sample(LaborSampler((200,), **kind), targets=[3])
        assert {e for e, _ in found} == edges and set(found.values()) == {1.0}
    (found,) = sample(LaborSampler((-1,)), targets=[3])
    assert {e for e, _ in found} == edges


def test_excluded_edges_do_not_count():
    excluded = np.arange(150) % 2 == 0
    for kind in ({}, {"star": True}):
        expected = sample(LaborSampler((3,), **kind), excluded=excluded)
        assert same_sample(
            sample(LaborSampler((3,), **kind), 3, ("vertex-cut", "hash"), excluded=excluded),
            expected,
        )
        ids = np.array([e for e, _ in expected[0]])
        assert not excluded[ids].any()
    (found,) = sample(LaborSampler((3,)), excluded=excluded)
    degree = np.bincount(GRAPH.dst[~excluded], minlength=20)
    for (e, _), w in found.items():
        # probabilities are multiples of 2**-32
        assert w == pytest.approx(max(degree[GRAPH.dst[e]] / 3, 1), rel=1e-8)


def test_vertices_per_layer_fall_from_neighbour_sampling_to_labor_star():
    graph = load("rmat:scale=12,edge_factor=30,features=8,classes=4")

    def program(comm):
        p = build_partition(graph, comm)
        sizes = []
        labor = [LaborSampler((10, 10), **kind) for kind in ({}, {"iterations": 1}, {"star": True})]
        for sampler in (NeighbourSampler((10, 10)), *labor):
            views = [
                k_hop_view(
                    p, np.arange(p.n_masters) % 40 == step, ["in", "in"], sampler=sampler, step=step
                )
                for step in range(3)
            ]
            sizes.append([sum(view.levels[i].n_in for view in views) for i in range(2)])
        return sizes

    (sizes,) = run_simulated(1, program)
    for ours, theirs in zip(sizes[1:], sizes, strict=False):
        assert ours[0] < theirs[0] and ours[1] < theirs[1]
    assert sizes[1][0] < 0.8 * sizes[0][0]


@pytest.mark.parametrize("name", graphs.odd_graphs())
def test_odd_graphs(name):
    graph = graphs.odd_graphs()[name]
    for kind in ({}, {"star": True}, {"weight": "weight"}, {"replace": True}):
        sampler = LaborSampler((2, 2), **kind)
        first = sample(sampler, layers=("in", "both"), targets=range(graph.n_nodes), graph=graph)
        size = min(3, graph.n_nodes)
        assert same_sample(
            sample(
                sampler,
                size,
                graphs.PLACEMENTS[4],
                ("in", "both"),
                range(graph.n_nodes),
                graph=graph,
            ),
            first,
        )


@pytest.mark.parametrize("kind", [{}, {"star": True}, {"weight": "weight"}], ids=str)
def test_samples_do_not_depend_on_how_rows_are_spread_over_threads(kind, monkeypatch):
    expected = sample(LaborSampler((2, 3), **kind), layers=("out", "both"), targets=[3, 7, 18])
    monkeypatch.setattr("graphtheta.engine.sampling.bipartite.EDGES_PER_BLOCK", 7)
    assert (
        sample(LaborSampler((2, 3), **kind), layers=("out", "both"), targets=[3, 7, 18]) == expected
    )


def test_edges_of_weight_zero_are_never_chosen():
    graph = graphs.random_graph(20, 150, edge_weight=np.arange(150) % 3.0)
    (found,) = sample(LaborSampler((3,), weight="weight"), 2, graph=graph)
    assert found and all(e % 3 for e, _ in found)


def test_bad_options():
    for options, message in (
        ({"iterations": -2}, "iterations: got -2"),
        ({"kappa": -1}, "kappa: got -1"),
        ({"mega_batch": True}, "mega_batch: kappa is 1"),
        ({"sequential": True, "star": True}, "sequential keeps the lowest draws"),
        ({"replace": True, "weight": "weight"}, "replace none with weight"),
        ({"replace": True, "star": True}, "replace keeps the lowest draws"),
    ):
        with pytest.raises(ConfigError, match=message):
            LaborSampler((2,), **options)
    with pytest.raises(ConfigError, match="expected a positive number for each hop, or -1"):
        LaborSampler((0,))
    with pytest.raises(
        ConfigError, match="weight=heft: there is no edge column 'heft'; choose from weight"
    ):
        LaborSampler((2,), weight="heft").check(build_partition(GRAPH, SerialComm()))
    with pytest.raises(DataError, match=r"has the value -1\.0, expected 0, or a number from"):
        negative = graphs.random_graph(20, 150, edge_weight=np.full(150, -1.0))
        LaborSampler((2,), weight="weight").check(build_partition(negative, SerialComm()))
