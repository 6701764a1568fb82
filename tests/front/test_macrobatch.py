"""Views expanded together are those expanded one by one, to the bit, with fewer messages and
features.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError

GRAPH = gt.load("sbm:n_nodes=200,n_edges=900")
GRAPH = GRAPH.replace(
    edge_columns={"w": 1 + np.arange(GRAPH.n_edges) % 3, "time": np.arange(GRAPH.n_edges) % 50},
    node_columns={"time": 20 + np.arange(200) % 30},
)
KEYS = {
    "model": "sage",
    "strategy": "mini",
    "batch_size": 8,
    "dtype": "float64",
    "dropout": 0.0,
    "hidden": 4,
    "backend": "reference",
    "fanout": "3,2",
}


def trained(comm, epochs=2, **keys):
    """Losses of some epochs, and the trainer."""
    trainer = gt.Trainer(graph=GRAPH, comm=comm, **{**KEYS, **keys})
    return [trainer.train_epoch(i) for i in range(epochs)], trainer


def losses(comm, **keys):
    return trained(comm, **keys)[0]


@pytest.mark.one_in(15)
@pytest.mark.parametrize(
    "keys",
    [
        {"mode": "cooperative", "replace": True},
        {"mode": "cooperative", "sampler": "labor:star=yes,kappa=3"},
        {
            "mode": "cooperative",
            "sampler": "ladies",
            "fanout": "9,9",
            "views_in_flight": 3,
            "staleness": 2,
        },
        {
            "mode": "cooperative",
            "sampler": "saint_walk:roots=5,normalise=no",
            "fanout": "",
            "batch_size": 0,
        },
        {
            "mode": "cooperative",
            "strategy": "cluster",
            "clusters": 6,
            "batch_size": 0,
            "fanout": "",
        },
        {"mode": "cooperative", "task": "link", "batch_size": 200},
        {"fanout": ""},
        {"sampler": "weighted:weight=w"},
        {"sampler": "temporal"},
        {"sampler": "labor"},
        {"sampler": "pladies", "fanout": "9,9"},
        {"order": "proximity:sequences=2", "precompute": True},
        {"views_in_flight": 3, "staleness": 2},
    ],
    ids=str,
)
def test_numbers_are_those_of_views_made_one_by_one(keys):
    keys = {"mode": "independent", "views_per_step": 2, "epochs": 1, **keys}
    fetch = 2 * (keys["mode"] == "independent")
    one = run_simulated(3, losses, **keys)[0]
    assert run_simulated(3, losses, macrobatch=4, fetch_batch=fetch, **keys)[0] == one


@pytest.mark.one_in(3)
@pytest.mark.parametrize("size", [1, 2, 8])
def test_any_size_on_any_workers(size):
    keys = {"views_per_step": 4, "epochs": 1}
    expected = run_simulated(1, losses, **keys)[0]
    one = run_simulated(size, losses, mode="independent", **keys)[0]
    np.testing.assert_allclose(one, expected, rtol=1e-9)
    for macrobatch, fetch in ((2, 1), ("auto", 0)):
        assert (
            run_simulated(
                size, losses, mode="independent", macrobatch=macrobatch, fetch_batch=fetch, **keys
            )[0]
            == one
        )


def test_parts_of_an_epoch_share_their_macrobatch():
    def program(comm, macrobatch):
        trainer = gt.Trainer(
            graph=GRAPH,
            comm=comm,
            **KEYS,
            mode="independent",
            views_per_step=2,
            macrobatch=macrobatch,
        )
        found = [
            trainer.training.run(0, *part).tolist() for part in ((0, 2), (2, 4), (4, 6), (0, 6))
        ]
        return found, trainer.macrobatches and trainer.macrobatches.expanded

    (plain, _), (parts, expanded) = (
        run_simulated(2, program, macrobatch)[0] for macrobatch in (1, 3)
    )
    # six views, which are made again after they were taken
    assert parts == plain and expanded == 12


def test_a_resumed_run_expands_the_rest_of_its_macrobatch():
    def program(comm):
        first, again = (
            gt.Trainer(
                graph=GRAPH, comm=comm, **KEYS, mode="independent", views_per_step=2, macrobatch=3
            )
            for _ in range(2)
        )
        first.training.run(0, 0, 2)
        again.training.load_state(first.training.state())
        assert np.array_equal(again.training.run(0, 2, 6), first.training.run(0, 2, 6))
        return again.macrobatches.expanded

    assert run_simulated(2, program)[0] == 4


def test_messages_and_features_are_saved():
    def counts(comm, **keys):
        trainer = trained(comm, mode="independent", views_per_step=2, **keys)[1]
        return trainer.macrobatches.counts.summed(comm), comm.ledger.snapshot()["batch"]["messages"]

    (few, sent), (more, many) = (run_simulated(2, counts, macrobatch=n)[0] for n in (8, 2))
    assert few.views == more.views and few.alone_messages == more.alone_messages > 2 * few.messages
    assert few.messages < more.messages and sent < many
    assert few.rows < more.rows < more.alone_rows == few.alone_rows
    assert "in place of" in str(few) and few.row_bytes == GRAPH.x.shape[1] * 8


def test_a_worker_without_nodes_does_not_change_the_bytes_of_a_row(tmp_path):
    owners = tmp_path / "owners.npy"
    np.save(owners, np.arange(GRAPH.n_nodes) % 2)

    def program(comm):
        trainer = trained(comm, mode="independent", macrobatch=2, masters=f"file:path={owners}")[1]
        return trainer.macrobatches.counts.summed(comm).row_bytes

    assert run_simulated(3, program) == [GRAPH.x.shape[1] * 8] * 3


@pytest.mark.parametrize(
    "keys",
    [{"macrobatch": 3}, {"macrobatch": "auto", "fetch_batch": 1, "views_in_flight": 2}],
    ids=str,
)
def test_a_cache_foresees_what_a_macrobatch_has_expanded(keys, monkeypatch):
    def program(comm, **more):
        found, trainer = trained(comm, **same, **more)
        return found, trainer.caches.counts(), comm.ledger.snapshot()["batch"]["messages"]

    same = {"mode": "independent", "views_per_step": 2, "feature_cache": "20"}
    plain = run_simulated(2, losses, mode="independent", views_per_step=2)[0]
    expected, lru, sent = run_simulated(2, program, cache_policy="lru", **keys)[0]
    monkeypatch.setattr("graphtheta.train.reuse.caching.scout.Scout.dry_run", None)
    found, belady, more = run_simulated(2, program, cache_policy="belady:window=3", **keys)[0]
    assert found == expected == plain
    # nothing is expanded a second time
    assert more <= sent
    if keys.get("fetch_batch") == 1:
        assert belady.sum() == lru.sum() and belady[0] > lru[0]


def test_the_command_reports_what_was_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = [
        "train",
        "--dataset",
        "sbm:n_nodes=200,n_edges=900",
        "--strategy",
        "mini",
        "--batch-size",
        "20",
        "--fanout",
        "3",
        "--epochs",
        "1",
        "--backend",
        "reference",
        "--macrobatch",
        "auto",
        "--out",
        str(tmp_path),
    ]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert (
        "macrobatch=auto: " in told and "groups of views of an epoch are expanded together" in told
    )
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["macrobatch"]["size"] == result["macrobatch"]["views"] > 1


@pytest.mark.parametrize(
    "keys, message",
    [
        ({"macrobatch": 0}, "macrobatch: got 0, expected a number of at least 1, or auto"),
        ({"macrobatch": "many"}, "expected a number of at least 1, or auto"),
        (
            {"macrobatch": 2, "strategy": "global", "batch_size": 0, "fanout": ""},
            "macrobatch=2 has no meaning with strategy=global",
        ),
        ({"macrobatch": 2, "fetch_batch": 2}, "fetch_batch=2 has no meaning with mode=cooperative"),
        (
            {"macrobatch": 2, "fetch_batch": 3, "mode": "independent"},
            "fetch_batch=3 is more than macrobatch=2",
        ),
    ],
    ids=str,
)
def test_bad_keys_are_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        gt.Trainer(graph=GRAPH, **{**KEYS, **keys})


def test_own_loops_do_not_read_it():
    with pytest.raises(ConfigError, match="macrobatch=2 has no meaning for gt"):
        gt.Run(graph=GRAPH, macrobatch=2, **KEYS)
