"""Embedded graphs: shape, repeatability, and whether they are worth learning."""

from __future__ import annotations

import time

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.errors import ConfigError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.transform import mean_of_in_edges


@pytest.mark.parametrize("name", ["sbm", "rmat", "ring", "star"])
def test_same_seed_same_graph(name):
    three, again, four = (gt.load(name, graph_seed=seed).digest() for seed in (3, 3, 4))
    assert three == again != four
    g = gt.load(name)
    assert not (g.train & g.val).any() and (g.train | g.val | g.test).all()
    assert g.train.any() and g.val.any() and g.test.any()
    g.require_training()


def test_the_default_job():
    start = time.perf_counter()
    g = gt.load("sbm")
    assert time.perf_counter() - start < 1
    assert (g.n_nodes, g.n_classes, g.n_features, g.n_edge_features) == (5000, 8, 32, 4)
    assert 48_000 <= g.n_edges <= 50_000
    assert len(np.unique(g.src * g.n_nodes + g.dst)) == g.n_edges and (g.src != g.dst).all()
    # both directions are there, with the same attributes
    m = g.n_edges // 2
    np.testing.assert_array_equal(g.src[:m], g.dst[m:])
    np.testing.assert_array_equal(g.edge_attr[:m], g.edge_attr[m:])
    degree = np.bincount(g.dst, minlength=g.n_nodes)
    assert degree.max() > 5 * degree.mean()


def nearest_centre(g: Graph, x: np.ndarray) -> float:
    """Accuracy on test nodes of the simplest learner there is."""
    centres = np.stack([x[g.train & (g.y == c)].mean(axis=0) for c in range(g.n_classes)])
    predicted = ((x[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    return float((predicted == g.y)[g.test].mean())


def test_neighbours_help_and_edge_attributes_help_more():
    g = gt.load("sbm")

    def smoothed(weight: np.ndarray) -> np.ndarray:
        x = g.x.astype(np.float64)
        for _ in range(2):
            carried = g.replace(edge_attr=x[g.src] * weight[:, None])
            total = np.bincount(g.dst, weight, g.n_nodes) / np.maximum(
                1, np.bincount(g.dst, minlength=g.n_nodes)
            )
            x = (
                0.3 * x
                + mean_of_in_edges(carried, carried.edge_attr, np.arange(g.n_nodes))
                / np.maximum(total, 1e-9)[:, None]
            )
        return x

    alone = nearest_centre(g, g.x)
    plain = nearest_centre(g, smoothed(np.ones(g.n_edges)))
    told = nearest_centre(g, smoothed(np.exp(1.5 * g.edge_attr[:, :2].sum(axis=1))))
    assert plain > alone + 0.05
    assert told > plain + 0.05


def test_rmat_has_hubs_and_both_directions():
    g = gt.load("rmat", scale=10, edge_factor=8, edge_features=2)
    degree = np.bincount(g.dst, minlength=g.n_nodes)
    assert g.n_nodes == 1024 and degree.max() > 10 * degree.mean()
    ends = set(zip(g.src.tolist(), g.dst.tolist(), strict=True))
    assert len(ends) == g.n_edges and all((d, s) in ends for s, d in ends)
    assert gt.load("rmat", scale=8, directed=True).n_edges < gt.load("rmat", scale=8).n_edges


def test_tiny_ones():
    ring = gt.load("ring", n=5)
    star = gt.load("star", n=6)
    assert (np.bincount(ring.dst) == 2).all() and ring.n_edges == 10
    assert np.bincount(star.dst).tolist() == [5, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("sbm", {"classes": 0}, "classes must be a positive integer"),
        ("sbm", {"inside": 2.0}, "inside=2.0"),
        ("rmat", {"a": 0.9, "b": 0.9}, "probabilities"),
        ("rmat", {"scale": 31}, "scale"),
        ("ring", {"n": 0}, "n must be"),
    ],
)
def test_bad_options(name, options, words):
    with pytest.raises(ConfigError, match=words):
        gt.load(name, **options)


def test_smallest_sizes():
    assert gt.load("sbm", n_nodes=1, n_edges=10, classes=3).n_edges == 0
    assert gt.load("sbm", n_nodes=30, n_edges=0, edge_features=0).edge_attr is None
    assert gt.load("star", n=1).n_edges == 0
