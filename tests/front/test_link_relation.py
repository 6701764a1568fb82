"""Links of one relation of a graph with types: negatives are of the right type, and no edge tells a
target.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.typed import relation_code
from graphtheta.graph.splits.links import DROPPED, MESSAGE, TEST, VAL, link_parts
from graphtheta.graph.store.from_graph import write_store

pytestmark = pytest.mark.reference

USERS = 40
ITEMS = 30
TAGS = 5
KEYS: dict[str, Any] = {
    "model": "rgcn",
    "task": "link",
    "link_relation": "buys",
    "hidden": 6,
    "negatives": 3,
    "eval_negatives": 6,
    "dtype": "float64",
    "dropout": 0.0,
    "epochs": 2,
}
MINI: dict[str, Any] = {"strategy": "mini", "batch_size": 30}


def graph() -> gt.Graph:
    rng = np.random.default_rng(4)
    bought = np.unique(rng.integers(0, USERS, 240) * ITEMS + rng.integers(0, ITEMS, 240))
    buys = bought // ITEMS, bought % ITEMS
    viewed = np.unique(np.concatenate((bought[::3], rng.integers(0, USERS * ITEMS, 60))))
    return gt.Graph(
        {
            ("user", "buys", "item"): buys,
            ("user", "views", "item"): (viewed // ITEMS, viewed % ITEMS),
            ("item", "has", "tag"): (np.arange(ITEMS), np.arange(ITEMS) % TAGS),
        },
        {"user": USERS, "item": ITEMS, "tag": TAGS},
        x={
            kind: rng.standard_normal((n, 4))
            for kind, n in (("user", USERS), ("item", ITEMS), ("tag", TAGS))
        },
    ).with_inverse_relations()


def edges(g: gt.Graph, *codes: int) -> set[tuple[int, int]]:
    found = np.isin(g.edge_columns["relation"], codes)
    return set(zip(g.src[found].tolist(), g.dst[found].tolist(), strict=True))


@pytest.mark.parametrize("masks", [False, True])
def test_only_edges_of_the_relation_are_held_out_and_others_along_them_dropped(masks: bool) -> None:
    g = graph()
    if masks:
        each = np.arange(g.n_edges) % 7
        g = g.replace(edge_train=each < 5, edge_val=each == 5, edge_test=each == 6)
    part = link_parts(g, 0.1, 0.2, relation=0)(0, g.n_edges)
    relation = g.edge_columns["relation"]
    held = np.isin(part, (VAL, TEST))
    assert held.any() and set(relation[held]) == {0}
    pair = np.minimum(g.src, g.dst) * g.n_nodes + np.maximum(g.src, g.dst)
    along = np.isin(pair, pair[held])
    np.testing.assert_array_equal(part == DROPPED, along & ~held)
    np.testing.assert_array_equal(part == MESSAGE, ~along)
    assert {1, 3, 4} <= set(relation[part == DROPPED])


@pytest.mark.parametrize(
    "keys",
    [
        MINI,
        {**MINI, "negatives_from": "batch"},
        {"strategy": "cluster"},
        {"strategy": "global", "negative_groups": 2},
    ],
    ids=lambda keys: "-".join(map(str, keys.values())),
)
def test_negatives_are_of_the_right_type_and_targets_pass_no_messages(keys: dict[str, Any]) -> None:
    g = graph()
    every = edges(g, *range(6))
    bought = edges(g, 0)

    def program(comm: Any) -> list[Any]:
        trainer = gt.Trainer(graph=g, comm=comm, partitioner="vertex-cut", **KEYS, **keys)
        view = trainer.setup.strategy.batch(0, 0)
        pairs = view.pairs.pairs
        part = trainer.partition
        used = view.levels[0].stored
        src, dst = part.edge_ends()
        return comm.all_gather(
            (
                np.stack((pairs.src, pairs.dst, pairs.label), axis=1),
                np.stack((src[used], dst[used]), axis=1),
            )
        )

    for size in (1, 3):
        found = run_simulated(size, program)[0]
        pairs, messages = (np.concatenate(x) for x in zip(*found, strict=True))
        src, dst = pairs[:, 0].astype(int), pairs[:, 1].astype(int)
        assert (
            src.max() < USERS <= dst[pairs[:, 2] >= 0].min()
            and dst[pairs[:, 2] >= 0].max() < USERS + ITEMS
        )
        positive = {(int(s), int(d)) for s, d, label in pairs if label == 1}
        assert positive and positive <= bought
        negative = {(int(s), int(d)) for s, d, label in pairs if label == 0}
        assert negative and not negative & every
        carried = set(map(tuple, messages.tolist()))
        assert carried and not carried & (positive | {(d, s) for s, d in positive})


@pytest.mark.second
def test_any_number_of_workers_gives_the_same_numbers(tmp_path: Path) -> None:
    def program(comm: Any, keys: dict[str, Any], stored: bool = False) -> list[Any]:
        trainer = gt.Trainer(
            graph=gt.load(tmp_path / "store") if stored else graph(),
            comm=comm,
            **KEYS,
            **MINI,
            **keys,
        )
        result = trainer.fit()
        return [*result.metrics.values(), *(p.value for p in trainer.model.parameters())]

    wanted = run_simulated(1, program, {})[0]
    for size, keys in ((2, {"partitioner": "vertex-cut"}), (3, {"masters": "metis"})):
        for found in run_simulated(size, program, keys):
            same(found, wanted)
    run_simulated(1, lambda comm: write_store(graph(), tmp_path / "store", comm))
    same(run_simulated(2, program, {}, True)[0], wanted)


def same(found: list[Any], wanted: list[Any]) -> None:
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-12)


def test_relations_and_types_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=(
            r"link_relation: relation 'sells' is not known; the relations are 0 \(user buys"
            r" item\), 1"
        ),
    ):
        gt.Trainer(graph=graph(), **{**KEYS, "link_relation": "sells"})
    many = [*((f"type {i}", f"has {i}", "thing") for i in range(20)), ("type 3", "has 5", "type 4")]
    with pytest.raises(
        ConfigError,
        match=(
            r"relation: relation 'has5' is not known \(did you mean 'has 5'\?\); the relations"
            r" are 0 "
            r"\(type 0 has 0 thing\), .*, 11 \(type 11 has 11 thing\), and 9 more$"
        ),
    ):
        relation_code(many, "has5", "relation")
    with pytest.raises(
        ConfigError,
        match=(
            r"'has 5' is not unique; .* of 5 \(type 5 has 5 thing\) or 20 \(type 3 has 5 type 4\)$"
        ),
    ):
        relation_code(many, "has 5", "relation")
    with pytest.raises(
        ConfigError, match="link_relation=buys has no meaning with task=triple, only with link"
    ):
        gt.Trainer(graph=graph(), task="triple", link_relation="buys")
    mixed = gt.Graph([[0, 1], [1, 2]], 3, x=np.ones((3, 2)), node_columns={"type": [1, 0, 1]})
    with pytest.raises(DataError, match="nodes of one type are not numbered together"):
        gt.Trainer(graph=mixed, **{**KEYS, "model": "gcn", "link_relation": ""})
