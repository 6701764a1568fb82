"""The two theorems on batch sizes of https://arxiv.org/abs/2310.12403, and mega-batches."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from samples import sample

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.expand import k_hop_view

GRAPH = graphs.random_graph(400, 4000, seed=2, hub=False)
SIZES = np.array([10, 20, 40, 80, 160])


SAMPLERS = [
    gt.NeighbourSampler((4, 4), seed=1),
    gt.LaborSampler((4, 4), seed=1),
    gt.LadiesSampler((60, 40), seed=1),
]


@pytest.mark.second
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: sampler.name)
def test_larger_batches_need_fewer_vertices_per_target(sampler):
    """E|S| / |S0| does not grow with the batch, and E|S| is concave in it, for the vertices S of
    every layer.
    """
    partition = build_partition(GRAPH, SerialComm())
    steps = 24
    found = np.zeros((steps, len(SIZES), 2))
    for step in range(steps):
        order = np.random.default_rng(step).permutation(GRAPH.n_nodes)
        for i, n in enumerate(SIZES):
            view = k_hop_view(
                partition,
                np.isin(partition.masters, order[:n]),
                ["in", "in"],
                sampler=sampler,
                step=step,
            )
            found[step, i] = [level.n_in for level in view.levels]
    # the batches of a step contain each other, so differences are compared within steps
    ratio = np.diff(found / SIZES[:, None], axis=1)
    slope = np.diff(np.diff(found, axis=1) / np.diff(SIZES)[:, None], axis=1)
    for fall in (ratio, slope):
        error = fall.std(axis=0) / np.sqrt(steps)
        assert (fall.mean(axis=0) < 2 * error).all()
        assert (fall.mean(axis=0) < -2 * error).any()


def test_samples_of_a_mega_batch_are_parts_of_one_sample():
    sampler = gt.LaborSampler((3, 4), 5, kappa=4, mega_batch=True)
    batches = np.array([[3, 7], [18, 2], [1, 11], [9, 14]])
    whole = sample(sampler, layers=("in", "in"), targets=batches.ravel(), step=8)
    parts = [
        sample(sampler, 2, ("vertex-cut", "hash"), ("in", "in"), targets, step=8 + i)
        for i, targets in enumerate(batches)
    ]
    for hop in range(2):
        assert {k: w for part in parts for k, w in part[hop].items()} == whole[hop]
    assert sample(sampler, layers=("in", "in"), targets=batches[0], step=7) != parts[0]
