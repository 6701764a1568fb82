"""Gather and Sum of one phase: no more messages than the functions need, gradients only where
wanted, one float type.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest

import graphtheta.ops as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.view import global_view
from graphtheta.ops import Parameter, Tape

GRAPH = graphs.random_graph(40, 200)
ROW = 8


class Counts(Model):
    """One layer over columns a [n] and b [n, 3] that need gradients and x [n, 4] that does not."""

    def __init__(self, gather, sum="sum", direction="in"):
        self.layer = Layer()
        self.w = Parameter(np.random.default_rng(0).standard_normal((4, 3)))
        self.layer.sum = sum
        self.layer.direction = direction
        self.layer.gather = gather
        self.layer.transform = lambda node: (lambda b: {"b": b, "a": b.sum(-1)})(
            gt.matmul(node.h, self.w)
        )

    def forward(self, graph):
        return self.layer(graph, graph.x)


def moved(gather, partitioner, size=4, sum="sum", direction="in", dtype=np.float64):
    """Bytes and messages of all ranks in the forward and backward pass, and the partitions."""

    def program(comm):
        p = build_partition(GRAPH, comm, partitioner, dtype=dtype)
        view = global_view(p, [direction])
        model = Counts(gather, sum, direction)
        begin = comm.ledger.snapshot()
        with Tape() as tape:
            out = model(view)
        forward = comm.ledger.since(begin)["move"]
        begin = comm.ledger.snapshot()
        tape.backward(out)
        backward = comm.ledger.since(begin)["move"]
        return p, [[part["bytes"], part["messages"]] for part in (forward, backward)]

    found = run_simulated(size, program)
    return np.sum([c for _, c in found], axis=0), [p for p, _ in found]


def mirrors(parts, end):
    """Mirror rows of one end on all ranks, and pairs of ranks that share some."""
    plans = [p.relations["edge"].served(end == "dst")[0].plan for p in parts]
    return sum(p.n_halo for p in plans), sum(
        int(np.count_nonzero(np.diff(p.recv_ptr))) for p in plans
    )


def test_by_destination_only_source_columns_move():
    (forward, backward), parts = moved(lambda e: e.src.b * e.dst.a, "1d-dst")
    rows, pairs = mirrors(parts, "src")
    assert forward.tolist() == [rows * 3 * ROW, pairs]
    assert backward.tolist() == [rows * 3 * ROW, pairs]


def test_by_source_only_totals_move():
    (forward, backward), parts = moved(lambda e: e.src.b, "1d-src")
    rows, pairs = mirrors(parts, "dst")
    assert forward.tolist() == [rows * 3 * ROW, pairs]
    assert backward.tolist() == [rows * 3 * ROW, pairs]


def test_by_source_destination_columns_move_if_they_are_read():
    (forward, backward), parts = moved(lambda e: e.src.b * e.dst.a, "1d-src")
    rows, pairs = mirrors(parts, "dst")
    assert forward.tolist() == [rows * (1 + 3) * ROW, 2 * pairs]
    assert backward.tolist() == [rows * (3 + 1) * ROW, 2 * pairs]


def test_softmax_takes_one_message_for_its_three_sums():
    (forward, _), parts = moved(lambda e: gt.softmax(e.src.a) * e.src.b, "1d-src")
    rows, pairs = mirrors(parts, "dst")
    assert forward.tolist() == [rows * (1 + 1 + 3) * ROW, pairs]


def test_columns_nobody_reads_do_not_move():
    (forward, _), _ = moved(lambda e: e.src.a, "vertex-cut")
    (wide, _), _ = moved(lambda e: e.src.b, "vertex-cut")
    assert wide.tolist() == [3 * forward[0], forward[1]]


def test_gradients_of_constants_do_not_move():
    (_, backward), _ = moved(lambda e: e.src.h.sum(-1) * e.dst.a, "1d-dst")
    assert backward.tolist() == [0, 0]
    (forward, backward), _ = moved(lambda e: e.src.h, "vertex-cut")
    assert forward[0] > 0 and backward.tolist() == [0, 0]


def test_against_the_edges_the_roles_of_the_ends_swap():
    (forward, _), parts = moved(lambda e: e.src.b, "1d-src", direction="out")
    rows, pairs = mirrors(parts, "dst")
    assert forward.tolist() == [rows * 3 * ROW, pairs]
    (forward, _), _ = moved(lambda e: e.src.b, "1d-src", direction="both")
    assert forward.tolist() == [2 * rows * 3 * ROW, 2 * pairs]


def test_one_rank_moves_nothing():
    for direction in ("in", "both"):
        counts, _ = moved(
            lambda e: gt.softmax(e.src.a) * e.dst.b, "vertex-cut", size=1, direction=direction
        )
        assert not counts.any()


def test_rules_run_only_for_what_needs_a_gradient():
    @gt.primitive("weigh_of_test_gather")
    def weigh(fixed, free):
        return fixed * free

    def never(g, y, fixed, free):
        raise AssertionError("a gradient nobody wants")

    try:
        gt.defvjp(weigh, fixed=never, free=lambda g, y, fixed, free: g * fixed)
        (_, backward), _ = moved(
            lambda e: weigh(e.src.h[..., :3] * e.weight[..., None], e.src.b), "vertex-cut"
        )
        assert backward[0] > 0
        moved(lambda e: gt.softmax(weigh(e.attr[..., 0], e.src.a)) ** 2 * e.dst.b, "vertex-cut")
    finally:
        del gt.PRIMITIVES["weigh_of_test_gather"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sum", ["sum", "mean", "max", ("min", "mean")])
def test_one_float_type_from_end_to_end(dtype, sum):
    def program(comm):
        p = build_partition(GRAPH, comm, "vertex-cut", dtype=dtype)
        model = Counts(
            lambda e: (
                gt.dropout(gt.softmax(e.src.a + e.attr[..., 0]), 0.5) * e.src.b,
                {"new": e.dst.b * 2.0},
            ),
            sum,
        )
        model.w.value = model.w.value.astype(dtype)
        if not isinstance(sum, str):
            model.layer.apply = lambda node, total: total.min + total.mean
        with Tape() as tape:
            out = model(global_view(p, ["in"]))
        assert all(y.dtype == dtype for node in tape.nodes for y in node.outputs)
        assert tape.backward(out).of(model.w).dtype == dtype

    run_simulated(3, program)


def test_a_layer_of_which_nothing_is_used_sends_nothing_back():
    def program(comm):
        p = build_partition(GRAPH, comm, "vertex-cut", dtype=np.float64)
        model = Counts(lambda e: (e.src.b, {"new": e.src.a * e.dst.a}))
        with Tape() as tape:
            unused = model(global_view(p, ["in"]))
            used = gt.mul(model.w, 2.0)
        begin = comm.ledger.snapshot()
        grads = tape.backward(used)
        assert unused.shape == (p.n_masters, 3)
        np.testing.assert_array_equal(grads.of(model.w), 2)
        return comm.ledger.since(begin)["move"]["messages"]

    assert run_simulated(3, program) == [0, 0, 0]
