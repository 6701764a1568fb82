"""Views: the rows and edges of each superstep equal a breadth-first search over the whole graph, on
any ranks.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import graphs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphtheta.ops as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.expand import induced, k_hop_nodes, k_hop_view
from graphtheta.engine.view.view import global_view
from graphtheta.errors import ViewError
from graphtheta.ops import Parameter, Tape
from graphtheta.samplers.neighbour import NeighbourSampler

DIRECTIONS = st.lists(st.sampled_from(["in", "out", "both"]), min_size=0, max_size=3)


def receives(graph, direction, nodes, excluded):
    """(edge, reverse) pairs of one superstep into some nodes."""
    found = set()
    if direction != "out":
        found |= {(int(e), False) for e in np.flatnonzero(np.isin(graph.dst, nodes) & ~excluded)}
    if direction != "in":
        found |= {(int(e), True) for e in np.flatnonzero(np.isin(graph.src, nodes) & ~excluded)}
    return found


def search(graph, targets, layers, excluded=None):
    """Active nodes after each superstep, the inputs first, and the edges of each."""
    excluded = np.zeros(graph.n_edges, bool) if excluded is None else excluded
    nodes = [set(targets)]
    edges = []
    for direction in reversed(layers):
        found = receives(graph, direction, sorted(nodes[-1]), excluded)
        edges.append(found)
        nodes.append(
            nodes[-1] | {int(graph.dst[e] if reverse else graph.src[e]) for e, reverse in found}
        )
    return nodes[::-1], edges[::-1]


def contents(view):
    """Global ids in frame order, sizes after each superstep, and the edges of each superstep on
    this rank.
    """
    p = view.partition
    edges = [
        [
            (int(gid), sweep.reverse)
            for sweep in level.passes
            for s in sweep.selections
            for gid in p.edge_gid[s.stored]
        ]
        for level in view.levels
    ]
    sizes = [level.n_in for level in view.levels] + [view.n_targets]
    return view.space.gid, sizes, edges


def whole(found):
    """Sets over all ranks; every edge is on one rank once."""
    n_sets = len(found[0][1])
    nodes = [{int(v) for gid, sizes, _ in found for v in gid[: sizes[k]]} for k in range(n_sets)]
    edges = [[e for _, _, per in found for e in per[k]] for k in range(n_sets - 1)]
    assert all(len(e) == len(set(e)) for e in edges)
    return nodes, [set(e) for e in edges]


def mask_of(partition, nodes):
    return np.isin(partition.masters, nodes)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    DIRECTIONS,
    st.integers(1, 5),
    st.sampled_from(graphs.PLACEMENTS),
    st.booleans(),
)
def test_growing_equals_a_search(seed, layers, size, placement, exclude):
    rng = np.random.default_rng(seed)
    graph = graphs.random_graph(20, 40, seed)
    targets = rng.choice(20, int(rng.integers(0, 4)), replace=False)
    excluded = rng.random(graph.n_edges) < 0.3 if exclude else None

    def program(comm):
        p = build_partition(graph, comm, *placement)
        view = k_hop_view(
            p,
            mask_of(p, targets),
            layers,
            excluded=None if excluded is None else excluded[p.edge_gid],
        )
        for a, b in zip(view.levels[:-1], view.levels[1:], strict=True):
            assert a.n_out == b.n_in
        assert all(level.n_out <= level.n_in for level in view.levels)
        np.testing.assert_array_equal(view.space.gid, p.masters[view.rows])
        return contents(view)

    assert whole(run_simulated(size, program)) == search(graph, targets.tolist(), layers, excluded)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), DIRECTIONS, st.integers(1, 4), st.sampled_from(graphs.PLACEMENTS))
def test_induced_views_hold_all_edges_inside(seed, layers, size, placement):
    rng = np.random.default_rng(seed)
    graph = graphs.random_graph(20, 60, seed)
    nodes, excluded = np.flatnonzero(rng.random(20) < 0.5), rng.random(graph.n_edges) < 0.2
    inside = np.isin(graph.src, nodes) & np.isin(graph.dst, nodes) & ~excluded

    def program(comm):
        p = build_partition(graph, comm, *placement)
        return contents(induced(p, mask_of(p, nodes), layers, excluded=excluded[p.edge_gid]))

    found_nodes, found_edges = whole(run_simulated(size, program))
    assert found_nodes == [set(nodes.tolist())] * (len(layers) + 1)
    ways = {"in": [False], "out": [True], "both": [False, True]}
    assert found_edges == [
        {(int(e), r) for e in np.flatnonzero(inside) for r in ways[d]} for d in layers
    ]


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(0, 3),
    st.integers(1, 4),
    st.sampled_from(graphs.PLACEMENTS),
    st.sampled_from(["in", "out", "both"]),
)
def test_nodes_within_some_hops(seed, hops, size, placement, direction):
    graph = graphs.random_graph(30, 35, seed, hub=False)
    start = [4, 17]
    expected = search(graph, start, [direction] * hops)[0][0]

    def program(comm):
        p = build_partition(graph, comm, *placement)
        return p.masters[k_hop_nodes(p, mask_of(p, start), hops, direction)]

    assert {int(v) for ids in run_simulated(size, program) for v in ids} == expected


@pytest.mark.parametrize("size", [1, 3])
def test_hops_that_find_no_more_nodes_share_their_edge_lists(size):
    """As in batches of whole small graphs; levels stay apart, since the number of levels must not
    depend on the graph.
    """
    graph = graphs.random_graph(12, 30, 3)
    layers = ["in", "in", "both", "in", "in"]

    def program(comm):
        view = k_hop_view(p := build_partition(graph, comm), mask_of(p, [0, 5]), layers)
        first, second = (
            [s for sweep in level.passes for s in sweep.selections] for level in view.levels[:2]
        )
        assert len({id(level) for level in view.levels}) == len(layers)
        return contents(view), [a is b for a, b in zip(first, second, strict=True)]

    found = run_simulated(size, program)
    assert whole([x for x, _ in found]) == search(graph, [0, 5], layers)
    assert all(same for _, shared in found for same in shared) and any(
        shared for _, shared in found
    )


@pytest.mark.parametrize("name", graphs.odd_graphs())
def test_odd_graphs(name):
    graph = graphs.odd_graphs()[name]
    for size in range(1, min(4, graph.n_nodes) + 1):
        for placement in graphs.PLACEMENTS[::2]:
            of = lambda p: contents(k_hop_view(p, mask_of(p, [0]), ["in", "both"]))
            program = lambda comm: of(build_partition(graph, comm, *placement))  # noqa: B023
            assert whole(run_simulated(size, program)) == search(graph, [0], ["in", "both"])


class Net(Model):
    """Layers that read both ends, edge values and degrees, with residuals and jumping knowledge
    across depths.
    """

    def __init__(self, directions):
        rng = np.random.default_rng(0)
        self.layers = [Mix(rng, d) for d in directions]

    def forward(self, graph):
        hs = [graph.x]
        for layer in self.layers:
            hs.append(layer(graph, hs[-1]) + hs[-1])
        return sum(hs[1:], hs[0]) if len(hs) > 1 else gt.mul(hs[0], 1.0)


class Mix(Layer):
    """Attention over edge attributes."""

    def __init__(self, rng, direction):
        self.w = Parameter(rng.standard_normal((4, 4)) / 2)
        self.e = Parameter(rng.standard_normal((3,)))
        self.direction = direction

    def transform(self, node):
        return dict(z=gt.tanh(gt.matmul(node.h, self.w)), d=gt.mul(node.in_degree, 0.1))

    def gather(self, edge):
        score = gt.matmul(edge.attr, self.e) + edge.dst.z.sum(-1) - edge.src.d
        return gt.dropout(gt.softmax(score), 0.3) * edge.src.z * edge.weight + edge.dst.z * 0.1

    def apply(self, node, total):
        return gt.dropout(gt.tanh(total), 0.2)


def train(view, directions, ids, comm):
    """Outputs of some nodes and the gradients of all parameters for a fixed weighting of those
    outputs.
    """
    model = Net(directions)
    with Tape(seed=3, step=1, all_sum=comm.all_sum) as tape:
        out = model(view)
    rows = np.isin(out.space.gid, ids)
    weight = np.where(rows, np.cos(out.space.gid), 0)[:, None] * np.ones(out.shape)
    grads = tape.backward(out, weight)
    ps = model.parameters()
    return (
        out.space.gid[rows],
        out.value[rows],
        [comm.all_sum(np.zeros(p.shape) if grads.of(p) is None else grads.of(p)) for p in ps],
    )


@pytest.mark.one_in(4)
@pytest.mark.parametrize("directions", [["in"], ["in", "in"], ["out", "in", "both"], []], ids=str)
def test_a_grown_view_computes_what_the_whole_graph_computes(directions):
    graph, targets = graphs.random_graph(24, 60), np.array([3, 5, 11, 22])

    def program(comm, k_hop, placement):
        p = build_partition(graph, comm, *placement, dtype=np.float64)
        view = (
            k_hop_view(p, mask_of(p, targets), directions) if k_hop else global_view(p, directions)
        )
        return train(view, directions, targets, comm)

    def joined(parts):
        order = np.argsort(np.concatenate([p[0] for p in parts]))
        return [np.concatenate([p[1] for p in parts])[order], *parts[0][2]]

    expected = joined(run_simulated(1, program, False, graphs.PLACEMENTS[0]))
    # both kinds of views meet 1, 2 and 4 workers, and each placement two of these
    for i, (placement, k_hop) in enumerate(product(graphs.PLACEMENTS, (True, False))):
        size = (1, 2, 4)[i % 3]
        for a, b in zip(
            joined(run_simulated(size, program, k_hop, placement)), expected, strict=True
        ):
            np.testing.assert_allclose(a, b, atol=1e-11)


def test_columns_can_be_replaced_and_targets_are_hidden():
    graph = graphs.random_graph()

    def program(comm):
        p = build_partition(graph, comm)
        view = k_hop_view(p, mask_of(p, [3]), ["in"])
        np.testing.assert_array_equal(view.node.read("x", 2), p.node.read("x")[view.rows[:2]])
        over = replace(
            view,
            partition=p.overlay(
                {"in_degree": np.arange(p.n_masters), "mine": np.ones(p.n_masters)},
                {"weight": np.zeros(p.n_local_edges)},
            ),
        )
        np.testing.assert_array_equal(over.node.read("in_degree", len(view.rows)), view.rows)
        assert (
            not over.partition.edge.read("weight").any()
            and view.partition.edge.read("weight").any()
        )
        assert over.partition.edge.readable() == ("weight", "attr")
        assert over.partition.node.readable() == ("in_degree", "out_degree", "x")
        with pytest.raises(KeyError):
            view.node.read("speed", 1)

    run_simulated(2, program)


def test_running_more_layers_than_planned_is_an_error():
    graph = graphs.random_graph()

    def program(comm):
        p = build_partition(graph, comm, dtype=np.float64)
        with pytest.raises(ViewError, match="runs more layers than the 1 this view was built for"):
            Net(["in", "in"])(global_view(p, ["in"]))

    run_simulated(2, program)


def test_moves_are_restricted_to_what_a_view_needs():
    graph = graphs.random_graph(60, 200, hub=False)

    def program(comm):
        p = build_partition(graph, comm, "vertex-cut", dtype=np.float64)
        views = k_hop_view(p, mask_of(p, [7]), ["in", "in"]), global_view(p, ["in", "in"])
        sweeps = [[sweep for level in view.levels for sweep in level.passes] for view in views]
        return [[s.senders.plan.n_halo + s.receivers.plan.n_halo for s in per] for per in sweeps]

    small, full = np.sum(run_simulated(4, program), axis=0)
    _, edges = search(graph, [7], ["in", "in"])
    assert np.all(small < full / 2)
    assert np.all(small <= 2 * np.array([len(e) for e in edges]))


def test_sampled_views_are_views_too():
    graph = graphs.random_graph(30, 200)

    def program(comm):
        p = build_partition(graph, comm, "vertex-cut")
        return contents(
            k_hop_view(p, mask_of(p, [3, 8]), ["in", "in"], sampler=NeighbourSampler((2, 3)))
        )

    nodes, edges = whole(run_simulated(3, program))
    for k in range(2):
        assert nodes[k] == nodes[k + 1] | {int(graph.src[e]) for e, _ in edges[k]}
        assert {int(graph.dst[e]) for e, _ in edges[k]} <= nodes[k + 1]


def ends_in_frame(view, s, senders, receivers):
    """Global ids of the sending and receiving ends and of the edges of a selection, by receiver."""
    p = view.partition
    rows = np.arange(p.n_masters) if view.rows is None else view.rows
    ids = {0: p.masters[rows]}
    by_kind = [ids | {1: halo} for halo in (senders, receivers)]
    send, receive = by_kind[0][s.kinds[0]], by_kind[1][s.kinds[1]]
    lists = s.by_receiver
    assert len(np.unique(lists.row)) == len(lists.row) == len(lists.ptr) - 1
    positions = np.arange(s.n_edges) if lists.positions is None else lists.positions
    return (
        send[lists.other],
        receive[np.repeat(lists.row, np.diff(lists.ptr))],
        p.edge_gid[lists.start + positions],
    )


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ["random", *graphs.odd_graphs()])
def test_lists_name_the_ends_of_every_edge_by_receiver_and_by_sender(name):
    graph = graphs.random_graph() if name == "random" else graphs.odd_graphs()[name]

    def program(comm, placement):
        p = build_partition(graph, comm, *placement)
        sampler = NeighbourSampler((2, 2))
        for view in (
            global_view(p, ["in", "both"]),
            k_hop_view(p, mask_of(p, [0]), ["out", "in"]),
            k_hop_view(p, mask_of(p, [0, 3]), ["both", "in"], sampler=sampler),
            induced(p, p.masters % 3 > 0, ["both"]),
        ):
            for level in view.levels:
                for sweep in level.passes:
                    known = p.masters if view.rows is None else p.masters[view.rows[: level.n_in]]
                    halos = [
                        move.to_mirrors({"id": known})["id"]
                        for move in (sweep.senders, sweep.receivers)
                    ]
                    assert all(s.n_edges for s in sweep.selections)
                    for s in sweep.selections:
                        check(view, s, sweep.reverse, halos)

    def check(view, s, reverse, halos):
        send, receive, gid = ends_in_frame(view, s, *halos)
        wanted = (graph.dst[gid], graph.src[gid]) if reverse else (graph.src[gid], graph.dst[gid])
        np.testing.assert_array_equal(send, wanted[0])
        np.testing.assert_array_equal(receive, wanted[1])
        by_receiver, by_sender = s.by_receiver, s.by_sender
        order = np.argsort(by_receiver.other, kind="stable")
        np.testing.assert_array_equal(by_sender.at, order)
        np.testing.assert_array_equal(
            by_sender.other, np.repeat(by_receiver.row, np.diff(by_receiver.ptr))[order]
        )
        np.testing.assert_array_equal(
            np.repeat(by_sender.row, np.diff(by_sender.ptr)), by_receiver.other[order]
        )
        assert {
            x.dtype.name
            for lists in (by_receiver, by_sender)
            for x in (lists.row, lists.other, lists.at)
        } == {"int32"}

    for size in range(1, min(4, graph.n_nodes) + 1):
        for placement in graphs.PLACEMENTS[::2]:
            run_simulated(size, program, placement)


def test_lists_of_all_edges_are_those_of_the_partition():
    def program(comm):
        p = build_partition(graphs.random_graph(), comm)
        (s,), block = (
            global_view(p, ["in"]).levels[0].passes[0].selections,
            p.relations["edge"].blocks[0],
        )
        by_receiver, by_sender = s.by_receiver, s.by_sender
        assert (
            by_receiver.ptr is block.in_indptr
            and by_receiver.other is block.in_src
            and by_receiver.positions is None
        )
        assert (
            by_sender.ptr is block.out_indptr
            and by_sender.other is block.out_dst
            and by_sender.at is block.out_edge
        )

    run_simulated(1, program)


def test_numbers_are_given_back_after_growing():
    graph = graphs.random_graph()

    def program(comm):
        p = build_partition(graph, comm)
        views = (
            k_hop_view(p, mask_of(p, [3]), ["in"]),
            k_hop_view(p, mask_of(p, [5]), ["in", "both"]),
            induced(p, p.masters > 9, ["in"]),
        )
        k_hop_nodes(p, mask_of(p, [3]), 2)
        ((numbers, lines),) = p.spare
        assert (numbers == -1).all() and not lines.any()
        return [view.space.gid for view in views]

    run_simulated(2, program)
