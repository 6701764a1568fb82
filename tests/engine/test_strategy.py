"""Strategies: every target once an epoch on any ranks, and the numbers of a dense computation."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from whole_links import links_at

import graphtheta.ops as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.strategy.strategy import ClusterBatch, GlobalBatch, MiniBatch
from graphtheta.engine.strategy.task import EdgeTask, LinkTask, NodeTask
from graphtheta.engine.train.gradient_sum import GradientSum
from graphtheta.errors import ConfigError, DataError
from graphtheta.ops import Parameter, Tape
from graphtheta.samplers.neighbour import NeighbourSampler

RING = np.arange(24)
BASE = graphs.random_graph(24, 60, seed=2, hub=False).without_self_loops()
# one self loop each
GRAPH = graphs.fill(
    np.concatenate((BASE.src, RING)), np.concatenate((BASE.dst, RING)), 24, edge_weight=None
)
CLUSTERS = RING * 7 % 5


class Mean(Layer):
    """D^-1 A X W by weights and degrees."""

    def __init__(self, seed=0):
        self.w = Parameter(np.random.default_rng(seed).standard_normal((4, 4)) / 2)

    def transform(self, node):
        return {"z": gt.matmul(node.h, self.w)}

    def gather(self, edge):
        return edge.src.z * edge.weight

    def apply(self, node, total):
        return gt.tanh(total / gt.maximum(node.in_degree, 1.0))


class Net(Model):
    def __init__(self):
        self.layers = [Mean(0), Mean(1)]

    def forward(self, graph):
        h = graph.x
        for layer in self.layers:
            h = layer(graph, h)
        return h[..., :3]


def epoch(
    strategy_of,
    size=1,
    placement=graphs.PLACEMENTS[0],
    epochs=(0,),
    graph=GRAPH,
    layers=("in", "in"),
):
    """Loss, gradients and targets of every step of some epochs."""

    def program(comm):
        p = build_partition(graph, comm, *placement, dtype=np.float64)
        task = NodeTask(p, "classes")
        strategy = strategy_of(p, list(layers), task)
        found = []
        for e in epochs:
            views = list(strategy.views(e))
            assert len(views) == strategy.steps_per_epoch
            for view in views:
                model = Net()
                with Tape(all_sum=comm.all_sum) as tape:
                    loss = task.loss(view, model(view))
                grads = GradientSum(comm, model.parameters()).finish(tape.backward(loss))
                ids = view.space.gid[: view.n_targets][view.node.read("train", view.n_targets)]
                found.append(
                    (
                        float(comm.all_sum(loss.value)),
                        grads,
                        np.sort(np.concatenate(comm.all_gather(ids))),
                    )
                )
        return found

    return run_simulated(size, program)[0]


def same(a, b):
    assert len(a) == len(b)
    for (loss, grads, ids), (other, others, those) in zip(a, b, strict=True):
        assert loss == pytest.approx(other, abs=1e-12)
        np.testing.assert_array_equal(ids, those)
        for g, h in zip(grads, others, strict=True):
            np.testing.assert_allclose(g, h, atol=1e-12)


STRATEGIES = {
    "global": lambda p, layers, task: GlobalBatch(p, layers, task),
    "mini": lambda p, layers, task: MiniBatch(p, layers, task, batch_size=3),
    "sampled": lambda p, layers, task: MiniBatch(
        p, layers, task, batch_size=3, sampler=NeighbourSampler((2, 1))
    ),
    "replaced": lambda p, layers, task: MiniBatch(
        p, layers, task, batch_size=4, sampler=NeighbourSampler((2, 3), replace=True)
    ),
    "cluster": lambda p, layers, task: ClusterBatch(
        p, layers, task, clusters=CLUSTERS[p.masters], per_batch=2
    ),
    "cluster, all options": lambda p, layers, task: ClusterBatch(
        p, layers, task, clusters=CLUSTERS[p.masters], boundary_hops=1, degrees="view", diagonal=0.7
    ),
}


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", STRATEGIES)
def test_batches_do_not_depend_on_ranks(name):
    expected = epoch(STRATEGIES[name], epochs=(0, 3))
    for size, placement in (
        (2, graphs.PLACEMENTS[1]),
        (3, graphs.PLACEMENTS[4]),
        (5, graphs.PLACEMENTS[2]),
        (8, graphs.PLACEMENTS[5]),
    ):
        same(epoch(STRATEGIES[name], size, placement, (0, 3)), expected)


@pytest.mark.parametrize("name", STRATEGIES)
def test_an_epoch_takes_every_target_once(name):
    targets = np.flatnonzero(GRAPH.train)
    first, second = (epoch(STRATEGIES[name], 3, epochs=(e,)) for e in (0, 1))
    for found in (first, second):
        np.testing.assert_array_equal(
            np.sort(np.concatenate([ids for _, _, ids in found])), targets
        )
    if name != "global":
        assert [ids.tolist() for _, _, ids in first] != [ids.tolist() for _, _, ids in second]


def test_a_mini_batch_of_all_targets_is_the_global_batch():
    whole = epoch(STRATEGIES["global"])
    every = NeighbourSampler((99, -1))
    for build in (
        lambda p, layers, task: MiniBatch(p, layers, task, batch_size=99),
        lambda p, layers, task: MiniBatch(p, layers, task, batch_size=99, sampler=every),
        lambda p, layers, task: ClusterBatch(
            p, layers, task, clusters=CLUSTERS[p.masters], per_batch=5
        ),
    ):
        for size in (1, 4):
            same(epoch(build, size, graphs.PLACEMENTS[4]), whole)


def dense_cluster_gcn(nodes, targets, diagonal, degrees, weights):
    """Mean cross entropy of Cluster-GCN on the block of the adjacency matrix inside some nodes."""
    a = np.zeros((24, 24))
    np.add.at(a, (GRAPH.dst, GRAPH.src), 1)
    inside = np.isin(RING, nodes)
    whole = a.sum(axis=1)
    a *= inside[:, None] & inside[None]
    d = np.maximum(a.sum(axis=1) if degrees == "view" else whole, 1)
    a = (a + diagonal * np.diag(np.diag(a))) / d[:, None]
    h = GRAPH.x.astype(float)
    for w in weights:
        h = np.tanh(a @ h @ w)
    z = h[targets, :3]
    return float(
        np.mean(np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(targets)), GRAPH.y[targets]])
    )


@pytest.mark.one_in(5)
@pytest.mark.parametrize("hops", [0, 1, 2])
@pytest.mark.parametrize(
    "degrees, diagonal", [("graph", 0.0), ("view", 0.0), ("view", 0.7), ("graph", 1.0)]
)
def test_cluster_batches_equal_dense_cluster_gcn(degrees, diagonal, hops):
    weights = [layer.w.value for layer in Net().layers]
    adjacent = np.eye(24, dtype=bool)
    adjacent[GRAPH.src, GRAPH.dst] = adjacent[GRAPH.dst, GRAPH.src] = True
    options = dict(per_batch=2, degrees=degrees, diagonal=diagonal, boundary_hops=hops)
    build = lambda p, layers, task: ClusterBatch(
        p, layers, task, clusters=CLUSTERS[p.masters], **options
    )
    for size in (1, 4):
        for loss, _, ids in epoch(build, size, graphs.PLACEMENTS[4]):
            core = np.isin(CLUSTERS, CLUSTERS[ids])
            np.testing.assert_array_equal(ids, np.flatnonzero(GRAPH.train & core))
            nodes = core
            for _ in range(hops):
                nodes = adjacent[nodes].any(axis=0)
            assert loss == pytest.approx(
                dense_cluster_gcn(np.flatnonzero(nodes), ids, diagonal, degrees, weights), abs=1e-12
            )


def test_clusters_without_targets_are_left_out():
    graph = GRAPH.with_masks(CLUSTERS == 3)
    found = epoch(
        lambda p, layers, task: ClusterBatch(p, layers, task, clusters=CLUSTERS[p.masters]),
        graph=graph,
    )
    assert len(found) == 1 and found[0][2].tolist() == np.flatnonzero(CLUSTERS == 3).tolist()


def test_excluded_edges_do_not_count_as_degrees():
    keep = GRAPH.src < GRAPH.dst
    known = np.unique(np.concatenate((GRAPH.src * 24 + GRAPH.dst, GRAPH.dst * 24 + GRAPH.src)))

    def program(comm):
        p = build_partition(GRAPH, comm, "vertex-cut")
        links = links_at(p, GRAPH.src[keep], GRAPH.dst[keep], known, 1, 0)
        strategy = ClusterBatch(
            p, ["in"], LinkTask(p, links), clusters=CLUSTERS[p.masters], degrees="view"
        )
        for view in strategy.views(0):
            into = np.concatenate(comm.all_gather(view.levels[0].gid))
            for name, ends in (("in_degree", GRAPH.dst), ("out_degree", GRAPH.src)):
                found = view.node.read(name, view.space.n)
                np.testing.assert_array_equal(
                    found, np.bincount(ends[into], minlength=24)[view.space.gid]
                )

    run_simulated(3, program)


def test_no_cluster_with_a_target_is_an_error_on_all_ranks():
    """Every training link joins two clusters: an epoch would have no step, and the job would end
    untrained.
    """

    def program(comm):
        p = build_partition(GRAPH, comm)
        links = links_at(p, np.array([0, 1]), np.array([1, 2]), np.array([1, 26]), 1, 0)
        with pytest.raises(
            DataError, match=r"no cluster holds a training target.*fewer and larger clusters"
        ):
            ClusterBatch(p, ["in"], LinkTask(p, links), clusters=RING[p.masters])
        return True

    assert run_simulated(3, program) == [True] * 3


@pytest.mark.parametrize("strategy", ["mini", "cluster"])
def test_edge_targets_once_an_epoch(strategy):
    def program(comm):
        p = build_partition(GRAPH, comm, "vertex-cut")
        task = EdgeTask(p, p.edge.read("train"))
        clusters = CLUSTERS[p.masters]
        made = (
            MiniBatch(p, ["in"], task, batch_size=5)
            if strategy == "mini"
            else ClusterBatch(p, ["in"], task, clusters=clusters)
        )
        return np.concatenate([view.pairs.gid for view in made.views(2)])

    train = np.flatnonzero(GRAPH.edge_train)
    inside = CLUSTERS[GRAPH.src[train]] == CLUSTERS[GRAPH.dst[train]]
    for size in (1, 3):
        found = np.sort(np.concatenate(run_simulated(size, program)))
        np.testing.assert_array_equal(found, train if strategy == "mini" else train[inside])


def test_global_views_are_made_once_and_links_draw_anew():
    def program(comm):
        p = build_partition(GRAPH, comm)
        strategy = GlobalBatch(p, ["in"], NodeTask(p, "classes"))
        assert strategy.batch(0, 0) is strategy.batch(5, 0)
        keep = GRAPH.src < GRAPH.dst
        links = LinkTask(
            p,
            links_at(
                p, GRAPH.src[keep], GRAPH.dst[keep], np.unique(GRAPH.src * 24 + GRAPH.dst), 1, 0
            ),
        )
        strategy = GlobalBatch(p, ["in"], links)
        assert not np.array_equal(strategy.batch(0, 0).pairs.gid, strategy.batch(1, 0).pairs.gid)

    run_simulated(1, program)


@pytest.mark.parametrize(
    "message, build",
    [
        (
            "batch_size: got 0, expected at least 1",
            lambda p, task: MiniBatch(p, ["in"], task, batch_size=0),
        ),
        (
            r"the sampler is made for 2 hop\(s\), but the model has 1",
            lambda p, task: MiniBatch(
                p, ["in"], task, batch_size=1, sampler=NeighbourSampler((1, 2))
            ),
        ),
        (
            "boundary_hops: got 3, expected 0, 1 or 2",
            lambda p, task: ClusterBatch(
                p, ["in"], task, clusters=CLUSTERS[p.masters], boundary_hops=3
            ),
        ),
        (
            "degrees: got 'all', expected 'graph' or 'view'",
            lambda p, task: ClusterBatch(
                p, ["in"], task, clusters=CLUSTERS[p.masters], degrees="all"
            ),
        ),
        (
            "clusters_per_batch: got 6, expected 1 to 5",
            lambda p, task: ClusterBatch(
                p, ["in"], task, clusters=CLUSTERS[p.masters], per_batch=6
            ),
        ),
        (
            "clusters_per_batch: got 0, expected 1 to 5",
            lambda p, task: ClusterBatch(
                p, ["in"], task, clusters=CLUSTERS[p.masters], per_batch=0
            ),
        ),
    ],
)
def test_bad_settings(message, build):
    def program(comm):
        p = build_partition(GRAPH, comm)
        with pytest.raises(ConfigError, match=message):
            build(p, NodeTask(p, "classes"))

    run_simulated(2, program)


def test_a_vertex_limit_determines_the_batch_size():
    graph = graphs.random_graph(400, 900, hub=False)

    def program(comm, limit, first):
        p = build_partition(graph, comm, *graphs.PLACEMENTS[2])
        task = NodeTask(p, "classes")
        strategy = MiniBatch(
            p,
            ["in", "in"],
            task,
            batch_size=first,
            sampler=NeighbourSampler((2, 3)),
            vertex_limit=limit,
        )
        full = range(task.n_targets // strategy.batch_size)
        return strategy.batch_size, np.mean(
            [comm.all_sum(np.array(strategy.batch(1, i).space.n)) for i in full]
        )

    for limit, first in ((60, 400), (120, 1)):
        size, nodes = run_simulated(1, program, limit, first)[0]
        assert 1 < size < graph.train.sum() and nodes == pytest.approx(limit, rel=0.1)
        assert run_simulated(3, program, limit, first)[2] == (size, nodes)
    assert [run_simulated(1, program, limit, 7)[0][0] for limit in (1, 10**6)] == [
        1,
        graph.train.sum(),
    ]
