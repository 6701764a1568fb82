"""Every model: gradients, odd graphs, directions, renumbering, and mini-batches of everything."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from machine import IN_ORDER, MODELS, PLACEMENTS, Alone, assert_close, make, outputs

from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Layer
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.sampling.cluster_nodes import NodesByCluster
from graphtheta.engine.strategy.strategy import ClusterBatch, whole
from graphtheta.engine.strategy.task import EdgeTask, LinkTask
from graphtheta.engine.view.expand import k_hop_view
from graphtheta.engine.view.view import global_view
from graphtheta.graph.data.graph import Graph
from graphtheta.inspect.checking.gradients import check_gradients
from graphtheta.models import GCN, build_model
from graphtheta.ops import Parameter, RowSpace, Tape, Var, dtype_scope, matmul, mean_squared_error
from graphtheta.ops.autodiff.init import init_scope
from graphtheta.tasks.kinds.links import Links

D = 6
A = 3
C = 4


def example(n=30, e=100, seed=0, **fields):
    """A hub, self loops, duplicates and isolated nodes."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, n - 3, (2, e))
    ends[1, :25] = 3
    ends[0, 25:30] = ends[1, 25:30]
    ends[:, 40:50] = ends[:, 50:60]
    return with_features(ends, n, rng, **fields)


def with_features(ends, n, rng=None, **fields):
    rng = rng or np.random.default_rng(1)
    ends = np.asarray(ends, np.int64).reshape(2, -1)
    e = ends.shape[1]
    made = {
        "x": rng.standard_normal((n, D)),
        "edge_attr": rng.standard_normal((e, A)),
        "edge_weight": rng.random(e),
    }
    return Graph(ends, n, **{**made, **fields})


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", MODELS)
def test_gradients_match_finite_differences(name):
    graph = example()
    model = make(name, D, C, A)
    part = build_partition(graph, SerialComm(), dtype=np.float64)
    view = global_view(part, probe(model, part).layers)
    x = Var(part.node.read("x"), view.space, True)
    attr = Var(part.edge.read("attr"), RowSpace(part.edge_gid, "edge"), True)
    y = np.random.default_rng(2).standard_normal((30, C))

    def loss():
        return mean_squared_error(model(view, **{"x": x, "edge.attr": attr}), y)

    reads_edges = name.startswith(("gat_e", "gipa", "gine")) or name.endswith("edges")
    trained = [p for p in model.parameters() if p.requires_grad]
    check_gradients(loss, [*trained, x, *([attr] if reads_edges else [])], tol=1e-5)


ODD = {
    "no edges": ([[], []], 5),
    "self loops only": ([[0, 1, 2], [0, 1, 2]], 4),
    "duplicates": ([[0, 0, 0, 1], [1, 1, 1, 0]], 3),
    "isolated": ([[0, 1], [1, 0]], 12),
    "hub": ([list(range(1, 20)), [0] * 19], 20),
    "single node": ([[], []], 1),
    "single node, loop": ([[0], [0]], 1),
    "two nodes": ([[0], [1]], 2),
}


@pytest.mark.one_in(9)
@pytest.mark.parametrize("odd", ODD)
def test_odd_graphs(odd):
    """Finite and the same on ranks of which some own no node or no edge; every graph and every
    model meets all placements.
    """
    ends, n = ODD[odd]
    graph = with_features(ends, n)
    ways = [(2, PLACEMENTS[0]), (5, PLACEMENTS[4]), (5, PLACEMENTS[2])]
    for i, name in enumerate(MODELS):

        def build(name=name):
            return make(name, D, C, A)

        alone = outputs(build, graph, training=True)
        size, placement = ways[(i + list(ODD).index(odd)) % 3]
        size = min(size, n)
        assert_close(outputs(build, graph, size, placement, training=True), alone)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", MODELS)
def test_mini_batch_of_all_nodes_is_the_global_batch(name):
    graph = example()

    def everything(part, layers):
        return k_hop_view(part, np.ones(part.n_masters, bool), layers)

    def build():
        return make(name, D, C, A)

    assert_close(
        outputs(build, graph, training=True, view=everything), outputs(build, graph, training=True)
    )
    assert_close(
        outputs(build, graph, 3, PLACEMENTS[5], training=True, view=everything),
        outputs(build, graph, training=True),
    )


@pytest.mark.parametrize("name", MODELS)
def test_renumbered_nodes_and_shuffled_edges(name):
    graph = example()
    rng = np.random.default_rng(5)
    new = rng.permutation(graph.n_nodes)
    order = rng.permutation(graph.n_edges)
    if name in IN_ORDER:
        order.sort()
    old = np.argsort(new)
    other = Graph(
        new[graph.edge_index[:, order]],
        graph.n_nodes,
        x=graph.x[old],
        edge_attr=graph.edge_attr[order],
        edge_weight=graph.edge_weight[order],
    )

    def build():
        # draws are keyed by ids, so nothing may be drawn here
        return make(name, D, C, A, dropout=0, attention_dropout=0, feature_dropout=0, edge_drop=0)

    mine = outputs(build, other, training=True)
    theirs = outputs(build, graph, training=True)
    assert_close((mine[0][new], mine[1]), theirs)


@pytest.mark.one_in(17, 2)
@pytest.mark.parametrize("name", [n for n in MODELS if n != "mlp"])
def test_directions(name):
    """Along out-edges is along in-edges of the reversed graph; both is along a graph with both."""
    graph = example()
    turned = graph.reversed()
    both = Graph(
        np.concatenate((graph.edge_index, turned.edge_index), axis=1),
        graph.n_nodes,
        x=graph.x,
        edge_attr=np.tile(graph.edge_attr, (2, 1)),
        edge_weight=np.tile(graph.edge_weight, 2),
    )

    def build(direction):
        return lambda: make(
            name,
            D,
            C,
            A,
            direction=direction,
            dropout=0,
            attention_dropout=0,
            feature_dropout=0,
            edge_drop=0,
        )

    inward = outputs(build("in"), graph)
    inward_of_both = outputs(build("in"), both)
    for size, placement in ((1, PLACEMENTS[0]), (3, PLACEMENTS[0]), (4, PLACEMENTS[5])):
        assert_close(outputs(build("out"), turned, size, placement), inward)
        assert_close(outputs(build("both"), graph, size, placement), inward_of_both)
    assert np.abs(outputs(build("out"), graph)[0] - inward[0]).max() > 1e-3


@pytest.mark.parametrize(
    "name", ["gcn", "sage mean", "sage max", "gin", "gine", "gat", "gat_e", "gipa", "mlp"]
)
def test_sparse_features_give_the_same_numbers(name):
    rng = np.random.default_rng(4)
    x = sp.random_array((30, 20), density=0.2, rng=rng, format="csr")
    graph = example(x=x)
    assert sp.issparse(graph.x)

    def build():
        return make(name, 20, C, A)

    assert_close(
        outputs(build, graph, 2, training=True),
        outputs(build, graph.replace(x=x.toarray().astype(np.float32)), training=True),
    )


class Laplacian(Layer):
    """h' = (I - D^-1/2 A D^-1/2) h W."""

    def __init__(self, weight):
        self.weight = Parameter(weight)

    def transform(self, node):
        z = matmul(node.h, self.weight)
        return {"z": z, "n": z * node.in_degree**-0.5}

    def gather(self, edge):
        return edge.src.n

    def apply(self, node, total):
        return node.z - total * node.in_degree**-0.5


@pytest.mark.parametrize("order", [1, 2, 5])
def test_laplacian_products_are_message_rounds(order):
    """N_k = L N_{k-1} W_k as sparse products and as supersteps: values and gradients."""
    rng = np.random.default_rng(6)
    ring = np.arange(20)
    chords = rng.integers(0, 20, (2, 25))
    ends = np.concatenate(
        (np.stack((ring, (ring + 1) % 20)), chords[:, chords[0] != chords[1]]), axis=1
    )
    graph = with_features(ends, 20).symmetrised().replace(edge_weight=None)
    adjacency = sp.csr_array(graph.to_scipy().astype(np.float64))
    scale = sp.diags_array(adjacency.sum(axis=0) ** -0.5)
    laplacian = sp.eye_array(20) - scale @ adjacency @ scale
    weights = [rng.standard_normal((D, D)) for _ in range(order)]
    values = [graph.x.astype(np.float64)]
    for w in weights:
        values.append(laplacian @ values[-1] @ w)
    back = np.ones((20, D))
    gradients = []
    for w, h in zip(weights[::-1], values[-2::-1], strict=True):
        gradients.append((laplacian @ h).T @ back)
        back = laplacian.T @ back @ w.T
    for size, placement in ((1, PLACEMENTS[0]), (3, PLACEMENTS[1]), (4, PLACEMENTS[4])):
        assert_close(
            outputs(lambda: Alone(*map(Laplacian, weights)), graph, size, placement),
            (values[-1], gradients[::-1]),
        )


def test_deep_residual_network_keeps_its_values():
    graph = example()
    out, _ = outputs(lambda: make("gcn", D, C, A, layers=32, residual=True, dropout=0), graph)
    assert np.isfinite(out).all() and np.abs(out).max() > 1e-3


def links_of(part, src, dst, known, negatives, key):
    """This rank's part of links that all ranks hold."""
    rank = part.halo_comm.rank
    mine = np.flatnonzero(part.directory.owner(src) == rank)
    return Links(
        numbers=mine,
        src=src[mine],
        dst=dst[mine],
        n_links=len(src),
        link_keys=known[part.directory.owner(known // part.n_nodes) == rank],
        negatives=negatives,
        key=key,
    )


@pytest.mark.parametrize("decoder", ["dot", "hadamard", "edge"])
def test_decoder_values_and_gradients(decoder):
    """Values from the end values by hand, gradients by finite differences."""
    graph = example(
        edge_y=np.random.default_rng(7).standard_normal(100), edge_train=np.arange(100) % 3 == 0
    )
    part = build_partition(graph, SerialComm(), dtype=np.float64)
    with dtype_scope("float64"), init_scope(2):
        model = build_model("gcn", D, 1, A, hidden=4, dropout=0.0, decoder=decoder)
        # away from the kink that zeros of isolated nodes would sit on
        for p in model.parameters():
            p.value = p.value + Parameter.normal(*p.shape, std=0.1).value
    if decoder == "edge":
        task = EdgeTask(part, part.edge.read("train"))
    else:
        known = np.unique(np.concatenate((graph.src * 30 + graph.dst, graph.dst * 30 + graph.src)))
        task = LinkTask(part, links_of(part, graph.src[:20], graph.dst[:20], known, 2, 3))
    seeds = task.seeds(np.arange(task.n_targets), 0)
    view = whole(part, ["in", "in"], seeds)
    with Tape() as tape:
        out = model(view)
        trunk = model.decoder
        model.decoder = None
        h = model(view).value
        model.decoder = trunk
    del tape
    pairs = seeds.pairs.pairs
    src, dst = (h[part.directory.row(end[view.pairs.order])] for end in (pairs.src, pairs.dst))
    if decoder == "dot":
        wanted = (src * dst).sum(1)
    elif decoder == "hadamard":
        wanted = trunk.mlp(src * dst)[:, 0]
    else:
        attr = graph.edge_attr[pairs.gid[view.pairs.order]].astype(np.float64)
        stacked = np.concatenate(
            [trunk.mlp.weights[0].value, trunk.weight_dst.value, trunk.weight_edge.value]
        )
        hidden = np.maximum(
            np.concatenate([src, dst, attr], axis=1) @ stacked + trunk.mlp.biases[0].value, 0
        )
        wanted = (hidden @ trunk.mlp.weights[1].value + trunk.mlp.biases[1].value)[:, 0]
    np.testing.assert_allclose(
        out.value, np.asarray(getattr(wanted, "value", wanted)), rtol=1e-10, atol=1e-12
    )
    check_gradients(lambda: task.loss(view, model(view)), model.parameters(), tol=1e-5)


def test_negatives_of_a_cluster_batch_lie_inside_it():
    """And a pair that is a link after all, for want of others, does not count."""
    # the last three nodes are linked to each other and are one cluster
    graph = with_features(
        np.concatenate((example().edge_index, [[27, 28, 29], [28, 29, 27]]), axis=1), 30
    )
    part = build_partition(graph, SerialComm())
    low = np.minimum(graph.src, graph.dst)
    high = np.maximum(graph.src, graph.dst)
    some = np.unique((low * 30 + high)[low != high])
    known = np.unique(np.concatenate((some, some % 30 * 30 + some // 30)))
    task = LinkTask(part, links_of(part, some // 30, some % 30, known, 3, 1))
    strategy = ClusterBatch(part, ["in"], task, clusters=part.masters // 3)
    missing = 0
    for i in range(strategy.steps_per_epoch):
        chosen = strategy.chosen(0, i)
        inside = np.isin(np.arange(30) // 3, chosen)
        assert strategy.batch(0, i).pairs is not None
        own = np.flatnonzero(inside[some // 30] & inside[some % 30])
        members = NodesByCluster(part, part.masters // 3, 10).members(chosen)
        pairs = task.seeds(own, i, members).pairs.pairs
        assert inside[pairs.src].all() and inside[pairs.dst].all()
        linked = np.isin(pairs.src * 30 + pairs.dst, known) | (pairs.src == pairs.dst)
        assert not linked[pairs.label == 0].any() and linked[np.isnan(pairs.label)].all()
        missing += np.isnan(pairs.label).sum()
    assert missing > 0


def test_weight_decay_on_the_first_layer_only():
    model = build_model("gcn", D, C, decay_first_layer_only=True)
    assert [p.decay for p in model.parameters()] == [1, 1, 0, 0]


def test_dropped_edges_take_no_part():
    """With all but a few edges dropped, attention runs over the others only: weights still add up
    to 1 or 0.
    """
    graph = example(x=np.ones((30, D)))
    plain = {"layers": 1, "dropout": 0, "attention_dropout": 0, "norm": "none"}
    out, _ = outputs(lambda: make("gipa", D, C, A, edge_drop=0.9, **plain), graph, training=True)
    assert len(np.unique(out.round(9), axis=0)) == 2


def test_gcn_needs_a_known_norm():
    with pytest.raises(ValueError, match="sym, row"):
        GCN(3, 2, norm="col")
