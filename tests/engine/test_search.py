"""One search of several views: what it finds is what searching each view alone finds, to the bit,
with messages that do not grow.
"""

from __future__ import annotations

from typing import Any

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.train.deal import structure
from graphtheta.engine.train.parts import parts_of, parts_of_views
from graphtheta.engine.view.view import GraphView
from graphtheta.ops.kernels.sampling.by_view import number_by_view

RNG = np.random.default_rng(0)
BASE = graphs.random_graph(40, 160)
GRAPH = BASE.replace(
    edge_columns={"time": RNG.integers(0, 100, 160), "some": RNG.random(160) < 0.7},
    node_columns={"time": RNG.integers(50, 100, 40)},
)
LATER = GRAPH.replace(
    edge_columns={"time": RNG.random(160)}, node_columns={"time": 0.5 + RNG.random(40) / 2}
)
KEYS: dict[str, Any] = {
    "graph": GRAPH,
    "hidden": 4,
    "dtype": "float64",
    "seed": 3,
    "backend": "reference",
    "strategy": "mini",
    "batch_size": 3,
    "mode": "independent",
    "model": "gcn",
}
CASES: dict[str, dict[str, Any]] = {
    "all neighbours": {},
    "both directions": {"model": "sage", "direction": "both"},
    "three layers": {"layers": 3, "fanout": "2,-1,3"},
    "against edges": {"model": "sage", "direction": "out", "fanout": "3,2"},
    "with replacement": {"fanout": "3,2", "replace": True},
    "of some edges": {"model": "sage", "sampler": "neighbour:mask=some", "fanout": "3,2"},
    "one sample": {"fanout": "3", "share_sample": True},
    "by weight": {
        "model": "sage",
        "sampler": "weighted:normalise=yes",
        "direction": "both",
        "fanout": "3,2",
    },
    "by time": {"model": "sage", "sampler": "temporal", "direction": "both", "fanout": "3,2"},
    "the latest": {
        "model": "sage",
        "sampler": "temporal:strategy=last",
        "fanout": "2",
        "graph": LATER,
    },
    "of few sources": {"model": "sage", "sampler": "labor:kappa=4,iterations=1", "fanout": "3,2"},
    "of shared draws": {"model": "sage", "sampler": "labor", "fanout": "3,2"},
    "sources per hop": {"sampler": "ladies:normalise=yes", "fanout": "6,9"},
    "links": {
        "model": "sage",
        "task": "link",
        "decoder": "hadamard",
        "negatives": 2,
        "fanout": "3,2",
    },
    "no layer over edges": {"model": "mlp"},
    "node sets": {"batch_size": 0, "sampler": "saint_walk:roots=6,depth=2,coverage=5"},
    "clusters": {"strategy": "cluster", "clusters": 5, "batch_size": 0, "diagonal": 0.5},
}


def trainer(comm: Comm, **keys: Any) -> gt.Trainer:
    keys = {**KEYS, **keys}
    return gt.Trainer(keys.pop("model"), keys.pop("graph"), comm=comm, **keys)


def arrays(view: GraphView) -> list[np.ndarray]:
    """Everything that a worker holds of its view, without wide columns."""
    found = [view.space.gid, np.sort(view.partition.masters)]
    found += [view.node.read(name, view.space.n) for name in view.partition.node.names()]
    for level in view.levels:
        found += [np.array([level.n_in, level.n_out, *level.counts]), level.gid]
        found += [
            x
            for p in level.passes
            for s in p.selections
            for x in (s.row, s.ptr, s.other, s.gid[s.stored], s.weight)
        ]
        found += [
            view.partition.edge.read(name)[level.stored] for name in view.partition.edge.names()
        ]
    if view.pairs is not None:
        found += [view.pairs.label, view.pairs.gid, *view.pairs.given.values()]
    return found


def both(comm: Comm, last: int, **keys: Any) -> int:
    """Compare the two ways; returns the messages of the search."""
    one = trainer(comm, **keys)
    strategy = one.strategy
    last = min(last, one.strategy.steps_per_epoch)
    makers = strategy.makers(1, 0, last)
    alone = parts_of_views([make() for make in makers], strategy.layers)
    before = comm.ledger.snapshot()
    together = parts_of(strategy, 1, 0, last)
    messages = sum(int(book["messages"]) for book in comm.ledger.since(before).values())
    for a, b in zip(
        *(arrays(structure(parts, strategy.layers)) for parts in (alone, together)), strict=True
    ):
        np.testing.assert_array_equal(a, b, strict=True)
    return messages


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("number", "name"), list(enumerate(CASES)), ids=CASES)
def test_views_are_those_that_are_searched_alone(number: int, name: str) -> None:
    size, (placement, masters) = 2 + number % 3, graphs.PLACEMENTS[number % len(graphs.PLACEMENTS)]
    run_simulated(size, both, size, **CASES[name], partitioner=placement, masters=masters)


@pytest.mark.one_in(11, 4)
@pytest.mark.parametrize("placement", graphs.PLACEMENTS, ids=str)
@pytest.mark.parametrize(
    "name", ["by weight", "by time", "of shared draws", "links", "with replacement"]
)
def test_wherever_edges_are(name: str, placement: tuple[str, str]) -> None:
    run_simulated(4, both, 4, **CASES[name], partitioner=placement[0], masters=placement[1])


@pytest.mark.one_in(4)
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize(
    "name", [name for name, graph in graphs.odd_graphs().items() if graph.n_nodes > 1]
)
def test_odd_graphs(name: str, size: int) -> None:
    # targets of one worker only, and fewer than workers
    graph = graphs.odd_graphs()[name].with_masks(np.arange(graphs.odd_graphs()[name].n_nodes) < 2)
    keys: dict[str, Any] = {
        "graph": graph,
        "masters": "block",
        "batch_size": 1,
        "partitioner": "vertex-cut",
    }
    run_simulated(size, both, size, **keys)
    run_simulated(size, both, size, **keys, fanout="2")


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    "name", ["all neighbours", "with replacement", "by time", "links", "sources per hop"]
)
def test_messages_do_not_grow_with_the_number_of_views(name: str) -> None:
    one, four = (
        max(run_simulated(4, both, n, **CASES[name], partitioner="vertex-cut")) for n in (1, 4)
    )
    assert four < 1.3 * one


def test_items_are_numbered_by_view() -> None:
    rng = np.random.default_rng(5)
    for parts, views, n in ((0, 3, 0), (1, 1, 50), (3, 4, 30), (2, 6, 2)):
        known = [rng.permutation(20)[: rng.integers(0, 5)] * 10**11 for _ in range(views)]
        lists = [
            [rng.integers(0, 20, rng.integers(0, n + 1)) * 10**11 for _ in range(views)]
            for _ in range(parts)
        ]
        bounds = np.cumsum([0, *(len(x) for of in lists for x in of)])
        bounds = np.array(
            [bounds[s * views : (s + 1) * views + 1] for s in range(parts)], np.int64
        ).reshape(parts, views + 1)
        items = np.concatenate([np.zeros(0, np.int64), *(x for of in lists for x in of)])
        found, ptr, number = number_by_view(
            np.concatenate(known), np.cumsum([0, *map(len, known)]), items, bounds
        )
        for v in range(views):
            own = [x for s in range(parts) for x in items[bounds[s, v] : bounds[s, v + 1]]]
            assert found[ptr[v] : ptr[v + 1]].tolist() == list(
                dict.fromkeys([*known[v].tolist(), *own])
            )
            for s in range(parts):
                at = slice(*bounds[s, v : v + 2])
                np.testing.assert_array_equal(found[ptr[v] + number[at]], items[at])
