"""A partitioner from outside: registered, or named as FILE.py:NAME, with options; it changes no
number and keeps neighbours together.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.errors import ConfigError

FILE = Path(__file__).with_name("partitioner.py")
KEYS = dict(
    dataset="sbm:n_nodes=120,n_edges=900,classes=3,features=8",
    epochs=3,
    backend="reference",
    dtype="float64",
)


@pytest.fixture(autouse=True)
def left_as_found():
    before = dict(gt.PARTITIONERS)
    yield
    for name in set(gt.PARTITIONERS) - set(before):
        del gt.PARTITIONERS[name]


def test_a_job_names_it():
    assert gt.PARTITIONERS.find(f"{FILE}:Majority") is gt.PARTITIONERS["majority"]
    assert (
        gt.Job(masters="majority").masters == "majority"
        and gt.Job(masters="majority:slack=0.3").masters == "majority:slack=0.3"
    )
    with pytest.raises(
        ConfigError,
        match=(
            r"masters: unknown node partitioner 'majorty' \(did you mean 'majority'\?\); allowed:"
            r" hash, "
        ),
    ):
        gt.Job(masters="majorty")
    with pytest.raises(
        ConfigError, match="Majority:width=2: there is no option 'width'; there is slack, sweeps"
    ):
        gt.Trainer(masters=f"{FILE}:Majority:width=2", **KEYS)


@pytest.mark.parametrize(
    "strategy", [{}, {"strategy": "mini", "batch_size": 20, "fanout": "4"}], ids=str
)
def test_losses_are_those_of_one_worker(strategy):
    def losses(comm, placement):
        trainer = gt.Trainer(
            comm=comm, masters=f"{FILE}:Majority", partitioner=placement, **KEYS, **strategy
        )
        return [row["loss"] for row in trainer.fit().history]

    expected = run_simulated(1, losses, "1d-src")[0]
    for placement in ("1d-src", "1d-dst", "vertex-cut"):
        np.testing.assert_allclose(run_simulated(3, losses, placement)[0], expected, rtol=1e-9)


def test_it_keeps_neighbours_together_and_workers_even():
    graph = gt.load(KEYS["dataset"])
    program = lambda comm, masters: build_partition(graph, comm, node_partitioner=masters).report()
    greedy, hashed = (
        run_simulated(3, program, masters)[0] for masters in (f"{FILE}:Majority:slack=0.1", "hash")
    )
    assert greedy["border_edges"] < 0.9 * hashed["border_edges"]
    assert greedy["node_imbalance"] <= 1.1 + 1e-9
