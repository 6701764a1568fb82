"""Layers and models: methods that are no stages, arguments of a model, several totals."""

from __future__ import annotations

import graphs
import numpy as np
import pytest

import graphtheta.ops as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.view import global_view
from graphtheta.errors import GraphThetaError, UserFunctionError
from graphtheta.ops import Parameter

GRAPH = graphs.random_graph()


class One(Model):
    def __init__(self, layer):
        self.layer = layer

    def forward(self, graph):
        return self.layer(graph, graph.x)


def run(model):
    return model(global_view(build_partition(GRAPH, SerialComm(), dtype=np.float64), ["in"])).value


def layer_with(**methods):
    return type("Mine", (Layer,), methods)()


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("Gather", "gather"),
        ("gathr", "gather"),
        ("message", "gather"),
        ("message_func", "gather"),
        ("Transform", "transform"),
        ("tranform", "transform"),
        ("Apply", "apply"),
        ("update", "apply"),
        ("aply", "apply"),
        ("forward", "apply"),
        ("aggregate", "sum"),
        ("reduce", "sum"),
        ("edge_update", "gather"),
    ],
)
def test_a_method_that_looks_like_a_stage_is_refused(name, stage):
    with pytest.raises(
        UserFunctionError, match=f"Mine defines {name}, which is never called; did you mean {stage}"
    ):
        run(One(layer_with(**{name: lambda self, x: x})))


def test_a_method_that_looks_like_a_stage_may_be_a_helper():
    plain = run(One(Layer()))
    for layer in (
        layer_with(message=lambda self, e: e.src.h, gather=lambda self, edge: self.message(edge)),
        layer_with(update=lambda self, x: x, apply=lambda self, node, total: total),
        layer_with(reduce=lambda self, x: x, sum="sum", updates=3, applied=lambda self: None),
    ):
        np.testing.assert_array_equal(run(One(layer)), plain)


def test_a_stage_may_be_inherited():
    class Parent(Layer):
        def gather(self, edge):
            return edge.src.h * 2.0

    found = run(One(type("Child", (Parent,), {"message": lambda self, edge: edge.src.h})()))
    np.testing.assert_array_equal(found, 2 * run(One(Layer())))


@pytest.mark.parametrize("given", [GRAPH, None, np.ones((3, 4))])
def test_a_model_called_with_something_else_is_told_what_to_do(given):
    with pytest.raises(
        UserFunctionError,
        match=(
            rf"One was called with a value of type {type(given).__name__};.*gt\.Trainer\(One,"
            r" graph\)"
        ),
    ):
        One(Layer())(given)


def test_a_model_may_run_inside_another():
    class Outer(Model):
        def __init__(self):
            self.inner = One(Layer())

        def forward(self, graph):
            return self.inner(graph) * 2.0

    np.testing.assert_array_equal(run(Outer()), 2 * run(One(Layer())))


@pytest.mark.parametrize(
    "use",
    [
        lambda total: total * 2.0,
        lambda total: 1.0 + total,
        lambda total: gt.relu(total),
        lambda total: -total,
        lambda total: gt.concat([total, total]),
        lambda total: total @ Parameter(np.ones((4, 2))),
        lambda total: total[..., 0],
        lambda total: gt.matmul(total, Parameter(np.ones((4, 2)))),
    ],
)
def test_several_totals_used_as_one_are_told_apart(use):
    layer = layer_with(sum=("mean", "max"), apply=lambda self, node, total: use(total))
    with pytest.raises(GraphThetaError, match=r"apply of Mine.*one total for each.*total\.mean"):
        run(One(layer))


def test_shapes_are_alike_in_all_stages():
    seen = {}

    def note(stage, x):
        seen[stage] = (len(x.shape), x.shape[1:], x.shape[-1])
        return x

    layer = layer_with(
        transform=lambda self, node: {"z": note("transform", gt.stack([node.h, node.h]))},
        gather=lambda self, edge: note("gather", edge.src.z),
        apply=lambda self, node, total: gt.flatten(note("apply", total)),
    )
    assert run(One(layer)).shape == (GRAPH.n_nodes, 8)
    assert set(seen.values()) == {(3, seen["apply"][1], seen["apply"][2])} and len(seen) == 3
