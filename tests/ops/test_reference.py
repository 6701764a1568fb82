"""The reference back end against plain NumPy over all edges at once, for drawn edge programs.

A program is drawn as a tree and evaluated twice: by a layer, on simulated ranks, and by the twin on
whole arrays. The twin's derivative along a random direction, by differences, is the oracle of the
gradients.
"""

from __future__ import annotations

import graphs
import naive
import numpy as np
import pytest
from drawn import SCORE, SUMS, VALUE, Drawn, Net, Reader, evaluate
from hypothesis import given, settings
from hypothesis import strategies as st
from traced import trace

import graphtheta.ops as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.engine.view.view import global_view
from graphtheta.ops import Tape
from graphtheta.ops.edge.backend import fused, reference


def twin_layer(layer, parameters, graph, h, new=None):
    """The same layer on whole arrays; returns node values and the new edge values."""
    w, a, b, we, p = parameters
    z = np.einsum("nd,dhf->nhf", h, w)
    node = dict(z=z, s=np.tanh((z * a).sum(-1)), t=np.tanh((z * b).sum(-1)))
    ends = {"in": [(graph.src, graph.dst)], "out": [(graph.dst, graph.src)]}
    ends["both"] = ends["in"] + ends["out"]
    src, dst = (np.concatenate(e) for e in zip(*ends[layer.direction], strict=True))
    attr = np.concatenate([graph.edge_attr] * len(ends[layer.direction])).astype(float)

    def leaf(tree):
        if tree[0] == "p":
            return p * node["s"][src]
        return attr @ we if tree[0] == "attr" else node[tree[1]][src if tree[0] == "src" else dst]

    def call(name, args):
        if name == "softmax":
            return naive.edge_softmax(args[0], dst)
        if len(args) == 2:
            wide = max(x.ndim for x in args)
            args = [x.reshape(x.shape + (1,) * (wide - x.ndim)) for x in args]
        return {
            "tanh": np.tanh,
            "neg": np.negative,
            "add": np.add,
            "sub": np.subtract,
            "mul": np.multiply,
            "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
        }[name](*args)

    if isinstance(layer, Reader):
        # along both directions an edge brings its one value twice
        messages = np.concatenate([new] * len(ends[layer.direction]))[..., None] * leaf(
            ("src", "z")
        )
        made = None
    else:
        messages = evaluate(layer.value, leaf, call)
        made = None if layer.new is None else evaluate(layer.new, leaf, call)
    names = (layer.sum,) if isinstance(layer.sum, str) else layer.sum
    return np.concatenate([naive.total(messages, dst, len(h), how) for how in names], axis=-1), made


def twin(layers, values, graph):
    h = graph.x.astype(float)
    new = None
    for layer, parameters in zip(layers, values, strict=True):
        h, new = twin_layer(layer, parameters, graph, h.reshape(len(h), -1)[:, :4], new)
    return h


def compare(layers, graph, size, placement, tol=1e-9):
    """Outputs and gradients of layers on ranks against the twin."""
    seed = np.random.default_rng(5)
    parameters = [
        [q.value.copy() for q in (layer.w, layer.a, layer.b, layer.we, layer.p)] for layer in layers
    ]
    expected = twin(layers, parameters, graph)
    weight = seed.standard_normal(expected.shape)

    def program(comm):
        partition = build_partition(graph, comm, *placement, dtype=np.float64)
        net = Net(*layers)
        with Tape(all_sum=comm.all_sum) as tape:
            out = net(global_view(partition, [layer.direction for layer in layers]))
        grads = tape.backward(out, weight[partition.masters])
        used = [q for layer in layers for q in (layer.w, layer.a, layer.b, layer.we, layer.p)]
        return partition.masters, out.value, GradientSum(comm, used).finish(grads)

    found = run_simulated(size, program)
    for ids, out, _ in found:
        np.testing.assert_allclose(out, expected[ids], rtol=tol, atol=tol)
    along = [[seed.standard_normal(v.shape) for v in values] for values in parameters]
    moved = lambda t: [
        [v + t * d for v, d in zip(*pair, strict=True)]
        for pair in zip(parameters, along, strict=True)
    ]
    value = lambda t: np.vdot(weight, twin(layers, moved(t), graph))
    slope = (value(1e-6) - value(-1e-6)) / 2e-6
    got = sum(
        float(np.vdot(g, d))
        for g, d in zip(found[0][2], [d for ds in along for d in ds], strict=True)
    )
    assert got == pytest.approx(slope, rel=1e-5, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    VALUE,
    st.sampled_from(SUMS),
    st.sampled_from(["in", "out", "both"]),
    st.integers(1, 4),
    st.sampled_from(graphs.PLACEMENTS),
    st.integers(0, 50),
    st.integers(1, 40),
)
def test_drawn_programs(value, sum, direction, size, placement, seed, chunk):
    kept = reference.chunk_size
    reference.chunk_size = lambda phase, itemsize: chunk
    try:
        compare([Drawn(value, sum, direction)], graphs.random_graph(12, 40, seed), size, placement)
    finally:
        reference.chunk_size = kept


@settings(max_examples=25, deadline=None)
@given(
    VALUE,
    SCORE,
    st.sampled_from(["sum", "max"]),
    st.sampled_from(["in", "out"]),
    st.sampled_from(["in", "out", "both"]),
    st.integers(1, 4),
    st.sampled_from(graphs.PLACEMENTS),
    st.integers(0, 50),
)
def test_edge_values_carried_to_the_next_layer(
    value, new, sum, first, second, size, placement, seed
):
    graph = graphs.random_graph(12, 40, seed)
    compare(
        [Drawn(value, sum, first, new), Reader(("src", "z"), "sum", second)], graph, size, placement
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", graphs.odd_graphs())
def test_odd_graphs(name):
    graph = graphs.odd_graphs()[name]
    value = (
        "add",
        ("mul", ("softmax", ("add", ("src", "s"), ("attr",))), ("src", "z")),
        ("tanh", ("dst", "z")),
    )
    for size in range(1, min(5, graph.n_nodes + 1)):
        for placement in graphs.PLACEMENTS[::2]:
            compare([Drawn(value, ("mean", "max"), "both")], graph, size, placement)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("sum", SUMS)
def test_chunks_change_nothing(sum, monkeypatch):
    graph, layer = (
        graphs.random_graph(20, 300),
        Drawn(("mul", ("softmax", ("attr",)), ("src", "z")), sum, "both"),
    )

    def run(comm):
        partition = build_partition(graph, comm, "vertex-cut", dtype=np.float64)
        with Tape() as tape:
            out = Net(layer)(global_view(partition, ["both"]))
        grads = tape.backward(out, np.cos(np.arange(out.value.size)).reshape(out.shape))
        return [out.value, *(grads.of(q) for q in (layer.w, layer.we))]

    whole = run_simulated(2, run)
    for limit in (1, 7, 64):
        monkeypatch.setattr(reference, "chunk_size", lambda phase, itemsize: limit)  # noqa: B023
        for a, b in zip(run_simulated(2, run), whole, strict=True):
            for x, y in zip(a, b, strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-12)


def test_chunks_hold_a_bounded_number_of_edges(monkeypatch):
    (narrow,) = trace(lambda e: e.src.z, {"z": ((1,), np.float32, True)}, {}, "sum", "Mine").phases
    (wide,) = trace(
        lambda e: e.src.z * e.dst.z, {"z": ((4096,), np.float32, True)}, {}, "sum", "Mine"
    ).phases
    assert reference.chunk_size(narrow, 4) == 1 << 17 and reference.chunk_size(
        wide, 4
    ) == reference.CHUNK_BYTES // (2 * 3 * 4096 * 4)
    monkeypatch.setattr(reference, "CHUNK_BYTES", 1)
    assert reference.chunk_size(wide, 4) == 256


def test_gradients_of_input_edge_and_node_values():
    graph = graphs.random_graph(12, 40)
    layer = Drawn(("mul", ("add", ("attr",), ("src", "s")), ("src", "z")), "sum", "in")

    def program(comm, attr, x):
        partition = build_partition(graph, comm, "vertex-cut", dtype=np.float64)
        view = global_view(partition, ["in"])
        a = gt.Var(attr[partition.edge_gid], None, True)
        h = gt.Var(x[partition.masters], view.space, True)
        with Tape() as tape:
            out = Net(layer)(view, **{"edge.attr": a, "x": h})
        weight = np.cos(partition.masters)[:, None, None] * np.ones(out.shape)
        grads = tape.backward(out, weight)
        loss = float(comm.all_sum(np.asarray((out.value * weight).sum())))
        return loss, partition.edge_gid, grads.of(a), partition.masters, grads.of(h)

    attr, x, rng = graph.edge_attr.astype(float), graph.x.astype(float), np.random.default_rng(0)
    da, dx = rng.standard_normal(attr.shape), rng.standard_normal(x.shape)
    value = lambda t: run_simulated(1, program, attr + t * da, x + t * dx)[0][0]
    slope = (value(1e-6) - value(-1e-6)) / 2e-6
    for size in (1, 3):
        found = run_simulated(size, program, attr, x)
        assert sum(
            np.vdot(g, da[ids]) + np.vdot(gx, dx[rows]) for _, ids, g, rows, gx in found
        ) == pytest.approx(slope, rel=1e-6)


def test_rows_are_added_in_any_order_and_repeated():
    rng = np.random.default_rng(0)
    for rows in (rng.integers(0, 5, 20), np.sort(rng.integers(0, 5, 20)), np.zeros(0, int)):
        values = rng.standard_normal((len(rows), 2))
        out = np.ones((5, 2))
        expected = out.copy()
        np.add.at(expected, rows, values)
        reference.add_rows(out, rows, values)
        np.testing.assert_allclose(out, expected)


def test_a_forced_back_end_is_used_whatever_is_chosen():
    before = fused.force_backend("reference")
    with fused.backend_scope("fused"):
        assert fused.backend() == "reference"
        assert fused.force_backend("") == "reference" and fused.backend() == "fused"
    fused.force_backend(before)
