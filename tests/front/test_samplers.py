"""Samplers named in a job: the same losses on any ranks, and messages about options."""
from __future__ import annotations

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError

JOB = {"dataset": "sbm", "model": "sage", "strategy": "mini", "batch_size": 20, "fanout": "3", "epochs": 2, "backend": "reference",
       "dtype": "float64", "dropout": 0.5}


def losses(comm, **keys):
    trainer = gt.Trainer(graph=graphs.random_graph(60, 400), comm=comm, **{**JOB, **keys})
    return [row["loss"] for row in trainer.fit().history]


@pytest.mark.parametrize("sampler", ["labor:star=yes,normalise=yes", "labor:weight=weight,kappa=2", "ladies", "pladies:skip=yes"])
def test_losses_do_not_depend_on_ranks(sampler):
    fanout = "3" if "labor" in sampler else "8"
    keys = {"sampler": sampler, "fanout": fanout, "partitioner": "vertex-cut"}
    alone = losses(SerialComm(), **keys)
    assert alone != losses(SerialComm(), fanout=fanout)
    np.testing.assert_allclose(run_simulated(3, lambda comm: losses(comm, **keys))[0], alone, rtol=1e-9)


def test_options_that_a_sampler_does_not_have_are_refused():
    with pytest.raises(ConfigError, match="share_sample=true has no meaning with sampler=labor"):
        losses(SerialComm(), sampler="labor", share_sample=True)
    with pytest.raises(ConfigError, match="replace=true has no meaning with sampler=ladies"):
        losses(SerialComm(), sampler="ladies", replace=True)
    with pytest.raises(ConfigError, match=r"there is no option 'star'; there is weight, .*layer_dependency, skip"):
        losses(SerialComm(), sampler="pladies:star=yes")
    with pytest.raises(ConfigError, match="iterations is 'many'; expected a value of type int"):
        losses(SerialComm(), sampler="labor:iterations=many")
