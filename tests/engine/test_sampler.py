"""Sampling: the same sets on any ranks, the right number of edges, and estimates that are right on
average.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from samples import GRAPH, sample

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import MIRROR, build_partition
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.errors import ConfigError
from graphtheta.samplers.neighbour import NeighbourSampler


@pytest.mark.one_in(2)
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("layers", [("in", "in"), ("out", "both")])
def test_samples_do_not_depend_on_ranks(replace, layers):
    sampler = NeighbourSampler((2, 3), replace, seed=4)
    expected = sample(sampler, layers=layers, targets=[3, 7, 18], step=5)
    for size in (1, 2, 3, 4, 8):
        for placement in graphs.PLACEMENTS:
            assert sample(sampler, size, placement, layers, [3, 7, 18], step=5) == expected


def test_rows_of_candidates_have_one_type():
    """Each further one compiles the kernels of samplers again, which takes seconds."""
    types = set()

    class Looks(NeighbourSampler):
        def choose(self, frontier, **when):
            types.update(candidates.rows.dtype for candidates in frontier.candidates)
            return super().choose(frontier, **when)

    for placement in graphs.PLACEMENTS:
        sample(Looks((2, 3)), 3, placement, ("out", "both"), [3, 7, 18])
    assert types == {np.dtype(np.int64)}


@pytest.mark.parametrize("fanout", [1, 3, 1 << 40])
def test_each_node_gets_its_fanout_or_all_it_has(fanout):
    (found,) = sample(NeighbourSampler((fanout,)), 3, ("vertex-cut", "hash"))
    degree = np.bincount(GRAPH.dst, minlength=20)
    ids = np.array([e for e, _ in found])
    np.testing.assert_array_equal(
        np.bincount(GRAPH.dst[ids], minlength=20), np.minimum(degree, fanout)
    )
    np.testing.assert_allclose(
        np.bincount(GRAPH.dst[ids], list(found.values()), minlength=20), degree
    )


@pytest.mark.parametrize("fanout", [1, 3, 200])
def test_with_replacement_scales_sum_to_the_degree(fanout):
    (found,) = sample(NeighbourSampler((fanout,), replace=True), 3, ("vertex-cut", "hash"))
    degree = np.bincount(GRAPH.dst, minlength=20)
    ids = np.array([e for e, _ in found])
    np.testing.assert_allclose(
        np.bincount(GRAPH.dst[ids], list(found.values()), minlength=20), degree
    )
    assert np.all(np.bincount(GRAPH.dst[ids], minlength=20) <= fanout)
    times = np.array(list(found.values())) * fanout / degree[GRAPH.dst[ids]]
    np.testing.assert_allclose(times, np.round(times))


def test_against_the_edges_the_senders_neighbours_are_sampled():
    (found,) = sample(NeighbourSampler((2,)), 2, layers=("out",))
    ids = np.array([e for e, reverse in found if reverse])
    assert len(ids) == len(found)
    np.testing.assert_array_equal(
        np.bincount(GRAPH.src[ids], minlength=20),
        np.minimum(np.bincount(GRAPH.src, minlength=20), 2),
    )


def test_excluded_edges_are_never_drawn_and_do_not_count():
    excluded = np.arange(150) % 2 == 0
    for replace in (False, True):
        for step in range(5):
            (found,) = sample(NeighbourSampler((3,), replace), 2, excluded=excluded, step=step)
            ids = np.array([e for e, _ in found])
            assert not excluded[ids].any()
            stood_for = np.bincount(GRAPH.dst[ids], list(found.values()), minlength=20)
            np.testing.assert_allclose(stood_for, np.bincount(GRAPH.dst[~excluded], minlength=20))


def test_all_neighbours_where_the_fanout_is_minus_one():
    some, everything = sample(NeighbourSampler((2, -1)), layers=("in", "in"), targets=[3])
    assert {e for e, _ in everything} == set(np.flatnonzero(GRAPH.dst == 3).tolist())
    assert set(everything.values()) == {1.0} and len(some) < 2 * 20


def test_steps_and_seeds_and_layers_draw_anew_unless_shared():
    def draw(**options):
        step = options.pop("step", 0)
        return sample(NeighbourSampler((2, 2), **options), layers=("in", "in"), step=step)

    first = draw()
    assert draw() == first
    assert draw(step=1) != first and draw(seed=1) != first
    assert first[0] != first[1]
    shared = draw(shared=True)
    assert shared[0] == shared[1]


@pytest.mark.parametrize("replace", [False, True])
def test_every_edge_of_a_node_is_as_likely_as_any_other(replace):
    into = np.flatnonzero(GRAPH.dst == 3)
    steps, fanout = 400, 6
    times = np.zeros(150)
    sums = []
    value = np.random.default_rng(0).standard_normal(150)

    def program(comm):
        p = build_partition(GRAPH, comm)
        sampler = NeighbourSampler((fanout,), replace)
        for step in range(steps):
            (level,) = k_hop_view(p, p.masters == 3, ["in"], sampler=sampler, step=step).levels
            ids = level.gid
            scale = np.concatenate([s.weight for s in level.passes[0].selections])
            times[ids] += scale * fanout / len(into)
            sums.append(float(value[ids] @ scale))

    run_simulated(1, program)
    assert times.sum() == pytest.approx(times[into].sum()) == pytest.approx(steps * fanout)
    mean = steps * fanout / len(into)
    # a chi-square of mean about k and deviation sqrt(2 k)
    assert ((times[into] - mean) ** 2 / mean).sum() < len(into) + 5 * np.sqrt(2 * len(into))
    assert abs(np.mean(sums) - value[into].sum()) < 4 * np.std(sums) / np.sqrt(steps)


@pytest.mark.parametrize("replace", [False, True])
def test_workers_agree_in_two_messages_and_mirrors_without_chosen_edges_take_no_part(replace):
    def program(comm):
        p = build_partition(GRAPH, comm, "1d-src", "hash")
        sampler = NeighbourSampler((2,), replace)
        sampler.prepare(p, p.relations["edge"], False)
        before = comm.ledger.snapshot()
        view = k_hop_view(p, np.isin(p.masters, [3, 7]), ["in"], sampler=sampler)
        sent = comm.ledger.since(before)["other"]
        (sweep,) = view.levels[0].passes
        assert sent["messages"] <= 2 * (comm.size - 1)
        assert sweep.receivers.plan.n_halo == sum(
            len(s.row) for s in sweep.selections if s.kinds[1] == MIRROR
        )
        return sweep.receivers.plan.n_halo, len(sweep.receivers.plan.rows)

    halo, sent = zip(*run_simulated(4, program), strict=True)
    assert sum(halo) == sum(sent) <= 2 * 2


@pytest.mark.parametrize("name", graphs.odd_graphs())
def test_odd_graphs(name):
    graph = graphs.odd_graphs()[name]
    for replace in (False, True):
        sampler = NeighbourSampler((2, 2), replace)
        first = sample(sampler, layers=("in", "both"), targets=range(graph.n_nodes), graph=graph)
        # with and without replacement each number of workers meets two placements
        for size in range(2, min(5, graph.n_nodes + 1)):
            placement = graphs.PLACEMENTS[2 * ((size + replace) % 3)]
            assert (
                sample(sampler, size, placement, ("in", "both"), range(graph.n_nodes), graph=graph)
                == first
            )


@pytest.mark.parametrize("replace", [False, True])
def test_samples_do_not_depend_on_how_rows_are_spread_over_threads(replace, monkeypatch):
    sampler = NeighbourSampler((2, 3), replace, seed=4)
    expected = sample(sampler, layers=("out", "both"), targets=[3, 7, 18])
    for edges in (1, 20):
        for module in ("sampling.bottom_k", "sampling.uniform", "sampling.positions"):
            monkeypatch.setattr(f"graphtheta.engine.{module}.EDGES_PER_BLOCK", edges)
        assert sample(sampler, layers=("out", "both"), targets=[3, 7, 18]) == expected
        assert sample(sampler, 3, ("vertex-cut", "hash"), ("out", "both"), [3, 7, 18]) == expected


def test_bad_fanouts():
    for fanouts in ((0,), (3, -2)):
        with pytest.raises(ConfigError, match="expected a positive number for each hop, or -1"):
            NeighbourSampler(fanouts)
    with pytest.raises(ConfigError, match="equal fanouts"):
        NeighbourSampler((2, 3), shared=True)
