"""The task triple: negatives and ranks without known triples, excluded edges, and the same numbers
on any number of workers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from ties import tolerance

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.sampling.cluster_nodes import NodesByCluster
from graphtheta.errors import ConfigError, DataError
from graphtheta.inference.forward.top import Asked, top
from graphtheta.ops.functions.metrics.ranking import NO_RANK
from graphtheta.tasks.triples import ranking
from graphtheta.tasks.triples.ranking import rank_block

pytestmark = pytest.mark.reference

N, RELATIONS = 30, 4
PLACEMENTS = [("1d-src", "hash"), ("vertex-cut", "block"), ("1d-dst", "hash")]
KEYS: dict[str, Any] = {
    "embedding": 6,
    "dtype": "float64",
    "backend": "reference",
    "optimiser": "sgd",
    "lr": 0.1,
    "epochs": 2,
    "negatives": 3,
    "eval_negatives": 2,
    "seed": 4,
    "weight_decay": 0.0,
    "dropout": 0.0,
}
SHALLOW = {"model": "mlp", "layers": 0}
ENCODED = {"model": "rgcn", "layers": 1, "hidden": 4, "bases": 2}


@cache
def graph() -> gt.Graph:
    """Random triples with duplicates, loops, several relations between the same ends, and a hub."""
    rng = np.random.default_rng(2)
    head, tail = rng.integers(0, N - 2, (2, 240))
    tail[:60] = 3
    relation = rng.integers(0, RELATIONS, 240)
    part = np.arange(240) % 6
    return gt.Graph(
        (head, tail),
        N,
        edge_columns={"relation": relation},
        edge_train=part < 4,
        edge_val=part == 4,
        edge_test=part == 5,
    )


def triples(which: str | None = None) -> set[tuple[int, int, int]]:
    """All of them, or those of a set; one that is in several is in the last."""
    g = graph()
    rows = np.ones(g.n_edges, bool) if which is None else getattr(g, f"edge_{which}")
    found = set(
        zip(
            g.src[rows].tolist(),
            g.edge_columns["relation"][rows].tolist(),
            g.dst[rows].tolist(),
            strict=True,
        )
    )
    later = {"train": ("val", "test"), "val": ("test",)}.get(which or "", ())
    return found.difference(*map(triples, later))


def trainer_of(comm: Any, **keys: Any) -> gt.Trainer:
    return gt.Trainer(graph=graph(), comm=comm, **{**KEYS, **keys})


def result(comm: Any, **keys: Any) -> dict[str, Any]:
    trainer = trainer_of(comm, **keys)
    found = trainer.fit()
    predicted = trainer.predict()
    named = {} if predicted is None else {"ids": predicted[0], "scores": predicted[1]}
    return {
        "loss": [row["loss"] for row in found.history],
        **trainer.model.state(),
        **found.metrics,
        **named,
    }


def close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-9, atol=tolerance(name), err_msg=name)


def copied(train: Any = (), val: Any = (), test: Any = ()) -> gt.Graph:
    """A chain of training triples, and copies of some of them in each set."""
    again = np.concatenate([np.asarray(rows, int) for rows in (train, val, test)])
    part = np.concatenate(
        (np.zeros(10, int), np.repeat(np.arange(3), list(map(len, (train, val, test)))))
    )
    head = np.append(np.arange(10), again)
    masks = {f"edge_{name}": part == i for i, name in enumerate(("train", "val", "test"))}
    return gt.Graph(
        (head, head + 1), 12, edge_columns={"relation": np.zeros(len(head), int)}, **masks
    )


@pytest.mark.parametrize(
    ("rows", "sizes", "told"),
    [
        ({}, (10, 0, 0), 0),
        ({"train": [3, 3]}, (10, 0, 0), 0),
        ({"test": [4]}, (9, 0, 1), 1),
        ({"val": [4, 5, 5]}, (8, 2, 0), 2),
        ({"val": [4, 6], "test": [4, 5]}, (7, 1, 2), 4),
        ({"test": range(9)}, (1, 0, 9), 9),
    ],
)
def test_a_triple_of_several_sets_is_in_the_last_and_that_is_said(
    rows: dict[str, Any], sizes: tuple[int, ...], told: int, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = gt.Trainer(graph=copied(**rows), **KEYS, **SHALLOW, task="triple", decoder="distmult")
    held = trainer.setup.evaluator.links
    assert tuple(len(held[split].triples.head) for split in ("val", "test")) == sizes[1:]
    assert trainer.strategy.task.n_targets == sizes[0]
    lines = [
        record.message
        for record in caplog.records
        if "in a later one of the sets" in record.message
    ]
    assert len(lines) == (told > 0) and all(line.startswith(f"{told} triples") for line in lines)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("size", "placement", "keys"),
    [
        (
            2,
            PLACEMENTS[0],
            {
                **SHALLOW,
                "decoder": "rotate",
                "strategy": "mini",
                "batch_size": 25,
                "link_loss": "adversarial",
                "adversarial_temperature": 0.5,
                "negatives_from": "batch",
            },
        ),
        (
            3,
            PLACEMENTS[1],
            {
                **SHALLOW,
                "decoder": "transe",
                "strategy": "mini",
                "batch_size": 40,
                "negative_groups": 2,
                "link_loss": "softmax",
                "dropout": 0.2,
            },
        ),
        (2, PLACEMENTS[2], {**ENCODED, "decoder": "distmult"}),
        (
            3,
            PLACEMENTS[1],
            {**ENCODED, "decoder": "complex", "strategy": "mini", "batch_size": 40, "fanout": (3,)},
        ),
        (
            2,
            PLACEMENTS[0],
            {
                **ENCODED,
                "decoder": "distmult",
                "strategy": "cluster",
                "clusters": 3,
                "clusters_per_batch": 2,
            },
        ),
        (3, PLACEMENTS[2], {**ENCODED, "decoder": "transe", "reciprocal": True}),
        (
            2,
            PLACEMENTS[1],
            {
                **ENCODED,
                "decoder": "complex",
                "strategy": "mini",
                "batch_size": 70,
                "fanout": (3,),
                "reciprocal": True,
                "negatives_from": "batch",
            },
        ),
    ],
    ids=[
        "mini",
        "shared negatives",
        "global",
        "sampled",
        "cluster",
        "reciprocal",
        "reciprocal sampled",
    ],
)
def test_workers_and_partitioners_do_not_change_the_numbers(
    size: int, placement: tuple[str, str], keys: dict[str, Any]
) -> None:
    one = result(SerialComm(), **keys)
    partitioner, masters = placement
    close(run_simulated(size, result, **keys, partitioner=partitioner, masters=masters)[0], one)
    assert one["loss"][1] != one["loss"][0]
    found = list(map(tuple, one["ids"].tolist()))
    assert len(found) == len(set(found)) and set(found) == triples("test")


@pytest.mark.parametrize(
    ("decoder", "block", "reciprocal"),
    [("distmult", 1 << 20, False), ("transe", 100, False), ("transe", 100, True)],
)
def test_ranks_are_those_of_a_loop_over_all_nodes(
    decoder: str, block: int, reciprocal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "BLOCK", block)

    def program(comm: Any) -> Any:
        trainer = trainer_of(
            comm, **SHALLOW, decoder=decoder, partitioner="vertex-cut", reciprocal=reciprocal
        )
        table = trainer.setup.tables[0]
        # small whole numbers, so that many scores are equal
        table.set_values(np.round(4 * table.values()))
        for p in trainer.model.parameters():
            p.value = np.round(4 * p.value)
        ids = comm.all_gather(table.masters)
        rows = comm.all_gather(table.values())
        x = np.concatenate(rows)[np.argsort(np.concatenate(ids))]
        found = trainer.evaluate("test")
        return found, x, trainer.model.decoder.relation.value, gt.relation_report(trainer)

    (found, x, r, report), *_ = run_simulated(1, program)

    def score(h: int, k: int, t: int, side: str) -> float:
        if reciprocal and side == "head":
            h, k, t = t, k + RELATIONS, h
        return float(
            (x[h] * r[k] * x[t]).sum()
            if decoder == "distmult"
            else 9 - np.abs(x[h] + r[k] - x[t]).sum()
        )

    known = triples()
    by_relation = {}
    for h, k, t in sorted(triples("test")):
        for side, others in (
            ("tail", [(h, k, c) for c in range(N)]),
            ("head", [(c, k, t) for c in range(N)]),
        ):
            scores = np.array([score(*other, side) for other in others if other not in known])
            true = score(h, k, t, side)
            rank = 1 + np.sum(scores > true) + np.sum(scores == true) / 2
            by_relation.setdefault((k, side), []).append(rank)
    ranks = np.concatenate(list(by_relation.values()))
    assert len(np.unique(ranks)) > 10 and np.any(ranks % 1)
    assert found["test_mrr"] == pytest.approx(np.mean(1 / ranks), rel=1e-12)
    for k in (1, 3, 10):
        assert found[f"test_hits{k}"] == pytest.approx(np.mean(ranks <= k), rel=1e-12)
    for (k, side), own in by_relation.items():
        row = report[k, side]
        assert row["triples"] == len(own)
        assert row["mrr"] == pytest.approx(np.mean(1 / np.array(own)), rel=1e-12)
    assert set(report) == set(by_relation)
    for size in (2, 3):
        for again in run_simulated(size, program):
            close(again[0], found)
            assert again[3].keys() == report.keys()


def test_ranks_of_scores_without_a_value() -> None:
    def program(comm: Any) -> np.ndarray:
        scores = np.array([[np.nan, 1.0], [0.0, 1.0]])[:, comm.rank :: comm.size].copy()
        mine = comm.rank == comm.size - 1
        query = np.array([0, 1]) if mine else np.zeros(0, int)
        row = np.full(2 * mine, scores.shape[1] - 1)
        return rank_block(comm, scores, query, row, np.ones(len(query), bool))

    for size in (1, 2):
        np.testing.assert_array_equal(np.concatenate(run_simulated(size, program)), [np.nan, 1])


def test_answers_without_candidates_have_no_rank() -> None:
    """All nodes are known answers of the first query, and all but one of the second one, or are
    outside.
    """
    for outside, wanted in ((False, [NO_RANK] * 4 + [2] * 3), (True, [NO_RANK] * 7)):

        def program(comm: Any, outside: bool = outside) -> np.ndarray:
            scores = np.array([[-np.inf, 1.0, 2.0, np.inf], [4.0, 5.0, 6.0, 7.0]])[
                :, comm.rank :: comm.size
            ].copy()
            query, row = np.nonzero(
                np.array([[1, 1, 1, 1], [1, 1, 1, 0]])[:, comm.rank :: comm.size]
            )
            last = np.array([[False] * 4, [False, False, False, True]])[:, comm.rank :: comm.size]
            return rank_block(
                comm=comm,
                scores=scores,
                query=query,
                row=row,
                target=np.ones(len(query), bool),
                outside=last if outside else None,
            )

        for size in (1, 2, 3):
            np.testing.assert_array_equal(
                np.sort(np.concatenate(run_simulated(size, program))), wanted
            )


def test_infinite_scores_have_their_ranks() -> None:
    def program(comm: Any) -> np.ndarray:
        scores = np.array([[-np.inf, 1.0, 2.0, np.inf, np.inf]])[:, comm.rank :: comm.size].copy()
        given = np.array([[1, 0, 0, 1, 0]])[:, comm.rank :: comm.size]
        query, row = np.nonzero(given)
        return rank_block(comm, scores, query, row, np.ones(len(query), bool))

    for size in (1, 2, 3):
        np.testing.assert_array_equal(
            np.sort(np.concatenate(run_simulated(size, program))), [1.5, 4]
        )


def drawn_by(comm: Any, **keys: Any) -> list[Any]:
    """The pairs of all training triples with four negatives each, of this worker."""
    trainer = trainer_of(comm, **SHALLOW, partitioner="vertex-cut", negatives=4, **keys)
    links = trainer.setup.task._links.of_step(7)
    pairs = links.pairs(trainer.partition, np.arange(len(links.numbers)))
    return list(
        zip(pairs.gid, pairs.src, pairs.columns["relation"], pairs.dst, pairs.label, strict=True)
    )


def drawn_pairs(**keys: Any) -> np.ndarray:
    """These of all workers, [triples, 5, 5], which do not depend on the number of workers."""
    found = [
        sorted(pair for own in run_simulated(size, drawn_by, **keys) for pair in own)
        for size in (1, 2, 3)
    ]
    assert found[0] == found[1] == found[2]
    return np.array(found[0]).reshape(-1, 5, 5)


@pytest.mark.parametrize("groups", [0, 2])
def test_negatives_are_no_triples_and_replace_either_end(groups: int) -> None:
    train = triples("train")

    rows = drawn_pairs(negative_groups=groups)
    assert {tuple(row[0, 1:4].astype(int).tolist()) for row in rows} == train
    heads = tails = held = 0
    for row in rows:
        h, k, t = row[0, 1:4]
        for _, src, relation, dst, label in row[1:]:
            assert relation == k and (src == h or dst == t) and label == 0
            assert (int(src), int(relation), int(dst)) not in train
            held += (int(src), int(relation), int(dst)) in triples()
            heads, tails = heads + (src != h), tails + (dst != t)
    # if no held-out triple ever was a negative, that would tell which these are
    assert heads == tails == 2 * len(rows) and held
    drawn = np.where(rows[:, 1:, 1] != rows[:, :1, 1], rows[:, 1:, 1], rows[:, 1:, 3])
    alike = len(np.unique(drawn, axis=0)) / len(drawn)
    assert alike < 0.7 if groups else alike > 0.9


def test_negatives_stay_among_the_nodes_of_a_batch() -> None:
    def program(comm: Any) -> None:
        trainer = trainer_of(comm, **SHALLOW)
        part = trainer.partition
        links = trainer.setup.task._links
        among = NodesByCluster(part, part.masters // 10, 3).members(np.array([1]))
        pairs = links.pairs(
            part, np.flatnonzero((links.src // 10 == 1) & (links.dst // 10 == 1)), among
        )
        assert len(pairs.src) and set(pairs.src // 10) == set(pairs.dst // 10) == {1}

    run_simulated(2, program)


@pytest.mark.parametrize("size", [1, 2])
def test_negatives_of_a_batch_are_ends_of_its_targets(size: int) -> None:
    def program(comm: Any) -> list[Any]:
        trainer = trainer_of(
            comm,
            **SHALLOW,
            strategy="mini",
            batch_size=40,
            negatives_from="batch",
            partitioner="vertex-cut",
        )
        pairs = trainer.setup.strategy.batch(0, 0).pairs.pairs
        return comm.all_gather(np.stack((pairs.src, pairs.dst, pairs.gid), axis=1))

    pairs = np.concatenate(run_simulated(size, program)[0])
    positive = pairs[:, 2] % 4 == 0
    assert positive.sum() == 40 and len(pairs) == 160
    assert set(pairs[~positive, :2].ravel().tolist()) <= set(pairs[positive, :2].ravel().tolist())


def test_negatives_of_reciprocal_triples_replace_tails() -> None:
    train = triples("train")

    rows = drawn_pairs(reciprocal=True)
    plain = [
        (h, k, t) if k < RELATIONS else (t, k - RELATIONS, h)
        for h, k, t in rows[:, 0, 1:4].astype(int).tolist()
    ]
    # each number is that of the same triple in both halves
    assert (
        plain[: len(train)] == plain[len(train) :]
        and set(plain) == train
        and len(plain) == 2 * len(train)
    )
    np.testing.assert_array_equal(rows[:, 0, 0], 5 * np.arange(len(plain)))
    assert (
        (rows[:, :, 1] == rows[:, :1, 1]).all()
        and (rows[:, :, 2] == rows[:, :1, 2]).all()
        and not rows[:, 1:, 4].any()
    )
    for (h, k, t), row in zip(plain, rows, strict=True):
        others = row[1:, 3].astype(int).tolist()
        drawn = [(h, k, other) if row[0, 2] < RELATIONS else (other, k, t) for other in others]
        assert not train & set(drawn)


def test_predictions_are_means_of_both_directions_and_heads_use_the_reciprocal_relation() -> None:
    keys = {**SHALLOW, "decoder": "distmult", "reciprocal": True, "scores": "logits"}
    trainer = trainer_of(SerialComm(), **keys)
    trainer.fit()
    table = trainer.setup.tables[0]
    r = trainer.model.decoder.relation.value
    x = table.values()[np.argsort(table.masters)]
    assert len(r) == 2 * RELATIONS
    ids, scores = trainer.predict()
    h, k, t = ids.T
    assert len(ids) == len(triples("test")) and set(map(tuple, ids.tolist())) == triples("test")
    each = [
        (x[a] * r[relation] * x[b]).sum(axis=1)
        for a, relation, b in ((h, k, t), (t, k + RELATIONS, h))
    ]
    assert not np.allclose(*each)
    np.testing.assert_allclose(scores, (each[0] + each[1]) / 2, rtol=1e-12)
    for side, relation in (("tail", 1), ("head", 1 + RELATIONS)):
        nodes, best = trainer.top([3, 5], 4, relation=1, side=side, keep_known=True)
        expected = (x[[3, 5]] * r[relation]) @ x.T
        np.testing.assert_array_equal(nodes, np.argsort(-expected, axis=1)[:, :4])
        np.testing.assert_allclose(best, np.take_along_axis(expected, nodes, axis=1), rtol=1e-12)
        nodes, _ = trainer.top([3], N, relation=1, side=side)
        known = {
            t if side == "tail" else h
            for h, k, t in triples()
            if k == 1 and (h if side == "tail" else t) == 3
        }
        assert known and set(nodes[nodes >= 0].tolist()) == set(range(N)) - known


@pytest.mark.parametrize("side", ["tail", "head"])
def test_queries_of_held_out_triples_are_those_of_one_side(side: str) -> None:
    def rows(comm: Any, reciprocal: bool) -> Any:
        setup = trainer_of(comm, **SHALLOW, reciprocal=reciprocal).setup
        found = top(setup, Asked(k=N, side=side, keep_known=True), whole=True)
        return None if found is None else found.rows(setup.kind, setup.info).ids

    expected = {
        (h, k, c) if side == "tail" else (c, k, t)
        for which in ("val", "test")
        for h, k, t in triples(which)
        for c in range(N)
    }
    for size in (1, 2):
        for reciprocal in (False, True):
            ids = run_simulated(size, rows, reciprocal)[0]
            assert len(ids) == len(expected) and set(map(tuple, ids.tolist())) == expected


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("reciprocal", [False, True])
def test_targets_and_their_inverse_pass_no_messages(size: int, reciprocal: bool) -> None:
    def program(comm: Any) -> list[Any]:
        trainer = trainer_of(
            comm,
            **ENCODED,
            strategy="mini",
            batch_size=30,
            partitioner="vertex-cut",
            reciprocal=reciprocal,
        )
        view = trainer.setup.strategy.batch(0, 0)
        positive = view.pairs.pairs.gid[::4] // 4
        return comm.all_gather(positive) + comm.all_gather(view.levels[0].gid)

    found = run_simulated(size, program)[0]
    positive, used = np.concatenate(found[:size]), np.concatenate(found[size:])
    total = len(triples("train"))
    assert len(positive) == 30 and used.max() >= total and (positive.max() >= total) == reciprocal
    np.testing.assert_array_equal(np.intersect1d(used % total, positive % total), [])


def test_graphs_that_have_no_triples_are_refused() -> None:
    plain = gt.Graph([[0, 1], [1, 2]], 3)
    with pytest.raises(DataError, match="has no relations; give their codes"):
        gt.Trainer(graph=plain, task="triple", **KEYS, **SHALLOW)
    typed = gt.Graph({("a", "to", "b"): [[0], [1]]}, {"a": 1, "b": 2})
    with pytest.raises(DataError, match="nodes of several types"):
        gt.Trainer(graph=typed, task="triple", **KEYS, **SHALLOW)
    with pytest.raises(
        ConfigError,
        match="decoder=dot does not score targets of task=triple; choose from distmult, transe",
    ):
        gt.Trainer(graph=graph(), decoder="dot", **KEYS, **SHALLOW)
    with pytest.raises(
        ConfigError,
        match="decoder=rotate does not score targets of task=link; choose from dot, hadamard",
    ):
        gt.Trainer(graph=graph(), task="link", decoder="rotate", **KEYS, **SHALLOW)
    with pytest.raises(ConfigError, match="margin"):
        gt.Trainer(graph=graph(), decoder="distmult", margin=3, **KEYS, **SHALLOW)
    with pytest.raises(ConfigError, match="reciprocal"):
        gt.Trainer(graph=graph(), task="link", reciprocal=True, **KEYS, **SHALLOW)
    with pytest.raises(ConfigError, match="adversarial_temperature"):
        gt.Trainer(
            graph=graph(), link_loss="softmax", adversarial_temperature=0.5, **KEYS, **SHALLOW
        )


def test_a_model_that_changes_scores_is_not_ranked() -> None:
    class Negated(gt.Model):
        def __init__(self, d_in: int, relations: int):
            self.decoder = gt.DistMult(d_in, relations)

        def forward(self, graph: Any) -> Any:
            return -self.decoder(graph, graph.x)

    keys = {key: value for key, value in KEYS.items() if key != "dropout"}
    with pytest.raises(ConfigError, match="forward of Negated changes the scores of its decoder"):
        gt.Trainer(Negated, graph(), **keys).evaluate("test")


def test_a_graph_without_a_split_gets_one() -> None:
    g = graph()
    trainer = gt.Trainer(
        graph=gt.Graph((g.src, g.dst), N, edge_columns=dict(g.edge_columns)),
        **{**KEYS, **SHALLOW, "epochs": 1},
    )
    assert trainer.setup.kind.name == "triple" and 0 < trainer.evaluate("test")["test_mrr"] <= 1


@pytest.mark.parametrize("rank_count", [1, 2])
def test_an_imported_knowledge_graph_is_trained_as_in_memory(rank_count, tmp_path):
    """A table of head, relation and tail becomes a store, whose edges are in files."""
    rng = np.random.default_rng(0)
    names = [f"e{i}" for i in range(20)]
    rows = sorted(
        {(names[a], "lk"[r], names[b]) for a, r, b in rng.integers(0, (20, 2, 20), (80, 3))}
    )
    columns = {key: [row[k] for row in rows] for k, key in enumerate(("head", "relation", "tail"))}
    gt.import_graph(columns, to=tmp_path / "s", src="head", dst="tail", edge_columns="relation")
    stored = gt.load(tmp_path / "s")
    assert stored.in_files
    in_memory = gt.Graph(
        (np.array(stored.src), np.array(stored.dst)),
        stored.n_nodes,
        node_ids=np.asarray(stored.original_ids),
        edge_columns={"relation": np.array(stored.edge_columns["relation"])},
        meta={"relation_names": list(stored.categories("edge", "relation"))},
    )
    keys = dict(
        layers=0,
        embedding=4,
        decoder="distmult",
        strategy="mini",
        batch_size=8,
        epochs=2,
        dropout=0.0,
    )

    def work(comm):
        return [gt.Trainer("mlp", g, comm=comm, **keys).fit().metrics for g in (stored, in_memory)]

    one, two = run_simulated(rank_count, work)[0]
    assert one == two and "test_mrr" in one
