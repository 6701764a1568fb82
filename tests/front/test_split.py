"""Splits: sizes, independence of order, and that nothing leaks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError, ShapeError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.splits.links import link_parts, link_split
from graphtheta.graph.splits.nodes import class_split, fraction_split, split_nodes
from graphtheta.graph.splits.regions import region_of, region_split
from graphtheta.graph.splits.several import choose_split
from graphtheta.graph.store.from_graph import write_store

pytestmark = pytest.mark.reference


def test_class_split_counts():
    y = np.concatenate((np.repeat([0, 1, 2], [60, 70, 200]), [-1] * 10))
    train, val, test = class_split(y, 20, 30, seed=1)
    for c in range(3):
        assert [(m & (y == c)).sum() for m in (train, val)] == [20, 30]
    assert (train.astype(int) + val + test == (y >= 0)).all()
    again = class_split(y, 20, 30, seed=1)
    other = class_split(y, 20, 30, seed=2)
    assert (again[0] == train).all() and (other[0] != train).any()


def test_planetoid_protocol():
    y = gt.load("sbm").y
    train, val, test = class_split(y, 20, n_val=500, n_test=1000)
    assert (train.sum(), val.sum(), test.sum()) == (160, 500, 1000)
    assert not (train & val | val & test | train & test).any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"train_per_class": 50, "val_per_class": 20}, "class 0 has 60 labelled nodes"),
        ({"train_per_class": 10, "n_val": 500}, "500 validation nodes"),
    ],
)
def test_too_few_nodes(options, words):
    with pytest.raises(DataError, match=words):
        class_split(np.repeat([0, 1], [60, 100]), **options)


def test_class_split_needs_classes():
    with pytest.raises(DataError, match="float32"):
        class_split(np.zeros((5, 2), np.float32))


def test_fraction_split():
    train, val, test = fraction_split(10_000, 0.5, 0.3, seed=4)
    assert (train.astype(int) + val + test == 1).all()
    assert abs(train.mean() - 0.5) < 0.02 and abs(val.mean() - 0.3) < 0.02
    # a row's part does not depend on how many rows there are
    assert (fraction_split(100, 0.5, 0.3, seed=4)[0] == train[:100]).all()
    with pytest.raises(ConfigError, match="at most 1"):
        fraction_split(5, 0.8, 0.3)


def pairs(src: np.ndarray, dst: np.ndarray) -> set[tuple[int, int]]:
    return {(min(s, d), max(s, d)) for s, d in zip(src.tolist(), dst.tolist(), strict=True)}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 12), st.integers(1, 60))
def test_links_held_back_are_nowhere_in_the_messages(seed, n, m):
    rng = np.random.default_rng(seed)
    src = rng.integers(0, n, m)
    dst = rng.integers(0, n, m)
    src = np.append(src, 0)
    dst = np.append(dst, 0)
    split = link_split(Graph((src, dst), n), 0.2, 0.3, seed=seed)
    parts = [pairs(split.graph.src, split.graph.dst), pairs(*split.val), pairs(*split.test)]
    assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])
    assert parts[0] | parts[1] | parts[2] == pairs(src, dst)
    # each held-back pair once, as a stored edge, never a self loop
    stored = set(zip(src.tolist(), dst.tolist(), strict=True))
    for part, held in ((parts[1], split.val), (parts[2], split.test)):
        assert len(part) == held.shape[1]
        assert set(zip(*held.tolist(), strict=True)) <= stored and (held[0] != held[1]).all()


def test_link_split_of_an_undirected_graph():
    g = gt.load("sbm")
    split = link_split(g, 0.1, 0.2, seed=5)
    m = g.n_edges // 2
    assert abs(split.val.shape[1] / m - 0.1) < 0.01 and abs(split.test.shape[1] / m - 0.2) < 0.01
    assert (split.val[0] < split.val[1]).all()
    assert split.graph.n_edges + 2 * (split.val.shape[1] + split.test.shape[1]) == g.n_edges
    assert split.graph.edge_attr.shape == (split.graph.n_edges, 4)
    # the part of a pair hangs on the pair, not on its place in the file
    turned = np.arange(g.n_edges)[::-1]
    again = link_split(g.keep_edges(turned), 0.1, 0.2, seed=5)
    assert pairs(*again.test) == pairs(*split.test)


EXTRA, NODES = 7, 30


def named(ids, src, dst, appended, order):
    """A graph of these edges by its kind of ids, with further nodes, and nodes in another order;
    and a name for each row.
    """
    n = NODES + appended
    columns = {"edge_columns": {"relation": np.arange(len(src)) % 2}}
    if ids == "types":
        # nodes of the first type come before those of the second one
        half = NODES // 2
        ends = np.stack((src % half, dst % half))
        relations = {("a", "r", "b"): ends[:, ::2], ("b", "s", "a"): ends[:, 1::2]}
        names = [f"a{i}" for i in range(half + appended)] + [f"b{i}" for i in range(half)]
        return (
            Graph(relations, {"a": half + appended, "b": half}, y={"b": np.arange(half) % 2}),
            names,
        )
    if ids == "rows":
        return Graph((src, dst), n, y=np.arange(n) % 2, **columns), list(map(str, range(n)))
    texts = [f"node {'x' * (i % 5)}{i}" for i in range(n)]
    row_of = np.argsort(order)
    names = (np.arange(n) * 10 + 3)[order] if ids == "numbers" else np.array(texts)[order]
    return Graph(
        (row_of[src], row_of[dst]), n, y=np.arange(n) % 2, node_ids=names, **columns
    ), list(map(str, names.tolist()))


@pytest.mark.parametrize("ids", ["rows", "numbers", "texts", "types"])
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.integers(0, EXTRA), st.sampled_from([None, 0, 1]))
def test_appended_nodes_and_another_order_leave_every_link_in_its_part(
    ids, seed, appended, relation
):
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, NODES, (2, 150))
    found = []
    for more in (0, appended):
        order = rng.permutation(NODES + more)
        graph, names = named(ids, src, dst, more, order)
        part = link_parts(graph, 0.2, 0.3, seed=seed, relation=relation)(0, graph.n_edges)
        found.append(
            {
                (names[s], names[d], int(r), int(p))
                for s, d, r, p in zip(
                    graph.src.tolist(),
                    graph.dst.tolist(),
                    graph.edge_columns["relation"],
                    part,
                    strict=True,
                )
            }
        )
        masks = split_nodes(graph, "fraction", seed, {})
        found.append(
            {(name, int(p)) for name, p in zip(names, masks.train + 2 * masks.val, strict=True)}
        )
    assert found[0] == found[2] and found[1] <= found[3]
    assert {part for *_, part in found[0]} >= {0, 2}


def test_a_model_is_not_tested_on_links_that_it_was_trained_on():
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 100, (2, 500))
    x = rng.normal(size=(103, 4))
    graph, grown = (Graph((src, dst), n, x=x[:n]) for n in (100, 103))
    for kind, columns in (
        ("link", {}),
        ("triple", {"edge_columns": {"relation": np.arange(500) % 3}}),
    ):
        one = gt.Trainer(
            "gcn" if kind == "link" else "rgcn",
            graph.replace(**columns),
            task=kind,
            layers=1,
            hidden=4,
            epochs=1,
            keep=0,
        )
        other = one.on(grown.replace(**columns))
        held = [{tuple(row) for row in np.asarray(t.predict()[0]).tolist()} for t in (one, other)]
        assert len(held[0]) > 30 and held[0] == held[1]


def test_link_split_by_masks_drops_what_gives_away():
    test = np.array([False, False, True, False])
    g = Graph([[0, 1, 1, 2], [1, 0, 0, 0]], edge_train=~test, edge_test=test)
    split = link_split(g)
    assert split.dropped == 2 and split.test.tolist() == [[1], [0]]
    assert pairs(split.graph.src, split.graph.dst) == {(0, 2)}
    assert split.graph.edge_train is None


def test_no_messages_left():
    with pytest.raises(DataError, match="held out"):
        link_split(Graph([[0], [1]]), 0.5, 0.5)
    with pytest.raises(DataError, match="has no edges; links are predicted from other links"):
        link_split(Graph([[], []], 3))


def test_regions_are_equally_large_and_compact(rng):
    position = rng.random((1000, 2)) * [4, 1]
    region = region_of(position, 16)
    assert set(np.bincount(region)) <= {62, 63} and region.max() == 15
    spread = np.mean([position[region == r].std(axis=0) for r in range(16)], axis=0)
    assert (spread < 0.35).all()
    with pytest.raises(ConfigError, match="power of two"):
        region_of(position, 12)


def test_region_split_keeps_parts_apart(rng):
    n = 2000
    position = rng.random((n, 2))
    g = Graph((rng.integers(0, n, 4000), rng.integers(0, n, 4000)), n)
    masks = region_split(g, position, n_regions=16, seed=2)
    nodes = [set(g.src[m]) | set(g.dst[m]) for m in masks]
    assert not (nodes[0] & nodes[1] or nodes[0] & nodes[2] or nodes[1] & nodes[2])
    assert all(m.any() for m in masks)


def test_split_by_name():
    g = gt.load("ring", n=60)
    assert split_nodes(g, "public", 0, {}) is g
    assert split_nodes(g, "random", 0, {"train_per_class": 5, "val_per_class": 5}).train.sum() == 10
    for graph, kind, words in (
        (g.with_masks(None), "public", "has no split"),
        (g, "thirds", "unknown split"),
        (g.replace(y=None), "random", "no node labels"),
        (g.replace(y=None), "fraction", "no node labels"),
    ):
        with pytest.raises(ConfigError, match=words):
            split_nodes(graph, kind, 0, {})


def several(n=30, n_splits=3):
    """A graph whose training and validation sets differ between splits, with one test set."""
    rng = np.random.default_rng(0)
    part = rng.integers(0, 3, (n, n_splits))
    test = np.arange(n) < 5
    return Graph(
        rng.integers(0, n, (2, 90)),
        n,
        x=rng.normal(size=(n, 4)),
        y=rng.integers(0, 2, n),
        name="several",
        train=(part == 0) & ~test[:, None],
        val=(part == 1) & ~test[:, None],
        test=test,
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("k", [0, 2])
def test_one_of_several_splits_trains_like_a_graph_with_that_split(k, tmp_path, caplog):
    graph = several()
    alone = graph.with_masks(graph.train[:, k], graph.val[:, k], graph.test)
    run_simulated(2, lambda comm: write_store(graph, tmp_path / "store", comm))
    np.savez(
        tmp_path / "several.npz",
        edge_index=graph.edge_index,
        x=graph.x,
        y=graph.y,
        train_mask=graph.train,
        val_mask=graph.val,
        test_mask=graph.test,
    )

    def run(comm, data, job):
        return [row["loss"] for row in gt.Trainer(graph=data, job=job, comm=comm).fit().history]

    job = {"epochs": 2, "model": "gcn", "dtype": "float64"}
    expected = run_simulated(1, run, alone, gt.Job(**job))[0]
    caplog.set_level("INFO", "graphtheta")
    for size, data, name in ((2, graph, ""), (2, None, "store"), (1, None, "several.npz")):
        caplog.clear()
        more = {"dataset": str(tmp_path / name)} if name else {}
        np.testing.assert_allclose(
            run_simulated(size, run, data, gt.Job(**job, **more, split_index=k))[0],
            expected,
            rtol=1e-9,
        )
        assert f"has 3 splits; split {k} is used" in caplog.text


def test_several_splits_follow_the_rows_and_are_stored(tmp_path):
    graph = several()
    assert (
        "3 splits, the first" in repr(graph)
        and graph.summary()["train"] == graph.train.sum(axis=0).tolist()
    )
    part = graph.subset(np.arange(29, 9, -1))
    assert np.array_equal(part.train, graph.train[29:9:-1]) and part.n_splits == 3
    run_simulated(1, lambda comm: write_store(graph, tmp_path / "store", comm))
    stored = gt.load(tmp_path / "store", split="stored")
    assert (
        stored.n_splits == 3
        and np.array_equal(stored.train, graph.train)
        and stored.digest() == graph.digest()
    )
    one = choose_split(stored, 1)
    assert (
        np.array_equal(one.train, graph.train[:, 1])
        and np.array_equal(one.test, graph.test)
        and one.n_splits == 1
    )
    assert np.shares_memory(one.train, stored.train)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: choose_split(several(), 3),
            "there is no split 3, the graph has 3 splits, numbered from 0",
        ),
        (lambda: choose_split(gt.load("ring"), 1), "the graph has one split"),
        (
            lambda: gt.load("sbm", split="random", split_index=1),
            "split_index has no meaning with the split 'random'",
        ),
        (
            lambda: several().with_standardised_features(),
            "over the training sets of 3 splits; choose one",
        ),
        (lambda: several().replace(val=np.zeros((30, 2), bool)), "val: 2 columns, but train has 3"),
        (lambda: several().replace(val=several().train), "train and val: .* nodes are in both"),
        (
            lambda: several().replace(train=np.zeros((30, 0), bool)),
            r"expected shape \[30\], or \[30, S\]",
        ),
        (lambda: several().replace(y=np.full(30, -1)), "is in the mask but has no label"),
    ],
)
def test_splits_that_cannot_be_used(make, message):
    with pytest.raises((ConfigError, DataError, ShapeError), match=message):
        make()
