"""The sampler of node_set_sampler.py: named in a job, the same numbers on any ranks."""

from __future__ import annotations

from pathlib import Path

import graphs
import numpy as np
import plugins.node_set_sampler
import pytest

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.errors import ConfigError

FILE = Path(__file__).with_name("node_set_sampler.py")
GRAPH = graphs.random_graph(30, 160)


def losses(comm, sampler="range:length=12,coverage=4", **keys):
    job = {
        "model": "sage",
        "strategy": "mini",
        "epochs": 2,
        "backend": "reference",
        "dtype": "float64",
        **keys,
    }
    return [
        row["loss"]
        for row in gt.Trainer(graph=GRAPH, comm=comm, sampler=sampler, **job).fit().history
    ]


def test_the_nodes_of_a_batch_are_a_range():
    p = build_partition(GRAPH, SerialComm())
    sets = plugins.node_set_sampler.Range(length=7, seed=2).open(p)
    found = [np.sort(p.masters[sets(batch)]) for batch in range(5)]
    assert len({ids.tobytes() for ids in found}) > 1
    for ids in found:
        # a range may go on at 0 after the last id
        assert len(ids) == 7 and np.count_nonzero(np.diff(ids) != 1) <= 1


def test_a_job_names_it():
    alone = losses(SerialComm())
    found = run_simulated(3, lambda comm: losses(comm, partitioner="vertex-cut", masters="block"))[
        0
    ]
    np.testing.assert_allclose(found, alone, rtol=1e-9)
    assert (
        losses(SerialComm(), f"{FILE}:Range:length=12,coverage=4")
        == alone
        != losses(SerialComm(), "range:length=12,normalise=no")
    )
    with pytest.raises(ConfigError, match="range: length is 0, expected at least 1"):
        losses(SerialComm(), "range:length=0")
