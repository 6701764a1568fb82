"""The best ends of links and answers to queries of triples: against all scores sorted, on any
number of workers.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from timed import JOB

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.splits.links import TEST, VAL, link_parts
from graphtheta.inference.forward import limited
from graphtheta.tasks.triples import ranking

pytestmark = pytest.mark.reference

RNG = np.random.default_rng(7)
USERS = 20
ITEMS = 30
TAGS = 4
WORKERS = [
    (1, "1d-src", "hash"),
    (2, "vertex-cut", "block"),
    (3, "1d-dst", "hash"),
    (4, "hdrf", "ldg"),
]
KEYS: dict[str, Any] = {
    "hidden": 4,
    "dtype": "float64",
    "backend": "reference",
    "dropout": 0.0,
    "epochs": 1,
    "eval_negatives": 2,
    "seed": 3,
}
RATES = {
    **KEYS,
    "model": "rgcn",
    "task": "link",
    "link_relation": "rates",
    "link_loss": "softmax",
    "negatives": 1,
    "embedding": 5,
}
N, RELATIONS = 26, 3
TRIPLES = {key: x for key, x in KEYS.items() if key != "hidden"} | {
    "embedding": 6,
    "negatives": 2,
    "model": "mlp",
    "layers": 0,
    "decoder": "distmult",
}
ENCODED = {**TRIPLES, "model": "rgcn", "layers": 1, "hidden": 4}


def bipartite() -> gt.Graph:
    """Users rate items; user 0 rates almost all, and the last user and item none."""
    rated = np.unique(
        np.append(
            RNG.integers(0, (USERS - 1, ITEMS - 1), (150, 2)),
            [[0, i] for i in range(ITEMS - 3)],
            axis=0,
        ),
        axis=0,
    ).T
    return gt.Graph(
        {
            ("user", "rates", "item"): rated,
            ("item", "has", "tag"): (np.arange(ITEMS), np.arange(ITEMS) % TAGS),
        },
        {"user": USERS, "item": ITEMS, "tag": TAGS},
    ).with_inverse_relations()


def plain() -> gt.Graph:
    """A hub, two isolated nodes, and ids in an order of their own."""
    src, dst = RNG.integers(0, 28, (2, 120))
    dst[:40] = 5
    return gt.Graph(
        (src, dst),
        30,
        x=RNG.normal(size=(30, 3)),
        node_ids=np.array([f"n{i}" for i in RNG.permutation(30)]),
    )


def facts() -> gt.Graph:
    head, tail, part = *RNG.integers(0, N - 2, (2, 150)), np.arange(150) % 6
    tail[:50] = 3
    return gt.Graph(
        (head, tail),
        N,
        edge_columns={"relation": RNG.integers(0, RELATIONS, 150)},
        edge_train=part < 4,
        edge_val=part == 4,
        edge_test=part == 5,
        meta={"relation_names": ["has", "is", "likes"]},
    )


RATED, PLAIN, FACTS = bipartite(), plain(), facts().deduplicated()


def by_sorting(scores: np.ndarray, out: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers and scores of the k best of each row, of equal scores the lowest numbers, without
    those that are left out.
    """
    ids = np.full((len(scores), k), -1)
    found = np.full((len(scores), k), np.nan)
    for i, row in enumerate(scores):
        order = sorted((j for j in range(len(row)) if not out[i, j]), key=lambda j: (-row[j], j))[
            :k
        ]
        ids[i, : len(order)], found[i, : len(order)] = order, row[order]
    return ids, found


def linked(g: gt.Graph) -> np.ndarray:
    """Whether nodes are linked in any direction."""
    found = np.zeros((g.n_nodes, g.n_nodes), bool)
    found[g.src, g.dst] = True
    return found | found.T


def same(found: Any, ids: np.ndarray, scores: np.ndarray) -> None:
    np.testing.assert_array_equal(found[0], ids)
    np.testing.assert_allclose(found[1], scores, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("keep", "block"), [(False, 40), (True, 1 << 21)])
def test_items_of_users_are_those_of_all_scores(
    keep: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "BLOCK", block)
    g = RATED
    users = [3, 0, USERS - 1, 3]
    items = [USERS + 2, USERS + ITEMS - 1]
    k = 6
    others = [i for i in range(g.n_nodes) if i % 3]

    def program(comm: Any, **keys: Any) -> Any:
        trainer = gt.Trainer(graph=g, comm=comm, **RATES, **keys)
        trainer.fit()
        asked = partial(trainer.top, k=k, keep_known=keep)
        return (
            trainer.embed(),
            asked(users),
            asked(items, side="head"),
            asked(users, candidates=others),
            asked(),
        )

    first = None
    out = linked(g) & (not keep)
    np.fill_diagonal(out, True)
    kind = g.node_columns["type"]
    parts = link_parts(g, seed=RATES["seed"], relation=0)(0, g.n_edges)
    held = np.unique(g.src[np.isin(parts, (VAL, TEST))])
    for size, partitioner, masters in WORKERS:
        (embedded, *found), *rest = run_simulated(
            size, program, partitioner=partitioner, masters=masters
        )
        assert all(one == (None,) * 5 for one in rest)
        h = embedded[1]
        scores = h @ h.T
        n = g.n_nodes
        same(found[0], *by_sorting(scores[users], (out | (kind != 1))[users], k))
        same(found[1], *by_sorting(scores[items], (out | (kind != 0))[items], k))
        same(found[2], *by_sorting(scores[users], (out | ~np.isin(np.arange(n), others))[users], k))
        same(found[3], *by_sorting(scores[held], (out | (kind != 1))[held], k))
        first = first or found
        for one, other in zip(found, first, strict=True):
            same(one, *other)
    assert 5 < len(held) < USERS
    # user 0 has rated all but a few
    assert keep or (first[0][0][1] == -1).sum() == k - 3


def test_nodes_of_one_type_and_ids_of_text() -> None:
    g = PLAIN
    k = 32
    ids = np.asarray(g.original_ids)
    nodes = [5, 29, 0]

    def program(comm: Any, **keys: Any) -> Any:
        trainer = gt.Trainer("sage", g, comm=comm, task="link", **KEYS, **keys)
        trainer.fit()
        h = trainer.embed()
        return (
            h[1] if comm.rank == 0 else h,
            trainer.top(ids[nodes], k),
            trainer.top(ids[nodes].astype(object), k),
        )

    out = linked(g)
    np.fill_diagonal(out, True)
    for size, partitioner, masters in WORKERS:
        h, found, of_objects = run_simulated(
            size, program, partitioner=partitioner, masters=masters
        )[0]
        numbers, scores = by_sorting((h @ h.T)[nodes], out[nodes], k)
        same(found, np.where(numbers < 0, "", ids[numbers]), scores)
        assert (found[0][1, -3:] == ["", "", ""]).all() and np.isnan(found[1][1, -3:]).all()
        # pandas gives texts as objects
        same(of_objects, *found)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    "keys", [TRIPLES, {**TRIPLES, "decoder": "transe"}, ENCODED], ids=["distmult", "transe", "rgcn"]
)
def test_answers_are_those_of_all_scores(keys: dict[str, Any], keep: bool) -> None:
    g = FACTS
    k = N + 2
    nodes = [3, 0, N - 1, 3]
    relation = ["is", 0, "likes", 2]
    known = np.zeros((RELATIONS, N, N), bool)
    codes = [1, 0, 2, 2]
    known[g.edge_columns["relation"], g.src, g.dst] = not keep

    def program(comm: Any, **where: Any) -> Any:
        trainer = gt.Trainer(graph=g, comm=comm, **keys, **where)
        table = trainer.setup.tables[0]
        if keys is not ENCODED:
            # small whole numbers, so that many scores are equal
            table.set_values(np.round(4 * table.values()))
            for p in trainer.model.parameters():
                p.value = np.round(4 * p.value)
        rows, at = (np.concatenate(comm.all_gather(x)) for x in (table.values(), table.masters))
        h = rows[np.argsort(at)] if keys is not ENCODED else comm.broadcast(trainer.embed())[1]
        found = (
            trainer.top(nodes, k, relation=relation, keep_known=keep),
            trainer.top(nodes, k, relation=1, side="head", keep_known=keep),
        )
        return h, trainer.model.decoder.relation.value, *found, trainer.top(k=2, keep_known=keep)

    for size, partitioner, masters in WORKERS:
        h, r, tails, heads, every = run_simulated(
            size, program, partitioner=partitioner, masters=masters
        )[0]
        if keys["decoder"] == "transe":
            scores = 9 - np.abs(h[None, :, None] + r[:RELATIONS, None, None] - h[None, None]).sum(
                -1
            )
        else:
            scores = np.einsum("id,rd,jd->rij", h, r[:RELATIONS], h)
        same(tails, *by_sorting(scores[codes, nodes], known[codes, nodes], k))
        same(heads, *by_sorting(scores[1][:, nodes].T, known[1][:, nodes].T, k))
        code, held = np.unique(
            np.stack((g.edge_columns["relation"], g.src))[:, g.edge_val | g.edge_test], axis=1
        )
        same(every, *by_sorting(scores[code, held], known[code, held], 2))
        assert keys is ENCODED or len(np.unique(tails[1][0])) < N - 3


def test_equal_scores_are_in_the_order_of_the_graph() -> None:
    def constant(comm: Any, **keys: Any) -> Any:
        trainer = gt.Trainer("sage", PLAIN, comm=comm, task="link", **KEYS, **keys)
        for p in trainer.model.parameters():
            p.value = np.zeros_like(p.value)
        return trainer.top([PLAIN.original_ids[28]], 7)

    for size, partitioner, masters in WORKERS:
        ids, _ = run_simulated(size, constant, partitioner=partitioner, masters=masters)[0]
        assert ids.tolist() == [PLAIN.original_ids[:7].tolist()]


def test_a_worker_without_nodes(tmp_path: Path) -> None:
    owners = np.where(np.arange(N) % 2, 2, 0)
    np.save(tmp_path / "owners.npy", owners)

    def program(comm: Any, **keys: Any) -> Any:
        trainer = gt.Trainer(graph=FACTS, comm=comm, **TRIPLES, **keys)
        trainer.fit()
        assert comm.size == 1 or trainer.partition.n_masters == np.sum(owners == comm.rank)
        asked = partial(trainer.top, relation="has")
        return asked([1, 2, 1], 20), asked([], 3), asked([3], 2, candidates=[])

    ((one, none, empty),) = run_simulated(1, program)
    for found in run_simulated(3, program, masters=f"file:path={tmp_path / 'owners.npy'}")[:1]:
        same(found[0], *one)
    assert none[0].shape == none[1].shape == (0, 3)
    assert empty[0].tolist() == [[-1, -1]] and np.isnan(empty[1]).all()


@pytest.mark.parametrize("program", ["trained on", "opened", "grown"])
def test_other_graphs(program: str, tmp_path: Path) -> None:
    """A trained model answers from what is known in the graph that it is asked on."""
    trainer = gt.Trainer(graph=FACTS, **TRIPLES)
    trainer.fit()
    run = tmp_path / "run"
    run.mkdir()
    trainer.save(run / "weights.safetensors")
    (run / "job.yaml").write_text(trainer.job.to_yaml())
    g = FACTS.keep_edges(FACTS.edge_train) if program == "grown" else FACTS
    other = trainer.on(g) if program == "trained on" else gt.open_run(run, g)
    ids, scores = other.top([3, 4], N, relation="is")
    every, wanted = trainer.top([3, 4], N, relation="is", keep_known=True)
    known = [set(g.dst[(g.src == h) & (g.edge_columns["relation"] == 1)].tolist()) for h in (3, 4)]
    for i in range(2):
        left = ids[i][ids[i] >= 0]
        assert left.tolist() == [t for t in every[i].tolist() if t not in known[i]]
        np.testing.assert_allclose(
            scores[i, : len(left)], wanted[i][np.isin(every[i], left)], rtol=1e-9
        )


def test_with_times_it_sees_what_was_known_at_the_latest_held_out_link() -> None:
    g = PLAIN
    when = np.arange(120) % 5
    part = np.arange(120) % 7
    g = g.replace(
        edge_train=part < 5, edge_val=part == 5, edge_test=part == 6, edge_columns={"time": when}
    )
    keys = {**JOB, "task": "link", "eval_negatives": 2, "epochs": 1, "model": "sage", "hidden": 4}
    timed = gt.Trainer(graph=g, **keys, strategy="mini", fanout="4,3", sampler="temporal")
    timed.fit()
    # a link sees the edges before it
    seen = gt.Trainer(graph=g.keep_edges((part >= 5) | (when < 4)), **keys)
    every = gt.Trainer(graph=g, **keys)
    nodes = g.original_ids[:6]
    found = []
    for trainer in (timed, seen, every):
        trainer.model.load_state(timed.model.state())
        found.append(trainer.top(nodes, 5, keep_known=True))
    same(found[0], *found[1])
    assert np.abs(found[0][1] - found[2][1]).max() > 1e-6


def rates(comm: Any) -> gt.Trainer:
    return gt.Trainer(graph=RATED, comm=comm, **RATES)


def has(comm: Any) -> gt.Trainer:
    return gt.Trainer(graph=FACTS, comm=comm, **TRIPLES)


def labelled(comm: Any) -> gt.Trainer:
    return gt.Trainer("gcn", gt.load("sbm:n_nodes=60,n_edges=200"), comm=comm)


def none_held(comm: Any, **keys: Any) -> gt.Trainer:
    no = np.zeros(PLAIN.n_edges, bool)
    g = PLAIN.replace(
        edge_train=~no, edge_val=no, edge_test=no, edge_columns={"time": np.arange(PLAIN.n_edges)}
    )
    return gt.Trainer("sage", g, comm=comm, task="link", **KEYS, **keys)


timed_none_held = partial(none_held, strategy="mini", fanout="4,3", sampler="temporal")


@pytest.mark.parametrize(
    ("make", "nodes", "keys", "told"),
    [
        (none_held, None, {}, r"no links are held out; give nodes \(--of FILE\)"),
        (
            timed_none_held,
            PLAIN.original_ids[:1],
            {},
            (
                "links are scored by what the latest held-out link sees, but none are held out;"
                " give masks"
            ),
        ),
        (
            labelled,
            [0],
            {},
            (
                "top finds the best ends of links and triples, but the model has task=node; call"
                " predict"
            ),
        ),
        (rates, [0, 99], {}, r"nodes\[1\]: the graph has no node 99; give original ids"),
        (rates, ["a"], {}, r"nodes\[0\]: the graph has no node 'a'"),
        (rates, [0], {"candidates": [1.0]}, "candidates: got values of type float64; give origin"),
        (rates, [0], {"candidates": [1, -1]}, r"candidates\[1\]: the graph has no node -1"),
        (rates, [0], {"relation": "rates"}, "asked for without a relation"),
        (
            rates,
            [0, USERS],
            {},
            r"nodes\[1\]: no links lead from nodes of its type; give side=head, or candidates",
        ),
        (rates, [0], {"k": 0}, "k=0: expected a whole number, at least 1"),
        (rates, [0], {"side": "tails"}, "side='tails': choose from tail, head"),
        (has, [0], {}, "relation: got none for 1 nodes of task=triple; give the name or the code"),
        (has, [0, 1, 2], {"relation": ["has", "is"]}, "relation: got 2 for 3 nodes"),
        (
            has,
            [0, 1],
            {"relation": ["has", "hat"]},
            (
                r"relation\[1\]: relation 'hat' is not known \(did you mean 'has'\?\); the"
                r" relations are 0 \(has\)"
            ),
        ),
    ],
)
def test_errors_are_the_same_on_all_workers(
    make: Any, nodes: Any, keys: dict[str, Any], told: str
) -> None:
    def program(comm: Any) -> None:
        trainer = make(comm)
        with pytest.raises(ConfigError, match=told):
            trainer.top(nodes, **keys)

    run_simulated(2, program)


def test_scores_without_a_value() -> None:
    def program(comm: Any) -> None:
        trainer = has(comm)
        table = trainer.setup.tables[0]
        table.set_values(np.where(table.masters[:, None] == 7, np.nan, table.values()))
        with pytest.raises(DataError, match=r"scores are not numbers \(NaN\)"):
            trainer.top([1], relation=0)
        # that of a node which is no candidate does not matter
        found = trainer.top([1], 2, relation=0, candidates=[5, 6])
        assert found is None or np.isfinite(found[1]).all()

    run_simulated(2, program)


@pytest.mark.parametrize(
    ("graph", "keys", "asked"),
    [(FACTS, ENCODED, {"nodes": [1, 3], "relation": "is"}), (RATED, RATES, {"nodes": None})],
    ids=["triples", "links"],
)
@pytest.mark.parametrize("size", [1, 3])
def test_a_limit_of_memory_changes_nothing(
    size: int,
    graph: gt.Graph,
    keys: dict[str, Any],
    asked: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def program(comm: Any, limit: float) -> Any:
        trainer = gt.Trainer(
            graph=graph, comm=comm, **{**keys, "inference_memory": limit, "layers": 2}
        )
        assert (trainer.setup.limit is not None) == (limit > 0)
        return trainer.top(k=4, **asked)

    expected = run_simulated(size, program, 0.0)[0]
    passes = list[Any]()
    monkeypatch.setattr(limited, "whole_bytes", lambda *_: 1 << 40)
    monkeypatch.setattr(
        limited,
        "divided",
        lambda p, *_: passes.append(p) or np.array_split(np.arange(p.n_masters), 4),
    )
    found = run_simulated(size, program, 1.0)[0]
    assert passes
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)


@pytest.mark.parametrize("ids", [None, np.arange(30) % 2 + 2 * np.arange(30)])
def test_a_mask_chooses_nodes_and_is_no_list_of_ids(ids: Any) -> None:
    mask = np.isin(np.arange(30), [4, 2, 17])
    graph = PLAIN.replace(node_ids=ids)
    link = gt.Trainer("gcn", graph, task="link", **KEYS)
    node = gt.Trainer(
        "gcn",
        graph.replace(y=np.arange(30) % 2, train=np.ones(30, bool)),
        **{key: x for key, x in KEYS.items() if key != "eval_negatives"},
    )
    wanted = graph.original_ids[mask]
    for given in (mask, mask.tolist()):
        assert np.array_equal(link.top(given, 3)[0], link.top(wanted, 3)[0])
        assert np.isin(link.top([int(wanted[0])], 3, candidates=given)[0], [*wanted, -1]).all()
        for found in (node.predict, node.embed):
            assert np.array_equal(found(given)[0], wanted) and np.array_equal(
                found(given)[1], found(wanted)[1]
            )
    for call in (link.top, node.predict, node.embed):
        with pytest.raises(ConfigError, match=r"a mask of shape \[29\] chooses from 30 nodes"):
            call(mask[1:])
