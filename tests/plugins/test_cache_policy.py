"""The cache policy of cache_policy.py: named in a job, the same numbers on any ranks."""

from __future__ import annotations

from pathlib import Path

import graphs
import numpy as np
import plugins.cache_policy
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError

FILE = Path(__file__).with_name("cache_policy.py")
JOB = {
    "model": "sage",
    "strategy": "mini",
    "batch_size": 10,
    "fanout": "3",
    "backend": "reference",
    "dtype": "float64",
    "hidden": 4,
}


def trained(comm, **keys):
    one = gt.Trainer(graph=graphs.random_graph(30, 160), comm=comm, **{**JOB, **keys})
    return [one.train_epoch(epoch) for epoch in range(2)], one.caches.counts()


@pytest.mark.parametrize("policy", ["shuffled:seed=3", f"{FILE}:Shuffled"])
def test_a_job_names_it(policy):
    ((alone, _),) = run_simulated(1, trained, views_per_step=3)
    found = run_simulated(
        3, trained, mode="independent", views_per_step=3, feature_cache="9", cache_policy=policy
    )
    for losses, _ in found:
        np.testing.assert_allclose(losses, alone, rtol=1e-9)
    assert np.sum([counts for _, counts in found], axis=0).all()


def test_its_slots_are_those_of_the_cache():
    policy = plugins.cache_policy.Shuffled(5)
    assert set(policy.place(np.arange(3)).tolist()) == {0, 1, 2} and {3, 4} <= set(
        policy.place(np.arange(3, 9)).tolist()
    ) <= set(range(5))


def test_other_classes_are_refused():
    with pytest.raises(ConfigError, match="is not a cache policy"):
        gt.CACHE_POLICIES.add(dict)
