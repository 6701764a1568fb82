"""The fused back end equals the reference: totals, new edge values and every gradient, and is the
same on any number of threads.

Compiling takes about half a second a kernel, so one program holds many expressions as new edge
values, or as messages with totals of their own, where it can.
"""

from __future__ import annotations

import equality
import graphs
import numpy as np
import pytest
from backends import DTYPES, NODES, both, parameter, run
from drawn import SCORE, SUMS, VALUE, Drawn, Net, Reader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traced import trace

import graphtheta.ops as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.view import global_view
from graphtheta.graph.data.graph import Graph
from graphtheta.inspect.checking.forward import forward, gradients
from graphtheta.ops import PRIMITIVES, Tape
from graphtheta.ops.edge.backend import edges, fused
from graphtheta.ops.edge.backend.fused import backend_scope
from graphtheta.ops.edge.codegen.kernel import saving
from graphtheta.ops.parallel.pool import set_threads, threads

pytestmark = pytest.mark.fused


@pytest.fixture(autouse=True)
def everything_is_fused(monkeypatch, request):
    """A fall-back to the reference would make these tests say nothing."""
    known = fused.usable

    def usable(phase):
        found = known(phase)
        assert found or fused.backend() == "reference", (
            f"no fused form: {phase.message} {phase.outputs}"
        )
        return found

    if "falls_back" not in request.node.name:
        monkeypatch.setattr(fused, "usable", usable)


ROWWISE = {
    "add": lambda e: e.src.z + e.dst.y + parameter(2, 3),
    "sub": lambda e: e.src.z - e.dst.s - 2.0,
    "mul": lambda e: e.src.z * e.dst.y * e.weight,
    "div": lambda e: e.src.z / (e.dst.y * e.dst.y + 1.5),
    "maximum": lambda e: gt.maximum(e.src.z, e.dst.y),
    "minimum": lambda e: gt.minimum(e.src.z, gt.minimum(e.src.z, e.dst.y)),
    "neg": lambda e: -e.src.z,
    "exp": lambda e: gt.exp(e.src.z * 0.5),
    "log": lambda e: gt.log(gt.square(e.src.z) + 0.5),
    "sqrt": lambda e: gt.sqrt(gt.absolute(e.src.z) + 0.1),
    "square": lambda e: gt.square(e.src.z + e.dst.s),
    "absolute": lambda e: gt.absolute(e.src.z - e.dst.y),
    "relu": lambda e: gt.relu(e.src.z),
    "sigmoid": lambda e: gt.sigmoid(e.src.z * 3.0),
    "tanh": lambda e: gt.tanh(e.src.z + e.dst.y),
    "softplus": lambda e: gt.softplus(e.src.z * 20.0),
    "gelu": lambda e: gt.gelu(e.src.z),
    "silu": lambda e: gt.silu(e.src.z * 4.0 + e.dst.y),
    "permute": lambda e: gt.einsum("...hd->...dh", gt.tanh(e.src.z * e.dst.y)).reshape(2, 3),
    "cumsum": lambda e: (
        gt.cumsum(e.src.z * e.dst.y) * e.src.z + gt.cumsum(gt.tanh(e.dst.y + e.src.z), -2)
    ),
    "power": lambda e: gt.power(gt.absolute(e.src.z) + 0.2, 1.7) + e.src.z**3,
    "leaky_relu": lambda e: gt.leaky_relu(e.src.s + e.dst.t, 0.2),
    "elu": lambda e: gt.elu(e.src.z, 0.7),
    "clip": lambda e: (
        gt.clip(e.src.z, -0.5, 0.5) + gt.clip(e.dst.y, -1.0, None) + gt.clip(e.dst.y, None, 0.2)
    ),
    "cast": lambda e: e.src.z * gt.cast(e.kind, parameter.dtype),
    "ones_like": lambda e: gt.PRIMITIVES["ones_like"](e.src.z) * e.dst.y,
    "rounded": lambda e: gt.PRIMITIVES["rounded"](e.src.z * e.dst.y) + e.src.z,
    "expand_last": lambda e: gt.expand_last(e.src.s, 1) * e.dst.y,
    "normalise": lambda e: gt.PRIMITIVES["normalise"](
        e.src.z + e.dst.y, *(parameter(2, 3) for _ in range(4))
    ),
    "standardise": lambda e: gt.layer_norm(e.src.z + e.dst.y, parameter(3), parameter(3)),
    "sum": lambda e: (
        (e.src.z * e.dst.y).sum(-1)
        + (e.src.z + e.dst.y).sum(-2, keepdims=True).sum(-1)
        + e.src.z.sum((-1, -2))
    ),
    "max": lambda e: gt.max(e.src.z * e.dst.y, -1),
    "min": lambda e: gt.min(e.src.z * e.dst.s, -2, keepdims=True).sum(-1),
    "reshape": lambda e: gt.reshape(gt.tanh(e.src.z), 3, 2) + gt.reshape(e.dst.y, 3, 2),
    "concat": lambda e: (
        gt.concat([e.src.z, gt.tanh(e.dst.y), parameter(2, 2)]) + gt.stack([e.src.s, e.dst.t] * 4)
    ),
    "repeat_rows": lambda e: gt.repeat_rows(parameter(2, 3), e.weight) * e.src.z,
    "broadcast_to": lambda e: (
        gt.broadcast_to(gt.tanh(e.src.m), 2, 3) * gt.broadcast_to(e.dst.n, 2, 3)
    ),
    "matmul": lambda e: (
        gt.matmul(e.attr, parameter(3, 2, 3)) + gt.matmul(e.src.z * e.dst.y, parameter(3, 3))
    ),
    "to_dense": lambda e: gt.to_dense(e.src.z * 2.0),
    "embedding": lambda e: gt.embedding(parameter(4, 2, 3), e.kind) * e.src.z,
    "own_embedding": lambda e: (
        gt.embedding(e.dst.table, e.kind) * gt.embedding(e.src.table, e.kind) * e.src.z
    ),
    "getitem": lambda e: (
        e.src.z[..., ::-1] * e.dst.y[..., [0, 0, 2]] + gt.tanh(e.src.z)[..., 1:2, None, 0]
    ),
    "less": lambda e: e.src.z * (e.src.z < e.dst.s) + (e.kind > e.src.k) * e.dst.y,
    "less_equal": lambda e: e.src.z * (e.src.z <= parameter(2, 3)) + (e.kind >= 2) * e.dst.y,
    "equal": lambda e: (
        (e.kind == 1) * e.src.z + (e.kind != e.src.k) * e.dst.y + (e.src.z == e.dst.y) * e.src.s
    ),
    "logical_and": lambda e: (
        ((e.src.z > 0.0) & (e.dst.s < 0.5)) * e.dst.y + ((e.kind == 1) | e.src.b) * e.src.z
    ),
    "logical_not": lambda e: ~(e.src.z > e.dst.y) * e.src.z,
    "where": lambda e: (
        gt.where(e.src.z > e.dst.s, e.src.s, e.dst.y * parameter(3))
        + gt.where(e.kind, e.src.z, 1.0)
        + gt.where(e.src.b, gt.tanh(e.src.z), gt.log(e.src.z))
    ),
    "sin": lambda e: gt.sin(e.src.z * e.dst.y * 40.0),
    "cos": lambda e: gt.cos((e.time - e.src.k) * parameter(2, 3) * 1e-8),
    "stop_gradient": lambda e: (
        gt.stop_gradient(gt.tanh(e.src.z)) * e.dst.y + gt.softmax(e.src.z * e.dst.y, axis=-1)
    ),
    "pow": lambda e: (
        (gt.square(e.src.z) + 0.1) ** parameter(3)
        + gt.power(gt.relu(e.dst.y), gt.square(e.src.z) + 1.5)
        + 2.0**e.src.z
    ),
    "dropout": lambda e: gt.dropout(e.src.z, 0.4) + gt.dropout(gt.tanh(e.dst.y), 0.2),
}
ALL_SUMS = ("max", "min", "mean", "sum")
# the planner has replaced it before a kernel is written
PLANNED = {"edge_softmax"}
GROUPS = [sorted(ROWWISE)[i::6] for i in range(6)]


@pytest.mark.second
def test_every_rowwise_primitive_is_tried():
    mine = {
        n
        for n, p in PRIMITIVES.items()
        if p.rowwise and p.forward.__module__.startswith("graphtheta.")
    }
    assert mine == ROWWISE.keys() | PLANNED


# single precision has functions of its own for what is neither arithmetic nor a choice of rows;
# test_lanes tries these alone
OWN = ["cos", "elu", "exp", "gelu", "log", "pow", "power"]
OWN += ["sigmoid", "sin", "softplus", "sqrt", "standardise", "tanh"]
CASES = [*((group, "float64") for group in GROUPS), *((OWN[i::2], "float32") for i in range(2))]


@pytest.mark.second
@pytest.mark.parametrize(
    ("group", "dtype"), CASES, ids=lambda x: x if isinstance(x, str) else " ".join(x)
)
def test_rowwise_primitives(group, dtype):
    found = both(lambda e: (e.src.z, {name: ROWWISE[name](e) for name in group}), dtype=dtype)
    assert {f"edge {name}" for name in group} <= found[0].keys()


def each(messages, sums, edge_values=None, **keys):
    """``both`` of one program with a message for each total."""

    def gather(e):
        made = {name: message(e) for name, message in messages.items()}
        if edge_values is None:
            return made
        return made, {name: value(e) for name, value in edge_values.items()}

    return both(gather, sums, **keys)


SCORES = {
    "softmax": lambda e: (
        gt.softmax(gt.leaky_relu(e.src.s + e.dst.t + gt.matmul(e.attr, parameter(3, 2)), 0.2))
        * e.src.z
    ),
    "softmax twice": lambda e: (
        gt.softmax(e.src.s * e.dst.t) * gt.softmax(e.dst.t + e.src.t) * e.src.z
    ),
    "softmax squared": lambda e: gt.dropout(gt.softmax(e.src.s + e.dst.t), 0.3) ** 2 * e.src.z,
    "softmax with dropout": lambda e: (
        gt.dropout(gt.softmax(e.src.s + e.dst.t), 0.3) * gt.dropout(e.src.z, 0.2)
    ),
    "softmax alone": lambda e: gt.softmax(e.src.s + e.dst.t),
    "softmax of products": lambda e: gt.softmax((e.src.z * e.dst.y).sum(-1)) * e.src.z,
    "softmax of much": lambda e: (
        gt.softmax(gt.max(gt.dropout(normal(e.src.z * e.dst.y), 0.3), -1)) * e.src.z
    ),
    "gate": lambda e: (
        gt.sigmoid(e.src.s + e.dst.t + gt.matmul(e.attr, parameter(3, 2))) * gt.tanh(e.src.z)
    ),
    "gate made wider": lambda e: (
        gt.matmul(gt.tanh(e.src.s * e.dst.t), parameter(2, 2, 3)) * e.src.z
    ),
    "gate as edge value": lambda e: gated(gt.tanh(e.src.s * e.dst.t + e.src.t), e.src.z),
    "softmax, full width": lambda e: gt.softmax(e.src.z * e.dst.y) * e.src.z,
}
# scores of which nothing is saved, by the order of the two kernels: those without wide values, and
# for receivers also those with parameters on the edges
WITHOUT = ("softmax alone", "softmax, full width")
NOT_SAVED = {
    "receivers first": WITHOUT,
    "senders first": (*WITHOUT, "softmax", "softmax of much", "gate", "gate made wider"),
}
SHAPES = {
    "rowless": lambda e: (
        gt.tanh(parameter(2, 3) * gt.exp(parameter(3)).sum() + 1.0) * e.src.z + parameter(2, 1)
    ),
    "heads": lambda e: (
        e.src.a * e.dst.z
        + e.src.s * e.dst.n * e.src.m
        + e.src.n * parameter(2, 3)
        + e.dst.m * e.weight
    ),
    "carried": lambda e: e.old * e.src.z + gt.tanh(e.old),
    "one end each": lambda e: e.src.w * e.dst.a,
    "only edges": lambda e: gt.matmul(e.attr, parameter(3, 2, 3)),
    "deep": lambda e: deep(e.src.z, e.dst.y),
    "alias": lambda e: (
        gt.reshape(gt.dropout(e.src.z * e.dst.y, 0.5), 6) + gt.flatten(gt.dropout(e.src.z, 0.5))
    ),
    "parts of rows": lambda e: parts(
        gt.tanh(gt.matmul(gt.reshape(e.src.z * e.dst.y, 6), parameter(6, 45)))
    ),
    "used again": lambda e: again(gt.tanh(e.src.z * e.dst.s)),
    "float and double use": lambda e: (
        gt.concat([e.src.z, e.src.z * e.src.s]).sum(-1) * gt.max(e.src.z, -1)
    ),
}


def normal(x):
    return gt.layer_norm(x, parameter(3), parameter(3))


def gated(gate, z):
    return gate * z + gt.dropout(gate, 0.2).sum(-1) * z, {"gate": gate}


def deep(x, y):
    for _ in range(6):
        x = gt.leaky_relu(gt.maximum(x, y) - 0.1, 0.3)
    return x


def parts(x):
    """Parts that begin and end inside a vector, apart and overlapping, and the reverse of one."""
    return (
        x[..., 3:20] * x[..., 28:45] + x[..., 20:37] * x[..., 1] + x[..., 44:27:-1] * x[..., 4:21]
    )


def again(x):
    return x * x + gt.exp(x) * x.sum(-1) + gt.max(x, -1)


@pytest.mark.second
@pytest.mark.parametrize("name", SCORES)
def test_softmax(name):
    both(SCORES[name])


@pytest.mark.one_in(0, 2)
@pytest.mark.parametrize("order", NOT_SAVED)
@pytest.mark.parametrize("name", SCORES)
def test_what_is_saved_is_what_would_be_computed(name, order, monkeypatch):
    """Whatever one kernel may save for the other is saved, worth it or not."""
    saved = []

    def save(phase, receiver, sender):
        pair = (receiver, sender) if order == "receivers first" else (sender, receiver)
        saved.append(saving(phase, *pair))
        return saved[-1]

    monkeypatch.setattr(fused, "in_turn", save)
    monkeypatch.setattr(edges, "EDGES_PER_BLOCK", 16)
    both(SCORES[name], direction="both", size=2)
    assert any(second.residuals for _, second in saved) == (name not in NOT_SAVED[order])


# those that are no program of their own because of what they leave out or hold
TOGETHER = ("rowless", "heads", "deep", "used again", "float and double use")


@pytest.mark.second
@pytest.mark.parametrize("name", [name for name in SHAPES if name not in TOGETHER])
def test_shapes(name):
    both(SHAPES[name])


@pytest.mark.second
def test_shapes_of_several_messages():
    messages = {f"m{i}": SHAPES[name] for i, name in enumerate(TOGETHER)}
    each(messages, dict.fromkeys(messages, "sum"))


@pytest.mark.second
@pytest.mark.parametrize("name", ["alias", "carried"])
def test_without_training(name):
    both(SHAPES[name], training=False)


@pytest.mark.second
@pytest.mark.parametrize(
    "dtype, direction, sum",
    [
        # the others by themselves are those of other tests
        *(("float64", "in", sum) for sum in ("min", "var", ("mean", "min", "std"))),
        ("float64", "both", ALL_SUMS),
        ("float32", "out", ALL_SUMS),
    ],
    ids=str,
)
def test_aggregators_and_directions(dtype, direction, sum):
    both(lambda e: e.src.z * e.dst.s + e.weight, sum, dtype, direction)


SEVERAL = {"near": "std", "far": "max", "all": "mean", "own": "sum", "same": "var"}


def several(e):
    both_ends = e.src.z * e.dst.y
    return {
        "near": gt.tanh(both_ends),
        "far": e.src.z - e.dst.s,
        "all": both_ends @ parameter(3, 3),
        "same": both_ends,
        "own": gt.softmax(e.src.s + e.dst.t) * both_ends,
    }


@pytest.mark.second
def test_a_message_of_its_own_for_each_total():
    found = both(several, SEVERAL, direction="both", size=2)[0]
    assert {f"total {name}" for name in SEVERAL} <= found.keys()
    both(
        lambda e: (
            {**several(e), "own": gt.softmax(e.src.s + e.dst.t) ** 2 * e.src.z},
            {"new": e.src.s},
        ),
        SEVERAL,
        scale=True,
    )


@pytest.mark.second
def test_no_sum():
    both(lambda e: gt.tanh(e.src.z) * e.dst.y, None)


def product(e):
    """And a new edge value."""
    return e.src.z * e.dst.s, {"new": e.src.s + e.dst.t}


@pytest.mark.second
@pytest.mark.parametrize(
    "gather, sum",
    [(SCORES["softmax alone"], "sum"), (product, ("mean", "max"))],
    ids=["softmax", "product"],
)
def test_edges_that_stand_for_several(gather, sum):
    both(gather, sum, scale=True)


INTEGERS = {
    "index": lambda e: (
        gt.embedding(parameter(9, 2, 3), gt.minimum(e.kind * 2 + e.src.k, 8)) * e.src.z
    ),
    "rows": lambda e: gt.where(
        e.time - e.dst.k < 3**18, e.src.z, gt.cast(gt.absolute(-e.kind), parameter.dtype) * e.dst.y
    ),
    "floats": lambda e: (
        gt.embedding(parameter(4, 2), gt.maximum(gt.cast(gt.tanh(e.src.a) * 4.0, "int64"), 0))
        * e.src.s
    ),
    "masks": lambda e: (
        gt.embedding(parameter(4, 2), (e.src.a > 0) + e.src.b * (e.kind > 1)) * e.dst.t
    ),
}
LEFT_BEHIND = {
    "code": lambda e: e.kind * 3 - e.src.k,
    "large": lambda e: e.time + e.kind,
    "near": lambda e: gt.cast(e.src.z > 0, "int32"),
}


@pytest.mark.second
def test_integers_are_computed_as_integers():
    sums = dict.fromkeys(INTEGERS, "sum")
    found = each(INTEGERS, sums, LEFT_BEHIND, dtype="float32", size=2)[0]
    assert {f"total {name}" for name in INTEGERS} <= found.keys()
    assert {found[f"edge {n}"].dtype.name for n in ("code", "large")} == {"int64"}


@pytest.mark.second
def test_integers_and_masks_of_wide_rows():
    """In loops over scratch memory."""
    nodes = {"z": (1100,), "y": (1100,)}
    both(
        lambda e: gt.where(
            (e.src.z > e.dst.y) & (e.src.z * e.kind < 1.0), gt.tanh(e.src.z), e.dst.y
        ),
        nodes=nodes,
    )


@pytest.mark.second
@pytest.mark.parametrize("shape", [(128, 41), (0,), (2, 0), (1,), (1, 1)], ids=str)
def test_widths(shape):
    nodes = {"z": shape, "y": shape, "s": shape[:1]}
    messages = {
        "near": lambda e: gt.tanh(e.src.z * e.dst.y),
        "far": lambda e: gt.tanh(e.src.z * e.dst.y),
        "own": lambda e: gt.softmax(e.src.s + e.dst.s) * gt.reshape(gt.tanh(e.src.z), *shape),
    }
    each(messages, {"near": "sum", "far": "max", "own": "sum"}, nodes=nodes)


class Weighted(Layer):
    """A weighted sum, of as many copies of one edge as the graph has."""

    def gather(self, edge):
        return edge.src.h * edge.weight


class Chosen(Weighted):
    """The same of products that edges choose."""

    def __init__(self):
        self.matrices = gt.Parameter(np.ones((1, 2, 3), np.float32))

    def gather(self, edge):
        return gt.embedding(edge.src.h @ self.matrices, edge.code) * edge.weight


class FromOnes(Model):
    """A layer on a value of its own."""

    def __init__(self, layer, width):
        self.layer = layer
        self.ones = gt.Parameter(np.ones(width, np.float32))

    def forward(self, graph):
        return self.layer(graph, gt.repeat_rows(self.ones, graph.x))


@pytest.mark.second
@pytest.mark.parametrize(
    ("layer", "width"),
    [(Weighted, 3), (Weighted, 1030), (Chosen, 1)],
    ids=["narrow", "wide", "pairs"],
)
def test_sums_over_many_edges_keep_their_digits(layer, width):
    """The float32 sum of 30,000 times 0.1, one by one, is 2e-4 off."""
    m = 30_000
    graph = Graph(
        np.repeat([[0], [1]], m, axis=1),
        2,
        x=np.ones((2, 1)),
        edge_weight=np.full(m, 0.1, np.float32),
        edge_columns={"code": np.ones(m, int)},
    )
    model = FromOnes(layer(), width)
    most = m * float(np.float32(0.1))
    np.testing.assert_allclose(forward(model, graph)[1], most, rtol=1e-5)
    found = gradients(lambda out: out.mean(-1) * graph.n_nodes, model, graph)[1]["ones"]
    np.testing.assert_allclose(found.astype(float).sum(), most, rtol=1e-5)


@pytest.mark.one_in(0, 3)
@pytest.mark.parametrize("masked", ["some", "all"])
@pytest.mark.parametrize("power", [1, 2])
def test_masked_scores_weigh_nothing(masked, power):
    mask = np.array([-np.inf, -np.inf if masked == "all" else 0.0])
    found = both(lambda e: gt.softmax(e.src.s + e.dst.t + mask) ** power * e.src.z)[0]
    assert all(np.isfinite(x).all() for x in found.values())
    assert not found["total "][:, 0].any() and (masked == "all") == (not found["total "].any())


# scores that all in-edges of a node share, as a number times what is added to a share of a value of
# the receiver: small, large, and large products that are not exact
COMMON = ((0.0, 1.0, 0.0), (-1e9, 1.0, 0.0), (1.2345e9, 0.0, 1.0))


@pytest.mark.one_in(0, 3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power, scale", [(1, False), (1, True), (2, False), (2, True)])
def test_what_all_scores_of_a_node_have_in_common_changes_no_weight(power, scale, dtype):
    """As where all neighbours of a node are masked by a large negative number."""

    def gather(e, numbers):
        # of parameters, so that all run the same kernels
        factor, added, share = (gt.Parameter(np.full(2, x, dtype)) for x in numbers)
        common = gt.stop_gradient((e.src.s * 0.0 + factor) * (e.dst.s * share + added))
        return gt.softmax(common) ** power * e.src.z

    equal, *large = (
        both(lambda e, numbers=numbers: gather(e, numbers), dtype=dtype, scale=scale)[0]
        for numbers in COMMON
    )
    for found in large:
        for name, x in found.items():
            np.testing.assert_allclose(
                x,
                equal[name],
                rtol=0,
                atol=10 * DTYPES[dtype] * max(1, np.abs(x).max()),
                err_msg=name,
            )


@pytest.mark.second
@pytest.mark.parametrize("dtype", DTYPES)
def test_differences_are_taken_in_the_order_in_which_they_are_written(dtype):
    """As of far places, which are close to each other: (1e9 - 1e9) - t is -t, and 1e9 - (1e9 + t)
    is rounded.
    """
    far = lambda x: gt.sin(x) * 0.0 + 1e9
    messages = {
        "written": lambda e: (far(e.src.s) - far(e.dst.s)) - e.dst.t,
        "exact": lambda e: e.src.s * 0.0 - e.dst.t,
    }
    found = each(messages, dict.fromkeys(messages, "sum"), dtype=dtype)[0]
    written, exact = (found[f"total {name}"] for name in messages)
    np.testing.assert_allclose(written, exact, rtol=0, atol=100 * DTYPES[dtype])


@pytest.mark.second
def test_a_masked_edge_before_and_after_others():
    with np.errstate(divide="ignore"):
        found = both(lambda e: gt.softmax(e.src.s + gt.log(gt.relu(e.weight))) * e.src.z)[0]
    assert np.isfinite(found["total "]).all()


@pytest.mark.second
def test_nan_shows():
    bad = lambda e: gt.sqrt(e.src.s - 100.0)
    messages = {
        "near": bad,
        "far": bad,
        "all": lambda e: gt.relu(bad(e)),
        "own": lambda e: gt.softmax(bad(e)) * e.src.z,
    }
    with np.errstate(all="ignore"):
        found = each(messages, {**dict.fromkeys(messages, "sum"), "far": "max"})[0]
    for name in messages:
        assert np.isnan(found[f"total {name}"]).any(), name


@pytest.mark.second
@pytest.mark.parametrize("size", [1, 7])
def test_blocks_change_nothing(size, monkeypatch):
    gather = ROWWISE["matmul"]
    whole = both(gather, "mean")[0]
    monkeypatch.setattr(edges, "EDGES_PER_BLOCK", size)
    for name, x in both(gather, "mean")[0].items():
        np.testing.assert_allclose(x, whole[name], rtol=1e-12, atol=1e-12)


@pytest.mark.second
def test_threads_change_no_bit(monkeypatch):
    monkeypatch.setattr(edges, "EDGES_PER_BLOCK", 16)
    graph = graphs.random_graph(200, 3000)
    before = threads()
    for gather, sum in (
        (SCORES["softmax with dropout"], "sum"),
        (SCORES["softmax"], "sum"),
        (ROWWISE["matmul"], "mean"),
    ):
        found = []
        for n in (1, min(2, before)):
            set_threads(n)
            try:
                found += run_simulated(
                    1, run, gather, sum, graph, np.dtype("float64"), "in", True, False, NODES
                )
            finally:
                set_threads(before)
        assert all(np.array_equal(x, found[1][n]) for n, x in found[0].items())


@pytest.mark.second
@pytest.mark.parametrize(
    "gather, sum, scale",
    [("softmax", "sum", False), ("mul", "max", True), ("matmul", "mean", False)],
)
def test_hubs_are_cut(gather, sum, scale, monkeypatch):
    """One node sends to all others and receives from all: its edges are summed in pieces."""
    monkeypatch.setattr(edges, "EDGES_PER_BLOCK", 8)
    assert edges.cut(np.array([0, 50, 52, 60]), np.arange(3)).hubs.tolist() == [0] * 5
    ring = np.arange(1, 60)
    hub = np.zeros(59, np.int64)
    graph = graphs.fill(
        np.concatenate((ring, hub, ring)), np.concatenate((hub, ring, np.roll(ring, 1))), 60
    )
    program = {**SCORES, **ROWWISE}[gather]
    both(program, sum, direction="both", scale=scale, graph=graph)
    both(program, sum, scale=scale, graph=graph, size=3)


@pytest.mark.second
@pytest.mark.parametrize("name", graphs.odd_graphs())
def test_odd_graphs(name):
    graph = graphs.odd_graphs()[name]
    for size in range(1, min(4, graph.n_nodes + 1)):
        both(SCORES["softmax"], direction="both", graph=graph, size=size)
        both(product, ("mean", "max"), graph=graph, size=size)


@pytest.mark.second
@pytest.mark.parametrize("placement", graphs.PLACEMENTS, ids=" ".join)
def test_ranks_and_placements(placement):
    for size in (2, 4):
        both(SCORES["softmax"], direction="both", size=size, placement=placement)
        both(product, ("mean", "max"), size=size, placement=placement)


@pytest.mark.second
def test_whole_models_under_every_strategy(monkeypatch):
    """Row lists, sampled edges and halos together."""
    monkeypatch.setattr(equality, "MODELS", {n: equality.MODELS[n] for n in ("sage max", "gat_e")})
    monkeypatch.setattr(
        equality,
        "STRATEGIES",
        {n: equality.STRATEGIES[n] for n in ("global", "mini replaced", "cluster boundary")},
    )
    with backend_scope("reference"):
        expected, _ = run_simulated(1, equality.run, equality.PLACEMENTS[0], "node")[0]
    for size, placement in ((1, equality.PLACEMENTS[0]), (3, ("vertex-cut", "block"))):
        numbers, _ = run_simulated(size, equality.run, placement, "node")[0]
        for key, (losses, grads) in numbers.items():
            for mine, theirs in zip((losses, grads), expected[key], strict=True):
                np.testing.assert_allclose(
                    mine, theirs, rtol=0, atol=1e-10 * np.abs(theirs).max(), err_msg=str(key)
                )


@pytest.mark.second
def test_falls_back_where_integers_are_summed():
    gather = lambda e: (
        gt.embedding(parameter(4, 2), gt.stack([gt.cast(e.weight * 0.0, np.int64)] * 2).sum(-1))
        * e.src.s
    )
    both(gather)
    (phase,) = trace(
        gather, {"s": ((2,), np.float64, True)}, {"weight": ((), np.float64, False)}, "sum", "Mine"
    ).phases
    assert not fused.usable(phase)


@pytest.mark.second
@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    VALUE,
    SCORE,
    st.sampled_from(SUMS),
    st.sampled_from(["in", "out"]),
    st.sampled_from(["in", "both"]),
    st.integers(1, 3),
    st.sampled_from(graphs.PLACEMENTS),
    st.integers(0, 50),
)
def test_drawn_programs(value, new, sum, direction, second, size, placement, seed):
    """Two layers, the second of which reads the edge values of the first."""
    graph = graphs.random_graph(12, 40, seed)

    def program(comm):
        partition = build_partition(graph, comm, *placement, dtype=np.float64)
        layers = [Drawn(value, sum, direction, new), Reader(("src", "z"), "sum", second)]
        with Tape(all_sum=comm.all_sum) as tape:
            out = Net(*layers)(global_view(partition, [direction, second]))
        grads = tape.backward(out, np.cos(partition.masters)[:, None, None] * np.ones(out.shape))
        used = [
            grads.of(q) for layer in layers for q in (layer.w, layer.a, layer.b, layer.we, layer.p)
        ]
        return [out.value, *(g for g in used if g is not None)]

    results = []
    for name in ("reference", "fused"):
        with backend_scope(name):
            results.append(run_simulated(size, program))
    for expected, got in zip(*results, strict=True):
        for x, y in zip(expected, got, strict=True):
            np.testing.assert_allclose(
                y, x, rtol=1e-10, atol=1e-11 * max(1, np.abs(x).max(initial=0))
            )
