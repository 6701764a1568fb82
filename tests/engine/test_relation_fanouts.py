"""Neighbour sampling with a number of edges for each relation."""

from __future__ import annotations

from collections import Counter

import graphs
import numpy as np
import pytest
import scipy

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError

RNG = np.random.default_rng(5)
CODES = RNG.integers(0, 3, 500)
GRAPH = graphs.random_graph(
    40, 500, edge_columns={"relation": CODES, "part": RNG.random(500) < 0.7}
)
TARGETS = [3, 8, 20, 31]


def block(fanout, **options):
    """The edges into the targets, and how often they count."""
    found = gt.sample(GRAPH, TARGETS, fanout, **options)[-1]
    return found.edge, found.weight


@pytest.mark.parametrize("replace", [False, True])
def test_every_relation_has_its_own_number_of_edges(replace):
    edges, weight = block([2], sampler="per_relation:of=1=4;2=0", replace=replace, seed=3)
    assert len(edges) and set(CODES[edges]) == {0, 1}
    for v in TARGETS:
        for code, k in ((0, 2), (1, 4)):
            all_edges = np.flatnonzero((GRAPH.dst == v) & (code == CODES))
            chosen = (GRAPH.dst[edges] == v) & (CODES[edges] == code)
            if not replace:
                assert chosen.sum() == min(k, len(all_edges))
            # sums over all edges of the relation are estimated
            np.testing.assert_allclose(weight[chosen].sum(), len(all_edges))


def test_minus_one_keeps_all_edges_and_masks_leave_some_out():
    edges, weight = block([-1], sampler="per_relation:of=0=0,mask=part")
    wanted = np.flatnonzero(np.isin(GRAPH.dst, TARGETS) & (CODES > 0) & GRAPH.edge_columns["part"])
    assert sorted(edges) == wanted.tolist() and (weight == 1).all()


@pytest.mark.second
def test_every_edge_of_a_relation_is_equally_likely():
    code = 1
    k = 2
    n = 400
    degree = np.bincount(GRAPH.dst[code == CODES], minlength=GRAPH.n_nodes)
    # each of these nodes draws for itself
    nodes = np.flatnonzero(degree > k)
    loader = gt.Loader(GRAPH, targets="all", to="arrays", fanout=[k], sampler="per_relation")
    counts = np.zeros(GRAPH.n_edges)
    for step in range(n):
        counts[loader.sample(nodes, step).blocks[-1].edge] += 1
    own = np.flatnonzero((code == CODES) & np.isin(GRAPH.dst, nodes))
    size = degree[GRAPH.dst[own]]
    share = k / size
    variance = n * share * (1 - share) * size / (size - 1)
    chi = np.sum((counts[own] - n * share) ** 2 / variance)
    assert chi < scipy.stats.chi2.ppf(0.999, np.sum(degree[nodes] - 1))


def test_relations_are_named_and_hops_have_numbers_of_their_own():
    ends = {
        ("a", "likes", "b"): (np.repeat(np.arange(9), 6), np.tile(np.arange(6), 9)),
        ("b", "knows", "b"): (np.repeat(np.arange(6), 6), np.tile(np.arange(6), 6)),
    }
    graph = gt.Graph(
        ends,
        {"a": 9, "b": 6},
        y={"b": np.zeros(6, int)},
        x={"a": np.ones((9, 2)), "b": np.ones((6, 1))},
    )
    far, near = gt.sample(graph, [9, 12], [3, 1], sampler="per_relation:of=likes=2/5")
    relation = graph.edge_columns["relation"]
    counted = [
        Counter(zip(b.dst.tolist(), relation[b.edge].tolist(), strict=True)) for b in (near, far)
    ]
    assert set(counted[0].items()) == {
        ((row, code), k) for row in (0, 1) for code, k in ((0, 2), (1, 3))
    }
    assert {(code, k) for (_, code), k in counted[1].items()} == {(0, 5), (1, 1)}


def losses(comm, **keys):
    job = {
        "model": "rgcn",
        "strategy": "mini",
        "batch_size": 8,
        "fanout": "3,2",
        "epochs": 2,
        "backend": "reference",
        "dtype": "float64",
        "dropout": 0.5,
        "sampler": "per_relation:of=2=1/2",
    }
    return [
        row["loss"] for row in gt.Trainer(graph=GRAPH, comm=comm, **{**job, **keys}).fit().history
    ]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "keys", [{}, {"model": "sage", "replace": True, "direction": "both"}, {"mode": "independent"}]
)
def test_losses_do_not_depend_on_ranks(keys):
    independent = "mode" in keys
    alone = losses(SerialComm(), **({"views_per_step": 2} if independent else keys))
    for size, (placement, masters) in zip((2, 2, 3, 4), graphs.PLACEMENTS[::2], strict=False):
        if independent and size > 2:
            break
        for found in run_simulated(
            size,
            lambda comm, p=placement, m=masters: losses(comm, partitioner=p, masters=m, **keys),
        ):
            np.testing.assert_allclose(found, alone, rtol=1e-9)


def test_self_loops_that_a_job_adds_are_kept():
    found = losses(
        SerialComm(), model="sage", self_loops="yes", sampler="per_relation:of=0=0;1=0;2=0"
    )
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    "of, message",
    [
        ("5=1", r"relation '5' is not known; the relations are 0 \(0\), 1 \(1\), 2 \(2\)"),
        ("1=2;1=3", "names the relation 1 twice"),
        ("1=2/3/4", "1 has '2/3/4'; expected 2 number"),
        ("1=x", "1 has 'x'"),
        ("1", "1 has 'no number'"),
        ("1=-2", "1 has '-2'"),
    ],
)
def test_bad_numbers(of, message):
    with pytest.raises(ConfigError, match=message):
        losses(SerialComm(), sampler=f"per_relation:of={of}")


def test_a_graph_without_relations_is_refused():
    with pytest.raises(ConfigError, match="the graph has no relations"):
        gt.Trainer(
            "sage",
            graphs.random_graph(20, 60),
            strategy="mini",
            fanout="2,2",
            sampler="per_relation",
            epochs=1,
        ).fit()
