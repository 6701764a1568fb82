"""Halos in 16 bits: half the bytes, nearly the same training, and no job that could not mean it."""

from __future__ import annotations

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.cli.rounding import halo_error
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError

UNLABELLED = dict.fromkeys(("edge_y", "edge_train", "edge_val", "edge_test"))
GRAPH = graphs.random_graph(60, 400, **UNLABELLED)
# sums in order take a step for each edge of the node that has most
EVEN = graphs.random_graph(60, 400, hub=False, **UNLABELLED)
KEYS = dict(
    layers=3,
    hidden=32,
    dropout=0.3,
    optimiser="sgd",
    lr=0.1,
    backend="reference",
    partitioner="vertex-cut",
)
MODELS = [
    {"model": "gcn"},
    {"model": "gat", "heads": 2},
    {"model": "sage", "aggregator": "max"},
    {"model": "sage", "aggregator": "lstm"},
]


def trained(comm, **keys):
    """Losses of three epochs, test metrics without training, bytes of the moves, and how far
    rounding moves the first loss.
    """
    graph = EVEN if keys.get("aggregator") == "lstm" else GRAPH
    trainer = gt.Trainer(graph=graph, comm=comm, **{**KEYS, **keys})
    metrics = trainer.evaluate("test")
    error = halo_error(trainer)
    before = comm.ledger.snapshot()
    losses = [trainer.train_epoch(i) for i in range(3)]
    return losses, metrics, comm.ledger.since(before)["move"]["bytes"], error


@pytest.mark.one_in(2)
@pytest.mark.parametrize("model", MODELS, ids=lambda m: " ".join(map(str, m.values())))
def test_training_moves_little_and_half_the_bytes(model):
    exact, half = (run_simulated(3, trained, halo=halo, **model) for halo in ("exact", "bf16"))
    np.testing.assert_allclose(half[0][0], exact[0][0], rtol=2e-2)
    assert half[0][0] != exact[0][0]
    # what is tested is not rounded
    assert half[0][1] == exact[0][1]
    assert sum(r[2] for r in half) < 0.8 * sum(r[2] for r in exact)
    assert exact[0][3] == 0 < half[0][3] < 1e-2 and len({r[3] for r in half}) == 1


def test_one_worker_rounds_nothing():
    exact, half = (run_simulated(1, trained, halo=halo)[0] for halo in ("exact", "bf16"))
    assert exact[0] == half[0] and half[3] == 0


def test_runs_repeat_bit_for_bit():
    first, second = (
        run_simulated(3, trained, model="gat", heads=2, halo="bf16")[0] for _ in range(2)
    )
    assert first == second


def test_float64_refuses_it():
    with pytest.raises(ConfigError, match="halo=bf16 has no meaning with dtype=float64"):
        gt.Job(halo="bf16", dtype="float64")


def test_the_command_tells_the_error(tmp_path, capsys):
    words = [
        "--dataset",
        "sbm:n_nodes=60,n_edges=300,classes=3,features=4",
        "--epochs",
        "1",
        "--backend",
        "reference",
        "--halo",
        "bf16",
    ]
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 0
    assert (
        "halo=bf16: rounding changes the loss of the first step by a relative 0.0e+00"
        in capsys.readouterr().out
    )
