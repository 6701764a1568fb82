"""What a sampler chooses on simulated ranks."""

from __future__ import annotations

import graphs
import numpy as np

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.expand import k_hop_view

GRAPH = graphs.random_graph(20, 150)


def sample(
    sampler,
    size=1,
    placement=graphs.PLACEMENTS[0],
    layers=("in",),
    targets=range(20),
    excluded=None,
    step=0,
    graph=GRAPH,
):
    """For each superstep the chosen (edge, reverse) with their scales, over all ranks."""

    def scaled(p, s, reverse):
        ids = p.edge_gid[s.stored]
        scale = np.ones(s.n_edges) if s.weight is None else s.weight
        return [((int(e), reverse), float(w)) for e, w in zip(ids, scale, strict=True)]

    def program(comm):
        p = build_partition(graph, comm, *placement)
        view = k_hop_view(
            p,
            np.isin(p.masters, list(targets)),
            list(layers),
            sampler=sampler,
            step=step,
            excluded=None if excluded is None else excluded[p.edge_gid],
        )
        return [
            [
                pair
                for sweep in level.passes
                for s in sweep.selections
                for pair in scaled(p, s, sweep.reverse)
            ]
            for level in view.levels
        ]

    found = run_simulated(size, program)
    made = [[pair for per in found for pair in per[k]] for k in range(len(layers))]
    assert all(len(dict(pairs)) == len(pairs) for pairs in made)
    return [dict(pairs) for pairs in made]


def same_sample(found, expected):
    """Whether two results of ``sample`` have the same edges, and equal weights up to rounding."""
    return len(found) == len(expected) and all(
        a.keys() == b.keys() and all(np.isclose(a[key], b[key], rtol=1e-12) for key in a)
        for a, b in zip(found, expected, strict=True)
    )


def averages(graph, sampler, targets, steps, stride=1):
    """Importance weights of the edges into some nodes, 0 for those that are not chosen, [steps,
    n_edges].
    """
    weights = np.zeros((steps, graph.n_edges))

    def program(comm):
        p = build_partition(graph, comm)
        for i in range(steps):
            (level,) = k_hop_view(
                p, np.isin(p.masters, targets), ["in"], sampler=sampler, step=i * stride
            ).levels
            for s in level.passes[0].selections:
                weights[i, p.edge_gid[s.stored]] = 1 if s.weight is None else s.weight

    run_simulated(1, program)
    return weights
