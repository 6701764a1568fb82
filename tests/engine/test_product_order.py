"""Product and linear sum in the cheaper order: the choice, equal results of both orders, and what
backward does not compute.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta.ops as gt
from graphtheta.base.costs import GATHERED
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.context import ActiveGraph
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.layer.product_order import ProductOrder
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.expand import induced, k_hop_view
from graphtheta.engine.view.level import NO_ROWS, Counts
from graphtheta.engine.view.view import global_view
from graphtheta.models.gcn import GCN
from graphtheta.models.gin import GIN
from graphtheta.models.mlp import MLP
from graphtheta.models.sage import SAGE
from graphtheta.ops import Parameter, Tape, Var, dtype_scope
from graphtheta.ops.autodiff.init import init_scope
from graphtheta.ops.autodiff.primitive import PRIMITIVES
from graphtheta.ops.autodiff.space import RowSpace
from graphtheta.ops.edge.backend.fused import backend_scope
from graphtheta.samplers.neighbour import NeighbourSampler

WIDE, HIDDEN = 40, 24
GRAPH = graphs.random_graph(90, 900, x=np.random.default_rng(5).standard_normal((90, WIDE)))
LAYERS = {"gcn": GCN, "sage": SAGE, "gin": lambda a, b: GIN(MLP(a, (b,), b))}


def ordered(h, weight, counts):
    return ProductOrder.of(h, weight, record=True).product_first(counts)


# ---- the choice


def test_the_choice_is_by_rows_and_edges_where_rows_differ():
    x = Var(np.zeros((2, 602), np.float32), RowSpace(np.arange(2)))
    h = Var(x.value, x.space, needs_grad=True)
    narrow = Parameter.zeros(602, 256)
    wide = Parameter.zeros(602, 700)
    alike = Counts(40_000, 40_000, 90_000)
    assert ordered(x, narrow, alike) and ordered(x, narrow, NO_ROWS)
    assert not ordered(x, wide, alike) and not ordered(x, wide, NO_ROWS)
    assert ordered(x, narrow, Counts(40_000, 15_000, 90_000, moved=4_000_000))
    assert not ordered(x, narrow, Counts(40_000, 15_000, 90_000)) and not ordered(
        h, narrow, Counts(40_000, 15_000, 90_000)
    )
    # many edges into almost as many rows: the narrower side is summed
    assert ordered(h, narrow, Counts(40_000, 39_000, 4_000_000))
    sparse = Var(sp.csr_array((2, 602), dtype=np.float32), x.space)
    assert ordered(sparse, wide, alike) and ordered(sparse, narrow, Counts(40_000, 15_000, 90_000))


def test_passes_that_do_not_run_cost_nothing():
    x = Var(np.zeros((2, 6), np.float32), RowSpace(np.arange(2)))
    h = Var(x.value, x.space, needs_grad=True)
    weight = Parameter.zeros(6, 4)
    frozen = Parameter.zeros(6, 4)
    frozen.requires_grad = False
    found = [
        (o.products, o.sweeps)
        for o in (
            ProductOrder.of(*given)
            for given in (
                (x, weight, True),
                (h, weight, True),
                (h, frozen, True),
                (x, frozen, True),
                (h, weight, False),
            )
        )
    ]
    assert found == [(2, (2, 1)), (3, (2, 2)), (2, (2, 2)), (1, (1, 1)), (1, (1, 1))]
    # one row fewer saves 2 x 24 multiply-adds, and an edge more costs 6 numbers once instead of 4
    # twice
    order = ProductOrder.of(h, frozen, True)
    balance = 2 * 24 // (GATHERED * 4)
    assert order.product_first(Counts(11, 10, balance + 1)) and not order.product_first(
        Counts(12, 10, balance + 1)
    )


@pytest.mark.parametrize("size", [1, 3, 4])
def test_a_level_knows_its_size_over_all_workers(size):
    def program(comm):
        part = build_partition(GRAPH, comm, graphs.PLACEMENTS[size][0])
        views = [
            k_hop_view(part, part.masters < 7, ["in", "both"], sampler=NeighbourSampler((3, 3))),
            induced(part, part.masters < 50, ["out"]),
            global_view(part, ["in", "both"]),
        ]
        mine = [x.local_counts for view in views[:2] for x in view.levels]
        return mine, [x.counts for view in views for x in view.levels]

    found = run_simulated(size, program)
    sums = np.sum([mine for mine, _ in found], axis=0).tolist()
    for _, (*some, whole, both) in found:
        assert list(map(list, some)) == sums and (whole, both) == (
            Counts(90, 90, 900),
            Counts(90, 90, 1800),
        )
    assert sums[1][1] == 7 and (sums[0][3] > 0) == (size > 1)


# ---- equal results


class Two(Model):
    """Two layers over wide features."""

    def __init__(self, make):
        self.first = make(WIDE, HIDDEN)
        self.second = make(HIDDEN, 3)

    def forward(self, graph):
        return self.second(graph, gt.tanh(self.first(graph, graph.x)))


def passed(comm, name, placement=graphs.PLACEMENTS[0], backend="fused", moved=None):
    """A sampled batch: the value of a linear function of its outputs, the gradients, the orders,
    and the view.
    """
    part = build_partition(GRAPH, comm, *placement, dtype=np.float64)
    with dtype_scope("float64"), init_scope(3):
        model = Two(LAYERS[name])
    for p, step in zip(model.parameters(), moved or [], strict=False):
        p.value = p.value + step
    view = k_hop_view(
        part, part.masters < 9, probe(model, part).layers, sampler=NeighbourSampler((4, 3), seed=2)
    )
    active = ActiveGraph(view)
    with backend_scope(backend), Tape(all_sum=comm.all_sum) as tape:
        out = model.run(active)
        weight = np.cos(part.masters[view.rows[: view.n_targets], None] * 3 + np.arange(3))
        found = tape.backward(out, weight)
    value = comm.all_sum(np.array((out.value * weight).sum()))
    grads = [comm.all_sum(found.of(p)) for p in model.parameters()]
    orders = [line for step in active.supersteps for line in step.order(step.counts)]
    return float(value), grads, orders, view, found.of(active.x)


def same(a, b, tolerance=1e-9):
    assert abs(a[0] - b[0]) < tolerance * max(1, abs(b[0]))
    for mine, theirs in zip(a[1], b[1], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=tolerance * np.abs(theirs).max())


@pytest.mark.second
@pytest.mark.parametrize("name", LAYERS)
def test_both_orders_on_any_number_of_ranks_and_both_back_ends(name, monkeypatch):
    alone = run_simulated(1, passed, name)[0]
    assert [line.split()[0] for line in alone[2]] == ["sum", "product"]
    same(run_simulated(1, passed, name, backend="reference")[0], alone)
    for size, placement in (
        (2, graphs.PLACEMENTS[2]),
        (3, graphs.PLACEMENTS[5]),
        (4, graphs.PLACEMENTS[1]),
    ):
        parts = run_simulated(size, passed, name, placement)
        for found in parts:
            assert found[2] == parts[0][2]
            same(found, alone)
    # one step along the gradient and back
    step = [g / np.abs(g).max() * 1e-6 for g in alone[1]]
    up, down = (
        run_simulated(1, passed, name, moved=[sign * s for s in step])[0][0] for sign in (1, -1)
    )
    slope = sum((g * s).sum() for g, s in zip(alone[1], step, strict=True))
    assert abs((up - down) / 2 - slope) < 1e-6 * abs(slope)
    monkeypatch.setattr(ProductOrder, "product_first", lambda order, counts: True)
    other = run_simulated(1, passed, name)[0]
    assert [line.split()[0] for line in other[2]] == ["product", "product"]
    same(other, alone)


class Renamed(Layer):
    """Stores the product as h, which apply sees instead of the input."""

    def __init__(self, d_in, d_out):
        self.weight = Parameter.glorot(d_in, d_out)
        self.asked = []

    def transform(self, node):
        self.asked.append(node.product_first(self.weight))
        return {"h": node.h @ self.weight}

    def apply(self, node, total):
        self.asked.append(node.product_first(self.weight))
        return total


def test_transform_and_apply_get_one_answer():
    part = build_partition(GRAPH, run_simulated(1, lambda comm: comm)[0], dtype=np.float64)
    with dtype_scope("float64"):
        layer = Renamed(WIDE, WIDE - 1)
    view = k_hop_view(part, part.masters < 80, ["in"])
    (level,) = view.levels
    # with a gradient of h, the sum would cost twice as much
    level.counts = Counts(1000, 900, 2 * 100 * WIDE)
    with Tape():
        graph = ActiveGraph(view)
        layer(graph, graph.x)
    assert len(set(layer.asked)) == 1 and len(layer.asked) == 2


# ---- constants


def test_backward_over_constants_computes_gradients_of_weights_only(monkeypatch):
    """No gradient of the features is formed, and no list of their edges by sender."""
    products = []
    rule = PRIMITIVES["matmul"].rules["x"]

    def counted(g, y, x, w):
        products.append(x.shape[-1])
        return rule(g, y, x, w)

    monkeypatch.setitem(PRIMITIVES["matmul"].rules, "x", counted)
    _, grads, orders, view, of_x = run_simulated(1, passed, "sage")[0]
    assert orders == [
        f"sum before product, {WIDE} to {HIDDEN} wide",
        f"product before sum, {HIDDEN} to 3 wide",
    ]
    assert of_x is None and all(np.abs(g).max() > 0 for g in grads)
    # the second layer has two products whose inputs need a gradient
    assert products == [HIDDEN, HIDDEN]
    made = [
        ["by_sender" in vars(s) for p in level.passes for s in p.selections]
        for level in view.levels
    ]
    assert made[0] and not any(made[0]) and all(made[1])
