"""Graphs that stand for larger ones in the simulations of bench/: their edges, and that a step
reads all of them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.inspect.planning.skeleton import skeleton
from graphtheta.inspect.planning.work import PARTS, Load

BENCH = Path(__file__).resolve().parent.parent / "bench"
SCALE = 11


@pytest.fixture
def excerpts(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCH)
    import excerpts

    return excerpts


@pytest.fixture(params=["PAPERS", "ALIPAY"])
def original(request: pytest.FixtureRequest, excerpts: Any) -> Any:
    """A graph with few clusters and targets."""
    return replace(getattr(excerpts, request.param), nodes=400_000, training=80_000)


def test_ends_of_edges_have_the_quadrants_of_rmat(excerpts: Any) -> None:
    random = np.random.default_rng(0)
    nodes = np.arange(1 << SCALE)
    degree = excerpts.PAPERS.degree
    degrees = excerpts._degrees(random, nodes, SCALE, degree)
    assert degrees.sum() == pytest.approx(degree << SCALE, rel=0.05)
    dst = np.repeat(nodes, degrees)
    src = excerpts._neighbours(random, dst, SCALE)
    found = [
        np.mean([(src >> bit & 1 == a) & (dst >> bit & 1 == b) for bit in range(SCALE)])
        for a in (0, 1)
        for b in (0, 1)
    ]
    assert found == pytest.approx([0.57, 0.19, 0.19, 0.05], abs=0.01)


def test_a_batch_of_targets_reads_all_that_was_drawn(excerpts: Any, original: Any) -> None:
    batch = excerpts.neighbourhood(SCALE, of=original)
    graph = batch.graph
    targets = int(graph.train.sum())
    assert targets == round(original.training * excerpts.SHARE / batch.times)
    # no self loop, no duplicate, and a hop beyond the nodes that are computed
    assert (
        len({*zip(graph.src.tolist(), graph.dst.tolist(), strict=True)}) == graph.n_edges
        and (graph.src != graph.dst).all()
    )
    into = np.unique(graph.dst)
    ends = np.flatnonzero(graph.train)
    first = np.union1d(ends, graph.src[np.isin(graph.dst, ends)])
    assert np.isin(into, first).all() and np.isin(ends, into).all()
    job = gt.Job(
        dataset="rmat",
        model="gat_e" if original.edge_features else "gcn",
        hidden=8,
        strategy="mini",
        batch_size=targets,
        backend="reference",
        keep=0,
    )
    view = skeleton(job, graph).strategy(job).batch(0, 0)
    assert view.space.n == graph.n_nodes
    # each node that is computed reads itself too
    assert view.levels[0].n_edges == graph.n_edges + view.levels[0].n_out


@pytest.mark.parametrize("times", [1, 2])
def test_edges_of_a_batch_of_clusters_stay_inside(excerpts: Any, original: Any, times: int) -> None:
    batch = excerpts.clusters(0.5, of=original, times=times).graph
    count = original.nodes / original.cluster * excerpts.SHARE / times
    few = excerpts.cluster_levels(round(count), original)
    cluster = np.repeat(np.arange(len(few)), 1 << few)
    assert len(cluster) == batch.n_nodes and (cluster[batch.src] == cluster[batch.dst]).all()
    assert 0.2 * original.degree < batch.n_edges / batch.n_nodes <= 0.5 * original.degree
    edges = batch.edge_attr
    assert (0 if edges is None else edges.shape[1]) == original.edge_features


def test_half_of_the_edges_of_a_whole_graph_stay_inside(excerpts: Any) -> None:
    graph, own = excerpts.communities(1_400, 0.5)
    assert len(own) == graph.n_nodes
    assert 0.3 < (own[graph.src] == own[graph.dst]).mean() < 0.55


@pytest.mark.parametrize("name", ["PAPERS", "ALIPAY"])
def test_sizes_of_clusters_have_the_mean_of_the_published_ones(excerpts: Any, name: str) -> None:
    of = getattr(excerpts, name)
    levels = excerpts.cluster_levels(round(of.nodes / of.cluster), of)
    assert (1 << levels).mean() == pytest.approx(of.cluster, rel=0.1)
    assert 0.01 < (1 << int(levels.max())) / of.nodes < 0.02


@pytest.mark.parametrize(("file", "cores"), [("cluster", 4), ("docker", 1)])
def test_machines_of_a_file(excerpts: Any, file: str, cores: int) -> None:
    from scaled import read

    cluster = read(BENCH / "papers" / f"{file}.yaml", 2.0)
    assert cluster.cores == cores
    parts = np.zeros((3, 1, len(PARTS)))
    parts[:, 0, 0] = [0.0, 1e9, 2e9]
    # products on all threads, of twice as much
    load = Load(parts, np.full((3, 1), 64.0), np.ones(1))
    expected = 2 * np.array([0.0, 1.0, 2.0]) * 1e9 * cluster.seconds[0] / cluster.cores
    assert replace(cluster, wake=0.0).compute(load, 1) == pytest.approx(expected)
    sent = np.array([0, 0, 10**6])
    assert cluster.transfer(sent, 0 * sent, 1) == pytest.approx(2e6 / cluster.bandwidth)
