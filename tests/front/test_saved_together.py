"""Caches, macrobatches and pipelining in drawn combinations with all else: the numbers of the plain
run, or one error that names a key.
"""

from __future__ import annotations

from typing import Any

import graphs
import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError
from graphtheta.train.reuse.caching.registry import CACHE_POLICIES

RNG = np.random.default_rng(5)
GRAPH = graphs.random_graph(48, 190).replace(node_columns={"time": 20 + np.arange(48) % 30})
GRAPH = GRAPH.replace(
    edge_columns={"w": 1 + np.arange(GRAPH.n_edges) % 3, "time": np.arange(GRAPH.n_edges) % 50}
)
SPARSE = GRAPH.replace(x=sp.csr_array((RNG.random((48, 9)) < 0.2) * RNG.random((48, 9))))
SAMPLERS = [
    "neighbour",
    "labor",
    "labor:kappa=3",
    "weighted:weight=w",
    "temporal",
    "ladies",
    "pladies:kappa=2",
]
DRAWS = 28


def losses(comm: Comm, graph: gt.Graph, machines: list[int], **keys: Any) -> list[float]:
    comm.machines = np.array(machines)
    one = gt.Trainer(graph=graph, comm=comm, **keys)
    return [one.train_epoch(epoch) for epoch in range(2)]


def drawn(number: int) -> tuple[gt.Graph, list[int], dict[str, Any], dict[str, Any]]:
    """A graph, machines of the workers, keys that change the numbers of a run, and keys that do
    not.
    """
    rng = np.random.default_rng(number)

    def one_of(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    keys: dict[str, Any] = {
        "model": "sage",
        "hidden": 4,
        "dropout": 0.0,
        "dtype": "float64",
        "backend": "reference",
        "epochs": 2,
        "views_per_step": 4,
        "strategy": one_of("mini", "mini", "mini", "cluster"),
        "mode": one_of("cooperative", "independent", "independent"),
        "staleness": one_of(0, 0, 1),
        "history": one_of(*["none"] * 7, "gas"),
    }
    if keys["strategy"] == "mini":
        sampler = one_of(*SAMPLERS)
        keys |= {
            "batch_size": 5,
            "sampler": sampler,
            "fanout": "9,9" if "ladies" in sampler else "3,2",
            "order": one_of("random", "proximity:sequences=2"),
            "precompute": one_of("no", "no", "yes"),
        }
        if sampler == "neighbour" and one_of(True, False):
            keys["fanout"] = ""
    else:
        keys |= {"clusters": 7, "clusters_per_batch": 2}
    macrobatch = one_of("1", "2", "5", "auto")
    saving: dict[str, Any] = {
        "macrobatch": macrobatch,
        "views_in_flight": one_of(1, 1, 3),
        "feature_cache": one_of("0", "6", "50%"),
        "machine_cache": one_of("0", "9", "60%"),
    }
    if saving["feature_cache"] != "0" or saving["machine_cache"] != "0":
        saving["cache_policy"] = one_of(
            *("belady:window=3" if name == "belady" else name for name in CACHE_POLICIES)
        )
    if macrobatch in ("5", "auto"):
        saving["fetch_batch"] = one_of(0, 1, 2)
    return one_of(GRAPH, GRAPH, SPARSE), one_of([0], [0, 1], [0, 0, 1], [1, 0, 1, 0]), keys, saving


def outcome(graph: gt.Graph, machines: list[int], keys: dict[str, Any]) -> Any:
    """Losses of a run, or its error."""
    try:
        return run_simulated(len(machines), losses, graph, machines, **keys)[0]
    except ConfigError as error:
        return error


@pytest.mark.one_in(4)
@pytest.mark.parametrize("part", range(4))
def test_what_saves_work_changes_nothing(part: int) -> None:
    equal = 0
    for number in range(part, DRAWS, 4):
        graph, machines, keys, saving = drawn(number)
        plain = outcome(graph, machines, keys)
        found = outcome(graph, machines, keys | saving)
        if isinstance(found, ConfigError):
            # a plain run that is refused is refused for one of its own keys
            named = keys if isinstance(plain, ConfigError) else saving
            assert any(key in str(found) for key in named), (number, found)
            assert "\n" not in str(found)
        else:
            assert found == plain, (number, keys, saving)
            equal += 1
    assert equal > 1
