"""A gather that is called again finds the expressions of its last call, and whatever it reads is read again."""
from __future__ import annotations

import gc
from dataclasses import dataclass
from weakref import ref

import graphs
import numpy as np
import pytest

import graphtheta.ops as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer import superstep
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.view import global_view
from graphtheta.errors import UserFunctionError
from graphtheta.ops import Parameter, Tape
from graphtheta.ops.edge import trace_cache
from graphtheta.ops.edge.program_cache import ProgramCache
from graphtheta.ops.edge.trace_cache import TraceCache

GRAPH = graphs.random_graph()
FACTOR = 1.0


class One(Model):
    def __init__(self, layer):
        self.layer = layer

    def forward(self, graph):
        return self.layer(graph, graph.x)


def run(layer, training=False, step=0):
    """Outputs and the gradient of the first parameter."""
    model = One(layer)

    def program(comm):
        view = global_view(build_partition(GRAPH, comm, dtype=np.float64), ["in"])
        with Tape(training=training, step=step) as tape:
            out = model(view)
            parameters = model.parameters()
            grads = tape.backward(out, np.ones(out.shape)) if parameters and out.needs_grad else None
        return out.value, grads.of(parameters[0]) if grads is not None else np.zeros(())

    return run_simulated(1, program)[0]


class Changing(Layer):
    """Reads parameters, settings, a global, an array and another object."""

    def __init__(self):
        self.w, self.bias = Parameter(np.eye(4)), Parameter(np.ones(4))
        self.temperature, self.table, self.branch, self.rate, self.other = 2.0, np.full(4, 0.5), "plain", 0.5, {"power": 1.0}

    def transform(self, node):
        return {"z": gt.matmul(node.h, self.w)}

    def gather(self, edge):
        z = edge.src.z * self.temperature * FACTOR * self.table + self.other["power"]
        if self.branch == "bias":
            z = z * self.bias
        if self.branch == "swapped":
            z = self.bias * self.table * z
        return gt.dropout(z, self.rate)


def set_power(layer):
    layer.other["power"] = 5.0


def set_in_place(layer):
    layer.table[:] = [1, 2, 3, 4]


def set_ones(layer):
    layer.table[:] = 1


def freeze(layer):
    layer.w.requires_grad = False


def reshape(layer):
    layer.w.value, layer.bias.value, layer.table = np.ones((4, 2)), np.ones(2), np.full(2, 3.0)


CHANGES = [lambda layer: None, lambda layer: setattr(layer, "temperature", 3.0), lambda layer: setattr(layer, "temperature", 1.0),
           lambda layer: setattr(layer, "temperature", np.full(4, 0.25)), lambda layer: setattr(layer, "branch", "bias"),
           lambda layer: setattr(layer, "branch", "swapped"), lambda layer: setattr(layer, "branch", "plain"), set_power, set_in_place,
           set_ones, lambda layer: setattr(layer, "rate", 0.25), lambda layer: setattr(layer, "rate", 0.0),
           lambda layer: setattr(layer, "sum", "mean"), lambda layer: setattr(layer, "sum", ["mean", "max"]) or setattr(
               layer, "apply", lambda node, total: total.mean + total.max), freeze,
           lambda layer: setattr(layer, "table", np.full(4, 7.0)), lambda layer: setattr(layer.w, "requires_grad", True),
           lambda layer: setattr(layer, "temperature", 1.0), reshape, lambda layer: setattr(layer, "temperature", -0.0)]


@pytest.mark.parametrize("passes", [1, 3])
def test_a_change_takes_effect_in_the_next_pass(monkeypatch, passes):
    layer = Changing()
    for step, change in enumerate(CHANGES):
        change(layer)
        for training in (False, True) * passes:
            found = run(layer, training, step)
            with monkeypatch.context() as patch:
                patch.setattr(superstep, "TRACES", TraceCache())
                patch.setattr(superstep, "PROGRAMS", ProgramCache())
                expected = run(layer, training, step)
            for x, y in zip(found, expected, strict=True):
                np.testing.assert_array_equal(x, y)


def test_a_global_is_read_again(monkeypatch):
    layer = Changing()
    first = run(layer)[0], run(layer)[0], run(layer)[0]
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    layer.other["power"] = 0.0
    twice = run(layer)[0]
    monkeypatch.setitem(globals(), "FACTOR", 1.0)
    np.testing.assert_allclose(twice, 2 * run(layer)[0])
    assert np.array_equal(first[0], first[2])


def scopes_of(cache, layer):
    """Sizes of the scopes that are kept for a layer, or the changes in place of one."""
    found = cache._scopes[id(layer)][1].values()
    return [x if isinstance(x, int) else x.size for x in found]


@pytest.fixture
def traces(monkeypatch):
    cache = TraceCache()
    monkeypatch.setattr(superstep, "TRACES", cache)
    return cache


def test_a_scope_does_not_grow_with_passes(traces):
    layer = Changing()
    run(layer), run(layer)
    before = scopes_of(traces, layer)
    assert len(before) == 1
    for _ in range(4):
        run(layer)
    assert scopes_of(traces, layer) == before


def test_scopes_are_given_up_where_operands_are_new_in_every_pass(traces):
    class Fresh(Layer):
        def gather(self, edge):
            return edge.src.h * np.arange(4.0)

    layer = Fresh()
    outs = [run(layer)[0] for _ in range(2 + trace_cache.MOST_CHANGES)]
    assert all(np.array_equal(outs[0], out) for out in outs)
    assert scopes_of(traces, layer) == [trace_cache.MOST_CHANGES]
    run(layer)
    assert scopes_of(traces, layer) == [trace_cache.MOST_CHANGES]


def test_equal_numbers_that_are_computed_in_each_pass_are_found(traces):
    class Computed(Layer):
        def __init__(self):
            self.temperature = 3.0

        def gather(self, edge):
            return edge.src.h * (1 / self.temperature) + float("-0.0")

    layer = Computed()
    for _ in range(4):
        run(layer)
    (size,) = scopes_of(traces, layer)
    assert size > trace_cache.MOST_CHANGES


def test_an_expression_of_an_earlier_call_is_refused_however_often_it_ran(traces):
    class Keeping(Layer):
        kept = None

        def gather(self, edge):
            if self.kept is None:
                return edge.src.h * 2.0
            return self.kept

    layer = Keeping()
    for _ in range(3):
        run(layer)
    calls = []
    layer.gather = lambda edge: calls.append(edge.src.h * 2.0) or calls[0]
    run(layer)
    layer.gather = lambda edge: calls[0]
    with pytest.raises(UserFunctionError, match="comes from an earlier call of gather"):
        run(layer)


def test_a_layer_is_not_kept_alive(traces):
    layer = Changing()
    run(layer), run(layer)
    gone = ref(layer)
    del layer
    gc.collect()
    assert gone() is None and not traces._scopes


def test_a_layer_may_have_no_hash():
    @dataclass
    class Plain(Layer):
        factor: float = 2.0

        def gather(self, edge):
            return edge.src.h * self.factor

    layer = Plain()
    first = run(layer)[0]
    run(layer)
    layer.factor = 4.0
    np.testing.assert_allclose(run(layer)[0], 2 * first)
