"""The order of tests/plugins/order.py: named in a job, the same batches on any ranks."""

from __future__ import annotations

from pathlib import Path

import graphs
import numpy as np
import plugins.order
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError

FILE = Path(__file__).with_name("order.py")
GRAPH = graphs.random_graph(30, 160)
JOB = {
    "model": "sage",
    "strategy": "mini",
    "batch_size": 8,
    "epochs": 2,
    "backend": "reference",
    "dtype": "float64",
    "dropout": 0.0,
}


def losses(comm, **keys):
    return [row["loss"] for row in gt.Trainer(graph=GRAPH, comm=comm, **JOB, **keys).fit().history]


@pytest.mark.parametrize("order", ["hubs_first", f"{FILE}:HubsFirst", "hubs_first:turn=yes"])
def test_losses_are_those_of_one_worker(order):
    (one,), (three, *_) = (run_simulated(size, losses, order=order) for size in (1, 3))
    np.testing.assert_allclose(three, one, rtol=1e-9)


def test_a_batch_has_the_next_of_them():
    strategy = gt.Trainer(graph=GRAPH, order="hubs_first", **JOB).strategy
    degree = np.bincount(GRAPH.dst, minlength=30)[strategy.task.ids]
    means = [degree[strategy._order.own(0, i)].mean() for i in range(strategy.steps_per_epoch)]
    assert means == sorted(means, reverse=True) and means[0] > means[-1]
    assert plugins.order.HubsFirst.name in gt.ORDERS


def test_options_are_checked():
    with pytest.raises(ConfigError, match="turn is '3'; expected yes or no"):
        gt.Trainer(graph=GRAPH, order="hubs_first:turn=3", **JOB)
