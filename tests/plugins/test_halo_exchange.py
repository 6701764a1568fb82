"""The halo exchange of tests/plugins/halo_exchange.py: named in a job, exact at its limit on any
ranks.
"""

from __future__ import annotations

from pathlib import Path

import graphs
import numpy as np
import plugins.halo_exchange  # noqa: F401  (adds it)

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated

FILE = Path(__file__).with_name("halo_exchange.py")


def losses(comm, **keys):
    job = {
        "model": "sage",
        "partitioner": "1d-dst",
        "dtype": "float64",
        "backend": "reference",
        "dropout": 0.0,
    }
    trainer = gt.Trainer(graph=graphs.random_graph(30, 160), comm=comm, **job, **keys)
    return [trainer.train_epoch(epoch) for epoch in range(3)]


def test_a_job_names_it():
    (exact,) = run_simulated(1, losses)
    np.testing.assert_allclose(run_simulated(1, losses, exchange="every_second")[0], exact)
    np.testing.assert_allclose(run_simulated(3, losses, exchange="every_second:rate=1")[0], exact)
    found = run_simulated(3, losses, exchange=f"{FILE}:EverySecond")[0]
    # the second epoch is the first sampled one
    assert np.isclose(found[0], exact[0]) and not np.isclose(found[1], exact[1])
