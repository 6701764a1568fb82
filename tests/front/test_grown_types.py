"""Inference on a grown graph of several types whose nodes have no ids: numbers of later types
change when nodes are appended.
"""

from __future__ import annotations

import numpy as np
import pytest
from covering import covering
from grown_graphs import check

import graphtheta as gt
from graphtheta.errors import DataError

pytestmark = pytest.mark.reference


def molecules(n: int) -> gt.Graph:
    """The first n of some small graphs, one of them without edges."""
    rng = np.random.default_rng(1)
    made = [
        gt.Graph(rng.integers(0, nodes, (2, edges)), nodes, x=rng.normal(size=(nodes, 3)))
        for nodes, edges in ((3, 4), (4, 4), (1, 0), (5, 6), (6, 9), (7, 20), (3, 3))
    ]
    return gt.whole_graphs(
        made[:n], np.arange(n) % 2, train=np.arange(n) < 3, val=np.arange(n) >= 3
    )


def of_types(
    users: int, items: int, seed: int = 5, order: tuple[str, ...] = ("user", "item")
) -> gt.Graph:
    """Users and items with dense features of their own widths and no ids; the first ones are the
    same for all numbers. Other types of the order have no nodes.
    """
    rng = np.random.default_rng(seed)
    x = {"user": rng.normal(size=(40, 3)), "item": rng.normal(size=(40, 5))}
    y = rng.integers(0, 2, 40)
    rated = rng.integers(0, 30, (2, 90))
    new = (
        np.array(
            [[u, i] for u in range(30, users) for i in (0, items - 1)]
            + [[1, i] for i in range(30, items)],
            int,
        )
        .reshape(-1, 2)
        .T
    )
    ends = np.concatenate((rated, new), axis=1)
    return gt.Graph(
        {("user", "rates", "item"): ends, ("item", "rated", "user"): ends[::-1]},
        {name: {"user": users, "item": items}.get(name, 0) for name in order},
        x={"user": x["user"][:users], "item": x["item"][:items]},
        y={"item": y[:items]},
        train={"item": np.arange(items) < 20},
        val={"item": np.arange(items) >= 20},
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("counts", "compare", "size"),
    covering(((32, 30), (30, 31), (32, 33)), ("values", "degrees"), (1, 3)),
    ids=str,
)
def test_nodes_of_several_types_without_ids(tmp_path, counts, compare, size):
    users, items = counts
    work = check(
        "rgcn",
        of_types(30, 30),
        of_types(users, items),
        tmp_path / "kept",
        size,
        layers=2,
        compare=compare,
    )
    assert work.appended == users + items - 60 and work.changed < users + items


@pytest.mark.parametrize("compare", ["values", "degrees"])
def test_types_in_another_order_and_one_without_nodes(tmp_path, compare):
    order = ("item", "shop", "user")
    keys = {"layers": 2, "hidden": 4, "epochs": 1, "dtype": "float64", "backend": "reference"}
    trainer = gt.Trainer("rgcn", of_types(30, 30, order=("user", "item", "shop")), **keys)
    trainer.on(of_types(30, 30, order=order)).keep_layers(tmp_path / "kept")
    grown = trainer.on(of_types(30, 32, order=order))
    update = grown.since(tmp_path / "kept", compare)
    np.testing.assert_allclose(update.predict("all")[1], grown.predict("all")[1], atol=1e-9)
    assert update.appended.tolist() == [30, 31] and update.work.changed < 5


@pytest.mark.one_in(5)
@pytest.mark.parametrize("compare", ["values", "degrees"])
@pytest.mark.parametrize("readout", ["sum", "set2set"])
def test_whole_graphs(tmp_path, readout, compare):
    work = check(
        "gin",
        molecules(5),
        molecules(7),
        tmp_path / "kept",
        3,
        rows=(7, 2),
        layers=2,
        readout=readout,
        compare=compare,
    )
    # two graphs of ten nodes, and a readout node for each
    assert work.appended == work.changed == 12


@pytest.mark.one_in(3)
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("compare", ["values", "degrees"])
@pytest.mark.parametrize(("learned", "users", "items"), [("user", 30, 33), ("item=3", 32, 30)])
def test_appended_nodes_of_a_type_with_features(tmp_path, learned, users, items, compare, size):
    """The other type has learned features; those of items are at other numbers when users are
    appended.
    """
    work = check(
        "rgcn",
        of_types(30, 30),
        of_types(users, items),
        tmp_path / "kept",
        size,
        layers=2,
        compare=compare,
        embedding=2,
        embedding_types=learned,
    )
    assert work.appended == users + items - 60 and work.changed < users + items


def apart(users: int, items: int, ids: bool = False) -> gt.Graph:
    """Users and items of which the first 30 have edges, with or without ids."""
    old = of_types(30, 30)
    rng = np.random.default_rng(4)
    x = {"user": rng.normal(size=(40, 3))[:users], "item": rng.normal(size=(40, 5))[:items]}
    rated = old.edge_index[:, :90] - [[0], [30]]
    named = (
        {"user": [f"u{i}" for i in range(users)], "item": [f"i{i}" for i in range(items)]}
        if ids
        else None
    )
    return gt.Graph(
        {("user", "rates", "item"): rated, ("item", "rated", "user"): rated[::-1]},
        {"user": users, "item": items},
        x=x,
        y={"item": np.arange(items) % 2},
        train={"item": np.arange(items) < 20},
        node_ids=named,
    )


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("learned", ["user", "item", "item,user=3"])
def test_nodes_keep_their_learned_features(learned, ids, tmp_path):
    """Appended nodes without edges change no output of another node."""
    users = ("user" not in learned) * 3
    items = ("item" not in learned) * 3
    trainer = gt.Trainer(
        "rgcn",
        apart(30, 30, ids),
        embedding=2,
        embedding_types=learned,
        epochs=3,
        hidden=4,
        dtype="float64",
        backend="reference",
    )
    trainer.fit()
    trainer.save(tmp_path / "weights.safetensors")
    grown = apart(30 + users, 30 + items, ids)
    before = trainer.predict("all")[1]
    on = trainer.on(grown)
    old = np.arange(grown.n_nodes) < 30
    old[30 + users : 60 + users] = True
    np.testing.assert_allclose(on.predict("all")[1][old], before, rtol=1e-9, atol=1e-9)
    # on a third graph, from the values that the second one was given
    np.testing.assert_allclose(
        on.on(apart(30, 30, ids)).predict("all")[1], before, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize(
    ("learned", "users", "items", "ids", "match"),
    [
        (
            "user",
            32,
            30,
            False,
            r"has number 30 and 1 more of the type 'user', for which the training on .* learned no"
            r" features "
            r"\(--embedding-types\); leave them out, or train again with the new nodes",
        ),
        ("user", 31, 33, False, r"has number 30 of the type 'user', .*leave it out"),
        ("item,user", 30, 33, True, r"has node 'item:i30' and 2 more of the type 'item'"),
        (
            "item",
            30,
            29,
            False,
            (
                r"has other nodes of the type 'item', .*give the 30 nodes of the type 'item' it was"
                r" trained on"
            ),
        ),
    ],
)
def test_nodes_without_learned_features_are_refused(learned, users, items, ids, match):
    trainer = gt.Trainer(
        "rgcn", apart(30, 30, ids), embedding=2, embedding_types=learned, epochs=1, hidden=4
    )
    with pytest.raises(DataError, match=match):
        trainer.on(apart(users, items, ids))


def test_other_ids_of_a_type_are_refused():
    graph = apart(30, 30, ids=True)
    trainer = gt.Trainer("rgcn", graph, embedding=2, embedding_types="user", epochs=1, hidden=4)
    with pytest.raises(DataError, match=r"has other nodes of the type 'user'"):
        trainer.on(graph.replace(node_ids=[f"x{i}" for i in range(60)]))
    named = [*graph.original_ids[:30], *(f"x{i}" for i in range(30))]
    assert trainer.on(graph.replace(node_ids=named)).predict("all")[0].tolist()[30:] == named[30:]
