"""Accumulators of one's own train their parameters, the same on any number of ranks."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from plugins import accumulator as plugin
from plugins import training

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.train.loop.trainer import Trainer


def test_it_passes_the_checks():
    report = gt.check(plugin.Both(4, 3), edge_columns={"time": range(5)})
    assert report.gradients < 1e-6 and report.workers < 1e-9


def trained(ranks, **keys):
    """As ``training.trained``, on a graph whose edges have times."""
    graph = graphs.random_graph(30, 120)
    graph = graph.replace(edge_columns={"time": np.arange(graph.n_edges) % 7})

    def job(comm):
        trainer = Trainer(plugin.Net, graph, epochs=3, dtype="float64", comm=comm, **keys)
        result = trainer.fit()
        state = trainer.model.state()
        losses = [row["loss"] for row in result.history]
        return losses, [state[name] for name in sorted(state)], trainer.fallbacks

    return run_simulated(ranks, job)[0]


@pytest.mark.fused
@pytest.mark.parametrize("partitioner", ["1d-src", "vertex-cut"])
@pytest.mark.parametrize("keys", training.STRATEGIES, ids=lambda keys: keys["strategy"])
def test_ranks_agree_and_every_parameter_is_trained(keys, partitioner):
    one, three = (trained(ranks, partitioner=partitioner, **keys) for ranks in (1, 3))
    training.assert_same(one, three)
    assert not one[2]
    start = plugin.Net(*one[1][-1].shape).state()
    pairs = zip(sorted(start), one[1], strict=True)
    assert all(np.abs(x - start[name]).min() > 0 for name, x in pairs)
