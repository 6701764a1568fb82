"""A column given from outside: the numbers of a plain array that holds the same values, for any
number of workers.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from plugins.column_store import Quantised, quantised

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.inference.outputs.predictions import in_order

GRAPH = graphs.random_graph(40, 200, edge_y=None, edge_train=None, edge_val=None, edge_test=None)
KEYS = dict(model="sage", epochs=3, dtype="float64", hidden=5, optimiser="sgd", backend="reference")


def predicted(trainer):
    with trainer.setup.scope():
        evaluator = trainer.setup.evaluator
        rows = in_order(trainer.comm, evaluator.outputs(trainer.model), True)
        return None if rows is None else rows[1]


def trained(comm, graph, keys):
    """Losses, test metrics, and predictions on rank 0."""
    trainer = gt.Trainer(graph=graph, comm=comm, **KEYS, **keys)
    return [trainer.train_epoch(i) for i in range(3)], trainer.measure(), predicted(trainer)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "global"},
        {"strategy": "mini", "batch_size": 7},
        {"strategy": "mini", "batch_size": 7, "fanout": "3,3", "views_in_flight": 3},
        {"strategy": "cluster", "clusters": 4, "degrees": "view"},
        {"strategy": "global", "precompute": True, "dropout": 0.0},
        {"strategy": "mini", "batch_size": 7, "recompute": True, "partitioner": "vertex-cut"},
    ],
    ids=str,
)
def test_training_equals_a_plain_array_of_the_same_values(keys):
    coded = quantised(GRAPH)
    plain = GRAPH.replace(x=coded.x.read_begin(None).end())
    expected = run_simulated(1, trained, plain, keys)[0]
    for size in (1, 3):
        found = run_simulated(size, trained, coded, keys)[0]
        same = expected if size == 1 else run_simulated(size, trained, plain, keys)[0]
        assert found[:2] == same[:2]
        np.testing.assert_array_equal(found[2], same[2])
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-9)
        np.testing.assert_allclose(found[2], expected[2], rtol=1e-7)


def test_values_are_close_and_small():
    x = np.random.default_rng(0).standard_normal((500, 16)).astype(np.float32)
    column = Quantised(x)
    assert column.nbytes < 0.3 * x.nbytes
    np.testing.assert_allclose(
        column.read_begin(np.array([4, 4, 0])).end(), x[[4, 4, 0]], atol=float(column.step.max())
    )
