"""Learned node features of a job: trained in every strategy, saved, resumed by another number of
workers, refused where they cannot be.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.store.memory import MemoryColumn
from graphtheta.engine.store.table import EmbeddingTable
from graphtheta.errors import ConfigError, DataError, FormatError
from graphtheta.ops.optimisers.row_optimiser import RowSGD
from graphtheta.run.checkpoints.stopping import Stop, Stopped
from graphtheta.run.embeddings import saved
from graphtheta.run.embeddings.saved import gathered_values
from graphtheta.run.embeddings.types import TypedFeatures
from graphtheta.train.loop import trainer as trainer_module

pytestmark = pytest.mark.reference

KEYS: dict[str, Any] = {
    "embedding": 6,
    "hidden": 5,
    "epochs": 4,
    "dtype": "float64",
    "backend": "reference",
    "model": "sage",
    "seed": 4,
    "optimiser": "sgd",
    "dropout": 0.2,
}
STRATEGIES: dict[str, dict[str, Any]] = {
    "global": {},
    "mini": {"strategy": "mini", "batch_size": 12, "fanout": (4, 2)},
    "flight": {"strategy": "mini", "batch_size": 12, "views_in_flight": 3, "views_per_step": 2},
    "cluster": {"strategy": "cluster", "clusters": 5, "clusters_per_batch": 2},
    "macrobatch": {
        "strategy": "mini",
        "batch_size": 12,
        "fanout": (4, 2),
        "macrobatch": "3",
        "views_per_step": 2,
    },
    "clipped": {
        "strategy": "mini",
        "batch_size": 12,
        "clip_norm": 0.05,
        "views_per_step": 2,
        "views_in_flight": 4,
    },
}
ALONE: dict[str, dict[str, Any]] = {
    "sampled": {"fanout": (4, 2)},
    "flight": {"views_in_flight": 4},
    "macrobatch": {"macrobatch": "2", "fetch_batch": 2},
    "clipped": {"clip_norm": 0.05, "views_in_flight": 4},
    "clusters": {"strategy": "cluster", "clusters": 8, "batch_size": 0},
    "links": {
        "task": "link",
        "decoder": "hadamard",
        "negatives": 2,
        "batch_size": 30,
        "fanout": (3, 2),
    },
}


def graph(x: bool = False) -> gt.Graph:
    sbm = gt.load("sbm:n_nodes=90,n_edges=400")
    return gt.Graph(
        sbm.edge_index,
        sbm.n_nodes,
        x=sbm.x if x else None,
        y=sbm.y,
        train=sbm.train,
        val=sbm.val,
        test=sbm.test,
    )


def run(comm: Any, **keys: Any) -> dict[str, np.ndarray]:
    trainer = gt.Trainer(graph=graph(), comm=comm, **{**KEYS, **keys})
    found = trainer.fit()
    losses = np.array([row["loss"] for row in found.history])
    values = gathered_values(trainer.setup.tables, trainer.partition, Path(gettempdir())).arrays
    predicted = trainer.predict()
    return (
        {}
        if predicted is None
        else {"loss": losses, **values, **trainer.model.state(), "predicted": predicted[1]}
    )


def close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", STRATEGIES)
def test_two_workers_train_what_one_does(name: str) -> None:
    one = run(SerialComm(), **STRATEGIES[name])
    close(run_simulated(2, run, **STRATEGIES[name])[0], one)
    assert one["loss"][-1] < one["loss"][0]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ALONE)
def test_workers_alone_train_what_one_does(name: str) -> None:
    keys = {
        "strategy": "mini",
        "batch_size": 12,
        "views_per_step": 4,
        "mode": "independent",
        **ALONE[name],
    }
    one = run(SerialComm(), **keys)
    close(run_simulated(2, run, masters="block", **keys)[0], one)
    close(run_simulated(3, run, partitioner="vertex-cut", **keys)[0], one)
    assert one["loss"][-1] < one["loss"][0]


def test_another_number_of_workers_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {**STRATEGIES["mini"], "out": str(tmp_path / "run"), "keep": 2, "checkpoint_every": 1}

    def halted(comm: Any, steps: int) -> None:
        trainer = gt.Trainer(graph=graph(), comm=comm, **{**KEYS, **keys})
        asked.set(lambda: trainer.step >= steps)
        with pytest.raises(Stopped):
            trainer.fit()

    class Asked(Stop):
        def flags(self) -> list[float]:
            return [float(asked.get()()), 0.0]

    asked: ContextVar[Callable[[], bool]] = ContextVar("asked", default=lambda: False)
    monkeypatch.setattr(trainer_module, "Stop", Asked)
    whole = run(SerialComm(), **STRATEGIES["mini"], out=str(tmp_path / "whole"), keep=0)
    run_simulated(2, halted, 5)
    close(
        run_simulated(3, run, **keys, resume=True, partitioner="vertex-cut", masters="block")[0],
        whole,
    )
    shutil.rmtree(tmp_path / "run")
    halted(SerialComm(), 3)
    asked.set(lambda: False)
    for name, x in run(SerialComm(), **keys, resume=True).items():
        np.testing.assert_array_equal(x, whole[name], err_msg=name)


def test_rows_are_saved_and_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker holds the rows of all nodes; blocks of any size give the same files."""
    monkeypatch.setattr(saved, "BLOCK", 7 * 6 * 8)
    written: list[int] = []

    class Spool(saved.Spool):
        def write(self, block: np.ndarray) -> None:
            written.append(block.nbytes)
            super().write(block)

    monkeypatch.setattr(saved, "Spool", Spool)
    test_another_number_of_workers_resumes(tmp_path, monkeypatch)
    assert len(written) > 13 and max(written) <= saved.BLOCK


def test_rows_that_cannot_be_written_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saved, "temporary_file", full)
    # training goes on without checkpoints, to weights that cannot be written either
    with pytest.raises(FormatError, match="the weights cannot be written: No space left"):
        run_simulated(2, run, out=str(tmp_path / "run"), keep=1, checkpoint_every=1)
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == KEYS["epochs"]
    assert "the checkpoint of step" in capsys.readouterr().err
    trainer = gt.Trainer(graph=graph(), comm=SerialComm(), **KEYS)
    with pytest.raises(FormatError, match="No space left"):
        trainer.save(tmp_path / "weights.safetensors")


def test_weights_hold_the_rows(tmp_path: Path) -> None:
    def saved(comm: Any) -> np.ndarray | None:
        trainer = gt.Trainer(graph=graph(), comm=comm, **KEYS)
        trainer.fit()
        trainer.save(tmp_path / "weights.safetensors")
        found = trainer.predict()
        return None if found is None else found[1]

    expected = run_simulated(2, saved)[0]
    other = gt.Trainer(graph=graph(), comm=SerialComm(), **{**KEYS, "seed": 5})
    other.load(tmp_path / "weights.safetensors")
    np.testing.assert_allclose(other.predict()[1], expected, rtol=1e-9)
    wider = gt.Trainer(graph=graph(), comm=SerialComm(), **{**KEYS, "embedding": 7})
    with pytest.raises(ConfigError, match=r"have \[90, 6\] as embedding/x, expected \[90, 7\]"):
        wider.load(tmp_path / "weights.safetensors")


@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "mini", "staleness": 1},
        {"precompute": "yes"},
        {"strategy": "mini", "feature_cache": "10"},
        {"strategy": "mini", "history": "hec"},
        {"exchange": "pipegcn"},
    ],
    ids=lambda keys: list(keys)[-1],
)
def test_what_needs_fixed_features_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError,
        match=rf"embedding=6 makes node features that change in every step.*{list(keys)[-1]}",
    ):
        gt.Trainer(graph=graph(), comm=SerialComm(), **{**KEYS, **keys})


def typed(x: bool = True) -> gt.Graph:
    """Papers with features and labels, users and tags without."""
    rng = np.random.default_rng(1)
    sizes = {"paper": 40, "user": 30, "tag": 6}
    pairs = {
        ("user", "reads", "paper"): (30, 40),
        ("tag", "of", "paper"): (6, 40),
        ("user", "likes", "tag"): (30, 6),
    }
    masks = {
        name: {"paper": np.arange(40) % 4 == i} for i, name in enumerate(("train", "val", "test"))
    }
    return gt.Graph(
        {name: [rng.integers(0, n, 90) for n in ends] for name, ends in pairs.items()},
        sizes,
        x={"paper": rng.standard_normal((40, 3))} if x else None,
        y={"paper": rng.integers(0, 3, 40)},
        **masks,
    ).with_inverse_relations()


TYPED: dict[str, Any] = {
    **KEYS,
    "model": "rgcn",
    "embedding_types": "tag=2,user",
    "strategy": "mini",
    "batch_size": 4,
}


def run_typed(comm: Any, x: bool = True, **keys: Any) -> dict[str, np.ndarray]:
    trainer = gt.Trainer(graph=typed(x), comm=comm, **{**TYPED, **keys})
    found = trainer.fit()
    values = gathered_values(trainer.setup.tables, trainer.partition, Path(gettempdir())).arrays
    predicted = trainer.predict()
    return (
        {}
        if predicted is None
        else {
            "loss": np.array([row["loss"] for row in found.history]),
            **values,
            "predicted": predicted[1],
        }
    )


@pytest.mark.parametrize("x", [True, False])
def test_types_learn_features_beside_those_of_others(x: bool) -> None:
    one = run_typed(SerialComm(), x)
    close(run_simulated(3, run_typed, x, partitioner="vertex-cut", masters="block")[0], one)
    tags, users = one["embedding/x/tag"], one["embedding/x/user"]
    assert tags.shape == (76, 2) and users.shape == (76, 6)
    for values, own in ((tags, slice(70, 76)), (users, slice(40, 70))):
        assert values[own].all() and not np.delete(values, np.r_[own], axis=0).any()
    assert one["loss"][-1] < one["loss"][0]


def test_types_learn_features_on_workers_alone() -> None:
    keys: dict[str, Any] = {"mode": "independent", "views_per_step": 3}
    close(run_simulated(3, run_typed, True, **keys)[0], run_typed(SerialComm(), True, **keys))


@pytest.mark.parametrize(
    "stored",
    [None, np.arange(12.0).reshape(6, 2), sp.csr_array(np.eye(6))],
    ids=["none", "dense", "sparse"],
)
def test_columns_of_tables_lie_beside_stored_ones(stored: Any) -> None:
    rows = [np.array([0, 3]), np.array([1, 2, 5])]
    tables = [
        EmbeddingTable(
            name=str(i), masters=own, width=2 + i, optimiser=RowSGD(1.0), seed=0, dtype=np.float64
        )
        for i, own in enumerate(rows)
    ]
    column = TypedFeatures(6, None if stored is None else MemoryColumn(stored), tables, rows)
    d = 0 if stored is None else stored.shape[1]
    wanted = np.zeros((6, d + 5))
    if d:
        wanted[:, :d] = stored if isinstance(stored, np.ndarray) else stored.toarray()
    wanted[rows[0], d : d + 2], wanted[rows[1], d + 2 :] = tables[0].values(), tables[1].values()
    np.testing.assert_array_equal(column.values(), wanted)
    some = np.array([5, 3, 4, 0])
    gradient = np.random.default_rng(0).standard_normal((4, d + 5))
    np.testing.assert_array_equal(column.read_begin(some).end(), wanted[some])
    column.add(*column.row_gradients(some, gradient))
    column.add(*column.row_gradients(some[:2], None))
    column.update(0.5)
    learned = np.arange(d + 5) >= d
    np.testing.assert_allclose(
        column.values(),
        wanted - np.where(learned & (wanted != 0), of_rows(some, 0.5 * gradient), 0),
        rtol=1e-12,
    )


def of_rows(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    out = np.zeros((6, values.shape[1]))
    out[rows] = values
    return out


def test_weights_hold_the_rows_of_types(tmp_path: Path) -> None:
    def saved(comm: Any) -> np.ndarray | None:
        trainer = gt.Trainer(graph=typed(), comm=comm, **TYPED)
        trainer.fit()
        trainer.save(tmp_path / "weights.safetensors")
        found = trainer.predict()
        return None if found is None else found[1]

    expected = run_simulated(2, saved)[0]
    other = gt.Trainer(graph=typed(), comm=SerialComm(), **{**TYPED, "seed": 5})
    other.load(tmp_path / "weights.safetensors")
    np.testing.assert_allclose(other.predict()[1], expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (
            "users",
            (
                "embedding_types=users: the graph has no node type 'users'; its types are paper,"
                " user, tag"
            ),
        ),
        ("user,tag,user=3", "names the type user twice"),
        ("tag=0", "type tag has width '0'; give a whole number"),
        ("tag=", "type tag has width ''"),
    ],
)
def test_mistakes_in_types_are_named(types: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        gt.Trainer(graph=typed(), comm=SerialComm(), **{**TYPED, "embedding_types": types})


def test_other_mistakes_are_named() -> None:
    with pytest.raises(DataError, match="has features x; drop --embedding"):
        gt.Trainer(graph=graph(x=True), comm=SerialComm(), **KEYS)
    with pytest.raises(DataError, match="learn them with --embedding WIDTH"):
        gt.Trainer(graph=graph(), comm=SerialComm(), **{**KEYS, "embedding": 0})
    with pytest.raises(ConfigError, match="have no width; give --embedding"):
        gt.Trainer(
            graph=graph(), comm=SerialComm(), **{**KEYS, "embedding": 0, "embedding_lr": 0.1}
        )
    with pytest.raises(ConfigError, match=r"embedding=6 has no meaning for gt\.Run"):
        gt.Run(graph=graph(), comm=SerialComm(), **{k: x for k, x in KEYS.items() if k != "epochs"})


def test_the_best_rows_come_back() -> None:
    trainer = gt.Trainer(
        graph=graph(),
        comm=SerialComm(),
        **{**KEYS, "epochs": 12, "embedding_lr": 0.5, "embedding_optimiser": "adagrad"},
    )
    found = trainer.fit()
    assert found.best_epoch < 12
    assert trainer.measure()["val_loss"] == found.metrics["val_loss"]
