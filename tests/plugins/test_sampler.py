"""The sampler of tests/plugins/sampler.py: named in a job, the same numbers on any ranks."""

from __future__ import annotations

from pathlib import Path

import graphs
import numpy as np
import plugins.sampler
import pytest
from samples import GRAPH, sample

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError

FILE = Path(__file__).with_name("sampler.py")
JOB = {
    "dataset": "sbm",
    "model": "sage",
    "strategy": "mini",
    "batch_size": 40,
    "fanout": "3",
    "epochs": 2,
    "backend": "reference",
}


def losses(comm, **keys):
    trainer = gt.Trainer(graph=graphs.random_graph(30, 160), comm=comm, **{**JOB, **keys})
    return [row["loss"] for row in trainer.fit().history]


@pytest.mark.parametrize("size", [1, 3])
def test_the_heaviest_edges_are_kept(size):
    (found,) = sample(plugins.sampler.Heaviest((4,)), size, ("vertex-cut", "hash"))
    order = np.lexsort((-GRAPH.edge_weight, GRAPH.dst))
    place = np.arange(len(order)) - np.searchsorted(GRAPH.dst[order], GRAPH.dst[order])
    assert set(found) == {(int(edge), False) for edge in order[place < 4]}
    assert set(found.values()) == {1.0}


def test_a_job_names_it():
    keys = {"sampler": "heaviest", "partitioner": "vertex-cut"}
    alone = losses(SerialComm(), **keys)
    assert alone != losses(SerialComm())
    np.testing.assert_allclose(
        run_simulated(3, lambda comm: losses(comm, **keys))[0], alone, rtol=1e-5
    )
    assert losses(SerialComm(), **{**keys, "sampler": f"{FILE}:Heaviest"}) == alone


def test_what_it_does_not_read_is_refused():
    with pytest.raises(ConfigError, match="replace=true has no meaning with sampler=heaviest"):
        losses(SerialComm(), sampler="heaviest", replace=True)
    with pytest.raises(
        ConfigError,
        match=(
            r"sampler 'heavest' is not known \(did you mean 'heaviest'\?\); choose from .*heaviest"
        ),
    ):
        losses(SerialComm(), sampler="heavest")
    with pytest.raises(
        ConfigError,
        match="sampler=neighbour:fanouts=3: there is no option 'fanouts'; there is mask",
    ):
        losses(SerialComm(), sampler="neighbour:fanouts=3")
    with pytest.raises(
        ConfigError, match="sampler configures neighbour sampling, but no fanout is given"
    ):
        losses(SerialComm(), sampler="heaviest", fanout="")
