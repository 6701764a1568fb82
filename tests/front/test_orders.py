"""The order of targets: each once an epoch, the same on any number of workers, and near ones
together.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError

GRAPH = gt.load("sbm:n_nodes=300,n_edges=1500")
KEYS = {
    "model": "sage",
    "strategy": "mini",
    "batch_size": 20,
    "dtype": "float64",
    "epochs": 2,
    "dropout": 0.0,
    "hidden": 4,
    "backend": "reference",
}


def batches(comm, graph, epochs=(0, 1), **keys):
    """Ids of the targets of each batch, on this worker."""
    trainer = gt.Trainer(graph=graph, comm=comm, **{**KEYS, **keys})
    strategy = trainer.strategy
    return [
        [strategy.task.ids[strategy._order.own(epoch, i)] for i in range(strategy.steps_per_epoch)]
        for epoch in epochs
    ]


def joined(size, graph, **keys):
    """Ids of the targets of each batch, over all workers."""
    parts = run_simulated(size, batches, graph, **keys)
    return [
        [np.sort(np.concatenate(own)) for own in zip(*same, strict=True)]
        for same in zip(*parts, strict=True)
    ]


@pytest.mark.parametrize("keys", [{}, {"task": "link"}], ids=["nodes", "links"])
def test_batches_are_the_same_on_any_workers_and_hold_every_target_once(keys):
    one = joined(1, GRAPH, order="proximity:sequences=3", **keys)
    for epoch in one:
        ids = np.concatenate(epoch)
        assert len(np.unique(ids)) == len(ids) and len(ids) > 20
    assert any(not np.array_equal(a, b) for a, b in zip(*one, strict=True))
    several = joined(
        3, GRAPH, order="proximity:sequences=3", partitioner="vertex-cut", masters="block", **keys
    )
    for mine, expected in zip(chain(*several), chain(*one), strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_near_targets_share_a_batch():
    ring = gt.load("ring:n=300").replace(train=np.ones(300, bool), val=None, test=None)

    def spread(order):
        """Mean number of arcs of 5 nodes that a batch of 20 touches."""
        (epoch,) = joined(1, ring, epochs=(0,), order=order)
        return np.mean([len(np.unique(batch // 5)) for batch in epoch])

    assert spread("proximity:sequences=1") < spread("proximity:sequences=4") < spread("random")


@pytest.mark.parametrize("sampler", ["neighbour", "labor"])
def test_losses_are_those_of_one_worker(sampler):
    keys = {**KEYS, "order": "proximity", "fanout": "3", "sampler": sampler}

    def losses(comm):
        trainer = gt.Trainer(graph=GRAPH, comm=comm, **keys)
        return [trainer.train_epoch(i) for i in range(2)]

    one, three = (run_simulated(size, losses)[0] for size in (1, 3))
    np.testing.assert_allclose(three, one, rtol=1e-9)


@pytest.mark.parametrize(
    "keys, message",
    [
        ({"order": "proximity:sequences=0"}, "sequences is 0; expected at least 1"),
        (
            {"order": "proximity:roots=3"},
            "order=proximity:roots=3: there is no option 'roots'; there is sequences",
        ),
        ({"order": "near"}, "order"),
        (
            {"order": "proximity", "strategy": "global", "batch_size": 0},
            "order=proximity has no meaning with strategy=global",
        ),
    ],
)
def test_bad_orders_are_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        gt.Trainer(graph=GRAPH, **{**KEYS, **keys})
