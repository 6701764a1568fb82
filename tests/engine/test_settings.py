"""Whatever the functions of a layer read, a change of it takes effect in the next pass.

A layer runs, one of its settings changes, and it runs again: it must then compute what a layer
computes that was made with the new setting.
"""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict, deque
from functools import partial
from types import SimpleNamespace

import graphs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphtheta.ops as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.layer.module import Module
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.view import global_view
from graphtheta.errors import GraphThetaError, TapeError, UserFunctionError
from graphtheta.ops import Parameter, Tape

GRAPH = graphs.random_graph()
FACTOR = 1.0


class Inner(Module):
    """A module inside of a layer."""

    def __init__(self, value):
        self.value = value


class Slotted:
    """An object without a dict."""

    __slots__ = ("value",)


class Settled(Layer):
    """Reads its setting through ``read`` in one of its stages."""

    factor = 1.0

    def __init__(self, read, stage):
        self.weight = Parameter(np.linspace(0.5, 1.5, 4))
        self.read = read
        self.stage = stage

    def scaled(self, x, stage):
        return x * self.read(self) if stage == self.stage else x

    def transform(self, node):
        return {"z": self.scaled(node.h, "transform")}

    def gather(self, edge):
        return self.scaled(edge.src.z * edge.weight, "gather") * self.weight

    def apply(self, node, total):
        return self.scaled(total, "apply")

    @property
    def reciprocal(self):
        return 1 / self.inverse


def _slotted(value):
    made = Slotted()
    made.value = value
    return made


def _replaced(make):
    return lambda box, value: make(value)


def _in_place(put):
    def done(box, value):
        put(box, value)
        return box

    return done


# a container: how it is made around a value, how the value is read, how it is changed (in place, or
# by making another one)
BOXES = {
    "list": (lambda v: [0, v], lambda box: box[1], _in_place(lambda box, v: box.__setitem__(1, v))),
    "new list": (lambda v: [v], lambda box: box[0], _replaced(lambda v: [v])),
    "tuple": (lambda v: (v, 0), lambda box: box[0], _replaced(lambda v: (v, 0))),
    "dict": (
        lambda v: {"k": v},
        lambda box: box["k"],
        _in_place(lambda box, v: box.__setitem__("k", v)),
    ),
    "namespace": (
        lambda v: SimpleNamespace(v=v),
        lambda box: box.v,
        _in_place(lambda box, v: setattr(box, "v", v)),
    ),
    "module": (Inner, lambda box: box.value, _in_place(lambda box, v: setattr(box, "value", v))),
    "slots": (_slotted, lambda box: box.value, _in_place(lambda box, v: setattr(box, "value", v))),
    "function": (lambda v: lambda: v, lambda box: box(), _replaced(lambda v: lambda: v)),
    "deque": (
        lambda v: deque([v]),
        lambda box: box[0],
        _in_place(lambda box, v: box.__setitem__(0, v)),
    ),
}
LEAVES = {
    "float": float,
    "int": round,
    "numpy scalar": np.float32,
    "array": lambda v: np.full(4, v),
    "parameter": lambda v: Parameter(np.full(4, float(v))),
}


def nested(path, value):
    return BOXES[path[0]][0](nested(path[1:], value)) if path else value


def read_nested(path, box):
    return read_nested(path[1:], BOXES[path[0]][1](box)) if path else box


def changed(path, box, value):
    """The outermost container after a change of the value inside."""
    return (
        BOXES[path[0]][2](box, changed(path[1:], BOXES[path[0]][1](box), value)) if path else value
    )


class Drawn(Layer):
    """A layer with a setting at the end of a path of containers."""

    def __init__(self, path, stage, sum, direction, attends, value):
        self.weight = Parameter(np.linspace(0.5, 1.5, 4))
        self.path = path
        self.stage = stage
        self.sum = sum
        self.direction = direction
        self.attends = attends
        self.box = nested(path, value)

    def scaled(self, x, stage):
        return x * read_nested(self.path, self.box) if stage == self.stage else x

    def transform(self, node):
        return {"z": self.scaled(node.h, "transform"), "s": node.h.sum(-1)}

    def gather(self, edge):
        message = self.scaled(edge.src.z, "gather") * self.weight
        return gt.softmax(edge.src.s + edge.dst.s) * message if self.attends else message

    def apply(self, node, total):
        return self.scaled(total, "apply")


class One(Model):
    def __init__(self, layer):
        self.layer = layer

    def forward(self, graph):
        return self.layer(graph, graph.x)


def put_global(layer, value):
    global FACTOR
    FACTOR = value


def set_item(name, key):
    def put(layer, value):
        getattr(layer, name)[key] = value

    return put


def set_attribute(name, make=lambda value: value):
    return lambda layer, value: setattr(layer, name, make(value))


def set_class(layer, value):
    type(layer).factor = value


def set_cell(layer, value):
    layer.cell[:] = [value]


# a kind of setting: how it is made with a value, how it is read, how it changes to another value
KINDS = {
    "bool": (
        set_attribute("on", lambda v: v > 2),
        lambda self: 3.0 if self.on else 0.5,
        set_attribute("on", lambda v: v > 2),
    ),
    "int": (set_attribute("n", round), lambda self: self.n, set_attribute("n", round)),
    "float": (set_attribute("f"), lambda self: self.f, set_attribute("f")),
    "str": (set_attribute("s", repr), lambda self: float(self.s), set_attribute("s", repr)),
    "numpy scalar": (
        set_attribute("f", np.float64),
        lambda self: self.f,
        set_attribute("f", np.float64),
    ),
    "list item": (
        set_attribute("a", lambda v: [0, [v]]),
        lambda self: self.a[1][0],
        lambda layer, v: layer.a[1].__setitem__(0, v),
    ),
    "replaced list": (
        set_attribute("a", lambda v: [v]),
        lambda self: self.a[0],
        set_attribute("a", lambda v: [v]),
    ),
    "list as an array": (
        set_attribute("a", lambda v: [v] * 4),
        lambda self: np.array(self.a),
        set_item("a", 2),
    ),
    "tuple": (
        set_attribute("a", lambda v: (v, 2)),
        lambda self: self.a[0],
        set_attribute("a", lambda v: (v, 2)),
    ),
    "dict item": (
        set_attribute("a", lambda v: {"k": v}),
        lambda self: self.a["k"],
        set_item("a", "k"),
    ),
    "ordered dict": (
        set_attribute("a", lambda v: OrderedDict(k=v)),
        lambda self: self.a["k"],
        set_item("a", "k"),
    ),
    "deque": (set_attribute("a", lambda v: deque([v])), lambda self: self.a[0], set_item("a", 0)),
    "set": (
        set_attribute("a", lambda v: {v}),
        lambda self: max(self.a),
        set_attribute("a", lambda v: {v}),
    ),
    "namespace": (
        set_attribute("a", lambda v: SimpleNamespace(v=v)),
        lambda self: self.a.v,
        lambda layer, v: setattr(layer.a, "v", v),
    ),
    "nested module": (
        set_attribute("inner", Inner),
        lambda self: self.inner.value,
        lambda layer, v: setattr(layer.inner, "value", v),
    ),
    "slots": (
        lambda layer, v: (setattr(layer, "a", Slotted()), setattr(layer.a, "value", v)),
        lambda self: self.a.value,
        lambda layer, v: setattr(layer.a, "value", v),
    ),
    "function": (
        set_attribute("fn", lambda v: partial(float, v)),
        lambda self: self.fn(),
        set_attribute("fn", lambda v: lambda: v),
    ),
    "closure": (
        set_attribute("cell", lambda v: [v]),
        lambda self: (lambda: self.cell[0])(),
        set_cell,
    ),
    "class attribute": (set_class, lambda self: self.factor, set_class),
    "property": (
        set_attribute("inverse", lambda v: 1 / v),
        lambda self: self.reciprocal,
        set_attribute("inverse", lambda v: 1 / v),
    ),
    "global": (put_global, lambda self: FACTOR, put_global),
    "array": (
        set_attribute("a", lambda v: np.full(4, v)),
        lambda self: self.a,
        set_attribute("a", lambda v: np.full(4, v)),
    ),
    "array in place": (
        set_attribute("a", lambda v: np.full(4, v)),
        lambda self: self.a,
        set_item("a", 1),
    ),
    "large array in place": (
        set_attribute("a", lambda v: np.full((4, 4096), v)),
        lambda self: self.a[:, 0].copy(),
        set_item("a", (1, 0)),
    ),
    "0-d array": (set_attribute("a", np.array), lambda self: self.a, set_item("a", ())),
    "replaced parameter": (
        set_attribute("w", lambda v: Parameter(np.full(4, v))),
        lambda self: self.w,
        set_attribute("w", lambda v: Parameter(np.full(4, v))),
    ),
    "value of a parameter": (
        set_attribute("w", lambda v: Parameter(np.full(4, v))),
        lambda self: self.w,
        lambda layer, v: setattr(layer.w, "value", np.full(4, v)),
    ),
    "parameter in a list": (
        set_attribute("w", lambda v: [Parameter(np.full(4, v))]),
        lambda self: self.w[0],
        lambda layer, v: layer.w.__setitem__(0, Parameter(np.full(4, v))),
    ),
    "static argument": (
        set_attribute("slope"),
        lambda self: gt.leaky_relu(self.weight - 1.0, self.slope),
        set_attribute("slope"),
    ),
}
VALUES = st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0, 4.0])


def outcome(layer, training=True, size=1):
    """Outputs and the gradients of all parameters by name."""

    def program(comm):
        p = build_partition(GRAPH, comm, "vertex-cut", dtype=np.float64)
        model = One(layer)
        with Tape(training=training, all_sum=comm.all_sum) as tape:
            out = model(global_view(p, [layer.direction]))
        gradients = tape.backward(out)
        found = {name: comm.all_sum(gradients.of(q)) for name, q in model.named_parameters()}
        rows = np.zeros((GRAPH.n_nodes, 4))
        rows[p.masters] = out.value
        return {"": comm.all_sum(rows), **found}

    return run_simulated(size, program)[0]


def assert_equal(found, expected):
    assert set(found) == set(expected)
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-12, atol=1e-12, err_msg=name)


def fresh(kind, stage, value):
    """A layer that never ran."""
    make, read, _ = KINDS[kind]
    layer = Settled(read, stage)
    make(layer, value)
    return layer


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(["transform", "gather", "apply"]),
    VALUES,
    VALUES,
    st.booleans(),
)
def test_a_change_takes_effect(kind, stage, before, after, copied):
    layer = fresh(kind, stage, before)
    outcome(layer)
    # a copy of a layer that has run has nothing of it
    layer = copy.copy(layer) if copied else layer
    KINDS[kind][2](layer, after)
    found = outcome(layer)
    again = fresh(kind, stage, before)
    KINDS[kind][2](again, after)
    assert_equal(found, outcome(again))


@pytest.mark.second
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(BOXES)), max_size=3),
    st.sampled_from(sorted(LEAVES)),
    st.sampled_from(["transform", "gather", "apply"]),
    st.sampled_from(["sum", "mean", "max"]),
    st.sampled_from(["in", "out", "both"]),
    st.booleans(),
    VALUES,
    VALUES,
    st.integers(1, 2),
)
def test_a_nested_change_takes_effect_in_a_drawn_layer(
    path, leaf, stage, sum, direction, attends, before, after, size
):
    make = LEAVES[leaf]
    layer = Drawn(
        path=path, stage=stage, sum=sum, direction=direction, attends=attends, value=make(before)
    )
    outcome(layer, size=size)
    layer.box = changed(path, layer.box, make(after))
    assert_equal(
        outcome(layer, size=size),
        outcome(
            Drawn(
                path=path,
                stage=stage,
                sum=sum,
                direction=direction,
                attends=attends,
                value=make(after),
            ),
            size=size,
        ),
    )


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_change_takes_effect_in_gather(kind):
    layer = fresh(kind, "gather", 0.5)
    first = outcome(layer)
    KINDS[kind][2](layer, 3.0)
    found = outcome(layer)
    again = fresh(kind, "gather", 0.5)
    KINDS[kind][2](again, 3.0)
    assert_equal(found, outcome(again))
    assert not np.allclose(found[""], first[""])


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_layer_that_has_run_can_be_copied(how):
    layer = Layer()
    layer.sum, layer.weight = "mean", Parameter(np.ones(4))
    before = set(vars(layer))
    expected = _run(layer)
    assert set(vars(layer)) == before
    other = how(layer)
    np.testing.assert_array_equal(_run(other), expected)
    other.sum = "max"
    assert not np.allclose(_run(other), expected)
    np.testing.assert_array_equal(_run(layer), expected)


def _run(layer):
    p = build_partition(GRAPH, run_simulated(1, lambda comm: comm)[0], dtype=np.float64)
    with Tape(record=False):
        return One(layer)(global_view(p, ["in"])).value


class Keeping(Layer):
    """Keeps on itself what one of its stages made, and uses it in the next call."""

    def __init__(self, stage, what):
        self.weight = Parameter(np.ones(4))
        self.stage = stage
        self.what = what
        self.kept = None

    def use(self, x, stage, source):
        if stage != self.stage:
            return x
        if self.kept is None:
            self.kept = {
                "value": lambda: x * 2.0,
                "of parameters": lambda: self.weight * 2.0,
                "source": lambda: source,
            }[self.what]()
        return (
            (self.kept.src.z if stage == "gather" else self.kept.h) * x
            if self.what == "source"
            else x * self.kept
        )

    def transform(self, node):
        return {"z": self.use(node.h, "transform", node)}

    def gather(self, edge):
        return self.use(edge.src.z, "gather", edge) * self.weight

    def apply(self, node, total):
        return self.use(total, "apply", node)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    ("stage", "what"),
    [
        *(
            (stage, what)
            for stage in ("transform", "gather", "apply")
            for what in ("value", "of parameters")
        ),
        ("gather", "source"),
    ],
)
def test_values_of_an_earlier_pass_are_refused(stage, what, size):
    def program(comm):
        p = build_partition(GRAPH, comm, dtype=np.float64)
        model = One(Keeping(stage, what))
        view = global_view(p, ["in"])
        for _ in range(2):
            with Tape(all_sum=comm.all_sum):
                model(view)

    with pytest.raises((TapeError, UserFunctionError), match=f"{stage} of Keeping.*earlier"):
        run_simulated(size, program)


@pytest.mark.parametrize("stage", ["transform", "gather", "apply"])
def test_values_may_pass_from_stage_to_stage_of_one_pass(stage):
    class Passing(Layer):
        def __init__(self):
            self.weight = Parameter(np.linspace(0.5, 2, 4))

        def transform(self, node):
            self.made = gt.tanh(self.weight)
            return {"z": node.h * self.made if stage == "transform" else node.h}

        def gather(self, edge):
            return edge.src.z * self.made if stage == "gather" else edge.src.z

        def apply(self, node, total):
            return total * self.made if stage == "apply" else total

    layer = Passing()
    first = outcome(layer)
    assert_equal(outcome(layer), first)
    layer.weight.value = 2 * layer.weight.value
    again = Passing()
    again.weight.value = layer.weight.value
    assert_equal(outcome(layer), outcome(again))


def test_a_random_number_is_drawn_in_each_pass():
    rng = np.random.default_rng(0)

    class Noisy(Layer):
        def gather(self, edge):
            return edge.src.h * rng.random()

    layer = Noisy()
    assert not np.allclose(_run(layer), _run(layer))


def test_an_unhashable_keyword_is_refused():
    @gt.primitive("test_settings_shift")
    def shift(x, *, by):
        return x + by[0]

    gt.defvjp(shift, x=lambda g, y, x, by: g)
    try:
        layer = Layer()
        layer.gather = lambda edge: shift(edge.src.h, by=[1.0])
        with pytest.raises(
            GraphThetaError,
            match=r"gather of Layer: test_settings_shift was given by=\[1.0\].*constants",
        ):
            _run(layer)
    finally:
        del gt.PRIMITIVES["test_settings_shift"]
