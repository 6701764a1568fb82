"""Hops: layers side by side are one hop together, and nobody can tell from the numbers how a view
was made.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from flows import MODELS, D, Net, made, mixes, sides
from hypothesis import given, settings
from hypothesis import strategies as st

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.engine.view.expand import induced, k_hop_view
from graphtheta.engine.view.hop import Hop, depth, hops
from graphtheta.engine.view.view import global_view
from graphtheta.models import SAGE
from graphtheta.ops import Tape, dtype_scope
from graphtheta.ops.autodiff.init import init_scope
from graphtheta.samplers.neighbour import NeighbourSampler

GRAPH = graphs.random_graph(40, 130, seed=3)
TARGETS = [3, 5, 17, 30]


@pytest.mark.parametrize("name", MODELS)
def test_depth_is_given_by_data_flow(name):
    assert (
        probe(made(name), build_partition(GRAPH, SerialComm(), dtype=np.float64)).layers
        == MODELS[name][1]
    )


def test_directions_alone_are_layers_one_after_another():
    assert hops(["in", "out"]) == [Hop("in", 1), Hop("out", 0)] and depth(["in", "out"]) == 2
    beside = [Hop("in", 0), Hop("out", 0)]
    assert hops(beside) == beside and depth(beside) == 1 and hops([]) == [] and depth([]) == 0


# ---- the rows and edges of views


def sweep(graph, nodes, direction):
    """(edge, reverse) pairs into some nodes."""
    found = (
        [(int(e), False) for e in np.flatnonzero(np.isin(graph.dst, nodes))]
        if direction != "out"
        else []
    )
    return set(
        found
        + (
            [(int(e), True) for e in np.flatnonzero(np.isin(graph.src, nodes))]
            if direction != "in"
            else []
        )
    )


def search(graph, targets, layers):
    """Nodes k hops before the end, and the edges of each superstep."""
    nodes = [set(targets)]
    edges = {}
    for k in range(depth(layers)):
        here = [hop for hop in layers if hop.from_end == k]
        edges |= {hop: sweep(graph, sorted(nodes[k]), hop.direction) for hop in here}
        nodes.append(
            nodes[k].union(
                int(graph.dst[e] if reverse else graph.src[e])
                for hop in here
                for e, reverse in edges[hop]
            )
        )
    return nodes, [edges[hop] for hop in layers]


def contents(view, layers):
    """Nodes k hops before the end on this rank, and the edges of each superstep with what they
    stand for.
    """
    p = view.partition
    sizes = {0: view.n_targets}
    for hop, level in zip(layers, view.levels, strict=True):
        assert level.direction == hop.direction and level.n_out <= level.n_in
        assert (
            sizes.setdefault(hop.from_end, level.n_out) == level.n_out
            and sizes.setdefault(hop.from_end + 1, level.n_in) == level.n_in
        )
    scaled = [
        [
            ((int(gid), sweep.reverse), 1.0 if s.weight is None else float(s.weight[i]))
            for sweep in level.passes
            for s in sweep.selections
            for i, gid in enumerate(p.edge_gid[s.stored])
        ]
        for level in view.levels
    ]
    return [view.space.gid[: sizes[k]].tolist() for k in range(len(sizes))], scaled


def joined(parts):
    nodes = [{v for part in parts for v in part[0][k]} for k in range(len(parts[0][0]))]
    edges = [[pair for part in parts for pair in part[1][k]] for k in range(len(parts[0][1]))]
    assert all(len(dict(pairs)) == len(pairs) for pairs in edges)
    return nodes, [dict(pairs) for pairs in edges]


SUPERSTEPS = st.lists(
    st.builds(Hop, st.sampled_from(["in", "out", "both"]), st.integers(0, 2)),
    min_size=1,
    max_size=6,
).map(
    lambda found: [
        hop._replace(from_end=sorted({x.from_end for x in found}).index(hop.from_end))
        for hop in found
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), SUPERSTEPS, st.integers(1, 4), st.sampled_from(graphs.PLACEMENTS))
def test_growing_equals_a_search(seed, layers, size, placement):
    graph, rng = graphs.random_graph(20, 40, seed), np.random.default_rng(seed)
    targets = rng.choice(20, int(rng.integers(0, 4)), replace=False).tolist()

    def program(comm):
        p = build_partition(graph, comm, *placement)
        return contents(k_hop_view(p, np.isin(p.masters, targets), layers), layers)

    nodes, edges = joined(run_simulated(size, program))
    assert (nodes, [set(found) for found in edges]) == search(graph, targets, layers)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6),
    SUPERSTEPS,
    st.booleans(),
    st.integers(2, 4),
    st.sampled_from(graphs.PLACEMENTS),
)
def test_samples_belong_to_a_hop_and_a_direction(seed, layers, replace, size, placement):
    """On any ranks; layers along both directions see what those along one direction see."""
    graph = graphs.random_graph(20, 150, seed)
    sampler = NeighbourSampler(tuple(range(2, 2 + depth(layers))), replace, seed=seed)

    def program(comm, placement):
        p = build_partition(graph, comm, *placement)
        return contents(
            k_hop_view(p, np.isin(p.masters, [3, 7]), layers, sampler=sampler, step=1), layers
        )

    nodes, edges = joined(run_simulated(1, program, graphs.PLACEMENTS[0]))
    assert joined(run_simulated(size, program, placement)) == (nodes, edges)
    drawn = {}
    for hop, found in zip(layers, edges, strict=True):
        for reverse in {"in": [False], "out": [True], "both": [False, True]}[hop.direction]:
            part = {key: scale for key, scale in found.items() if key[1] == reverse}
            assert drawn.setdefault((hop.from_end, reverse), part) == part
            ends = graph.src if reverse else graph.dst
            fanout = sampler.fanouts[depth(layers) - 1 - hop.from_end]
            assert np.bincount(ends[[e for e, _ in part]], minlength=1).max(initial=0) <= fanout


def test_equal_supersteps_share_their_level():
    layers = [Hop("in", 1), Hop("in", 0), Hop("both", 0), Hop("in", 0), Hop("out", 1), Hop("in", 1)]

    def program(comm):
        p = build_partition(GRAPH, comm)
        # only a search tells hops apart
        for view, n in (
            (k_hop_view(p, p.masters == 3, layers), 4),
            (induced(p, p.masters > 9, layers), 3),
            (global_view(p, layers), 3),
        ):
            a, b, both, c, out, d = view.levels
            assert (
                b is c
                and a is d
                and len({id(x) for x in (b, both, out)}) == 3
                and len(set(map(id, view.levels))) == n
            )
            # the edges of a level are numbered from its first one on
            for level in view.levels:
                assert level.passes[0].selections[0].offset == 0 and level.n_edges == len(
                    level.stored
                )

    run_simulated(1, program)


@pytest.mark.parametrize(
    "directions", [("in", "out"), ("out", "in"), ("in", "in", "out", "both"), ("both", "in")]
)
def test_branches_side_by_side_need_the_rows_of_both(directions):
    """20 targets of 5,000 nodes: stacked they would reach 600 to 5,000."""
    rng = np.random.default_rng(0)
    graph = graphs.fill(*rng.integers(0, 5000, (2, 25000)), 5000)

    def rows(p, layers):
        return k_hop_view(p, np.isin(p.masters, np.arange(20)), layers).space.n

    def program(comm):
        p = build_partition(graph, comm)
        beside = probe(Net(sides, *mixes(*directions)), p).layers
        return rows(p, beside), rows(p, ["both"]), rows(p, list(directions))

    for size in (1, 3):
        beside, both, stacked = np.sum(run_simulated(size, program), axis=0)
        assert beside == both < 300 and stacked > 600


# ---- values and gradients


def outcome(comm, model, view):
    """Ids and outputs of the targets on this rank, and all gradients, with dropout."""
    with Tape(seed=3, step=1, all_sum=comm.all_sum) as tape:
        out = model(view)
    rows = np.isin(out.space.gid, TARGETS)
    assert rows.sum() == np.isin(view.partition.masters, TARGETS).sum()
    grads = tape.backward(
        out, np.where(rows, np.cos(out.space.gid), 0)[:, None] * np.ones(out.shape)
    )
    return out.space.gid[rows], out.value[rows], GradientSum(comm, model.parameters()).finish(grads)


def gathered(parts):
    order = np.argsort(np.concatenate([p[0] for p in parts]))
    return [np.concatenate([p[1] for p in parts])[order], *parts[0][2]]


def sampled(replace, shared):
    """Of growing numbers of neighbours, or of the same ones at all hops."""

    def k_hop(p, layers):
        fanouts = (2,) * depth(layers) if shared else tuple(range(1, 1 + depth(layers)))
        sampler = NeighbourSampler(fanouts, replace, seed=1, shared=shared)
        return k_hop_view(p, np.isin(p.masters, TARGETS), layers, sampler=sampler, step=2)

    return k_hop


VIEWS = {
    "whole": global_view,
    "k-hop": lambda p, layers: k_hop_view(p, np.isin(p.masters, TARGETS), layers),
    "induced": lambda p, layers: induced(p, np.ones(p.n_masters, bool), layers),
    "sampled": sampled(False, False),
    "sampled alike": sampled(False, True),
    "replaced": sampled(True, False),
}
# an edge value needs the same sample at all hops, and those of two directions are two
SAMPLES = {
    "edge values": ("sampled alike",),
    "edge values of pieces": ("sampled alike",),
    "edge values of the other direction": (),
}


def run(name, size, placement):
    """What comes out of each view, in float64."""
    kinds = [
        "whole",
        "k-hop",
        "induced",
        *SAMPLES.get(name, ("sampled", "sampled alike", "replaced")),
    ]

    def program(comm):
        p = build_partition(GRAPH, comm, *placement, dtype=np.float64)
        model = made(name)
        layers = probe(model, p).layers
        return {kind: outcome(comm, model, VIEWS[kind](p, layers)) for kind in kinds}

    parts = run_simulated(size, program)
    return {kind: gathered([part[kind] for part in parts]) for kind in kinds}


@pytest.mark.one_in(13, 2)
@pytest.mark.parametrize("number, name", list(enumerate(n for n in MODELS if n != "no layer")))
def test_numbers_are_those_of_the_whole_graph_on_any_ranks(number, name):
    alone = run(name, 1, graphs.PLACEMENTS[0])
    for kind in ("k-hop", "induced"):
        close(alone[kind], alone["whole"])
    if "sampled" in alone:
        assert any(
            not np.allclose(a, b) for a, b in zip(alone["sampled"], alone["whole"], strict=True)
        )
    # every pair of a node partitioner and an edge placement, and every number of ranks, by one
    # model or another
    ways = list(
        zip((2, 3, 4), np.roll(graphs.PLACEMENTS, number, axis=0)[::2].tolist(), strict=True)
    )
    del ways[number % 3]
    for size, placement in ways:
        found = run(name, size, tuple(placement))
        for kind, expected in alone.items():
            close(found[kind], expected)


def close(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)


class Web(Model):
    """Layers that read any of the values before them, called in this order."""

    def __init__(self, reads, directions, ends):
        self.layers = mixes(*directions)
        self.reads = reads
        self.ends = ends

    def forward(self, graph):
        values = [graph.x]
        for layer, reads in zip(self.layers, self.reads, strict=True):
            values.append(layer(graph, sum((values[k] for k in reads[1:]), values[reads[0]])))
        return sum((values[k] for k in self.ends), values[0])


@st.composite
def webs(draw):
    n = draw(st.integers(1, 6))
    reads = [draw(st.lists(st.integers(0, k), min_size=1, max_size=3)) for k in range(n)]
    directions = draw(st.lists(st.sampled_from(["in", "out", "both"]), min_size=n, max_size=n))
    return reads, directions, draw(st.lists(st.integers(0, n), min_size=1, max_size=3))


@pytest.mark.second
@settings(max_examples=40, deadline=None)
@given(webs(), st.integers(1, 4), st.sampled_from(graphs.PLACEMENTS))
def test_any_web_of_layers(web, size, placement):
    reads, directions, _ = web
    from_end = [0] * len(reads)
    for k in reversed(range(len(reads))):
        for j in (read - 1 for read in reads[k] if read):
            from_end[j] = max(from_end[j], from_end[k] + 1)

    def program(comm, placement, k_hop):
        p = build_partition(GRAPH, comm, *placement, dtype=np.float64)
        with dtype_scope("float64"), init_scope(7):
            model = Web(*web)
        layers = probe(model, p).layers
        assert layers == list(zip(directions, from_end, strict=True))
        view = VIEWS["k-hop"](p, layers) if k_hop else global_view(p, layers)
        return outcome(comm, model, view)

    def found(size, placement, k_hop):
        return gathered(run_simulated(size, program, placement, k_hop))

    close(found(size, placement, True), found(1, graphs.PLACEMENTS[0], False))


def test_deep_networks():
    """Residuals over blocks of two layers: every value depends on all layers before it."""

    def blocks(graph, *layers):
        h = graph.x
        for a, b in zip(layers[::2], layers[1::2], strict=True):
            h = h + b(graph, gt.relu(a(graph, h)))
        return h

    model = Net(blocks, *(SAGE(D, D) for _ in range(300)))
    found = probe(model, build_partition(GRAPH, SerialComm())).layers
    assert found == [("in", k) for k in reversed(range(300))]
