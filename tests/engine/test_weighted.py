"""Weighted sampling and masks: the same sets on any ranks, inclusion as derived, sums that are
right on average.
"""

from __future__ import annotations

from functools import partial

import graphs
import numpy as np
import pytest
from samples import sample

import graphtheta as gt
from graphtheta.base.rng import Purpose, bits, key
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.errors import ConfigError, DataError
from graphtheta.ops.kernels.sampling.rate import minus_log, unit
from graphtheta.samplers.neighbour import NeighbourSampler
from graphtheta.samplers.weighted import WeightedSampler

RNG = np.random.default_rng(5)
# from 1/16 to 16, an eighth of them 0
WEIGHT = np.where(RNG.random(150) < 0.125, 0, 2.0 ** RNG.integers(-4, 5, 150)).astype(np.float32)
MASK = RNG.random(150) < 0.6
GRAPH = graphs.random_graph(
    20, 150, edge_columns={"w": WEIGHT, "part": MASK, "several": np.ones((150, 2))}
)
INTO = np.flatnonzero((GRAPH.dst == 3) & (WEIGHT > 0))
weighted = partial(WeightedSampler, weight="w")


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert set(one) == set(other)
        np.testing.assert_allclose([one[e] for e in other], list(other.values()), rtol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"replace": True},
        {"importance": False},
        {"normalise": True, "mask": "part"},
        {"normalise": True, "replace": True},
    ],
    ids=str,
)
def test_samples_do_not_depend_on_ranks(options):
    sampler = weighted((2, 3), seed=4, **options)
    where = dict(layers=("in", "both"), targets=[3, 7, 18], step=5, graph=GRAPH)
    expected = sample(sampler, **where)
    for size, placement in zip((2, 3, 4, 8, 3, 2), graphs.PLACEMENTS, strict=True):
        same(sample(sampler, size, placement, **where), expected)


def test_the_lowest_ranks_are_chosen_and_weigh_by_the_threshold():
    (found,) = sample(weighted((4,), seed=2), 3, ("vertex-cut", "hash"), graph=GRAPH)
    u = np.array([unit(h) for h in bits(key(2, Purpose.SAMPLE, 0, 0, 0), np.arange(150))])
    expected = {}
    for node in range(20):
        edges = np.flatnonzero((GRAPH.dst == node) & (WEIGHT > 0))
        order = edges[np.argsort(u[edges] / WEIGHT[edges])]
        threshold = np.append(u[order] / WEIGHT[order], [np.inf] * 5)[4]
        expected |= {(int(e), False): 1 / min(1, WEIGHT[e] * threshold) for e in order[:4]}
    assert set(found) == set(expected)
    np.testing.assert_allclose([found[e] for e in expected], list(expected.values()), rtol=1e-9)


def test_one_sample_for_all_hops():
    first, second = sample(weighted((2, 2), shared=True), layers=("in", "in"), graph=GRAPH)
    other = sample(weighted((2, 2)), layers=("in", "in"), graph=GRAPH)
    assert first == second == other[0] != other[1]


def test_the_logarithm_is_that_of_the_library():
    u = np.array(
        [unit(np.uint64(h)) for h in (0, 1 << 63, (1 << 64) - 1, *bits(0, np.arange(500)).tolist())]
    )
    np.testing.assert_allclose([minus_log(x) for x in u], -np.log(u), rtol=1e-15)


def inclusion(weights, k):
    """Probability that each item is among the k lowest of u / weight, by integration over its own
    rank.
    """
    found = []
    for i, own in enumerate(weights):
        # the chance that m others are below rank r
        rank = (np.arange(2000) + 0.5) / 2000 / own
        below = np.zeros((k, len(rank)))
        below[0] = 1
        for other in np.delete(weights, i):
            p = np.minimum(1, other * rank)
            below[1:] = below[1:] * (1 - p) + below[:-1] * p
            below[0] *= 1 - p
        found.append(below.sum(axis=0).mean())
    return np.array(found)


def drawn(sampler, steps=400):
    """Over some steps, the weight of each in-edge of node 3, 0 if it is not chosen, [steps,
    n_edges].
    """
    weights = np.zeros((steps, 150))

    def program(comm):
        p = build_partition(GRAPH, comm)
        for step in range(steps):
            (level,) = k_hop_view(p, p.masters == 3, ["in"], sampler=sampler, step=step).levels
            scales = [
                np.ones(s.n_edges) if s.weight is None else s.weight
                for s in level.passes[0].selections
            ]
            weights[step, level.gid] = np.concatenate(scales)

    run_simulated(1, program)
    return weights


def test_edges_are_included_as_often_as_priority_sampling_says():
    steps, k = 400, 6
    chosen = drawn(weighted((k,), importance=False), steps)
    p = inclusion(WEIGHT[INTO].astype(float), k)
    assert set(np.unique(chosen)) == {0, 1} and chosen.sum() == chosen[:, INTO].sum() == steps * k
    assert p.sum() == pytest.approx(k, rel=1e-3)
    n = chosen[:, INTO].sum(axis=0)
    mean = steps * p
    some = p < 0.999
    assert ((n - mean)[some] ** 2 / (mean * (1 - p))[some]).sum() < some.sum() + 4 * np.sqrt(
        2 * some.sum()
    )


def test_with_replacement_edges_are_drawn_in_proportion_to_their_weights():
    steps, k = 400, 6
    times = drawn(weighted((k,), replace=True, importance=False), steps)
    mean = steps * k * WEIGHT[INTO] / WEIGHT[INTO].sum()
    assert times.sum() == times[:, INTO].sum() == steps * k
    assert ((times[:, INTO].sum(axis=0) - mean) ** 2 / mean).sum() < len(INTO) + 4 * np.sqrt(
        2 * len(INTO)
    )


@pytest.mark.parametrize("replace", [False, True])
def test_sums_over_any_edges_are_estimated_without_bias(replace):
    weights = drawn(weighted((6,), replace=replace, seed=1), 600)
    value = np.random.default_rng(0).standard_normal(150)
    part = np.arange(150) % 3 == 0
    for x in (value, value * part, np.sqrt(WEIGHT), np.ones(150)):
        sums = weights @ x
        assert abs(sums.mean() - x[INTO].sum()) < 4 * sums.std() / np.sqrt(len(sums))


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_normalised_weights_sum_to_the_edges_that_can_be_chosen(replace, size):
    (found,) = sample(
        weighted((2,), replace, normalise=True, mask="part"),
        size,
        ("vertex-cut", "hash"),
        graph=GRAPH,
    )
    ids = np.array([e for e, _ in found])
    assert (MASK & (WEIGHT > 0))[ids].all()
    sums = np.bincount(GRAPH.dst[ids], list(found.values()), minlength=20)
    np.testing.assert_allclose(sums, np.bincount(GRAPH.dst[MASK & (WEIGHT > 0)], minlength=20))


@pytest.mark.parametrize("size", [1, 3])
def test_all_edges_of_positive_weight_where_the_fanout_is_minus_one(size):
    (found,) = sample(weighted((-1,), mask="part"), size, ("vertex-cut", "hash"), graph=GRAPH)
    assert found == {(int(e), False): 1.0 for e in np.flatnonzero(MASK & (WEIGHT > 0))}


@pytest.mark.parametrize("replace", [False, True])
def test_masked_edges_take_no_part_in_uniform_sampling(replace):
    for size, placement in (
        (1, graphs.PLACEMENTS[0]),
        (4, graphs.PLACEMENTS[0]),
        (3, graphs.PLACEMENTS[5]),
    ):
        (found,) = sample(
            NeighbourSampler((3,), replace, mask="part"), size, placement, graph=GRAPH
        )
        ids = np.array([e for e, _ in found])
        assert MASK[ids].all()
        sums = np.bincount(GRAPH.dst[ids], list(found.values()), minlength=20)
        np.testing.assert_allclose(sums, np.bincount(GRAPH.dst[MASK], minlength=20))


@pytest.mark.parametrize("name", graphs.odd_graphs())
def test_odd_graphs(name):
    graph = graphs.odd_graphs()[name]
    for sampler in (WeightedSampler((2, 2), normalise=True), WeightedSampler((2, 2), replace=True)):
        first = sample(sampler, layers=("in", "both"), targets=range(graph.n_nodes), graph=graph)
        for size in range(2, min(4, graph.n_nodes + 1)):
            same(
                sample(
                    sampler,
                    size,
                    graphs.PLACEMENTS[2 * size - 1],
                    ("in", "both"),
                    range(graph.n_nodes),
                    graph=graph,
                ),
                first,
            )


def test_weights_that_are_all_zero_leave_no_edge():
    graph = GRAPH.replace(edge_columns={"w": np.zeros(150)})
    for size in (1, 3):
        for options in ({}, {"replace": True}, {"normalise": True}):
            assert sample(weighted((2,), **options), size, ("vertex-cut", "hash"), graph=graph) == [
                {}
            ]


def refused(sampler, ranks=3, **columns):
    def program(comm):
        p = build_partition(GRAPH, comm, "vertex-cut")
        sampler.check(p.overlay({}, {name: x[p.edge_gid] for name, x in columns.items()}))

    with pytest.raises((ConfigError, DataError)) as e:
        run_simulated(ranks, program)
    return str(e.value)


@pytest.mark.parametrize("value", [-1, np.nan, np.inf, 1e-46, 1e300])
def test_weights_that_are_none_are_refused(value):
    """Also those that become 0 or infinite in float32, whatever the type of the job."""
    bad = WEIGHT.astype(np.float64)
    bad[90:] = value
    ends = f"from node {GRAPH.src[90]} to node {GRAPH.dst[90]}"
    message = f"weight=w: edge 90 ({ends}) has the value {float(value)}, expected 0, or a number"
    for ranks in (1, 2, 3):
        assert message in refused(weighted((2,)), ranks=ranks, w=bad)


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.second)])
def test_weights_may_be_as_small_and_as_large_as_float32_holds(dtype):
    limits = np.finfo(np.float32)
    weight = np.where(np.arange(150) % 2, float(limits.smallest_subnormal), float(limits.max))
    graph = GRAPH.replace(edge_columns={"w": weight})

    def program(comm):
        p = build_partition(graph, comm, "vertex-cut", dtype=dtype)
        for options in ({}, {"replace": True}, {"normalise": True}):
            sampler = weighted((3,), **options)
            sampler.check(p)
            (level,) = k_hop_view(p, p.masters < 20, ["in"], sampler=sampler).levels
            for s in level.passes[0].selections:
                assert (np.isfinite(s.weight) & (s.weight > 0)).all()

    run_simulated(2, program)


def test_columns_that_do_not_fit_are_refused():
    assert "weight=v: there is no edge column 'v'; choose from weight" in refused(
        WeightedSampler((2,), weight="v")
    )
    assert "weight=several: the edge column 'several' has 2 numbers per edge" in refused(
        WeightedSampler((2,), weight="several")
    )
    assert "mask=w: edge" in refused(NeighbourSampler((2,), mask="w"))
    with pytest.raises(ConfigError, match="importance=no has none"):
        WeightedSampler((2,), normalise=True, importance=False)


def test_blocks_without_the_engine():
    (block,) = gt.sample(GRAPH, [3, 5], [4], sampler="weighted:weight=w,normalise=yes", seed=2)
    (found,) = sample(weighted((4,), seed=2, normalise=True), targets=[3, 5], graph=GRAPH)
    assert dict(zip(block.edge.tolist(), block.weight.tolist(), strict=True)) == {
        e: w for (e, _), w in found.items()
    }
    with pytest.raises(DataError, match=r"weight=w: edge 0 .* has the value -1"):
        gt.sample(
            GRAPH.replace(edge_columns={"w": -np.ones(150)}), [3], [4], sampler="weighted:weight=w"
        )


JOB = {
    "model": "sage",
    "strategy": "mini",
    "batch_size": 8,
    "fanout": "3",
    "epochs": 1,
    "backend": "reference",
    "layers": 2,
}


def losses(comm, **keys):
    return [
        row["loss"] for row in gt.Trainer(graph=GRAPH, comm=comm, **{**JOB, **keys}).fit().history
    ]


@pytest.mark.parametrize("sampler", ["weighted:weight=w,normalise=yes", "neighbour:mask=part"])
def test_a_job_names_it(sampler):
    assert losses(SerialComm(), sampler=sampler) != losses(SerialComm())
    with pytest.raises(ConfigError, match="there is no edge column 'absent'"):
        losses(SerialComm(), sampler=sampler.replace("=w", "=absent").replace("=part", "=absent"))
