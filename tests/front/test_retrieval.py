"""Recall and NDCG of links among all candidates: against a plain loop over the sources, on any
number of workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError
from graphtheta.graph.splits.links import TEST, VAL, link_parts
from graphtheta.ops.functions.metrics.retrieval import (
    TOPS,
    gains,
    retrieval_mean,
    retrieval_sums,
    retrieved,
)

USERS, ITEMS = 25, 40
KEYS: dict[str, Any] = {
    "task": "link",
    "rank_all": True,
    "hidden": 4,
    "dtype": "float64",
    "backend": "reference",
    "dropout": 0.0,
    "epochs": 2,
    "eval_negatives": 3,
    "seed": 2,
}


def bipartite() -> gt.Graph:
    """Users, items and tags; users rate items, the first one all, and some are each other's
    friends.
    """
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, (USERS, ITEMS), (300, 2))
    pairs[:ITEMS] = np.stack((np.zeros(ITEMS), np.arange(ITEMS)), axis=1)
    rates = np.unique(pairs, axis=0).T
    return gt.Graph(
        {
            ("user", "rates", "item"): rates,
            ("user", "friend", "user"): rng.integers(0, USERS, (2, 30)),
            ("item", "has", "tag"): (np.arange(ITEMS), np.arange(ITEMS) % 5),
        },
        {"user": USERS, "item": ITEMS, "tag": 5},
        x={
            "user": rng.normal(size=(USERS, 3)),
            "item": rng.normal(size=(ITEMS, 3)),
            "tag": rng.normal(size=(5, 3)),
        },
    )


def plain() -> gt.Graph:
    rng = np.random.default_rng(1)
    return gt.Graph(rng.integers(0, 50, (2, 260)), 50, x=rng.normal(size=(50, 3)))


def measured(comm, graph, **keys):
    """Metrics after training, and the values of the nodes that the decoder reads."""
    trainer = gt.Trainer("sage", graph, comm=comm, **{**KEYS, **keys})
    trainer.fit()
    return trainer.measure(), trainer.embed()


def by_loop(graph: gt.Graph, h: np.ndarray, relation: int | None) -> dict[str, float]:
    """Recall and NDCG by sorting the candidates of each source."""
    parts = link_parts(graph, seed=KEYS["seed"], relation=relation)(0, graph.n_edges)
    types = graph.node_columns["type"] if relation is not None else np.zeros(graph.n_nodes)
    pair = [frozenset(ends) for ends in zip(graph.src.tolist(), graph.dst.tolist(), strict=True)]
    found: dict[str, float] = {}
    for split, part, later in (("val", VAL, TEST), ("test", TEST, None)):
        known = set(pair) - {p for p, of in zip(pair, parts, strict=True) if of == later}
        held: dict[frozenset[int], tuple[int, int]] = {}
        for i in np.flatnonzero((parts == part) & (graph.src != graph.dst)):
            link = int(graph.src[i]), int(graph.dst[i])
            # of both directions, the one to the larger number is the link
            held[pair[i]] = min(held.get(pair[i], link), link)
        rows = []
        for u in {u for u, _ in held.values()}:
            items = [v for w, v in held.values() if w == u]
            others = [
                v
                for v in range(graph.n_nodes)
                if v != u and types[v] in types[items] and frozenset((u, v)) not in known
            ]
            if not others:
                # such as the user whose links of training and validation are all other items
                assert u == 0
                continue
            order = sorted([*items, *others], key=lambda v: -h[u] @ h[v])
            place = np.array([order.index(v) + 1 for v in items])
            ideal = [(1 / np.log2(2 + np.arange(min(k, len(items))))).sum() for k in TOPS]
            rows.append(
                [
                    *((place <= k).mean() for k in TOPS),
                    *(
                        (1 / np.log2(1 + place[place <= k])).sum() / best
                        for k, best in zip(TOPS, ideal, strict=True)
                    ),
                ]
            )
        names = [f"{split}_{name}{k}" for name in ("recall", "ndcg") for k in TOPS]
        found |= dict(zip(names, np.mean(rows, axis=0), strict=True))
    return found


@pytest.mark.parametrize(
    ("graph", "relation"), [(plain(), None), (bipartite(), 0)], ids=["plain", "bipartite"]
)
def test_values_equal_a_loop_over_the_sources_on_any_workers(
    graph: gt.Graph, relation: int | None
) -> None:
    keys = {} if relation is None else {"link_relation": "rates"}
    ((one, (ids, h)),) = run_simulated(1, measured, graph, **keys)
    assert (ids == np.arange(graph.n_nodes)).all()
    wanted = by_loop(graph, h, relation)
    assert {name: one[name] for name in wanted} == pytest.approx(wanted, rel=1e-12)
    for found, _ in run_simulated(3, measured, graph, **keys, partitioner="vertex-cut"):
        assert {name: found[name] for name in one} == pytest.approx(one, rel=1e-9)


def test_equal_scores_share_their_places() -> None:
    """A constant score puts every item in the middle of all candidates, on any workers."""

    def constant(comm):
        trainer = gt.Trainer("sage", plain(), comm=comm, **KEYS)
        for p in trainer.model.parameters():
            p.value = np.zeros_like(p.value)
        return trainer.evaluate()

    (one,) = run_simulated(1, constant)
    assert one["test_recall50"] == 1 and one["test_recall10"] == 0
    for found in run_simulated(3, constant):
        assert found == pytest.approx(one)


def test_gains() -> None:
    rank = np.array([1.0, 3, 60, 11])
    group = np.array([0, 0, 0, 2])
    counts, hits, gain = gains(rank, group, 3)
    np.testing.assert_array_equal(counts, [3, 0, 1])
    np.testing.assert_array_equal(hits, [[2, 2, 2], [0, 0, 0], [0, 1, 1]])
    recall, ndcg = retrieved(counts[[0, 2]], hits[[0, 2]], gain[[0, 2]])
    np.testing.assert_allclose(recall, [[2 / 3] * 3, [0, 1, 1]])
    np.testing.assert_allclose(ndcg[0], 1.5 / (1.5 + 1 / np.log2(3)))
    sums = retrieval_sums(recall, ndcg)
    assert retrieval_mean(sums, 0) == pytest.approx(1 / 3) and retrieval_mean(
        sums, 4
    ) == pytest.approx(ndcg[:, 1].mean())
    assert np.isnan(retrieval_mean(retrieval_sums(recall[:0], ndcg[:0]), 0))
    assert np.isnan(gains(np.array([np.nan]), np.array([0]), 1)[1]).all()


def test_errors() -> None:
    with pytest.raises(ConfigError, match="metric=recall20 does not measure this task"):
        gt.Trainer("sage", plain(), **{**KEYS, "rank_all": False, "metric": "recall20"})
    with pytest.raises(ConfigError, match="rank_all"):
        gt.Trainer("gcn", gt.load("sbm:n_nodes=60,n_edges=200"), rank_all=True)
