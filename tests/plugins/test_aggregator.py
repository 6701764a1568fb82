"""An added aggregator works in any layer, under sampling, on any number of ranks, forward and
backward.
"""

from __future__ import annotations

import pytest
from plugins import aggregator as plugin
from plugins import training

import graphtheta as gt
from graphtheta.errors import ConfigError


def test_it_passes_the_checks():
    report = gt.check(plugin.Energy(4, 3))
    assert report.gradients < 1e-6 and report.workers < 1e-9


@pytest.mark.fused
@pytest.mark.parametrize("partitioner", ["1d-src", "vertex-cut"])
@pytest.mark.parametrize("keys", training.STRATEGIES, ids=lambda keys: keys["strategy"])
def test_ranks_agree_and_the_fall_back_is_reported(keys, partitioner):
    one, three = (
        training.trained(plugin.Net, ranks, partitioner=partitioner, **keys) for ranks in (1, 3)
    )
    training.assert_same(one, three)
    reported = (
        "its sum is mean_square, which has no compiled form; sum, mean, max, min, var, std, median"
        " and TopK have one"
    )
    assert any(reported in reason for reason in one[2])


def test_a_name_given_again_belongs_to_the_new_aggregator():
    class Twice(plugin.MeanSquare):
        def finish(self, state):
            return 2 * super().finish(state)

    class Square(plugin.Energy):
        sum = "mean_square"
        apply = gt.Layer.apply

    class Net(gt.Model):
        def __init__(self, d_in, d_out):
            self.layer = Square(d_in, d_out)

        def forward(self, graph):
            return self.layer(graph, graph.x)

    before = training.trained(Net, 1)
    known = gt.AGGREGATORS["mean_square"]
    try:
        assert gt.AGGREGATORS.add(made := Twice()) is made
        assert training.trained(Net, 1)[0][0] != before[0][0]
    finally:
        gt.AGGREGATORS.add(known)
    assert training.trained(Net, 1)[0] == before[0]


@pytest.mark.parametrize("name", ["sum", "softmax-sum", "logsumexp", "", "two words"])
def test_names_that_cannot_be_used_are_refused(name):
    class Named(plugin.MeanSquare):
        pass

    Named.name = name
    with pytest.raises(
        ConfigError, match=r"the aggregator .* is built in|not a valid aggregator name"
    ):
        gt.AGGREGATORS.add(Named())


def test_a_class_is_not_an_aggregator():
    with pytest.raises(ConfigError, match="the class MeanSquare is not an aggregator"):
        gt.AGGREGATORS.add(plugin.MeanSquare)
