"""Tracing and planning: how many passes a gather needs, and what is said when it makes no sense."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from traced import trace

import graphtheta.ops as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.view import global_view
from graphtheta.errors import (
    ColumnError,
    ConfigError,
    MissingRuleError,
    ShapeError,
    UserFunctionError,
)
from graphtheta.ops import Parameter, Tape, Var
from graphtheta.ops.autodiff.naming import naming
from graphtheta.ops.autodiff.space import RowSpace

NODES = {
    "s": ((2,), np.float64, True),
    "t": ((2,), np.float64, True),
    "z": ((2, 3), np.float64, True),
    "x": ((2,), np.float64, False),
}
EDGES = {"attr": ((3,), np.float64, False)}
P = Parameter(np.array([1.5, -0.5]))
WEIGHT, WIDE = (
    Parameter(np.linspace(-1, 1, 12).reshape(3, 4)),
    Parameter(np.linspace(-1, 1, 48).reshape(6, 8)),
)


def score(edge):
    return gt.leaky_relu(edge.src.s + edge.dst.t, 0.2)


LINEAR = {
    "softmax * z": lambda e: gt.softmax(score(e)) * e.src.z,
    "z * softmax": lambda e: e.src.z * gt.softmax(score(e)),
    "dropout": lambda e: gt.dropout(gt.softmax(score(e)), 0.5) * e.src.z,
    "negative": lambda e: -gt.softmax(score(e)) * e.src.z,
    "quotient": lambda e: gt.softmax(score(e)) / 3.0 * e.src.z,
    "by parameter": lambda e: gt.softmax(score(e)) * P * e.src.z,
    "sum": lambda e: gt.softmax(score(e)) * e.src.z + gt.softmax(score(e)) * e.dst.z,
    "difference": lambda e: (
        gt.softmax(score(e)) * e.src.z - 0.5 * gt.softmax(score(e)) * gt.tanh(e.dst.z)
    ),
    "alone": lambda e: gt.softmax(score(e)),
    "sum of columns": lambda e: (gt.softmax(score(e)) * e.src.z).sum(-1),
    "product of columns": lambda e: (gt.softmax(score(e)) * e.src.z) @ WEIGHT,
    "new shape": lambda e: (gt.softmax(score(e)) * e.src.z).reshape(2, 3, 1),
    "heads side by side": lambda e: gt.flatten(gt.softmax(score(e)) * e.src.z),
    "mean of heads": lambda e: (gt.softmax(score(e)) * e.src.z).mean(-2),
    "one head": lambda e: -(gt.softmax(score(e)) * e.src.z)[..., 1, :],
    "product of heads": lambda e: gt.flatten(gt.softmax(score(e)) * e.src.z) @ WIDE / 2,
    "scores of one column": lambda e: gt.softmax(score(e).sum(-1)) * e.src.z,
}
BENT = {
    "square": (lambda e: gt.softmax(score(e)) * gt.softmax(score(e)) * e.src.z, 2),
    "power": (lambda e: gt.softmax(score(e)) ** 2 * e.src.z, 2),
    "tanh": (lambda e: gt.tanh(gt.softmax(score(e))) * e.src.z, 2),
    "denominator": (lambda e: e.src.z / (1 + gt.softmax(score(e))), 2),
    "plus another term": (lambda e: gt.softmax(score(e)) * e.src.z + e.dst.z, 2),
    "two softmaxes": (lambda e: gt.softmax(score(e)) * gt.softmax(e.src.t) * e.src.z, 3),
    "nested": (lambda e: gt.softmax(gt.softmax(score(e)) * e.src.t) * e.src.z, 3),
    "sum of columns and another term": (
        lambda e: (gt.softmax(score(e)) * e.src.z + e.dst.z).sum(-2),
        2,
    ),
    "new edge value": (
        lambda e: (gt.softmax(score(e)) * e.src.z, {"alpha": gt.softmax(score(e))}),
        2,
    ),
}


def plan(gather, sum="sum", nodes=NODES, edges=EDGES):
    return trace(gather, nodes, edges, sum, "Mine")


class Net(Model):
    """One layer with the gather under test and columns s, t, z."""

    def __init__(self, gather, sum="sum"):
        rng = np.random.default_rng(0)
        self.layer = Layer()
        self.w = Parameter(rng.standard_normal((4, 2, 3)))
        self.layer.sum, self.layer.gather = sum, gather
        w, a, b = self.w, rng.standard_normal((2, 3)), rng.standard_normal((2, 3))
        self.layer.transform = lambda node: self.columns(gt.matmul(node.h, w), a, b)
        self.layer.apply = lambda node, total: (
            total if isinstance(sum, str) else total.max + getattr(total, sum[0])
        )

    @staticmethod
    def columns(z, a, b):
        return dict(z=z, s=(z * a).sum(-1), t=(z * b).sum(-1))

    def forward(self, graph):
        return self.layer(graph, graph.x)


def run(gather, sum="sum", size=1, training=False):
    """Values by node id and the gradient of the weight for random output gradients."""
    graph = graphs.random_graph()

    def program(comm):
        partition = build_partition(graph, comm, "vertex-cut", dtype=np.float64)
        model = Net(gather, sum)
        with Tape(training=training, all_sum=comm.all_sum) as tape:
            out = model(global_view(partition, ["in"]))
        seed = np.random.default_rng(1).standard_normal((24, *out.shape[1:]))
        grads = tape.backward(out, seed[partition.masters])
        return partition.masters, out.value, comm.all_sum(grads.of(model.w))

    parts = run_simulated(size, program)
    order = np.argsort(np.concatenate([p[0] for p in parts]))
    return np.concatenate([p[1] for p in parts])[order], parts[0][2]


@pytest.mark.parametrize("name", LINEAR)
def test_softmax_entering_linearly_takes_one_pass(name):
    found = plan(LINEAR[name])
    assert len(found.phases) == 1
    assert (
        found.phases[0].aggregators[""].name == "softmax-sum" and len(found.phases[0].message) == 2
    )
    assert found.operands == ([P] if name == "by parameter" else found.operands)
    assert bool(found.after) == ("head" in name)


@pytest.mark.parametrize("name", BENT)
def test_any_other_use_takes_a_pass_for_each_normaliser(name):
    gather, phases = BENT[name]
    found = plan(gather)
    assert [p.result for p in found.phases] == [f"normaliser {i}" for i in range(phases - 1)] + [
        None
    ]
    assert found.phases[-1].aggregators[""].name == "sum"


@pytest.mark.parametrize("sum", ["mean", "max", "min", ("sum", "max")])
def test_other_sums_take_two_passes(sum):
    found = plan(LINEAR["softmax * z"], sum)
    assert len(found.phases) == 2
    assert list(found.phases[1].aggregators) == ([""] if isinstance(sum, str) else list(sum))


def test_no_softmax_takes_one_pass():
    for sum in ("sum", "max", ("mean", "max")):
        assert len(plan(lambda e: e.src.z * e.dst.t, sum).phases) == 1


@pytest.mark.one_in(3)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", LINEAR)
def test_one_pass_and_two_give_the_same_numbers(name, training):
    def forced(edge):
        message = LINEAR[name](edge)
        # a new edge value makes the planner take the long way
        return message, {
            "alpha": gt.softmax(score(edge) if "one column" not in name else score(edge).sum(-1))
        }

    assert len(plan(forced).phases) == 2
    for size in (1, 3):
        for a, b in zip(
            run(LINEAR[name], training=training, size=size),
            run(forced, training=training, size=size),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("name", BENT)
def test_several_passes_on_several_ranks(name):
    expected = run(BENT[name][0])
    for a, b in zip(run(BENT[name][0], size=4), expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_equal_expressions_are_one():
    found = plan(lambda e: gt.tanh(e.src.z * e.dst.t) + gt.tanh(e.src.z * e.dst.t))
    (phase,) = found.phases
    assert [e.prim.name for e in phase.order if e.prim is not None].count("tanh") == 1
    assert phase.reads == {"src": ("z",), "dst": ("t",), "edge": ()}
    assert len(plan(lambda e: e.src.s * P * P).operands) == 1


def test_dropout_twice_is_two_masks():
    (phase,) = plan(lambda e: gt.dropout(e.src.z, 0.5) + gt.dropout(e.src.z, 0.5)).phases
    assert [e.prim.name for e in phase.order if e.prim is not None].count("dropout") == 2


def test_gradients_flow_only_where_they_are_wanted():
    (phase,) = plan(lambda e: e.src.x * gt.tanh(e.dst.x) * e.src.s).phases
    requires_grad = {repr(e): e.requires_grad for e in phase.order if e.leaf is not None}
    assert requires_grad == {"src.x": False, "dst.x": False, "src.s": True}
    fixed = {n: (s, d, False) for n, (s, d, _) in NODES.items()}
    two = plan(BENT["square"][0], nodes=fixed)
    assert not any(e.requires_grad for p in two.phases for e in p.order)


@pytest.mark.parametrize(
    "gather, sum, error, message",
    [
        (
            lambda e: e.src.q,
            "sum",
            ColumnError,
            r"gather of Mine reads edge.src.q, which does not exist; transform offers s, t, z, x",
        ),
        (lambda e: e.dst.q, "sum", ColumnError, r"edge.dst.q"),
        (
            lambda e: e.src.z * e.speed,
            "sum",
            ColumnError,
            r"gather of Mine reads edge.speed.*there are: edge.attr",
        ),
        (
            lambda e: e.src.z.value,
            "sum",
            UserFunctionError,
            r"gather of Mine .*has no attribute .value.; values of nodes and edges",
        ),
        (
            lambda e: None,
            "sum",
            UserFunctionError,
            r"gather of Mine returned NoneType; expected a message",
        ),
        (lambda e: np.ones(3), "sum", UserFunctionError, r"gather of Mine returned ndarray"),
        (
            lambda e: (e.src.z, e.src.s, e.src.t),
            "sum",
            UserFunctionError,
            r"gather of Mine returned tuple",
        ),
        (
            lambda e: (e.src.z, {"a": 1.0}),
            "sum",
            UserFunctionError,
            r"gather of Mine: new edge values must be a dict",
        ),
        (
            lambda e: (e.src.z, [e.src.s]),
            "sum",
            UserFunctionError,
            r"gather of Mine: new edge values must be a dict",
        ),
        (
            lambda e: gt.tanh(P),
            "sum",
            UserFunctionError,
            r"gather of Mine returned .*does not depend on the edge; multiply",
        ),
        (
            lambda e: gt.cast(e.src.s, np.int64),
            "sum",
            UserFunctionError,
            r"gather of Mine returned .*int64.*gt.cast",
        ),
        (
            lambda e: (e.src.z, {"a": gt.cast(e.src.s, bool)}),
            "sum",
            UserFunctionError,
            r"a = .* of type bool; new edge values are.*gt.cast",
        ),
        (
            lambda e: (e.src.z, {"a": gt.min(e.src.z > 0, -1)}),
            "sum",
            UserFunctionError,
            r"a = min.* of type bool; .*gt.cast",
        ),
        (
            lambda e: (e.src.z, {"a": gt.where(e.src.s > 0, e.src.s > 1, e.dst.t > 1)}),
            "sum",
            UserFunctionError,
            r"a = where.* of type bool",
        ),
        (
            lambda e: gt.max(e.src.z > 0, -1),
            "sum",
            UserFunctionError,
            r"returned max.* of type bool; sums are made of floats.*gt.cast",
        ),
        (
            lambda e: gt.batch_norm(e.src.s, P, P, gt.RunningStats(2)),
            "sum",
            UserFunctionError,
            r"gather of Mine: batch_norm.*transform or apply",
        ),
        (
            lambda e: gt.segment_sum(e.src.s, np.array([0])),
            "sum",
            UserFunctionError,
            r"gather of Mine: segment_sum mixes edges.*the layer",
        ),
        (
            lambda e: gt.prefix(e.src.s, 1),
            "sum",
            UserFunctionError,
            r"gather of Mine: prefix.*inside gather",
        ),
        (
            lambda e: gt.softmax(e.src.s) * e.src.z,
            None,
            UserFunctionError,
            r"gather of Mine uses gt.softmax.*sum = None",
        ),
        (lambda e: e.src.z.sum(0), "sum", ShapeError, r"gather of Mine: .*axis"),
        (
            lambda e: e.src.z * e.src.s * np.ones(7),
            "sum",
            ShapeError,
            r"gather of Mine: mul cannot take \[edges, 2, 3\]",
        ),
        (
            lambda e: e.src.z * np.float32(1) * Parameter(np.ones(3, np.float32)),
            "sum",
            UserFunctionError,
            r"gather of Mine: values of types float32, float64",
        ),
        (lambda e: e.src.z, "middle", ConfigError, r"middle"),
    ],
)
def test_errors_name_layer_stage_and_remedy(gather, sum, error, message):
    with pytest.raises(error, match=message):
        plan(gather, sum)


def test_a_node_value_does_not_slip_in_by_closure():
    h = Var(np.ones((5, 3)), RowSpace(np.arange(5)))
    with pytest.raises(
        UserFunctionError, match=r"gather of Mine: .*one row per node.*edge.src.NAME"
    ):
        plan(lambda e: e.src.z * h)


def test_a_missing_rule_is_found_when_tracing():
    @gt.primitive("half_of_test_program")
    def half(x):
        return x / 2

    try:
        with pytest.raises(
            MissingRuleError,
            match=r"gather of Mine: half_of_test_program has no gradient rule for its argument 'x'",
        ):
            plan(lambda e: half(e.src.z))
        plan(lambda e: half(e.src.x))
    finally:
        del gt.PRIMITIVES["half_of_test_program"]


def test_softmax_outside_of_gather():
    with pytest.raises(UserFunctionError, match="inside gather"):
        gt.softmax(Var(np.ones((5, 3)), RowSpace(np.arange(5))))


def test_names_are_put_in_front_once():
    with (
        pytest.raises(ShapeError, match=r"^apply of Mine: bad$"),
        naming("apply of Mine"),
        naming("apply of Mine"),
    ):
        raise ShapeError("bad")
    with pytest.raises(ZeroDivisionError), naming("apply of Mine"):
        _ = 1 / 0
