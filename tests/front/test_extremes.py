"""Extreme numbers of every key and option: they work, or are one line of an error."""

from __future__ import annotations

import contextlib
import inspect
import io

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.errors import GraphThetaError
from graphtheta.partitioners.pairs import DEFAULT_MASTERS
from graphtheta.partitioners.registry import DEFAULT_PLACEMENT, EDGE_PLACEMENTS, PARTITIONERS
from graphtheta.run.job.keys import FIELDS
from graphtheta.run.job.rules import OnlyWith, rules_of

pytestmark = pytest.mark.reference

EXTREMES = ["0", "1", "-1", str(2**31), str(2**63), "1e18", "1e308", "nan", "inf", "1e-308"]
# keys whose large numbers ask for as much work
WORK = {"epochs", "seeds"}
KEYS = sorted(
    key for key, field in FIELDS.items() if field.annotation in (int, float) and key not in WORK
)
TINY = [
    "--dataset",
    "sbm:n_nodes=60,n_edges=300,classes=3,features=4",
    "--epochs",
    "1",
    "--hidden",
    "4",
    "--keep",
    "0",
]
SMALL = gt.load("sbm:n_nodes=60,n_edges=300,classes=3,features=4")


def numbers_of(kinds):
    """Names of classes, each with a numeric option."""
    return [
        (name, option.name)
        for name, made in kinds.items()
        for option in inspect.signature(made).parameters.values()
        if type(option.default) in (int, float)
    ]


OPTIONS = [("masters", *found) for found in numbers_of(PARTITIONERS)] + [
    ("partitioner", *found) for found in numbers_of(EDGE_PLACEMENTS)
]
# options whose large numbers do not ask for as much work
BOUNDED = {"slack", "gamma", "alpha", "node"}


@settings(deadline=None, max_examples=30)
@given(key=st.sampled_from(KEYS), value=st.sampled_from(EXTREMES))
@example(key="inference_memory", value="1e308")
def test_keys(tmp_path_factory, key, value):
    needed = [
        word
        for rule in rules_of(FIELDS[key])
        if isinstance(rule, OnlyWith)
        for word in (f"--{rule.other}".replace("_", "-"), rule.values[0])
    ]
    job = [
        word
        for i, word in enumerate(TINY)
        if "--hidden" not in TINY[max(i - 1, 0) : i + 1] or key != "hidden"
    ]
    told = io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        code = main(
            [
                "train",
                *job,
                *needed,
                f"--{key.replace('_', '-')}",
                value,
                "--out",
                str(tmp_path_factory.mktemp("run")),
            ]
        )
    assert code in (0, 1, 2) and "Traceback" not in told.getvalue(), told.getvalue()


@pytest.mark.second
@settings(deadline=None, max_examples=20)
@given(
    option=st.sampled_from([found for found in OPTIONS if found[2] in BOUNDED]),
    value=st.sampled_from(EXTREMES),
)
@example(option=("masters", "ldg", "slack"), value="1e308")
@example(option=("masters", "ldg", "slack"), value=str(2**31))
@example(option=("masters", "ldg", "slack"), value="inf")
@example(option=("masters", "degree-block", "node"), value=str(2**63))
def test_options_of_partitioners(option, value):
    key, name, field = option
    chosen = {
        "masters": DEFAULT_MASTERS,
        "partitioner": DEFAULT_PLACEMENT,
        key: f"{name}:{field}={value}",
    }
    with contextlib.suppress(GraphThetaError):
        parts = run_simulated(
            2, lambda comm: build_partition(SMALL, comm, chosen["partitioner"], chosen["masters"])
        )
        assert sum(part.n_masters for part in parts) == SMALL.n_nodes
