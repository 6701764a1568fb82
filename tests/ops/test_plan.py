"""The planner: each rewrite by itself, and planned programs against unplanned ones."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traced import trace

import graphtheta.ops as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer import superstep
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.view import global_view
from graphtheta.ops import Parameter, Tape
from graphtheta.ops.edge import program_cache
from graphtheta.ops.edge.plan import plan, planner_notes, written
from graphtheta.train.loop.trainer import Trainer

NODES = {
    "h": ((6,), np.float64, True),
    "s": ((2,), np.float64, True),
    "z": ((2, 3), np.float64, True),
    "c": ((), np.float64, False),
    "kind": ((), np.int64, False),
}
EDGES = {"attr": ((4,), np.float64, False), "weight": ((), np.float64, False)}


def parameter(*shape):
    return Parameter(np.random.default_rng(len(shape)).standard_normal(shape))


W, W4, NARROW, WIDE, HEADS = (
    parameter(6, 5),
    parameter(4, 5),
    parameter(6, 2),
    parameter(6, 9),
    parameter(4, 2, 3),
)
BOTH, ATT, ONE_HEAD = parameter(10, 5), parameter(2, 3), parameter(3, 2)


def planned(gather, sum="max"):
    return plan(trace(gather, NODES, EDGES, sum, "Mine"))


def message(gather, sum="max"):
    """The message after planning, as text, and the columns it needs."""
    program = planned(gather, sum)
    phase = program.phases[-1]
    return written(phase.message[-1], program.operands), {
        n: written(e) for n, e in program.columns.items()
    }


# ---- nothing to compute


@pytest.mark.parametrize(
    "gather",
    [
        lambda e: e.src.z * 1,
        lambda e: 1.0 * e.src.z,
        lambda e: e.src.z / 1,
        lambda e: e.src.z + 0,
        lambda e: 0 + e.src.z,
        lambda e: e.src.z - 0,
        lambda e: e.src.z**1,
        lambda e: gt.neg(-e.src.z),
        lambda e: e.src.z * np.ones((2, 3)),
        lambda e: e.src.z.reshape(2, 3),
        lambda e: e.src.z.flatten().reshape(3, 2).reshape(2, 3),
        lambda e: gt.broadcast_to(e.src.z, 2, 3),
        lambda e: gt.cast(e.src.z, "float64"),
    ],
)
def test_what_changes_nothing_is_dropped(gather):
    assert message(gather) == ("src.z", {})


@pytest.mark.parametrize(
    "gather", [lambda e: e.src.c * np.ones((2, 3)), lambda e: e.src.c + np.zeros(3)]
)
def test_what_widens_is_no_neutral_element(gather):
    assert message(gather)[0] != "src.c"


def test_constants_are_computed_once_for_all_edges():
    program = planned(lambda e: e.src.z * e.dst.z * gt.exp(parameter(2, 3)))
    assert [e.prim for e in program.phases[0].order if not e.rows] == [None]
    assert (
        written(program.operands[program.phases[0].operands[0]], program.operands)
        == "exp(p0[2, 3])"
    )


def test_axes_added_twice_are_added_once():
    program = planned(lambda e: gt.expand_last(gt.expand_last(e.weight)) * e.src.z)
    assert [
        e.static
        for e in program.phases[0].order
        if e.prim is not None and e.prim.name == "expand_last"
    ] == [{"n": 2}]


# ---- hoisting


@pytest.mark.parametrize(
    ("gather", "text", "columns"),
    [
        (
            lambda e: gt.tanh(e.src.z) * e.weight,
            "src.column_0 * edge.weight",
            {"column 0": "tanh(node.z)"},
        ),
        (
            lambda e: gt.relu(e.src.h @ W + e.dst.h @ W),
            "relu(src.column_0 + dst.column_0)",
            {"column 0": "node.h @ p0[6, 5]"},
        ),
        (
            lambda e: (e.src.z * ATT).sum(-1) + e.dst.s,
            "src.column_0 + dst.s",
            {"column 0": "sum(node.z * p0[2, 3])"},
        ),
        (lambda e: e.src.z * e.src.c, "src.column_0", {"column 0": "node.z * node.c"}),
        (
            lambda e: e.src.z[..., 0] * e.dst.s,
            "src.column_0 * dst.s",
            {"column 0": "node.z[..., 0]"},
        ),
        # free on edges, wider as a column
        (lambda e: (e.src.c * ATT) * e.weight, "(src.c * p0[2, 3]) * edge.weight", {}),
        (
            lambda e: gt.embedding(W, e.src.kind) * e.weight,
            "embedding(p0[6, 5], src.kind) * edge.weight",
            {},
        ),
        # only its costly part is worth a column
        (
            lambda e: gt.exp(e.src.c) * ATT * e.dst.z,
            "(src.column_0 * p0[2, 3]) * dst.z",
            {"column 0": "exp(node.c)"},
        ),
        # read elsewhere anyway
        (
            lambda e: gt.relu(e.src.z) * e.weight + e.src.z * e.dst.z,
            "(relu(src.z) * edge.weight) + (src.z * dst.z)",
            {},
        ),
    ],
)
def test_one_ended_expressions_go_to_the_nodes_if_that_saves(gather, text, columns):
    assert message(gather) == (text, columns)


def test_draws_edge_values_and_normalisers_stay_on_the_edges():
    for gather in (
        lambda e: gt.tanh(gt.dropout(e.src.z, 0.5)),
        lambda e: gt.tanh(e.weight * e.src.z),
    ):
        assert planned(gather).columns == {}
    program = planned(lambda e: gt.softmax(gt.tanh(e.dst.s)) * e.dst.z, "mean")
    assert set(map(written, program.columns.values())) == {"tanh(node.s)"}


# ---- linear maps


def test_a_product_of_joined_values_is_split():
    text, columns = message(lambda e: gt.relu(gt.concat([e.src.h, e.attr]) @ BOTH))
    assert text == "relu(src.column_0 + (edge.attr @ p0[10, 5][6:10]))"
    assert columns == {"column 0": "node.h @ p0[10, 5][0:6]"}
    big = parameter(14, 5)
    text, columns = message(lambda e: gt.relu(gt.concat([e.src.h, e.dst.s, e.src.h]) @ big))
    assert text == "relu(src.column_0 + dst.column_1)" and columns["column 0"].count("@") == 2
    # values without rows need no edge
    text, _ = message(lambda e: gt.relu(gt.concat([e.attr * e.weight, parameter(6)]) @ BOTH))
    assert text == "relu(((edge.attr * edge.weight) @ p1[10, 5][0:4]) + (p0[6] @ p1[10, 5][4:10]))"
    # nothing would be gained
    assert message(lambda e: gt.relu(gt.concat([e.attr, e.attr * e.src.c]) @ parameter(8, 5)))[
        0
    ].startswith("relu(concat(")


@pytest.mark.parametrize(
    ("gather", "text"),
    [
        (lambda e: ((e.attr @ HEADS) * ATT).sum(-1), "edge.attr @ sum(p0[4, 2, 3] * p1[2, 3])"),
        (
            lambda e: ((e.attr @ parameter(4, 6)).reshape(2, 3) * ATT).sum(-1),
            "edge.attr @ sum(reshape(p0[4, 6]) * p1[2, 3])",
        ),
        (lambda e: (e.attr @ HEADS).sum(-2), "edge.attr @ sum(p0[4, 2, 3])"),
        (lambda e: ((e.attr @ HEADS) * 2.0).sum(-1), "edge.attr @ sum(p0[4, 2, 3] * 2)"),
        (
            lambda e: (e.attr @ parameter(4, 8)) @ parameter(8, 2),
            "edge.attr @ (p0[4, 8] @ p1[8, 2])",
        ),
        # a bottleneck is meant
        (
            lambda e: (e.attr @ parameter(4, 1)) @ parameter(1, 8),
            "(edge.attr @ p0[4, 1]) @ p1[1, 8]",
        ),
        # an axis of the edge value itself is not the matrix's to sum
        (
            lambda e: ((e.src.z * e.weight) @ ONE_HEAD).sum(-2),
            "sum((src.z * edge.weight) @ p0[3, 2])",
        ),
    ],
)
def test_matrices_meet_each_other_before_they_meet_the_edges(gather, text):
    assert message(gather)[0] == text


def test_a_product_that_is_needed_elsewhere_is_not_contracted():
    text, _ = message(lambda e: (e.attr @ HEADS) * ((e.attr @ HEADS) * ATT).sum(-1))
    assert "edge.attr @ sum" not in text


# ---- the narrower side


@pytest.mark.parametrize(
    ("gather", "sum", "text"),
    [
        (lambda e: (e.attr * e.src.c) @ W4, "sum", "edge.attr * src.c"),
        (lambda e: e.src.h @ WIDE, "mean", "src.h"),
        (lambda e: (e.src.h @ WIDE) * e.weight, "sum", "src.h * edge.weight"),
        (
            lambda e: (e.src.h @ WIDE) / (1 + e.weight),
            ("sum", "mean"),
            "src.h / (p1[] + edge.weight)",
        ),
        (lambda e: gt.softmax(e.src.c * e.weight) * (e.src.h @ WIDE), "sum", "src.h"),
        (
            lambda e: gt.softmax(e.src.s * e.weight) * ((e.src.z * e.weight) @ parameter(3, 4)),
            "sum",
            "src.z * edge.weight",
        ),
        (lambda e: (e.attr @ HEADS) * e.weight, "sum", "edge.attr * edge.weight"),
    ],
)
def test_linear_sums_run_on_the_narrower_side(gather, sum, text):
    program = planned(gather, sum)
    assert all(written(e).startswith("total @ ") for e in program.after.values()) and set(
        program.after
    ) == set(program.phases[-1].parts)
    assert written(program.phases[-1].message[-1]) == text


@pytest.mark.parametrize(
    ("gather", "sum"),
    [
        (lambda e: e.src.h @ WIDE, "max"),
        (lambda e: e.src.h @ WIDE, ("sum", "max")),
        (lambda e: e.src.h @ NARROW, "sum"),
        (lambda e: e.src.h @ WIDE + parameter(9), "sum"),
        (lambda e: (e.src.h @ W) * e.dst.h[..., :5], "sum"),
        (lambda e: (e.src.h @ WIDE, {"new": e.src.h @ WIDE}), "sum"),
        (lambda e: e.src.h @ WIDE, None),
        # one weight a head and a product over all heads: the totals have no heads to weigh
        (lambda e: gt.softmax(e.src.s) * (e.attr @ HEADS), "sum"),
    ],
)
def test_other_products_stay_with_the_message(gather, sum):
    assert not planned(gather, sum).after


def test_notes_say_what_was_done_and_why():
    notes = planner_notes(
        planned(
            lambda e: gt.softmax(gt.tanh(e.dst.h @ W).sum(-1) * e.weight) * (e.src.h @ WIDE), "sum"
        )
    )
    assert any(n.startswith("moved from messages to totals, 6 wide") for n in notes)
    assert any(n.startswith("hoisted to the nodes: column_0 = sum(tanh(") for n in notes)


# ---- planned and unplanned programs agree

SCORE = st.recursive(
    st.sampled_from(
        ["src s", "dst s", "attr contracted", "z contracted", "h product", "drop", "kind"]
    ),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["tanh", "relu", "neg", "softmax"]), inner),
        st.tuples(st.sampled_from(["add", "sub", "mul"]), inner, inner),
    ),
    max_leaves=3,
)
VALUE = st.recursive(
    st.sampled_from(
        ["src z", "dst z", "h product 3", "joined", "attr product", "m product", "weighted"]
    ),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["tanh", "neg"]), inner),
        st.tuples(st.just("mul"), SCORE, inner),
        st.tuples(st.sampled_from(["add", "sub"]), inner, inner),
    ),
    max_leaves=3,
)


class Drawn(Layer):
    """A gather of leaves that give every rule something to do."""

    def __init__(self, tree, sum, direction, new):
        rng = np.random.default_rng(2)
        make = lambda *s: Parameter(rng.standard_normal(s) / 2)
        self.w = make(4, 2, 3)
        self.a = make(2, 3)
        self.wide = make(4, 2, 3)
        self.heads = make(3, 2, 3)
        self.two = make(4, 2)
        self.join = make(7, 2, 3)
        self.table = make(3, 2)
        self.m = make(3, 3)
        self.tree = tree
        self.new = new
        self.sum = sum
        self.direction = direction

    def transform(self, node):
        z = gt.matmul(node.h, self.w)
        return dict(z=z, s=gt.tanh((z * self.a).sum(-1)), h=node.h)

    def gather(self, edge):
        leaves = {
            "src s": lambda: edge.src.s,
            "dst s": lambda: edge.dst.s * 1,
            "drop": lambda: gt.dropout(edge.src.s, 0.4),
            "attr contracted": lambda: ((edge.attr @ self.heads) * self.a).sum(-1),
            "z contracted": lambda: (edge.dst.z * self.a).sum(-1),
            "h product": lambda: gt.tanh(edge.src.h @ self.two),
            "kind": lambda: edge.attr[..., :2] * self.table[0],
            "src z": lambda: edge.src.z,
            "dst z": lambda: edge.dst.z / 2,
            "h product 3": lambda: edge.src.h @ self.wide,
            "joined": lambda: gt.concat([edge.src.h, edge.attr]) @ self.join,
            "attr product": lambda: edge.attr @ self.heads,
            "m product": lambda: (edge.src.z * edge.dst.s) @ self.m,
            "weighted": lambda: (edge.src.h @ self.wide) * edge.weight,
        }

        def value(tree):
            return (
                leaves[tree]()
                if isinstance(tree, str)
                else getattr(gt, tree[0])(*map(value, tree[1:]))
            )

        made = value(self.tree)
        return made if self.new is None else (made, {"new": value(self.new)})

    def apply(self, node, total):
        return (
            total
            if isinstance(self.sum, str)
            else gt.concat([getattr(total, name) for name in self.sum])
        )


class Net(Model):
    def __init__(self, *args):
        self.first = Drawn(*args)
        self.second = Layer()
        self.second.gather = lambda edge: (
            edge.new * edge.src.h if args[3] is not None else edge.src.h
        )

    def forward(self, graph):
        return self.second(graph, self.first(graph, graph.x))


def outcome(comm, args, sampled):
    graph = graphs.random_graph(16, 50)
    partition = build_partition(graph, comm, "vertex-cut", dtype=np.float64)
    model = Net(*args)
    view = global_view(partition, [args[2], "in"])
    if sampled:
        for p in view.levels[0].passes:
            for s in p.selections:
                s.weight = 1.0 + partition.edge_gid[s.stored] % 3
    with Tape(seed=3, all_sum=comm.all_sum) as tape:
        out = model(view)
    seed = np.random.default_rng(1).standard_normal((16, *out.shape[1:]))
    grads = tape.backward(out, seed[partition.masters])
    found = {"out": np.zeros((16, *out.shape[1:]))}
    found["out"][partition.masters] = out.value
    for name, p in model.named_parameters():
        found[name] = np.zeros(p.shape) if grads.of(p) is None else grads.of(p)
    return {name: comm.all_sum(x) for name, x in found.items()}


@pytest.mark.second
@settings(max_examples=40, deadline=None)
@given(
    VALUE,
    st.sampled_from(["sum", "sum", "mean", "max", ("sum", "mean"), ("max", "sum")]),
    st.sampled_from(["in", "out", "both"]),
    st.none() | SCORE,
    st.booleans(),
)
def test_planning_changes_no_number(tree, sum, direction, new, sampled):
    args = (tree, sum, "in" if direction == "both" and new is not None else direction, new)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(superstep, "PROGRAMS", program_cache.ProgramCache())
        patch.setattr(program_cache, "plan", lambda program: program)
        expected = outcome_on(1, args, sampled)
    for size in (1, 3):
        for name, x in outcome_on(size, args, sampled).items():
            np.testing.assert_allclose(
                x,
                expected[name],
                rtol=0,
                atol=1e-10 * max(1, np.abs(expected[name]).max(initial=0)),
                err_msg=name,
            )


def outcome_on(size, args, sampled):
    return run_simulated(size, outcome, args, sampled)[0]


class Rich(Layer):
    """Everything is written on the edges."""

    def __init__(self, d, d_edge, width, sum="sum"):
        self.w = Parameter.glorot(d, 2, width)
        self.we = Parameter.glorot(d_edge, 2, width)
        self.join = Parameter.glorot(2 * d + d_edge, 2)
        self.a = Parameter.glorot(2, width)
        self.out = Parameter.glorot(2 * width, width)
        self.sum = sum

    def gather(self, edge):
        zu = edge.src.h @ self.w
        ze = edge.attr @ self.we
        score = (
            (zu * self.a).sum(-1)
            + (gt.tanh(edge.dst.h @ self.w) * self.a).sum(-1)
            + (ze * self.a).sum(-1)
        )
        gate = gt.sigmoid(gt.concat([edge.src.h, edge.attr, edge.dst.h]) @ self.join)
        weight = gt.softmax(score) if self.sum is not None else score
        return gt.flatten(weight * gate * (zu + ze)) @ self.out


class RichNet(Model):
    def __init__(self, d_in, d_out, d_edge, decoder):
        self.layers = [Rich(d_in, d_edge, 5), Rich(5, d_edge, d_out, None if decoder else "mean")]

    def forward(self, graph):
        return self.layers[1](graph, self.layers[0](graph, graph.x))


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("task", "keys"),
    [
        ("node", {"strategy": "global"}),
        ("node", {"strategy": "mini", "batch_size": 3}),
        ("edge", {"strategy": "global"}),
        ("node", {"strategy": "mini", "batch_size": 4, "fanout": (2, 2)}),
        ("edge", {"strategy": "mini", "batch_size": 9}),
    ],
)
def test_planning_changes_no_training(task, keys):
    """Views whose receiving rows are some of the sending ones, sampled edges, and pairs."""

    def losses(comm):
        make = lambda d_in, d_out, d_edge: RichNet(d_in, d_out, d_edge, task == "edge")
        trainer = Trainer(
            make,
            graphs.random_graph(),
            comm=comm,
            task=task,
            dtype="float64",
            backend="reference",
            epochs=2,
            **keys,
        )
        return [trainer.train_epoch(i) for i in range(2)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(superstep, "PROGRAMS", program_cache.ProgramCache())
        patch.setattr(program_cache, "plan", lambda program: program)
        (expected,) = run_simulated(1, losses)
    for size in (1, 3):
        np.testing.assert_allclose(run_simulated(size, losses)[0], expected, rtol=1e-10)


def test_equal_ends_share_their_columns_in_a_view():
    """Rows at the receiving end are the first of those at the sending end."""
    made = planned(lambda e: gt.tanh(e.src.h @ W) * gt.tanh(e.dst.h @ W))
    assert list(map(written, made.columns.values())) == ["tanh(node.h @ p0[6, 5])"]
    assert made.phases[0].reads["src"] == made.phases[0].reads["dst"] == ("column 0",)
