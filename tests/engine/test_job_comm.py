"""Two communicators: the workers that share a view, and those that share parameters."""

from __future__ import annotations

import graphs
import numpy as np
import pytest

import graphtheta.ops as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.strategy.strategy import GlobalBatch, MiniBatch
from graphtheta.engine.strategy.task import NodeTask
from graphtheta.engine.train.step import Training
from graphtheta.models.norm import BatchNorm
from graphtheta.ops import SGD, Parameter, Tape
from graphtheta.ops.autodiff.init import dtype_scope
from graphtheta.samplers.neighbour import NeighbourSampler
from graphtheta.tasks.evaluation.evaluate import NodeEvaluator

SIZE = 3
STEPS = 2
RATE = 0.1


class Net(Model):
    """Sums over neighbours, twice; batch normalisation between needs sums over a view's rows."""

    def __init__(self):
        self.layers = [Layer(), Layer()]
        self.w = Parameter(np.linspace(-0.5, 0.5, 12).reshape(4, 3))
        with dtype_scope("float64"):
            self.norm = BatchNorm(4)

    def forward(self, graph):
        h = self.norm(self.layers[0](graph, graph.x))
        return gt.matmul(self.layers[1](graph, h), self.w)


def alone(rank, strategy, job_comm=None):
    """A graph of this rank's own that no other rank has a part of, and a strategy over it."""
    graph = graphs.random_graph(20, 60, seed=rank)
    p = build_partition(graph, SerialComm(), dtype=np.float64, job_comm=job_comm)
    return p, strategy(p, ["in", "in"], NodeTask(p, "classes"))


STRATEGIES = {
    "global": GlobalBatch,
    "sampled": lambda *of: MiniBatch(
        *of, batch_size=-(-of[2].n_targets // STEPS), sampler=NeighbourSampler((2, 2))
    ),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_views_of_one_rank_train_shared_parameters(name):
    def together(comm):
        model, (p, strategy) = Net(), alone(comm.rank, STRATEGIES[name], comm)
        assert p.halo_comm.size == 1 and p.job_comm is comm
        training = Training(
            model, strategy, SGD(model.parameters(), lr=RATE), comm, backend="reference"
        )
        for epoch in range(STEPS):
            training.run(epoch, 0, 1)
        return model.state()

    found = run_simulated(SIZE, together)
    # the same sums, one rank after another
    model, made = Net(), [alone(rank, STRATEGIES[name])[1] for rank in range(SIZE)]
    for step in range(STEPS):
        total = {p: np.zeros(p.shape) for p in model.parameters()}
        for strategy in made:
            view = strategy.batch(step, 0)
            with Tape(step=step, all_sum=view.partition.halo_comm.all_sum) as tape:
                loss = strategy.task.loss(view, model(view))
            grads = tape.backward(loss)
            for p in total:
                total[p] += grads.of(p)
        for p, g in total.items():
            p.value = p.value - RATE * g
    for state in found:
        for p, name in ((p, n) for n, p in model.named_parameters()):
            np.testing.assert_allclose(state[name], p.value, rtol=1e-9, atol=1e-12)


def test_metrics_count_the_rows_of_all_ranks():
    def program(comm):
        p, strategy = alone(comm.rank, GlobalBatch)
        model = Net()
        own = NodeEvaluator(p, ["in", "in"], strategy.task).metrics(model)
        p, strategy = alone(comm.rank, GlobalBatch, comm)
        shared = NodeEvaluator(p, ["in", "in"], strategy.task).metrics(model)
        return (
            own["train_accuracy"],
            np.count_nonzero(p.node.read("train") & (p.node.read("y") >= 0)),
            shared["train_accuracy"],
        )

    own, rows, shared = zip(*run_simulated(SIZE, program), strict=True)
    assert len(set(own)) > 1
    np.testing.assert_allclose(shared, np.average(own, weights=rows))
