"""Shares of batches: together they are the batch, made one by one or searched together."""

from __future__ import annotations

import graphs
import numpy as np
import pytest

from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.strategy.shares import SharedBatch
from graphtheta.engine.strategy.strategy import MiniBatch
from graphtheta.engine.strategy.task import NodeTask
from graphtheta.engine.train.parts import Parts, parts_of, parts_of_views
from graphtheta.samplers.labor import LaborSampler
from graphtheta.samplers.ladies import LadiesSampler
from graphtheta.samplers.neighbour import NeighbourSampler

GRAPH = graphs.random_graph(40, 260)
SAMPLERS = {
    "all": lambda: None,
    "neighbour": lambda: NeighbourSampler((3, 2), seed=1),
    "labor": lambda: LaborSampler((3, 2), seed=1, star=True),
    "ladies": lambda: LadiesSampler((9, 7), seed=1),
}


def content(parts: Parts) -> list[tuple[set, set]]:
    """For each view, this worker's nodes with their hops, and its edges with sweep and weight."""
    nodes, edges, uses = parts.kinds
    weight = uses.get("weight", np.ones(len(uses["edge"])))
    found = []
    for q in range(len(parts.bounds[0]) - 1):
        of_nodes, of_edges, of_uses = (slice(*bounds[q : q + 2]) for bounds in parts.bounds)
        gid = edges["gid"][of_edges][uses["edge"][of_uses]]
        own_nodes = (nodes["gid"][of_nodes].tolist(), nodes["hop"][of_nodes].tolist())
        own_uses = (gid.tolist(), uses["sweep"][of_uses].tolist(), weight[of_uses].tolist())
        found.append((set(zip(*own_nodes, strict=True)), set(zip(*own_uses, strict=True))))
    return found


@pytest.mark.one_in(5)
@pytest.mark.parametrize("directions", [["in", "in"], ["out", "out"], ["both", "both"]], ids=str)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_shares_together_are_the_batch(sampler: str, directions: list[str]) -> None:
    size = 3

    def program(comm):
        p = build_partition(GRAPH, comm, "vertex-cut")
        task = NodeTask(p, "classes")
        batches = MiniBatch(p, directions, task, 2, batch_size=6, sampler=SAMPLERS[sampler]())
        shares = SharedBatch(batches)
        assert shares.steps_per_epoch == size * batches.steps_per_epoch
        found = []
        for i in range(batches.steps_per_epoch):
            makers = shares.makers(1, size * i, size * (i + 1))
            searched = content(parts_of(shares, 1, size * i, size * (i + 1)))
            alone = content(parts_of_views([make() for make in makers], shares.layers))
            batches.makers(1, i, i + 1)
            (whole,) = content(parts_of_views([batches.batch(1, i)], batches.layers))
            found.append((searched, alone, whole))
        return found

    results = run_simulated(size, program)
    for step in zip(*results, strict=True):
        edges = set()
        nodes = set()
        for searched, alone, _ in step:
            assert searched == alone
            edges = edges.union(*(e for _, e in searched))
            nodes = nodes.union(*({v for v, _ in n} for n, _ in searched))
        assert edges == set().union(*(e for _, _, (_, e) in step))
        assert nodes == set().union(*({v for v, _ in n} for _, _, (n, _) in step))
