"""Plans are made once for each structure of a traced gather, and shared."""

from __future__ import annotations

import graphs
import numpy as np
import pytest

import graphtheta.ops as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer import superstep
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.view import global_view
from graphtheta.ops import Parameter, Tape
from graphtheta.ops.edge.program_cache import ProgramCache

GRAPH = graphs.random_graph()


class One(Model):
    def __init__(self):
        self.layer = Layer()

    def forward(self, graph):
        return self.layer(graph, graph.x)


def run(model, training=False):
    """Outputs on one worker."""

    def program(comm):
        with Tape(training=training):
            return model(global_view(build_partition(GRAPH, comm, dtype=np.float64), ["in"])).value

    return run_simulated(1, program)[0]


class Scaled(Layer):
    """Has a parameter and a setting."""

    def __init__(self):
        self.w = Parameter(np.eye(4))
        self.temperature = 1.0

    def transform(self, node):
        return {"z": gt.matmul(node.h, self.w)}

    def gather(self, edge):
        return edge.src.z * self.temperature


@pytest.fixture
def programs(monkeypatch):
    """An empty cache of programs."""
    cache = ProgramCache(most=4)
    monkeypatch.setattr(superstep, "PROGRAMS", cache)
    return cache


def test_gather_is_planned_once_for_each_structure(programs):
    model = One()
    model.layer = layer = Scaled()
    for _ in range(4):
        run(model, training=True)
    assert len(programs) == 1
    other = One()
    other.layer = Scaled()
    run(other, training=True)
    assert len(programs) == 1
    first = run(model)
    layer.w.value = 2 * layer.w.value
    np.testing.assert_allclose(run(model), 2 * first)
    n = len(programs)
    for temperature in (3.0, 2.5, np.full(4, 0.5)):
        layer.temperature = temperature
        np.testing.assert_allclose(run(model), 2 * first * temperature)
    # one for all numbers but 1, which is left out, and one for an array
    assert len(programs) == n + 2
    layer.temperature = 3.0
    layer.sum = "mean"
    assert np.all(np.abs(run(model)) <= np.abs(6 * GRAPH.x).max() + 1e-6)
    layer.w.value = np.ones((4, 2))
    assert run(model).shape == (24, 2)
    layer.sum, layer.temperature, layer.w.value = "sum", 1.0, np.eye(4)
    np.testing.assert_allclose(run(model), first)
    for i in range(2, 12):
        layer.temperature = np.full((1,) * i, 2.0)
        run(model)
    assert len(programs) == programs.most


def test_training_and_evaluation_take_turns_without_planning_anew(programs):
    model = One()
    model.layer = Scaled()

    def program(comm):
        p = build_partition(GRAPH, comm, dtype=np.float64)
        view = global_view(p, ["in"])
        for _ in range(3):
            for record in (True, False):
                with Tape(record=record, training=record):
                    model(view)

    run_simulated(1, program)
    assert len(programs) == 2
