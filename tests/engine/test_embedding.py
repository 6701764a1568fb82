"""Learnable rows of nodes: first values, sparse updates, gradients, and the same numbers on any number of workers."""
from __future__ import annotations

from functools import cache

import graphs
import numpy as np
import pytest

from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.embedding.row_optimiser import RowAdagrad, RowAdam, RowSGD
from graphtheta.engine.embedding.table import EmbeddingTable
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.train.step import Training
from graphtheta.engine.train.update import UpdateRule
from graphtheta.engine.view.strategy import ClusterBatch, GlobalBatch, MiniBatch
from graphtheta.engine.view.task import NodeTask
from graphtheta.errors import ConfigError, FormatError
from graphtheta.models import build_model
from graphtheta.ops import SGD, Adam, Tape, dtype_scope
from graphtheta.ops.autodiff.init import init_scope
from graphtheta.ops.autodiff.tape import Parameter
from graphtheta.samplers.neighbour import NeighbourSampler

WIDTH, STEPS = 4, 3
ROWS = {"sgd": lambda: RowSGD(0.5), "adagrad": lambda: RowAdagrad(0.1), "adam": lambda: RowAdam(0.1)}
STRATEGIES = {
    "global": lambda *of: GlobalBatch(*of),
    "mini": lambda *of: MiniBatch(*of, batch_size=3),
    "mini sampled": lambda *of: MiniBatch(*of, batch_size=3, sampler=NeighbourSampler((2, 2))),
    "cluster": lambda *of: ClusterBatch(*of, 2, clusters=of[0].masters % 4, per_batch=2),
}


@cache
def graph():
    return graphs.random_graph(40, 80)


def trained(comm, strategy="mini", rows="adam", placement=graphs.PLACEMENTS[0], steps=STEPS, load=None, sparse=True, **keys):
    """A training with a table as x, after some steps."""
    with dtype_scope("float64"), init_scope(5):
        part = build_partition(graph(), comm, *placement, dtype=np.dtype("float64"))
        table = EmbeddingTable("x", part.masters, WIDTH, ROWS[rows](), 11, np.float64)
        part = part.overlay({"x": table}, {})
        model = build_model("sage", WIDTH, 3, hidden=5, layers=2, dropout=0.3)
    task = NodeTask(part, "classes")
    made = STRATEGIES[strategy](part, probe(model, part).layers, task)
    training = Training(model, made, SGD(model.parameters(), 0.3), comm, seed=2, backend="reference", tables=[table] if sparse else (), **keys)
    if load is not None:
        training.load_state(load[0])
        table.load(load[1])
    first = training.step
    training.run(0, first, min(first + steps, made.steps_per_epoch))
    return training, table


def result(comm, *args, **keys):
    training, table = trained(comm, *args, **keys)
    whole = table.gathered(comm, graph().n_nodes)
    return {**training.model.state(), **{f"table.{name}": x for name, x in whole.items()}}


def close(found, expected, tolerance=1e-9):
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("rows", ROWS)
def test_workers_and_partitioners_change_no_number(strategy, rows):
    one = result(SerialComm(), strategy, rows)
    for size, placement in zip((2, 3, 2), (graphs.PLACEMENTS[0], graphs.PLACEMENTS[3], graphs.PLACEMENTS[4]), strict=True):
        close(run_simulated(size, result, strategy, rows, placement)[0], one)
