"""Samplers named in a job: the same losses on any ranks, and messages about options."""

from __future__ import annotations

from functools import cache, partial

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError

RNG = np.random.default_rng(2)
GRAPH = graphs.random_graph(
    60,
    400,
    edge_columns={"time": RNG.integers(0, 50, 400), "part": RNG.random(400) < 0.8},
    node_columns={"time": RNG.integers(20, 50, 60)},
)
JOB = {
    "model": "sage",
    "strategy": "mini",
    "epochs": 1,
    "backend": "reference",
    "dtype": "float64",
    "dropout": 0.5,
}
# keys by sampler; samplers of edges have a fanout of 3 and those of node sets 3 batches
CASES = {
    "neighbour:mask=part": {"replace": True},
    "neighbour": {},
    "weighted:normalise=yes": {"replace": True},
    "weighted": {},
    "temporal": {"replace": True},
    "temporal:strategy=last": {},
    "labor": {},
    "labor:kappa=2": {"replace": True},
    "labor:sequential=yes,kappa=3": {},
    "labor:iterations=1,weight=weight": {"direction": "both"},
    "labor:star=yes,normalise=yes": {"views_in_flight": 3},
    "ladies:weight=weight": {"fanout": "8", "views_in_flight": 2},
    "ladies:weights=published": {"fanout": "8"},
    "pladies:skip=yes,mask=part,kappa=2": {"fanout": "8"},
    "saint_node:budget=20": {"model": "gcn"},
    "saint_node:budget=30,probability=norm": {"model": "gat", "heads": 2},
    "saint_edge:budget=12": {"direction": "both"},
    "saint_walk:roots=8,depth=2": {"model": "gcn", "views_in_flight": 3},
    "saint_frontier:budget=20,frontier=5,normalise=no": {"model": "gcn"},
}


def losses(comm, sampler, **keys):
    batches = (
        {"sampler": f"{sampler},batches=3,coverage=3"}
        if "saint" in sampler
        else {"sampler": sampler, "batch_size": 8, "fanout": "3"}
    )
    trainer = gt.Trainer(
        graph=GRAPH, comm=comm, **{**JOB, **batches, **CASES.get(sampler, {}), **keys}
    )
    return [row["loss"] for row in trainer.fit().history]


@cache
def alone(sampler):
    return losses(SerialComm(), sampler)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("sampler", CASES)
def test_losses_do_not_depend_on_ranks(sampler):
    """On two to four ranks with half of the placements; the next case has the other half."""
    for size, (placement, masters) in zip(
        (2, 3, 4), graphs.PLACEMENTS[list(CASES).index(sampler) % 2 :: 2], strict=True
    ):
        for found in run_simulated(
            size, partial(losses, sampler=sampler, partitioner=placement, masters=masters)
        ):
            np.testing.assert_allclose(found, alone(sampler), rtol=1e-9)


@pytest.mark.second
def test_samplers_differ():
    found = [tuple(alone(sampler)) for sampler in CASES]
    assert np.isfinite(found).all() and len(set(found)) == len(CASES)


def test_options_that_a_sampler_does_not_have_are_refused():
    with pytest.raises(ConfigError, match="share_sample=true has no meaning with sampler=labor"):
        losses(SerialComm(), "labor", share_sample=True)
    with pytest.raises(ConfigError, match="replace=true has no meaning with sampler=ladies"):
        losses(SerialComm(), "ladies", replace=True)
    with pytest.raises(
        ConfigError, match=r"there is no option 'star'; there is weight, .*layer_dependency, skip"
    ):
        losses(SerialComm(), "pladies:star=yes")
    with pytest.raises(ConfigError, match="iterations is 'many'; expected a value of type int"):
        losses(SerialComm(), "labor:iterations=many")
