"""Tasks: targets, labels beside their edges, negatives that are none, and messages that know
nothing of what they predict.
"""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from whole_links import links_at

import graphtheta.ops as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.sampling.cluster_nodes import NodesByCluster
from graphtheta.engine.strategy.strategy import (
    ClusterBatch,
    GlobalBatch,
    MiniBatch,
    whole,
    with_pairs,
)
from graphtheta.engine.strategy.task import EdgeTask, LinkTask, NodeTask, label_kind
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.errors import ColumnError, ConfigError, DataError, ViewError
from graphtheta.ops import Tape
from graphtheta.tasks.kinds.links import Links

GRAPH = graphs.random_graph(24, 60, hub=False)


def pairs_of(graph):
    """Ends of the links of a graph without self loops, each unordered pair once, and all keys in
    both directions.
    """
    n = graph.n_nodes
    src = graph.src[graph.src != graph.dst]
    dst = graph.dst[graph.src != graph.dst]
    low = np.minimum(src, dst)
    high = np.maximum(src, dst)
    pairs = np.unique(low * n + high)
    known = np.unique(np.concatenate((graph.src * n + graph.dst, graph.dst * n + graph.src)))
    return pairs // n, pairs % n, known


def links_of(p, graph, negatives=3, key=5):
    """This worker's part of the links of a graph."""
    return links_at(p, *pairs_of(graph), negatives, key)


class Dot(Layer):
    """Scores of pairs by inner products."""

    sum = None

    def gather(self, edge):
        return (edge.src.h * edge.dst.h).sum(-1)


class Attributed(Dot):
    """Adds the first edge attribute."""

    def gather(self, edge):
        return super().gather(edge) + edge.attr[..., 0]


class Scorer(Model):
    def __init__(self, decoder):
        self.layer = Layer()
        self.decoder = decoder
        self.layer.sum = "mean"

    def forward(self, graph):
        h = self.layer(graph, graph.x)
        return self.decoder(graph, h + graph.x)


def edge_task(p, **options):
    return EdgeTask(p, p.edge.read("train"), **options)


# ---- nodes


@pytest.mark.parametrize("size", [1, 3])
def test_node_targets_and_seeds(size):
    def program(comm):
        p = build_partition(GRAPH, comm)
        task = NodeTask(p, "classes")
        own = np.flatnonzero(np.isin(task.ids, wanted[2:5]))
        np.testing.assert_array_equal(task.at_nodes(p.masters // 3), task.ids[:, None] // 3)
        assert task.n_targets == len(wanted)
        return task.ids, p.masters[task.seeds(own, 0).nodes]

    wanted = np.flatnonzero(GRAPH.train)
    found = run_simulated(size, program)
    np.testing.assert_array_equal(np.sort(np.concatenate([ids for ids, _ in found])), wanted)
    np.testing.assert_array_equal(
        np.sort(np.concatenate([seeds for _, seeds in found])), wanted[2:5]
    )


def test_no_targets_is_an_error_on_all_ranks():
    """Of whoever makes batches of them; a task alone can measure without any."""

    def program(comm, graph, make):
        p = build_partition(graph, comm)
        GlobalBatch(p, ["in"], make(p))

    nodes = lambda p: NodeTask(p, "classes")
    edges = lambda p: EdgeTask(p, np.zeros(p.n_local_edges, bool))
    untrained = graphs.random_graph(train=np.zeros(24, bool)), graphs.random_graph(train=None)
    for graph, make in (*((graph, nodes) for graph in untrained), (GRAPH, edges)):
        with pytest.raises(DataError, match="training set is empty"):
            run_simulated(2, program, graph, make)


@pytest.mark.parametrize(
    "kind, y",
    [
        ("classes", np.arange(24) % 3),
        ("labels", np.eye(24)[:, :3]),
        ("values", np.arange(24.0)[:, None]),
    ],
)
def test_loss_is_the_mean_over_the_targets_of_all_ranks(kind, y):
    graph = graphs.random_graph(
        24, 60, y=y.astype(np.int64 if kind == "classes" else np.float32), n_classes=None
    )
    out = np.random.default_rng(0).standard_normal((24, 1 if kind == "values" else 3))

    def program(comm, size):
        p = build_partition(graph, comm, dtype=np.float64)
        task = NodeTask(p, label_kind(graph.y, graph.multilabel))
        assert task.kind == kind
        view = k_hop_view(p, task.seeds(np.arange(len(task.ids)), 0).nodes, ["in"])
        n = view.n_targets
        with Tape(all_sum=comm.all_sum):
            return float(
                task.loss(view, gt.Var(out[view.space.gid[:n]], view.space.prefix(n))).value
            )

    expected = run_simulated(1, program, 1)[0]
    rows = np.flatnonzero(graph.train)
    if kind == "values":
        assert expected == pytest.approx(np.mean((out[rows, 0] - y[rows, 0]) ** 2))
    for size in (2, 4):
        assert sum(run_simulated(size, program, size)) == pytest.approx(expected)


# ---- edges


@pytest.mark.parametrize("placement", graphs.PLACEMENTS, ids="-".join)
@pytest.mark.parametrize("k_hop", [False, True])
def test_edge_labels_stand_beside_their_edges(placement, k_hop):
    x = GRAPH.x.astype(float)
    mean = np.zeros((24, 4))
    for v in range(24):
        into = GRAPH.dst == v
        mean[v] = x[GRAPH.src[into]].mean(axis=0) if into.any() else 0
    h = x + mean
    expected = (h[GRAPH.src] * h[GRAPH.dst]).sum(axis=1) + GRAPH.edge_attr[:, 0]
    chosen = np.flatnonzero(GRAPH.edge_train)[::2]

    def program(comm):
        p = build_partition(GRAPH, comm, *placement, dtype=np.float64)
        task = edge_task(p)
        assert np.all(np.diff(task.ids) > 0) and task.n_targets == np.count_nonzero(
            GRAPH.edge_train
        )
        seeds = task.seeds(np.flatnonzero(np.isin(task.ids, chosen)), 0)
        view = (
            with_pairs(k_hop_view(p, seeds.nodes, ["in"]), seeds)
            if k_hop
            else whole(p, ["in"], seeds)
        )
        out = Scorer(Attributed())(view)
        np.testing.assert_allclose(out.value, expected[view.pairs.gid])
        np.testing.assert_allclose(view.pairs.label, GRAPH.edge_y[view.pairs.gid])
        return view.pairs.gid

    for size in (1, 2, 4):
        np.testing.assert_array_equal(np.sort(np.concatenate(run_simulated(size, program))), chosen)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_clusters_at_both_ends_of_pairs(size):
    clusters = np.arange(24) // 6

    def program(comm):
        p = build_partition(GRAPH, comm, "vertex-cut")
        edges = edge_task(p)
        links = LinkTask(p, links_of(p, GRAPH))
        np.testing.assert_array_equal(
            edges.at_nodes(clusters[p.masters]), clusters[GRAPH.edge_index[:, edges.ids]].T
        )
        np.testing.assert_array_equal(
            links.at_nodes(clusters[p.masters]),
            clusters[np.stack(pairs_of(GRAPH)[:2])[:, links.ids]].T,
        )
        assert np.all(p.directory.owner(pairs_of(GRAPH)[0][links.ids]) == comm.rank)
        assert np.all(p.directory.owner(links._links.link_keys // 24) == comm.rank)
        return edges.ids, links.ids, links._links.link_keys

    edges, links, known = (
        np.sort(np.concatenate(part)) for part in zip(*run_simulated(size, program), strict=True)
    )
    np.testing.assert_array_equal(edges, np.flatnonzero(GRAPH.edge_train))
    np.testing.assert_array_equal(links, np.arange(len(pairs_of(GRAPH)[0])))
    np.testing.assert_array_equal(known, pairs_of(GRAPH)[2])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["edge", "link"])
def test_losses_and_gradients_do_not_depend_on_ranks(kind):
    class Weighted(Scorer):
        def __init__(self):
            super().__init__(Dot() if kind == "link" else Attributed())
            self.w = gt.Parameter(np.random.default_rng(0).standard_normal((4, 4)))

        def forward(self, graph):
            return self.decoder(graph, self.layer(graph, gt.matmul(graph.x, self.w)))

    def program(comm, placement, strategy):
        p = build_partition(GRAPH, comm, *placement, dtype=np.float64)
        task = edge_task(p) if kind == "edge" else LinkTask(p, links_of(p, GRAPH))
        made = {
            "global": lambda: GlobalBatch(p, ["in"], task),
            "mini": lambda: MiniBatch(p, ["in"], task, batch_size=7),
            "cluster": lambda: ClusterBatch(
                p, ["in"], task, clusters=p.masters // 8, boundary_hops=1
            ),
        }[strategy]()
        model = Weighted()
        found = []
        for view in made.views(1):
            with Tape(all_sum=comm.all_sum) as tape:
                loss = task.loss(view, model(view))
            g = tape.backward(loss).of(model.w)
            found.append(
                np.append(
                    comm.all_sum(np.zeros((4, 4)) if g is None else g), comm.all_sum(loss.value)
                )
            )
        return np.array(found)

    for strategy in ("global", "mini", "cluster"):
        expected = run_simulated(1, program, graphs.PLACEMENTS[0], strategy)[0]
        assert np.all(np.isfinite(expected)) and np.all(expected[:, -1] > 0)
        for size in (2, 4):
            for placement in graphs.PLACEMENTS[::2]:
                np.testing.assert_allclose(
                    run_simulated(size, program, placement, strategy)[0], expected, atol=1e-11
                )


# ---- links


@pytest.mark.parametrize("size", [1, 2, 4])
def test_negatives_are_no_links_and_equal_on_any_ranks(size):
    sources, targets, _ = pairs_of(GRAPH)
    ids = np.arange(len(sources))[::-1][:20]

    def program(comm):
        p = build_partition(GRAPH, comm, "vertex-cut")
        links = links_of(p, GRAPH)
        pairs = links.pairs(p, np.flatnonzero(np.isin(links.numbers, ids)))
        return list(
            zip(
                pairs.gid.tolist(),
                pairs.src.tolist(),
                pairs.dst.tolist(),
                pairs.label.tolist(),
                strict=True,
            )
        )

    found = sorted(pair for per in run_simulated(size, program) for pair in per)
    assert [f[0] for f in found] == sorted(int(i) * 4 + k for i in ids for k in range(4))
    adjacent = set(zip(GRAPH.src.tolist(), GRAPH.dst.tolist(), strict=True)) | set(
        zip(GRAPH.dst.tolist(), GRAPH.src.tolist(), strict=True)
    )
    for gid, src, dst, label in found:
        assert src == sources[gid // 4] and label == (gid % 4 == 0)
        assert dst == targets[gid // 4] if label else (src, dst) not in adjacent and src != dst
    assert found == sorted(pair for per in run_simulated(1, program) for pair in per)


def test_negatives_change_with_the_step_and_stay_among_the_nodes_of_a_batch():
    def program(comm):
        p = build_partition(GRAPH, comm)
        links = links_of(p, GRAPH)
        task = LinkTask(p, links)
        levels = [
            task.seeds(np.arange(10), step).pairs.level(None, p.n_masters) for step in (0, 1, 0)
        ]
        ends = [
            np.repeat(s.row, np.diff(s.ptr)) for level in levels for s in level.passes[0].selections
        ]
        np.testing.assert_array_equal(ends[0], ends[2])
        assert np.any(ends[0] != ends[1])
        among = NodesByCluster(p, p.masters // 6, 4).members(np.array([0, 2]))
        assert among.n == 12
        np.testing.assert_array_equal(among.ids(np.arange(12)), np.r_[:6, 12:18])
        pairs = links.pairs(
            p, np.flatnonzero((task.at_nodes(p.masters // 6) % 2 == 0).all(axis=1)), among
        )
        assert len(pairs.dst) and set(pairs.dst // 6) == {0, 2}

    run_simulated(1, program)


def test_a_node_linked_to_all_others_has_no_negatives():
    n = 8
    graph = graphs.fill(np.zeros(n - 1, int), np.arange(1, n), n)

    def pairs_here(comm):
        p = build_partition(graph, comm)
        links = links_of(p, graph, negatives=2)
        return links.pairs(p, np.arange(len(links.numbers)))

    for size in (1, 3):
        for pairs in run_simulated(size, pairs_here):
            np.testing.assert_array_equal(
                pairs.label.reshape(-1, 3), np.tile([1, np.nan, np.nan], (len(pairs.label) // 3, 1))
            )

    def program(comm):
        p = build_partition(graph, comm, dtype=np.float64)
        task = LinkTask(p, links_of(p, graph, negatives=2))
        (view,) = GlobalBatch(p, ["in"], task).views(0)
        with Tape(all_sum=comm.all_sum):
            return float(comm.all_sum(task.loss(view, Scorer(Dot())(view)).value))

    assert np.isfinite(run_simulated(3, program)[0])


def test_drawing_when_almost_everything_is_linked():
    n = 40
    src, dst = np.nonzero(~np.eye(n, dtype=bool))
    free = (np.minimum(src, dst) * n + np.maximum(src, dst)) % 23 == 0
    known = np.unique(np.concatenate(((src * n + dst)[~free], (dst * n + src)[~free])))
    ids = np.arange(np.count_nonzero(~free))
    links = Links(ids, src[~free], dst[~free], len(ids), known, 2, 1)
    ends, none = links.draw(ids, n)
    assert ends.shape == (len(ids), 2) and ends.min() >= 0 and ends.max() < n
    ok = ~links.taken(np.arange(len(links.src))[:, None], ends, n)
    assert np.array_equal(none, ~ok)
    # each draw of 64 meets a free node with a chance of 1 in 23 or better, where there is one
    assert ok[np.isin(links.src, src[free])].mean() > 0.8
    assert not ok[~np.isin(links.src, src[free])].any()


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("strategy", ["global", "mini"])
def test_targets_and_their_reverse_pass_no_messages(size, strategy):
    sources, targets, _ = pairs_of(GRAPH)

    def program(comm):
        p = build_partition(GRAPH, comm, "vertex-cut")
        task = LinkTask(p, links_of(p, GRAPH))
        made = (
            GlobalBatch(p, ["both"], task)
            if strategy == "global"
            else MiniBatch(p, ["both"], task, batch_size=9)
        )
        for view in made.views(2):
            positive = np.concatenate(comm.all_gather(view.pairs.gid[view.pairs.gid % 4 == 0] // 4))
            keys = {frozenset((int(sources[i]), int(targets[i]))) for i in positive}
            used = view.levels[0].gid
            assert not any(frozenset((int(GRAPH.src[e]), int(GRAPH.dst[e]))) in keys for e in used)
            if strategy == "global":
                assert 0 < len(positive) < len(sources)
                every = np.unique(np.concatenate(comm.all_gather(used)))
                kept = [
                    e
                    for e in range(GRAPH.n_edges)
                    if frozenset((int(GRAPH.src[e]), int(GRAPH.dst[e]))) not in keys
                ]
                np.testing.assert_array_equal(every, kept)

    run_simulated(size, program)


def test_pairs_that_are_no_edges_have_no_edge_values():
    def program(comm, decoder):
        p = build_partition(GRAPH, comm, "vertex-cut", dtype=np.float64)
        model = Scorer(decoder)
        found = probe(model, p)
        assert (found.layers, found.output, found.per_edge) == ([("in", 0)], (), True)
        task = LinkTask(p, links_of(p, GRAPH))
        (view,) = GlobalBatch(p, ["in"], task).views(0)
        return model(view).shape

    assert len(run_simulated(2, program, Dot())) == 2
    with pytest.raises(ColumnError, match=r"gather of Attributed reads edge.attr"):
        run_simulated(2, program, Attributed())


def test_a_decoder_needs_pairs():
    with pytest.raises(
        ViewError,
        match="is a decoder: it computes a value for each edge and needs an edge or link task",
    ):
        run_simulated(
            1,
            lambda comm: Scorer(Dot())(
                whole(build_partition(GRAPH, comm, dtype=np.float64), ["in"])
            ),
        )


def test_bad_settings():
    def program(comm):
        p = build_partition(GRAPH, comm)
        with pytest.raises(ConfigError, match="supervision: got 0, expected a number above 0"):
            LinkTask(p, links_of(p, GRAPH), supervision=0)
        none = np.zeros(0, np.int64)
        with pytest.raises(DataError, match="no links to train on"):
            LinkTask(p, links_at(p, none, none, none, 1, 0))

    run_simulated(1, program)
