"""``gt.forward`` and ``gt.gradients`` on a graph outside of any trainer."""

from __future__ import annotations

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.errors import ConfigError
from graphtheta.models import GCN, BatchNorm, DotDecoder
from graphtheta.ops import dtype_scope


class Net(gt.Model):
    def __init__(self, d_in, d_out):
        self.first = GCN(d_in, 5, bias=False)
        self.norm = BatchNorm(5)
        self.last = GCN(5, d_out)

    def forward(self, graph):
        return self.last(graph, gt.dropout(gt.tanh(self.norm(self.first(graph, graph.x))), 0.3))


class Links(gt.Model):
    def __init__(self):
        self.score = DotDecoder()

    def forward(self, graph):
        return self.score(graph, graph.x)


@pytest.fixture
def graph():
    return graphs.random_graph(20, 60)


def made(graph):
    with dtype_scope("float64"):
        return Net(graph.n_features, 3)


@pytest.mark.reference
def test_forward_equals_the_predictions_of_a_trainer(graph):
    trainer = gt.Trainer("gcn", graph, epochs=1, scores="logits")
    trainer.fit()
    _, out = trainer.predict()
    np.testing.assert_allclose(gt.forward(trainer.model, graph.with_self_loops()), out, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
def test_gradients_equal_differences_and_leave_no_trace(training, graph):
    model = made(graph)
    keys = {"training": training, "seed": 4}
    loss = lambda out: gt.square(out - 0.3).sum(-1)
    before = {name: x.copy() for name, x in model.state().items()}
    value, found = gt.gradients(loss, model, graph, **keys)
    assert found.keys() == {name for name, _ in model.named_parameters()}
    for p in model.parameters():
        d = np.cos(np.arange(p.value.size)).reshape(p.shape)
        sides = []
        for step in (1e-6, -1e-6):
            start = p.value
            p.value = p.value + step * d
            sides.append(np.square(gt.forward(model, graph, **keys) - 0.3).sum(-1).mean())
            p.value = start
        assert abs((sides[0] - sides[1]) / 2e-6 - (found[p.name] * d).sum()) < 1e-6
    assert value == pytest.approx(
        np.square(gt.forward(model, graph, **keys) - 0.3).sum(-1).mean(), rel=1e-12
    )
    assert all(np.array_equal(x, before[name]) for name, x in model.state().items())


def test_wrong_use_is_refused(graph):
    with pytest.raises(ConfigError, match=r"expected a gt.Model .whose forward calls layers"):
        gt.forward(GCN(4, 3), graph)
    with pytest.raises(ConfigError, match="returns values of edges or links"):
        gt.forward(Links(), graph)
    with pytest.raises(ConfigError, match="the loss returned 1"):
        gt.gradients(lambda out: 1.0, made(graph), graph)
