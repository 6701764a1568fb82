"""The order of targets: each once an epoch, the same on any number of workers, and near ones
together.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
import scipy

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError
from graphtheta.samplers.orders.evenness import random_distance

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


def mean_distance(counts, size):
    """The mean total variation distance of ``size`` random targets to all, by enumeration."""
    n = counts.sum()
    drawn = np.arange(size + 1)
    return sum(
        np.sum(scipy.stats.hypergeom.pmf(drawn, n, count, size) * np.abs(drawn / size - count / n))
        / 2
        for count in counts
    )


def test_distances_of_random_batches():
    rng = np.random.default_rng(0)
    for _ in range(100):
        counts = rng.integers(0, rng.integers(2, 40), rng.integers(1, 6)) + (rng.random() < 0.5)
        n = int(counts.sum())
        for size in {1, n // 2, n} - {0} if n else ():
            assert random_distance(counts, size) == pytest.approx(
                mean_distance(counts, size), abs=1e-12
            )


def error_of(epoch, y):
    """The mean distance of the full batches of an epoch, beyond that of random ones."""
    counts = np.bincount(y[np.concatenate(epoch)])
    size = len(epoch[0])
    distances = [
        np.abs(np.bincount(y[batch], minlength=len(counts)) / size - counts / counts.sum())
        for batch in epoch
        if len(batch) == size
    ]
    return np.sum(distances) / len(distances) / 2 - mean_distance(counts, size)


@pytest.mark.parametrize("error", ["", ",error=0.15"])
def test_sequences_are_as_few_as_mix_the_classes(error):
    """By another evaluation of the batches of each number of sequences; on any workers."""
    graph = gt.load("sbm:n_nodes=300,n_edges=1500,classes=4,inside=0.97")
    graph = graph.replace(train=np.arange(300) % 4 > 0, val=None, test=None)
    y = graph.y
    one, three = (joined(size, graph, order=f"proximity:sequences=auto{error}") for size in (1, 3))
    for mine, expected in zip(chain(*three), chain(*one), strict=True):
        np.testing.assert_array_equal(mine, expected)
    allowed = float(error.partition("=")[2] or len(one[0][0]) ** 0.5 / graph.train.sum())
    errors = []
    for sequences in range(1, len(one[0][0]) + 1):
        found = joined(1, graph, order=f"proximity:sequences={sequences}")
        errors.append(error_of(found[0], y))
        if errors[-1] <= allowed:
            break
    chosen = joined(1, graph, order=f"proximity:sequences={np.argmin(errors) + 1}")
    for mine, expected in zip(chain(*one), chain(*chosen), strict=True):
        np.testing.assert_array_equal(mine, expected)
    assert len(errors) > 1


def test_a_batch_of_all_targets_needs_one_sequence():
    one, auto = (
        joined(1, GRAPH, order=f"proximity:sequences={n}", batch_size=0) for n in (1, "auto")
    )
    np.testing.assert_array_equal(one, auto)


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
            {"order": "proximity:sequences=few"},
            "sequences is 'few'; expected a value of type int or auto",
        ),
        ({"order": "proximity:sequences=auto,error=-1"}, "error is -1.0; expected at least 0"),
        ({"order": "proximity:error=0.1"}, "the largest one for sequences=auto; drop it"),
        ({"order": "proximity:batch_size=3"}, "there is no option 'batch_size'"),
        (
            {"order": "proximity:sequences=auto", "task": "link"},
            "the targets of this task have no class each",
        ),
        (
            {"order": "proximity:roots=3"},
            ("order=proximity:roots=3: there is no option 'roots'; there is sequences, error"),
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
