"""Historical embeddings: exact limits, numbers that are resumed, what is read, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.store.history import History
from graphtheta.errors import ConfigError
from graphtheta.train.reuse.staleness.surroundings import surroundings

pytestmark = pytest.mark.reference

GRAPH = graphs.random_graph(60, 200, hub=False)
KEYS: dict[str, Any] = {
    "hidden": 6,
    "layers": 3,
    "dtype": "float64",
    "seed": 3,
    "backend": "reference",
    "optimiser": "sgd",
    "dropout": 0.3,
    "lr": 0.2,
}
GAS = {"strategy": "cluster", "clusters": 6, "history": "gas"}


def trained(comm: Comm, epochs: int = 3, **keys: Any) -> np.ndarray:
    """Losses, and everything the model has learnt."""
    one = gt.Trainer(keys.pop("model", "gcn"), GRAPH, comm=comm, **{**KEYS, **keys})
    losses = [one.train_epoch(epoch) for epoch in range(epochs)]
    return np.concatenate([losses, *(x.ravel() for x in one.model.state().values())])


@pytest.mark.parametrize(
    "keys",
    [
        {"model": "gcn", "norm": "batch"},
        {"model": "gat", "heads": 2, "jumping": "concat"},
        {"model": "sage", "direction": "both", "residual": True},
    ],
    ids=str,
)
def test_all_rows_in_the_batch_are_exact(keys: dict[str, Any]) -> None:
    (exact,) = run_simulated(1, trained, **keys)
    found = run_simulated(3, trained, **{**GAS, "clusters_per_batch": 6}, **keys)
    np.testing.assert_allclose(found[0], exact, rtol=1e-9, atol=1e-12)


def fitted(
    comm: Comm, folder: Path | None = None, **keys: Any
) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Rows of all epochs, and everything the model has learnt, after a run that may continue
    another one.
    """
    files = {} if folder is None else {"out": str(folder), "checkpoint_every": 2, "resume": True}
    one = gt.Trainer("gcn", keys.pop("graph", GRAPH), comm=comm, **{**KEYS, **GAS, **files, **keys})
    rows = [
        {name: x for name, x in row.items() if name not in ("seconds", "time")}
        for row in one.fit().history
    ]
    return rows, np.concatenate([x.ravel() for x in one.model.state().values()])


def test_the_audit_changes_nothing_and_finds_the_limit_exact() -> None:
    (plain, weights), (rows, same) = (
        run_simulated(2, fitted, epochs=2, **keys)[0] for keys in ({}, {"audit": 3})
    )
    np.testing.assert_array_equal(weights, same)
    assert all(
        row[f"audit_{name}"] > 0 for row in rows for name in ("outputs", "embeddings", "gradients")
    )
    assert [row["loss"] for row in rows] == [row["loss"] for row in plain] and 0 < rows[-1][
        "audit_hit_rate"
    ] <= 1
    exact = run_simulated(2, fitted, epochs=1, audit=4, history="gas:hops=2")[0][0][-1]
    assert max(exact[f"audit_{name}"] for name in ("outputs", "embeddings", "gradients")) < 1e-12


def test_a_limit_tightens_the_knob(caplog: pytest.LogCaptureFixture) -> None:
    rows = run_simulated(1, fitted, epochs=2, audit=1, audit_limit=1e-3)[0][0]
    assert (
        rows[-1]["audit_outputs"] < 1e-12
        and "from now on hops=1" in caplog.text
        and "hops=3" not in caplog.text
    )


def test_a_resumed_run_has_the_numbers_of_one_that_was_not_interrupted(tmp_path: Path) -> None:
    keys = {"audit": 3, "audit_limit": 0.4}
    whole = run_simulated(2, fitted, tmp_path / "whole", epochs=3, **keys)[0]
    run_simulated(2, fitted, tmp_path / "parts", steps=9, **keys)
    found = run_simulated(2, fitted, tmp_path / "parts", epochs=3, **keys)[0]
    np.testing.assert_array_equal(found[1], whole[1])
    assert found[0][-1] == whole[0][-1]


def test_numbers_of_any_number_of_workers() -> None:
    # histories belong to nodes, so unlike stale exchange they do not depend on the partition
    (one,) = run_simulated(1, trained, **GAS)
    for found in run_simulated(3, trained, **GAS, partitioner="vertex-cut"):
        np.testing.assert_allclose(found, one, rtol=1e-9, atol=1e-12)
    assert not np.allclose(one, run_simulated(1, trained, **{**GAS, "history": "none"})[0])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("macrobatch", ["2", "4", "auto"])
def test_batches_may_be_expanded_ahead(size: int, macrobatch: str) -> None:
    one = run_simulated(size, trained, **GAS)[0]
    for found in run_simulated(size, trained, **GAS, macrobatch=macrobatch):
        np.testing.assert_array_equal(found, one)


def test_every_node_is_computed_once_an_epoch() -> None:
    def count(comm: Comm) -> np.ndarray:
        one = gt.Trainer("gcn", GRAPH.with_masks(np.arange(60) < 4), comm=comm, **{**KEYS, **GAS})
        clusters = [one.strategy.chosen(1, i) for i in range(one.strategy.steps_per_epoch)]
        one.train_epoch(0)
        first = one.strategy.figures()
        one.train_epoch(1)
        second = one.strategy.figures()
        assert first["hit_rate"] < second["hit_rate"] == 1 and second["age"] > 0
        return np.concatenate(clusters)

    (found,) = run_simulated(1, count)
    np.testing.assert_array_equal(np.sort(found), np.arange(6))


HEC: dict[str, Any] = {"strategy": "mini", "batch_size": 8, "clusters": 0, "partitioner": "1d-dst"}
NO_LIMITS = "hec:cs=-1,ls=-1,nc=-1,d=0"


@pytest.mark.parametrize(
    "keys",
    [
        {"model": "gcn", "norm": "batch"},
        {"model": "gat", "heads": 2, "fanout": "3,2,2", "jumping": "concat"},
        {"model": "sage", "fanout": "4", "sampler": "labor"},
    ],
    ids=str,
)
def test_the_cache_on_one_worker_is_exact(keys: dict[str, Any]) -> None:
    (exact,), (found,) = (
        run_simulated(1, trained, **HEC, **keys, history=history) for history in ("none", "hec")
    )
    np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-12)


def test_a_cache_with_all_nodes_pushed_at_once_has_exact_outputs() -> None:
    # each worker computes all its nodes in each batch; no gradient flows to those of the others
    everything = {
        "graph": GRAPH.with_masks(np.ones(60, bool)),
        "batch_size": 0,
        "audit": 1,
        "epochs": 2,
    }
    rows = run_simulated(3, fitted, **{**HEC, **everything}, history=NO_LIMITS)[0][0]
    assert (
        rows[-1]["audit_outputs"] < 1e-12
        and rows[-1]["audit_hit_rate"] == 1
        and rows[-1]["audit_gradients"] > 1e-3
    )
    assert rows[-1]["audit_age"] == 0


def test_misses_are_dropped_or_fetched() -> None:
    rates = []
    for history in ("hec:nc=1,cs=5", "hec", "hec:ls=-1", "hec:ls=-1,miss=fetch"):
        rows = run_simulated(2, fitted, **HEC, history=history, audit=5, epochs=4)[0][0]
        rates.append((rows[-1]["audit_hit_rate"], rows[-1]["audit_outputs"]))
    assert rates[0][0] < rates[1][0] < rates[2][0] and rates[2][1] > rates[3][1] > 0


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "more",
    [
        {"history": "hec:nc=2,cs=8,ls=4,d=2,features=copied"},
        {
            "history": "hec:nc=2,cs=8,ls=4,d=2",
            "mode": "independent",
            "batch_size": 3,
        },
    ],
    ids=str,
)
def test_a_resumed_cache_has_the_numbers_of_one_that_was_not_interrupted(
    more: dict[str, Any], tmp_path: Path
) -> None:
    keys = {**HEC, "audit": 4, "audit_limit": 0.2, **more}
    whole = run_simulated(2, fitted, tmp_path / "whole", epochs=4, **keys)[0]
    run_simulated(2, fitted, tmp_path / "parts", steps=5, **keys)
    found = run_simulated(2, fitted, tmp_path / "parts", epochs=4, **keys)[0]
    np.testing.assert_array_equal(found[1], whole[1])
    assert found[0][-1] == whole[0][-1]


OWN: dict[str, Any] = {**HEC, "mode": "independent", "batch_size": 5}
# the outputs are exact if everything is pushed at once, and all workers compute all their nodes
PUSHED = (
    NO_LIMITS,
    f"{NO_LIMITS},features=copied",
    "hec:cs=-1,ls=0,nc=-1,d=0,miss=fetch",
)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("workers", [1, 3, 8])
@pytest.mark.parametrize("history", PUSHED)
def test_batches_of_each_worker_with_all_nodes_pushed_at_once_have_exact_outputs(
    history: str, workers: int
) -> None:
    everything = {
        "graph": GRAPH.with_masks(np.ones(60, bool)),
        "batch_size": 0,
        "audit": 1,
        "epochs": 2,
    }
    rows = run_simulated(workers, fitted, **{**OWN, **everything}, history=history)[0][0]
    assert (
        rows[-1]["audit_outputs"] < 1e-12
        and rows[-1]["audit_embeddings"] < 1e-12
        and rows[-1]["audit_hit_rate"] == 1
    )
    # no gradient flows to nodes of other workers
    assert (rows[-1]["audit_gradients"] < 1e-12) is (workers == 1)


@pytest.mark.parametrize(
    "keys", [{"norm": "batch"}, {"fanout": "3,2,2", "jumping": "concat"}], ids=str
)
def test_batches_of_one_worker_are_exact(keys: dict[str, Any]) -> None:
    rows = run_simulated(1, fitted, **{**OWN, **keys}, history="hec", audit=3, epochs=2)[0][0]
    assert max(rows[-1][f"audit_{name}"] for name in ("outputs", "embeddings", "gradients")) < 1e-12


def test_each_target_is_in_one_batch_of_its_worker() -> None:
    def batches(comm: Comm) -> tuple[list[np.ndarray], np.ndarray]:
        one = gt.Trainer("gcn", GRAPH, comm=comm, **{**KEYS, **OWN, "history": "hec"})
        strategy = one.strategy
        assert strategy.alone and one.setup.views_per_step == comm.size
        found = [
            strategy.task.ids[strategy._order.own(2, i)]
            for i in range(comm.rank, strategy.steps_per_epoch, comm.size)
        ]
        return found, strategy.task.ids

    results = run_simulated(3, batches)
    assert len({len(own) for own, _ in results}) == 1
    for own, ids in results:
        sizes = [len(x) for x in own]
        assert max(sizes) <= 5 and max(sizes) - min(sizes) <= 1
        np.testing.assert_array_equal(np.sort(np.concatenate(own)), np.sort(ids))


def test_a_worker_without_targets_computes_empty_batches() -> None:
    few = GRAPH.with_masks(np.arange(60) < 3)
    losses = run_simulated(3, trained, **OWN, history="hec", masters="block", model="sage")
    assert np.isfinite(losses[0]).all()
    found = run_simulated(
        3,
        fitted,
        **OWN,
        graph=few,
        history="hec:ls=-1,miss=fetch",
        masters="block",
        audit=2,
        epochs=2,
    )
    assert all(np.isfinite(rows[-1]["loss"]) for rows, _ in found)


@pytest.mark.second
def test_features_are_cached_without_an_age_and_copies_are_not_needed() -> None:
    def last(more: str) -> dict[str, Any]:
        keys = {
            **OWN,
            "audit": 4,
            "epochs": 4,
            "norm": "batch",
            "history": f"hec{more}",
        }
        return run_simulated(3, fitted, **keys)[0][0][-1]

    whole = last("")
    assert (
        max(last(":cs=3")["audit_hit_rate_0"], last(":nc=1")["audit_hit_rate_0"])
        < whole["audit_hit_rate_0"]
    )
    assert (
        whole["audit_hit_rate_0"] > whole["audit_hit_rate_1"]
        and last(":miss=fetch")["audit_outputs"] > 0
    )


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"history": "gsa"}, "did you mean 'gas'"),
        ({"history": "gas:hops=-1"}, "hops is -1"),
        ({**GAS, "strategy": "mini", "clusters": 0}, "give --strategy cluster"),
        ({**HEC, "history": "hec:ls=-2"}, "ls is -2"),
        ({**HEC, "history": "hec:miss=ask"}, "expected drop or fetch"),
        ({**HEC, "history": "hec", "partitioner": "1d-src"}, "give --partitioner 1d-dst"),
        ({**HEC, "history": "hec:d=-1"}, "d is -1"),
        (
            {**HEC, "history": "hec", "batch_size": 0, "sampler": "saint_node"},
            "needs a sampler of neighbours",
        ),
        ({**HEC, "history": "fresh:share=2"}, "share is 2.0"),
        ({**HEC, "history": "fresh:lines=0"}, "lines is 0"),
        ({**HEC, "history": "fresh", "mode": "independent"}, "needs --mode cooperative"),
        ({**HEC, "history": "fresh", "task": "link"}, "another --task"),
        ({**HEC, "history": "hec:features=kept"}, "expected cached or copied"),
        (
            {**HEC, "history": "hec", "mode": "independent", "views_per_step": 3},
            "give a multiple of 2",
        ),
        (
            {**HEC, "history": "hec", "mode": "auto"},
            "needs --mode cooperative or independent, and not auto",
        ),
        ({**HEC, "history": "hec", "vertex_limit": 9}, "vertex_limit=9 has no meaning"),
        ({**GAS, "boundary_hops": 1}, "boundary_hops=1 has no meaning"),
        ({**GAS, "mode": "independent"}, "needs --mode cooperative"),
        ({**GAS, "views_in_flight": 2}, "drop --views-in-flight"),
        ({**GAS, "task": "link"}, "another --task"),
        ({**GAS, "strategy": "global", "clusters": 0}, "history=gas"),
        ({**HEC, "history": "hec", "macrobatch": 4}, "nothing to merge"),
        ({**HEC, "history": "fresh", "macrobatch": 4}, "drop --macrobatch"),
        ({**GAS, "macrobatch": 4, "audit": 1, "audit_limit": 0.1}, "an audit may change the knob"),
        ({"audit": 5}, "no values are reused"),
        ({**GAS, "audit_limit": 0.1}, "needs an audit"),
    ],
)
def test_errors(keys: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        run_simulated(2, trained, **{"strategy": "cluster", "clusters": 6, **keys})


def test_the_oldest_lines_are_replaced(rng: np.random.Generator) -> None:
    history = History(20, 6)
    model = dict[int, tuple[int, float]]()
    for number in range(80):
        # several workers push in one step
        step = number // 2
        rows = rng.permutation(20)[: rng.integers(0, 9)]
        values = rng.standard_normal((len(rows), 2))
        history.store(rows, values, step)
        known = [r for r in rows.tolist() if r in model]
        new = (
            [r for r in rows.tolist() if r not in model][-max(6 - len(known), 0) :]
            if len(known) < 6
            else []
        )
        model.update((r, (step, values[rows == r][0, 0])) for r in [*known, *new])
        # of lines of equal age, the test does not say which one goes
        gone = [
            r
            for r, line in zip(model, history.find(np.array(list(model), np.int64)), strict=True)
            if line < 0
        ]
        assert not {*known, *new}.intersection(gone)
        evicted = [model.pop(r)[0] for r in gone]
        assert max(evicted, default=-1) <= min((at for at, _ in model.values()), default=0)
        lines = history.find(np.array(sorted(model), np.int64))
        assert len(model) <= 6 and len(set(lines.tolist())) == len(model) and (lines >= 0).all()
        np.testing.assert_array_equal(
            history.read(lines)[:, 0], [model[r][1] for r in sorted(model)]
        )
        np.testing.assert_array_equal(history.steps(lines), [model[r][0] for r in sorted(model)])
        some = np.array([r for r in model if rng.random() < 0.1], np.int64)
        history.drop(some)
        for r in some.tolist():
            del model[r]
        assert (history.find(some) < 0).all()
        copy = History(20, 6)
        copy.load_state(history.state())
        np.testing.assert_array_equal(
            copy.find(np.arange(20), step - 2), history.find(np.arange(20), step - 2)
        )


FRESH: dict[str, Any] = {"strategy": "mini", "batch_size": 12, "clusters": 0}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("history", ["fresh:share=0", "fresh:ls=0"])
@pytest.mark.parametrize(
    "keys",
    [
        {"norm": "batch"},
        {"model": "gat", "heads": 2, "fanout": "3,2,2", "jumping": "concat"},
        {"model": "sage", "direction": "both", "fanout": "4", "sampler": "labor"},
    ],
    ids=str,
)
def test_stable_values_of_no_node_or_no_age_are_exact(keys: dict[str, Any], history: str) -> None:
    (exact,) = run_simulated(1, trained, **FRESH, **keys)
    for partitioner in ("1d-dst", "vertex-cut"):
        found = run_simulated(3, trained, **FRESH, **keys, history=history, partitioner=partitioner)
        np.testing.assert_allclose(found[0], exact, rtol=1e-9, atol=1e-12)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "keys", [{"norm": "batch"}, {"model": "sage", "fanout": "3", "residual": True}], ids=str
)
def test_stable_nodes_are_those_of_any_number_of_workers(keys: dict[str, Any]) -> None:
    (one,) = run_simulated(1, trained, **FRESH, **keys, history="fresh:share=0.6")
    for workers, partitioner in ((2, "1d-src"), (3, "vertex-cut"), (8, "1d-dst")):
        found = run_simulated(
            workers, trained, **FRESH, **keys, history="fresh:share=0.6", partitioner=partitioner
        )
        np.testing.assert_allclose(found[0], one, rtol=1e-9, atol=1e-12)
    assert not np.allclose(one, run_simulated(1, trained, **FRESH, **keys)[0])


def test_stable_nodes_are_not_expanded_and_others_are_dropped() -> None:
    def edges(comm: Comm, history: str) -> list[int]:
        one = gt.Trainer("sage", GRAPH, comm=comm, **{**KEYS, **FRESH, "history": history})
        one.train_epoch(0)
        return [level.n_edges for level in one.strategy.batch(1, 0).levels]

    whole, half, most = (
        run_simulated(1, edges, history)[0]
        for history in ("none", "fresh:share=0.5", "fresh:share=0.95")
    )
    assert (
        whole[2] == half[2] == most[2]
        and whole[1] > half[1] > most[1]
        and whole[0] > half[0] > most[0]
    )
    rates = [
        run_simulated(2, fitted, **{**FRESH, **more, "clusters": 0}, audit=4, epochs=4)[0][0][-1][
            "audit_hit_rate"
        ]
        for more in (
            {"history": "fresh:lines=2"},
            {"history": "fresh:share=0.5"},
            {"history": "fresh"},
        )
    ]
    assert 0 < rates[0] < rates[2] and 0 < rates[1] < rates[2]


def test_a_limit_ends_at_exact_values(caplog: pytest.LogCaptureFixture) -> None:
    rows = run_simulated(
        2, fitted, **FRESH, history="fresh:share=0.2", audit=1, audit_limit=1e-9, epochs=3
    )[0][0]
    assert (
        rows[-1]["audit_outputs"] < 1e-12
        and "from now on share=0.1" in caplog.text
        and "from now on share=0\n" in caplog.text + "\n"
    )


def test_resumed_stable_nodes_are_those_of_a_run_that_was_not_interrupted(tmp_path: Path) -> None:
    keys = {**FRESH, "audit": 4, "history": "fresh:share=0.7,ls=3,lines=9"}
    whole = run_simulated(2, fitted, tmp_path / "whole", epochs=3, **keys)[0]
    run_simulated(2, fitted, tmp_path / "parts", steps=5, **keys)
    found = run_simulated(2, fitted, tmp_path / "parts", epochs=3, **keys)[0]
    np.testing.assert_array_equal(found[1], whole[1])
    assert found[0][-1] == whole[0][-1]


def test_sparse_features_of_mirrors_are_those_of_their_masters(rng: np.random.Generator) -> None:
    # the last third of the nodes has no out-edges, so that its worker sends no features
    x = sp.csr_array(rng.normal(size=(30, 5)) * (rng.random((30, 5)) < 0.15), dtype=np.float32)
    x.indices, x.indptr = x.indices.astype(np.int64), x.indptr.astype(np.int64)
    graph = gt.Graph((rng.integers(0, 20, 60), rng.integers(0, 30, 60)), 30, x=x)
    assert sp.issparse(graph.x)

    def rows(comm: Comm) -> tuple[np.ndarray, np.ndarray]:
        whole = surroundings(build_partition(graph, comm, "1d-dst", "block"))
        return whole.gid, whole.node.read("x").toarray()

    for gid, found in run_simulated(3, rows):
        assert np.array_equal(found, x.toarray()[gid])
