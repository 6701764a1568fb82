"""Small graphs for tests: ordinary ones with every kind of value, and odd ones."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from graphtheta.graph.data.graph import Graph

PLACEMENTS = [(p, m) for p in ("1d-src", "1d-dst", "vertex-cut") for m in ("hash", "block")]


def fill(src, dst, n, seed=0, **fields):
    """A graph over these edges with features, classes, attributes, weights, targets and masks."""
    rng = np.random.default_rng(seed)
    e = len(src)
    kind = rng.permutation(n) % 3
    edge_kind = rng.permutation(e) % 3
    columns = dict(
        x=rng.standard_normal((n, 4)),
        y=rng.integers(0, 3, n),
        n_classes=3,
        edge_attr=rng.standard_normal((e, 3)),
        edge_weight=rng.uniform(0.5, 2, e),
        edge_y=rng.standard_normal(e),
        train=kind == 0,
        val=kind == 1,
        test=kind == 2,
        edge_train=edge_kind == 0,
        edge_val=edge_kind == 1,
        edge_test=edge_kind == 2,
    )
    return Graph((np.asarray(src, np.int64), np.asarray(dst, np.int64)), n, **{**columns, **fields})


def random_graph(n=24, e=90, seed=0, hub=True, **fields):
    """Random edges with duplicates and self loops; a third of them into one hub; the last two nodes
    isolated.
    """
    rng = np.random.default_rng(seed)
    src = rng.integers(0, n - 2, e)
    dst = rng.integers(0, n - 2, e)
    if hub:
        dst[: e // 3] = 3
    return fill(src, dst, n, seed, **fields)


def odd_graphs():
    """By name."""
    rng = np.random.default_rng(1)
    ring = np.arange(8)
    hub_src = rng.integers(0, 12, 40)
    hub_dst = np.concatenate((np.full(20, 4), rng.integers(0, 12, 20)))
    return {
        "no edges": fill([], [], 9),
        "one node": fill([], [], 1),
        "one node with a loop": fill([0], [0], 1),
        "self loops only": fill(ring, ring, 8),
        "duplicates": fill(np.repeat([0, 1, 2, 7], 3), np.repeat([5, 6, 7, 0], 3), 8),
        "ring and isolated": fill(ring, (ring + 1) % 8, 14),
        "hub owns half the edges": fill(hub_src, hub_dst, 12),
        "one source": fill(np.zeros(11, int), np.arange(11), 11),
    }


def papers():
    """Papers, authors and subjects, with features, attributes and columns of some of them."""
    rng = np.random.default_rng(0)
    writes, has = ("author", "writes", "paper"), ("paper", "has", "subject")
    ends = {
        writes: (rng.integers(0, 15, 60), rng.integers(0, 20, 60)),
        has: (rng.integers(0, 20, 30), rng.integers(0, 4, 30)),
    }
    return Graph(
        ends,
        {"paper": 20, "author": 15, "subject": 4},
        x={"paper": rng.normal(size=(20, 8)), "subject": sp.eye(4)},
        y={"paper": rng.integers(0, 3, 20)},
        train={"paper": np.arange(20) < 10},
        edge_attr={writes: rng.normal(size=(60, 2))},
        edge_columns={"year": {writes: rng.integers(1990, 2020, 60)}},
    ).with_inverse_relations()


def arrays_of(p):
    """All arrays of a partition."""
    edges = p.relations["edge"]
    found = [p.gid, p.edge_gid, *(s.read(name) for s in (p.node, p.edge) for name in s.names())]
    found += [
        x
        for b in edges.blocks
        for x in (b.in_indptr, b.in_src, b.out_indptr, b.out_dst, b.out_edge)
    ]
    served = (edges.sources, edges.destinations)
    return found + [
        x for plan, mirrors in served for x in (mirrors, plan.rows, plan.send_ptr, plan.recv_ptr)
    ]
