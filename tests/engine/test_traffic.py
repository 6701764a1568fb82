"""Bytes predicted from plans and widths against those the ledger counted, and against one copy a
pair of master and mirror.
"""

from __future__ import annotations

import equality
import numpy as np
import pytest
from covering import covering

import graphtheta
import graphtheta.ops as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.context import ActiveGraph
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.view import global_view
from graphtheta.models import GCN, SAGE
from graphtheta.ops import Parameter, Tape, dtype_scope
from graphtheta.ops.autodiff.init import init_scope

STRATEGIES = ("global", "mini", "mini sampled", "cluster", "cluster boundary")


def moves(comm, before):
    book = comm.ledger.since(before)
    assert (
        sum(stage["bytes"] for name, stage in book.items() if name in ("transform", "gather")) == 0
    )
    return book["move"]["bytes"]


def pairs_of(comm, part, level):
    """Pairs of a node and a worker that is not its master and has an active edge from it, or to it,
    over all workers.
    """
    ends = []
    for take in (0, 1):
        nodes = equality.example().edge_index[take][level.gid]
        strange = nodes[part.directory.owner(nodes) != comm.rank]
        ends.append(int(comm.all_sum(np.array(len(np.unique(strange))))))
    return ends


def run(comm, placement, task_name):
    """(predicted, measured) bytes of all workers, forward and backward, and (bytes, bound) of each
    layer, by strategy and model.
    """
    graph = equality.example()
    part = build_partition(graph, comm, *placement, dtype=np.float64)
    task, d_out, models = equality.TASKS[task_name](part, graph)
    found = {}
    with dtype_scope("float64"):
        built = {
            name: equality.build(kind, d_out, options, part)[0]
            for name, (kind, options) in models.items()
        }
        for name in STRATEGIES:
            view = equality.STRATEGIES[name](part, ["in", "in"], task).batch(0, 0)
            bounds = [pairs_of(comm, part, level) for level in view.levels]
            for model_name, model in built.items():
                found[name, model_name] = measure(comm, task, view, model, bounds)
    return found


def measure(comm, task, view, model, bounds):
    active = ActiveGraph(view)
    with Tape(seed=1, all_sum=comm.all_sum) as tape:
        before = comm.ledger.snapshot()
        loss = task.loss(view, model.run(active))
        measured = [moves(comm, before)]
        before = comm.ledger.snapshot()
        tape.backward(loss)
        measured.append(moves(comm, before))
    predicted = [sum(t.forward for t in active.traffic), sum(t.backward for t in active.traffic)]
    crossing = [int(comm.all_sum(np.array(level.n_leaving))) for level in view.levels]
    sent = [
        [int(comm.all_sum(np.array(x))) for x in (t.forward, t.backward)]
        for t in active.traffic[: len(bounds)]
    ]
    bound = [
        [
            src * t.widths.src + dst * (t.widths.dst + t.widths.partial) + n * t.widths.message,
            dst * t.widths.backward_state
            + src * t.widths.src_grad
            + dst * t.widths.dst_grad
            + n * t.widths.message_grad,
        ]
        for t, (src, dst), n in zip(active.traffic, bounds, crossing, strict=False)
    ]
    return predicted, measured, sent, bound


PLACEMENTS = [("1d-src", "hash"), ("1d-dst", "block"), ("vertex-cut", "hash")]


@pytest.mark.one_in(11, 2)
@pytest.mark.parametrize(
    ("size", "task", "placement"),
    [
        (1, "node", PLACEMENTS[2]),
        *zip((2, 3, 4), ("node",) * 3, PLACEMENTS, strict=True),
        *(
            (size, task, placement)
            for size, task in ((2, "link"), (4, "edge"))
            for placement in PLACEMENTS
        ),
    ],
)
def test_what_is_predicted_is_sent(size, task, placement):
    for found in run_simulated(size, run, placement, task):
        for case, (predicted, measured, sent, bound) in found.items():
            assert predicted == measured, case
            assert np.all(np.array(sent) <= bound), case
            if case[0] == "global":
                assert (size == 1) == (sum(map(sum, sent)) == 0), case


class Product(Layer):
    """A product on the edges, for the planner to put where it likes."""

    def __init__(self, d_in, d_out):
        self.weight = Parameter.glorot(d_in, d_out)

    def gather(self, edge):
        return gt.matmul(edge.src.h, self.weight) * edge.weight


class Twice(Model):
    """Two layers, so that the second one's input needs a gradient; its width is d_in."""

    def __init__(self, layer, d_in, d_out):
        self.first = layer(equality.D, d_in)
        self.second = layer(d_in, d_out)

    def forward(self, graph):
        return self.second(graph, self.first(graph, graph.x))


@pytest.mark.parametrize(
    ("layer", "widths", "partitioner"),
    covering((GCN, SAGE, Product), ((6, 2), (2, 6)), ("1d-src", "1d-dst", "vertex-cut")),
)
def test_the_narrower_side_of_a_linear_map_moves(layer, widths, partitioner):
    d_in, d_out = widths

    def program(comm):
        part = build_partition(equality.example(), comm, partitioner, dtype=np.float64)
        with dtype_scope("float64"), init_scope(1):
            model = Twice(layer, d_in, d_out)
        active = ActiveGraph(global_view(part, ["in", "in"]))
        with Tape() as tape:
            out = model.run(active)
            forward = comm.ledger.snapshot()["move"]["bytes"]
            tape.backward(out)
        backward = comm.ledger.snapshot()["move"]["bytes"] - forward
        first, second = active.traffic
        assert (
            first.forward + second.forward == forward
            and first.backward + second.backward == backward
        )
        return second.widths

    narrow = 8 * min(d_in, d_out)
    for widths in run_simulated(4, program):
        # the weights of a mean are one number more, and go one way only
        sums = narrow + 8 * (layer is SAGE)
        assert (widths.src, widths.dst, widths.partial) == (narrow, 0, sums)
        assert (widths.backward_state, widths.src_grad, widths.dst_grad) == (narrow, narrow, 0)


class InTurn(Layer):
    """The last of some messages by order, from senders that were multiplied by a weight."""

    def __init__(self, order, direction):
        self.sum = {"last": graphtheta.LSTM(equality.D, 3, order), "mean": "mean"}
        self.direction = direction

    def apply(self, node, total):
        return gt.concat([total.last, total.mean])


@pytest.mark.parametrize(
    ("dtype", "order", "direction"),
    covering(
        ("float32", "float64"),
        (None, "seconds", "number", "src.seconds", "src.number"),
        ("in", "out", "both"),
    ),
)
def test_what_sums_in_order_sort_by_is_counted_as_it_is_sent(dtype, order, direction):
    """Columns that passes read rounded are sent as they were given with the graph."""
    graph = equality.example()
    rng = np.random.default_rng(1)
    for rows, columns in ((graph.n_edges, "edge_columns"), (graph.n_nodes, "node_columns")):
        exact = {
            "seconds": 1.7e9 + rng.permutation(rows) / 8,
            "number": rng.permutation(rows),
        }
        graph = graph.replace(**{columns: exact})

    def program(comm):
        part = build_partition(graph, comm, "vertex-cut", "hash", dtype=np.dtype(dtype))
        with dtype_scope(dtype), init_scope(1):
            layer = InTurn(order, direction)
            active = ActiveGraph(global_view(part, [direction]))
            with Tape() as tape:
                before = comm.ledger.snapshot()
                out = layer(active, active.x)
                forward = moves(comm, before)
                messages = comm.ledger.since(before)["move"]["messages"]
                tape.backward(out)
                backward = moves(comm, before) - forward
        (phase,) = active.traffic
        assert (phase.forward, phase.backward) == (forward, backward)
        return messages, phase.widths

    results = run_simulated(3, program)
    assert all(messages for messages, _ in results)
    exact = dtype == "float32" and order == "src.seconds"
    assert [widths.exact for _, widths in results] == [8 * exact] * 3
