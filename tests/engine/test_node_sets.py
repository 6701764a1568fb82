"""GraphSAINT: probabilities of node sets, the normalisation, and the same batches on any number of
workers.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import product

import graphs
import numpy as np
import pytest
import scipy
from own_loops import GRAPH as TRAINED

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.directory import TableDirectory
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.sampling.node_set import several
from graphtheta.engine.strategy.node_sets import LARGEST, UNKNOWN, NodeSetBatch
from graphtheta.engine.strategy.task import ROW_LOSSES, NodeTask, loss_of
from graphtheta.errors import ConfigError, DataError
from graphtheta.ops import RowSpace, Tape, Var
from graphtheta.ops.functions.losses.row_loss import RowLoss
from graphtheta.samplers.saint import SaintEdge, SaintFrontier, SaintNode, SaintWalk

# directed, with duplicates and self loops, a hub and two isolated nodes
GRAPH = graphs.random_graph(24, 90, edge_weight=None)
SMALL = graphs.fill([0, 0, 1, 2, 2, 3, 3, 3, 4], [1, 2, 0, 0, 3, 0, 1, 4, 4], 6)
OUT, IN = (np.bincount(end, minlength=6) for end in (SMALL.src, SMALL.dst))
C = 12
SAMPLERS = {
    "degree": SaintNode(budget=6, coverage=C),
    "norm": SaintNode(budget=6, probability="norm", coverage=C),
    "edge": SaintEdge(budget=4, coverage=C),
    "walk": SaintWalk(roots=3, depth=3, coverage=C),
    "frontier": SaintFrontier(budget=12, frontier=4, coverage=C),
    "clipped": SaintFrontier(budget=12, frontier=4, degree_clip=2),
}


def node_sets(sampler, batches, graph=GRAPH, size=1, placement=graphs.PLACEMENTS[0], **keys):
    """Ids of the nodes of some batches."""

    def program(comm):
        p = build_partition(graph, comm, *placement, **keys)
        sets = sampler.open(p)
        return [p.masters[sets(batch)] for batch in batches]

    found = run_simulated(size, program)
    return [tuple(sorted(np.concatenate(parts).tolist())) for parts in zip(*found, strict=True)]


@pytest.mark.parametrize("name", SAMPLERS)
def test_node_sets_do_not_depend_on_workers(name):
    expected = node_sets(SAMPLERS[name], range(4))
    assert len(set(expected)) == 4 and all(
        0 < len(nodes) <= SAMPLERS[name].nodes_per_batch for nodes in expected
    )
    for size, placement, keys in (
        (2, graphs.PLACEMENTS[1], {}),
        (3, graphs.PLACEMENTS[2], {"directory": TableDirectory}),
        (8, graphs.PLACEMENTS[5], {}),
    ):
        assert (
            node_sets(SAMPLERS[name], range(4), size=size, placement=placement, **keys) == expected
        )


@pytest.mark.parametrize("name", SAMPLERS)
def test_sets_that_are_drawn_together_are_those_that_are_drawn_one_by_one(name):
    def program(comm):
        sets = SAMPLERS[name].open(build_partition(GRAPH, comm))
        np.testing.assert_array_equal(
            several(sets, range(2, 6)), [sets(batch) for batch in range(2, 6)]
        )

    run_simulated(1, program)
    run_simulated(3, program)


def test_walks_of_many_sets_take_as_many_rounds_of_messages_as_those_of_one():
    """Their number grows with the moves of a walker, and not with the sets that are counted."""

    def program(comm, batches):
        sets = SAMPLERS["frontier"].open(build_partition(GRAPH, comm))
        before = comm.ledger.snapshot()
        several(sets, batches)
        return sum(stage["messages"] for stage in comm.ledger.since(before).values())

    one, many = (run_simulated(2, program, batches)[0] for batches in (range(1), range(100)))
    assert 0 < many < 3 * one


def expect(found, probability):
    """The sets are drawn with these probabilities (chi-square test)."""
    assert set(found) <= {nodes for nodes, p in probability.items() if p}
    assert sum(probability.values()) == pytest.approx(1)
    counts = Counter(found)
    n = len(found)
    # rare sets count as one
    often = [nodes for nodes, p in probability.items() if n * p >= 5]
    seen, wanted = ([*(x[nodes] for nodes in often)] for x in (counts, probability))
    rest = 1 - sum(wanted)
    if rest * n >= 1:
        seen = [*seen, n - sum(seen)]
        wanted = [*wanted, rest]
    assert scipy.stats.chisquare(seen, np.array(wanted) / sum(wanted) * n).pvalue > 0.01


def test_nodes_are_drawn_by_degree_and_by_norm():
    weight = np.maximum(OUT, 1)
    expect(
        node_sets(SaintNode(budget=1), range(1000), SMALL),
        {(v,): weight[v] / weight.sum() for v in range(6)},
    )
    norm = np.bincount(SMALL.src, 1 / IN[SMALL.dst] ** 2, minlength=6)
    expect(
        node_sets(SaintNode(budget=1, probability="norm"), range(1000), SMALL),
        {(v,): norm[v] / norm.sum() for v in range(6)},
    )
    # independent draws with replacement
    p = weight / weight.sum()
    pairs = Counter()
    for u, v in product(range(6), repeat=2):
        pairs[tuple(sorted({u, v}))] += p[u] * p[v]
    expect(node_sets(SaintNode(budget=2, seed=1), range(1000), SMALL), pairs)


def test_edges_are_drawn_by_the_degrees_of_their_ends():
    weight = 1 / OUT[SMALL.src] + 1 / IN[SMALL.dst]
    expected = Counter()
    for u, v, w in zip(SMALL.src.tolist(), SMALL.dst.tolist(), weight / weight.sum(), strict=True):
        expected[tuple(sorted({u, v}))] += w
    expect(node_sets(SaintEdge(budget=1), range(1000), SMALL), expected)


def neighbours(v):
    return SMALL.dst[SMALL.src == v].tolist()


def test_walks_take_uniform_steps():
    expected = Counter()

    def walk(path, p):
        if len(path) == 3 or not OUT[path[-1]]:
            expected[tuple(sorted(set(path)))] += p
        else:
            for v in neighbours(path[-1]):
                walk([*path, v], p / OUT[path[-1]])

    for v in range(6):
        walk([v], 1 / 6)
    expect(node_sets(SaintWalk(roots=1, depth=2), range(1000), SMALL), expected)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("clip", [1, 10000])
def test_the_frontier_moves_as_the_sequential_algorithm(clip):
    """Against the sequential algorithm: a walker of the frontier is chosen by degree, left, and
    moved.
    """
    rate, expected = np.minimum(OUT, clip), Counter()

    def move(frontier, left, p, moves):
        total = sum(rate[v] for v in frontier)
        if not moves or not total:
            expected[tuple(sorted(left))] += p
            return
        for i, u in enumerate(frontier):
            for v in neighbours(u):
                move(
                    [*frontier[:i], v, *frontier[i + 1 :]],
                    left | {u},
                    p * rate[u] / total / OUT[u],
                    moves - 1,
                )

    for a, b in product(range(6), repeat=2):
        move([a, b], {a, b}, 1 / 36, 3)
    expect(
        node_sets(SaintFrontier(budget=5, frontier=2, degree_clip=clip), range(1000), SMALL),
        expected,
    )


def normalised(
    sampler,
    size=1,
    placement=graphs.PLACEMENTS[0],
    layers=("in",),
    graph=GRAPH,
    more=0,
    own_loss=None,
):
    """Of each batch: nodes, edges with their weights by direction, and the loss of fixed outputs;
    how many batches were counted.
    """
    logits = np.random.default_rng(5).standard_normal((graph.n_nodes, 3))

    def program(comm):
        p = build_partition(graph, comm, *placement, dtype=np.float64)
        task = NodeTask(p, "classes")
        task.own_loss = own_loss
        strategy = NodeSetBatch(p, list(layers), task, sampler=sampler)
        strategy.prepare()
        found = []
        for i in range(strategy._normalised.sets + more):
            view = strategy.batch(0, i)
            edges = {
                (int(e), sweep.reverse): float(w)
                for sweep in view.levels[0].passes
                for s in sweep.selections
                for e, w in zip(s.gid[s.stored], s.weight, strict=True)
            }
            with Tape(all_sum=comm.all_sum):
                found.append(
                    (
                        view.space.gid.tolist(),
                        edges,
                        float(task.loss(view, Var(logits[view.space.gid], view.space)).value),
                    )
                )
        return found, strategy._normalised.sets

    parts = run_simulated(size, program)
    batches = [
        (
            sorted(v for nodes, _, _ in each for v in nodes),
            {e: w for _, edges, _ in each for e, w in edges.items()},
            sum(loss for _, _, loss in each),
        )
        for each in zip(*(found for found, _ in parts), strict=True)
    ]
    return batches, parts[0][1], logits


def mean_loss(graph, logits, nodes):
    shifted = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return -shifted[nodes, graph.y[nodes]].mean()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["norm", "edge", "walk", "frontier"])
def test_counted_batches_give_the_exact_sums(name):
    """Of the batches that were counted, the mean of the weights of an edge is 1, and the mean of
    the losses that of all targets.
    """
    batches, n, logits = normalised(SAMPLERS[name], layers=("both",))
    sizes = np.cumsum([len(nodes) for nodes, _, _ in batches])
    assert sizes[-2] <= C * 24 < sizes[-1] and len(batches) == n
    inside = Counter(v for nodes, _, _ in batches for v in nodes)
    total = Counter()
    for nodes, edges, _ in batches:
        inner = np.flatnonzero(np.isin(GRAPH.src, nodes) & np.isin(GRAPH.dst, nodes))
        assert set(edges) == set(product(inner.tolist(), (False, True)))
        total.update(edges)
    for (e, reverse), weight in total.items():
        assert weight / inside[int((GRAPH.src if reverse else GRAPH.dst)[e])] == pytest.approx(1)
    targets = [v for v in np.flatnonzero(GRAPH.train).tolist() if inside[v]]
    missing = len(targets) / GRAPH.train.sum()
    assert np.mean([loss for _, _, loss in batches]) == pytest.approx(
        mean_loss(GRAPH, logits, targets) * missing
    )
    same = normalised(SAMPLERS[name], 3, graphs.PLACEMENTS[4], layers=("both",))[0]
    for (nodes, edges, loss), (others, those, other) in zip(batches, same, strict=True):
        assert nodes == others and edges == those and loss == pytest.approx(other, rel=1e-12)


@pytest.mark.parametrize("name", ["degree", "walk"])
def test_new_batches_estimate_sums_and_loss(name):
    """Batches beyond those counted: within the standard error, which that of the counts adds to."""
    ring = np.arange(24)
    graph = graphs.fill(np.concatenate((GRAPH.src, ring)), np.concatenate((GRAPH.dst, ring)), 24)
    batches, n, logits = normalised(SAMPLERS[name], graph=graph, more=300)
    new = batches[n:]
    x = graph.x[:, 0]
    losses = np.array([loss for _, _, loss in new])
    exact = mean_loss(graph, logits, np.flatnonzero(graph.train))
    assert abs(losses.mean() - exact) < 4 * losses.std() * np.sqrt(1 / len(new) + 1 / n)
    for v in (3, 10):
        into = set(np.flatnonzero(graph.dst == v).tolist())
        sums = np.array(
            [
                sum(w * x[graph.src[e]] for (e, _), w in edges.items() if e in into)
                for nodes, edges, _ in new
                if v in nodes
            ]
        )
        counted = sum(v in nodes for nodes, _, _ in batches[:n])
        assert abs(sums.mean() - x[graph.src[list(into)]].sum()) < 4 * sums.std() * np.sqrt(
            1 / len(sums) + 1 / counted
        )


@pytest.mark.parametrize("kind", ROW_LOSSES)
def test_row_losses_are_those_of_the_labels(kind):
    rng = np.random.default_rng(1)
    out = Var(rng.standard_normal((9, 3)), RowSpace(np.arange(9)))
    entries = np.where(rng.random((9, 3)) < 0.3, np.nan, rng.integers(0, 2, (9, 3)).astype(float))
    y = rng.integers(-1, 3, 9) if kind == "classes" else entries
    mask = rng.random(9) < 0.7
    with Tape():
        plain = loss_of(kind, out, y, mask)
        rows = ROW_LOSSES[kind](out, y, mask)
        # a weight of 2 for each, divided by a number that is given
        weighted = ROW_LOSSES[kind](out, y, mask, np.full(9, 2.0), 7.0)
    n = np.count_nonzero(y[mask] >= 0)
    assert rows.value == pytest.approx(plain.value) and weighted.value == pytest.approx(
        plain.value * n * 2 / 7
    )


def test_an_own_loss_is_a_weighted_mean():
    counted, _, _ = normalised(SAMPLERS["walk"])
    inside = Counter(v for nodes, _, _ in counted for v in nodes)
    own = normalised(
        SAMPLERS["walk"], own_loss=RowLoss(lambda out, y: -gt.pick(gt.log_softmax(out), y))
    )
    for nodes, _, loss in own[0]:
        targets = [v for v in nodes if GRAPH.train[v]]
        each = [mean_loss(GRAPH, own[2], [v]) for v in targets]
        expected = np.average(each, weights=[1 / inside[v] for v in targets]) if targets else 0
        assert loss == pytest.approx(expected)


def test_what_was_never_drawn_has_the_published_weights():
    batches, n, _ = normalised(SaintWalk(roots=1, depth=1, coverage=0.3), more=100)
    inside = {v for nodes, _, _ in batches[:n] for v in nodes}
    edges = {e for _, edges, _ in batches[:n] for e, _ in edges}
    new = {(e, w) for _, found, _ in batches[n:] for (e, _), w in found.items() if e not in edges}
    assert {w for _, w in new} == {LARGEST, UNKNOWN}
    assert all((w == LARGEST) == (GRAPH.dst[e] in inside) for e, w in new)


def losses(comm, **keys):
    job = {
        "model": "gcn",
        "dropout": 0.3,
        "strategy": "mini",
        "dtype": "float64",
        "epochs": 2,
        "backend": "reference",
        **keys,
    }
    return [row["loss"] for row in gt.Trainer(graph=TRAINED, comm=comm, **job).fit().history]


@pytest.mark.parametrize("name", graphs.odd_graphs())
def test_odd_graphs(name):
    graph = graphs.odd_graphs()[name]
    for sampler in SAMPLERS.values():
        if not graph.n_edges and (isinstance(sampler, SaintEdge) or sampler == SAMPLERS["norm"]):
            with pytest.raises(DataError, match="no node can be drawn"):
                node_sets(sampler, [0], graph)
            continue
        alone = node_sets(sampler, range(2), graph)
        assert (
            all(alone)
            and node_sets(sampler, range(2), graph, min(3, graph.n_nodes), graphs.PLACEMENTS[4])
            == alone
        )


@pytest.mark.parametrize(
    "keys, told",
    [
        ({"sampler": "saint_node:budget=0"}, "saint_node: budget is 0, expected at least 1"),
        (
            {"sampler": "saint_node:probability=rank"},
            "probability is 'rank', expected 'degree' or 'norm'",
        ),
        (
            {"sampler": "saint_frontier:budget=3,frontier=4"},
            "frontier is 4, more than budget, which is 3",
        ),
        ({"sampler": "saint_walk:coverage=0"}, "coverage is 0.0, expected a finite number above 0"),
        ({"sampler": "saint_walk:roots=few"}, "roots is 'few'; expected a value of type int"),
        (
            {"sampler": "saint_edge:seed=3"},
            "there is no option 'seed'; there is batches, normalise, coverage, budget",
        ),
        (
            {"sampler": "saint_edge", "batch_size": 5},
            "batch_size=5 has no meaning with sampler=saint_edge",
        ),
        (
            {"sampler": "saint_edge", "fanout": "5"},
            "fanout=5 has no meaning with sampler=saint_edge",
        ),
        (
            {"sampler": "saint_edge", "precompute": True, "model": "sage", "dropout": 0},
            "precompute=yes has no meaning with sampler",
        ),
        (
            {"sampler": "saint_edge", "task": "link", "model": "sage"},
            "sampler=saint_edge chooses nodes, and the targets of this task",
        ),
    ],
)
def test_errors_name_the_option(keys, told):
    with pytest.raises(ConfigError, match=told):
        losses(SerialComm(), **keys)


@pytest.mark.parametrize("size", [1, 2])
def test_a_sampler_without_nodes_is_refused(size, monkeypatch):
    monkeypatch.setattr(
        SaintNode, "open", lambda self, partition: lambda batch: np.zeros(partition.n_masters, bool)
    )
    with pytest.raises(DataError, match="the sampler gives no nodes for 100 batches in a row"):
        run_simulated(size, partial(losses, sampler="saint_node"))


def test_neighbourhoods_of_targets_need_another_sampler():
    with pytest.raises(
        ConfigError,
        match="fanout=3 has no meaning with sampler=saint_node; drop --fanout, or choose another",
    ):
        gt.sample(TRAINED, [0], [3], sampler="saint_node")
