"""Sums over the nodes of all workers: values, gradients, and the same training on any number of
workers under every strategy.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import UserFunctionError
from graphtheta.inspect.checking.gradients import check_gradients
from graphtheta.ops import Parameter, RowSpace, Tape, Var

pytestmark = pytest.mark.reference


class Virtual(gt.Layer):
    """A mean of the neighbours, PairNorm, and a virtual node."""

    direction = "both"
    sum = "mean"

    def __init__(self, d_in, d_out):
        self.along = gt.Linear(d_in, d_out)
        self.against = gt.Linear(d_in, d_out)
        self.all = gt.Linear(d_out, d_out, bias=False)

    def transform(self, node):
        return {"z": self.along(node.h), "y": self.against(node.h)}

    def gather(self, edge):
        return gt.where(edge.reversed, edge.src.y, edge.src.z)

    def apply(self, node, total):
        centred = total - gt.graph_mean(total)
        return gt.tanh(self.all(gt.graph_sum(total)) * 0.1) + centred / gt.sqrt(
            gt.graph_mean(gt.square(centred).sum(-1)) + 1e-3
        )


class Net(gt.Model):
    def __init__(self, d_in, d_out):
        self.first = Virtual(d_in, 4)
        self.last = Virtual(4, d_out)

    def forward(self, graph):
        return self.last(graph, self.first(graph, graph.x))


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"strategy": "mini", "batch_size": 7, "fanout": "3,2"},
        {"strategy": "cluster", "clusters": 3},
    ],
    ids=str,
)
def test_training_is_the_same_on_any_number_of_workers(keys):
    def losses(comm):
        trainer = gt.Trainer(
            Net, graphs.random_graph(40, 150), comm=comm, dtype="float64", epochs=2, **keys
        )
        return [row["loss"] for row in trainer.fit().history]

    one, *_ = run_simulated(1, losses)
    for size in (2, 4):
        for found in run_simulated(size, losses):
            np.testing.assert_allclose(found, one, rtol=1e-9)


@pytest.mark.parametrize("size", [1, 3])
def test_sums_and_their_gradients(size, rng):
    x, w = rng.standard_normal((9, 3)), rng.standard_normal((9, 3))

    def program(comm):
        # the last of several workers has no rows
        mine = (
            np.arange(9)
            if comm.size == 1
            else np.arange(comm.rank, 9, 2)
            if comm.rank < 2
            else np.arange(0)
        )
        with Tape(all_sum=comm.all_sum) as tape:
            v = Var(x[mine], RowSpace(mine), True)
            out = Var(w[mine], v.space) * gt.graph_sum(v) * v
            mean = gt.graph_mean(v)
        return mine, mean.value, tape.backward(out).of(v)

    for mine, mean, g in run_simulated(size, program):
        np.testing.assert_allclose(mean, x.mean(0), rtol=1e-12)
        np.testing.assert_allclose(g, w[mine] * x.sum(0) + (w * x).sum(0), rtol=1e-9)


@pytest.mark.parametrize("f", [gt.graph_sum, gt.graph_mean])
def test_what_has_no_rows_is_refused(f):
    with pytest.raises(UserFunctionError, match="takes dense values of nodes or edges"):
        f(Parameter(np.ones(3)))
    with pytest.raises(UserFunctionError, match="cannot be used inside gather"):
        gt.check(Inside(), d_in=3)


class Inside(gt.Layer):
    def gather(self, edge):
        return edge.src.h * gt.graph_sum(edge.src.h)


def test_finite_differences(rng):
    p, x = Parameter(rng.standard_normal((3, 2))), rng.standard_normal((5, 3))

    def loss():
        v = Var(x, RowSpace(np.arange(5))) @ p
        c = v - gt.graph_mean(v)
        return (gt.graph_sum(gt.tanh(c)) / gt.sqrt(gt.graph_sum(gt.square(c)) + 1.0)).sum()

    check_gradients(loss, [p])
