"""Modules: which parameters are found, and what is said of those that are not."""

from __future__ import annotations

import logging
from functools import partial
from types import SimpleNamespace

import graphs
import numpy as np
import pytest

import graphtheta.ops as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.layer.module import Module, lost
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.errors import TapeError, UserFunctionError
from graphtheta.ops import Parameter
from graphtheta.train.loop.trainer import Trainer

GRAPH = graphs.random_graph()


class Slotted:
    __slots__ = ("w",)

    def __init__(self, w):
        self.w = w


class Held(Layer):
    """Its weight is held in some way."""

    def __init__(self, hold, read):
        self.hold = hold(Parameter.glorot(4, 3))
        self.read = read

    def transform(self, node):
        return {"z": gt.matmul(node.h, self.read(self.hold))}

    def gather(self, edge):
        return edge.src.z


class Net(Model):
    def __init__(self, hold, read):
        self.layer = Held(hold, read)

    def forward(self, graph):
        return self.layer(graph, graph.x)


FOUND = {
    "attribute": (lambda w: w, lambda held: held, "layer.hold"),
    "list": (lambda w: [None, w], lambda held: held[1], "layer.hold.1"),
    "tuple in a dict": (lambda w: {"k": (w,)}, lambda held: held["k"][0], "layer.hold.k.0"),
}
LOST = {
    "namespace": (
        lambda w: SimpleNamespace(w=w),
        lambda held: held.w,
        r"it is self\.layer\.hold\.w, inside a SimpleNamespace",
    ),
    "slots": (Slotted, lambda held: held.w, r"it is self\.layer\.hold\.w, inside a Slotted"),
    "closure": (
        lambda w: lambda: w,
        lambda held: held(),
        r"it is self\.layer\.hold\.w, inside a function",
    ),
    "set": (lambda w: {w}, lambda held: next(iter(held)), "that is not among its parameters, so"),
    "partial": (
        lambda w: partial(lambda w: w, w),
        lambda held: held(),
        "that is not among its parameters, so",
    ),
}


@pytest.mark.parametrize("how", FOUND)
def test_parameters_are_found(how):
    hold, read, path = FOUND[how]
    model = Net(hold, read)
    assert [name for name, _ in model.named_parameters()] == [path]
    assert list(model.state()) == [path]


def test_private_attributes_are_searched():
    class Private(Module):
        def __init__(self):
            self._w = Parameter(np.ones(2))
            self._inner = [Module()]
            self._inner[0]._v = Parameter(np.zeros(3))
            self._parent = self

    module = Private()
    assert [name for name, _ in module.named_parameters()] == ["_w", "_inner.0._v"]
    assert len(list(module.modules())) == 2
    module.load_state({"_w": np.full(2, 5.0), "_inner.0._v": np.full(3, 6.0)})
    assert module._w.value.tolist() == [5, 5] and module._inner[0]._v.value.tolist() == [6, 6, 6]


@pytest.mark.parametrize("how", LOST)
def test_a_parameter_that_is_not_found_is_an_error_before_training(how):
    hold, read, place = LOST[how]
    with pytest.raises(
        UserFunctionError, match=rf"Net uses a parameter \[4, 3\].*{place}.*gt\.Module"
    ):
        Trainer(lambda d_in, d_out, d_edge: Net(hold, read), GRAPH, epochs=1, comm=SerialComm())


def test_a_parameter_that_comes_later_is_an_error():
    trainer = Trainer(
        lambda d_in, d_out, d_edge: Net(lambda w: w, lambda held: held),
        GRAPH,
        epochs=2,
        comm=SerialComm(),
    )
    trainer.train_epoch(0)
    trainer.model.layer.hold = Parameter(np.ones((4, 3), np.float32))
    with pytest.raises(
        TapeError, match=r"a parameter \[4, 3\] that the trainer does not have.*parameter\.value"
    ):
        trainer.train_epoch(1)


def test_a_gradient_of_an_unknown_parameter_is_an_error():
    known = Parameter(np.ones(2))
    other = Parameter(np.ones(3))
    total = GradientSum(SerialComm(), [known])
    total.add(known, np.ones(2))
    with pytest.raises(TapeError, match=r"a parameter \[3\]"):
        total.add(other, np.ones(3))


def test_a_parameter_that_is_not_read_is_reported(caplog):
    class Idle(Net):
        def __init__(self):
            super().__init__(lambda w: w, lambda held: held)
            self.idle = Parameter(np.ones(2, np.float32))

    with caplog.at_level(logging.WARNING, "graphtheta"):
        Trainer(lambda d_in, d_out, d_edge: Idle(), GRAPH, epochs=1, comm=SerialComm())
    (record,) = caplog.records
    assert "no operation in forward of Idle reads idle, so it is not trained" in record.message


def test_a_search_ends():
    model = Net(lambda w: SimpleNamespace(), lambda held: held)
    model.layer.hold.back = model
    assert "uses a parameter [2] that is not among" in lost(model, Parameter(np.ones(2)))
