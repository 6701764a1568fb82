"""Draws of vertices: uniform at every step, and changing as slowly as kappa says."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from samples import sample

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.graph.datasets.dataset import load
from graphtheta.ops.kernels.sampling import vertex_sample
from graphtheta.samplers.labor import LaborSampler
from graphtheta.samplers.vertex_draws import VertexSampler, drawn

IDS = np.arange(5000)


def draws(kappa, step, hop=0, **options):
    return drawn(VertexSampler((2, 2), 7, kappa=kappa, **options).draws(hop, step), IDS)


@pytest.mark.parametrize("kappa", [0, 1, 2, 8])
def test_draws_are_uniform_at_every_step(kappa):
    for step in (0, 1, 5, 8):
        r = np.sort(draws(kappa, step))
        assert r[0] >= 0 and r[-1] < 1
        # Kolmogorov-Smirnov: exceeded once in a thousand samples
        distance = np.abs(r - (np.arange(len(r)) + 0.5) / len(r)).max()
        assert distance < 1.95 / np.sqrt(len(r))


def test_draws_change_over_kappa_steps():
    def correlation(kappa, a, b):
        return np.corrcoef(draws(kappa, a), draws(kappa, b))[0, 1]

    along = [correlation(8, 8, 8 + step) for step in range(1, 9)]
    assert along[0] > 0.9 and abs(along[-1]) < 0.05
    assert all(later < earlier for earlier, later in itertools.pairwise(along))
    assert correlation(8, 15, 16) > 0.9
    assert abs(correlation(1, 3, 4)) < 0.05
    np.testing.assert_array_equal(draws(0, 3), draws(0, 400))


def test_hops_share_draws_only_if_they_depend_on_each_other():
    assert (draws(1, 3, hop=0) != draws(1, 3, hop=1)).mean() > 0.99
    np.testing.assert_array_equal(
        draws(4, 3, hop=0, layer_dependency=True), draws(4, 3, hop=1, layer_dependency=True)
    )
    one, other = sample(
        LaborSampler((3, 3), layer_dependency=True), layers=("in", "in"), targets=range(20)
    )
    assert one == other
    one, other = sample(LaborSampler((3, 3)), layers=("in", "in"), targets=range(20))
    assert one != other


@pytest.mark.parametrize("kappa", [1, 3])
def test_draws_by_row_and_by_edge_choose_the_same_edges(kappa):
    rng = np.random.default_rng(1)
    of_step = VertexSampler((2,), kappa=kappa).draws(0, 4)
    bounds = np.append(0, np.cumsum(rng.integers(0, 90, 60)))
    senders = rng.integers(0, len(IDS), bounds[-1]).astype(np.int32)
    limit = rng.integers(1, 2**32, 60)
    limit[::7] = 2**32
    upper = np.empty(len(IDS), np.uint32)
    vertex_sample.upper_bits(of_step, IDS, upper, 0, len(IDS))
    groups = bounds[:-1], bounds[1:], np.zeros(0, np.int32), senders
    found, expected = (
        vertex_sample.poisson(
            groups=groups, draws=of_step, ids=IDS, upper=x, limit=limit, first=0, last=60
        )
        for x in (upper, upper[:0])
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    below = drawn(of_step, IDS)[senders] < np.repeat(limit / 2**32, np.diff(bounds))
    np.testing.assert_array_equal(found[1], np.flatnonzero(below))


def test_windows_read_fewer_nodes_as_kappa_grows():
    graph = load("rmat:scale=12,edge_factor=20,features=8,classes=4")
    window = 24

    def program(comm):
        p = build_partition(graph, comm)
        found = []
        for sampler in (LaborSampler((5, 5), kappa=kappa) for kappa in (1, 4, 16, 0)):
            rows = []
            for step in range(window):
                targets = np.isin(
                    p.masters, np.random.default_rng(step).choice(graph.n_nodes, 30, replace=False)
                )
                rows.append(k_hop_view(p, targets, ["in", "in"], sampler=sampler, step=step).rows)
            found.append((len(np.unique(np.concatenate(rows))), sum(map(len, rows))))
        return found

    (found,) = run_simulated(1, program)
    distinct, total = np.array(found).T
    assert (np.diff(distinct) < 0).all()
    assert np.ptp(total) < 0.2 * total[0]
