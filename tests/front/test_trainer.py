"""Link and edge tasks from a graph to predictions, through the trainer and through the commands, on
one worker and on two.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.cli import doctor
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.graph.splits.links import link_split
from graphtheta.tasks.kinds.links import Links

pytestmark = pytest.mark.reference

MPIEXEC = doctor.find_mpiexec()
RANKS = [
    1,
    pytest.param(2, marks=pytest.mark.skipif(MPIEXEC is None, reason="MPI is not installed")),
]
N = 160
# links inside the blocks only, and features that tell the block
BLOCKS = "sbm:n_nodes=400,n_edges=6000,classes=8,features=16,inside=0.97,signal=1,skew=0"
LINK = {
    "task": "link",
    "epochs": 30,
    "dropout": 0,
    "weight_decay": 0,
    "eval_negatives": 20,
    "backend": "reference",
}
EDGE = {"epochs": 30, "dropout": 0, "weight_decay": 0, "hidden": 8, "backend": "reference"}


def named_links() -> dict[str, np.ndarray]:
    """Two groups of people by name, with links inside the groups."""
    rng = np.random.default_rng(0)
    group = np.arange(N) % 2
    src = rng.integers(0, N, 1500)
    dst = rng.integers(0, N // 2, 1500) * 2 + group[src]
    x = rng.standard_normal((N, 6)) + 3 * group[:, None]
    return {
        "edge_index": np.stack((src, dst)),
        "x": x,
        "node_ids": np.array([f"person-{i:03d}" for i in rng.permutation(N)]),
    }


def roads() -> dict[str, np.ndarray]:
    """Edges whose value is a function of their attribute and of their source."""
    rng = np.random.default_rng(1)
    ends = rng.integers(0, 60, (2, 900))
    part = rng.integers(0, 3, 900)
    x = rng.standard_normal((60, 3))
    attr = rng.standard_normal((900, 2))
    y = attr[:, 0] + x[ends[0], 1]
    return {
        "edge_index": ends,
        "x": x,
        "edge_attr": attr,
        "edge_y": y,
        "edge_train": part < 2,
        "edge_val": np.zeros(900, bool),
        "edge_test": part == 2,
    }


@pytest.mark.parametrize(("task", "decay"), [("node", 5e-4), ("link", 0.0)])
def test_weight_decay_is_that_of_the_task(task: str, decay: float) -> None:
    def weights(**keys: Any) -> np.ndarray:
        trainer = gt.Trainer("gcn", gt.load(BLOCKS), task=task, epochs=2, hidden=4, **keys)
        trainer.fit()
        return np.concatenate([p.value.ravel() for p in trainer.model.parameters()])

    assert np.array_equal(weights(), weights(weight_decay=decay))
    assert not np.array_equal(weights(), weights(weight_decay=0.1))


def test_links_are_learned_without_settings() -> None:
    """Scores are products of values: where features are small, as those whose rows sum to 1, weight
    decay draws them to 0 before they differ.
    """
    graph = gt.load(BLOCKS)
    small = graph.replace(x=0.03 * graph.x)
    result = gt.Trainer("gcn", small, task="link", epochs=60, eval_every=20).fit()
    assert result.metrics["test_auc"] > 0.8


def graph_of(fields: dict[str, np.ndarray]) -> gt.Graph:
    rest = {name: value for name, value in fields.items() if name != "edge_index"}
    return gt.Graph(fields["edge_index"], **rest)


def command(ranks: int, *words: str) -> None:
    """Run a command in the current folder on some workers."""
    if ranks == 1:
        assert main(list(words)) == 0
        return
    done = subprocess.run(
        [str(MPIEXEC), "-n", str(ranks), sys.executable, "-m", "graphtheta", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr


def flags(keys: dict[str, object]) -> list[str]:
    return [
        word for key, value in keys.items() for word in ("--" + key.replace("_", "-"), str(value))
    ]


@pytest.mark.parametrize("decoder", ["dot", "hadamard"])
def test_links_are_ranked_far_above_chance(decoder: str) -> None:
    result = gt.Trainer("gcn", gt.load(BLOCKS), **LINK, decoder=decoder, lr=0.02).fit()
    # by chance the mean reciprocal rank of one among 21 is 0.17; who knows the blocks reaches about
    # 0.5
    assert result.metrics["test_mrr"] > 0.35 and result.metrics["test_auc"] > 0.85


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"strategy": "mini", "batch_size": 300},
        {"strategy": "mini", "batch_size": 300, "fanout": "5"},
    ],
    ids=["global", "mini", "sampled"],
)
def test_links_are_named_by_original_ids(keys: dict[str, object]) -> None:
    graph = graph_of(named_links())
    trainer = gt.Trainer("sage", graph, **{**LINK, "epochs": 4}, hidden=8, **keys)
    trainer.fit()
    found = trainer.predict()
    assert found is not None
    ids, scores = found
    assert (
        ids.dtype.kind == "U"
        and ids.shape == (len(scores), 2)
        and len(scores) == trainer.setup.evaluator.links["test"].src.size > 20
    )
    number = {name: i for i, name in enumerate(graph.node_ids)}
    ends = np.array([[number[a], number[b]] for a, b in ids])
    assert np.isin(
        ends[:, 0] * N + ends[:, 1],
        np.concatenate((graph.src * N + graph.dst, graph.dst * N + graph.src)),
    ).all()
    np.testing.assert_array_equal(ends, link_split(graph, seed=0).test.T)


def test_links_do_not_depend_on_workers() -> None:
    graph = graph_of(named_links())

    def program(comm):
        trainer = gt.Trainer(
            "gcn", graph, **{**LINK, "epochs": 3}, hidden=8, dtype="float64", comm=comm
        )
        metrics = trainer.fit().metrics
        return metrics, trainer.predict()

    ((one, (ids, scores)),) = run_simulated(1, program)
    (two, (ids_two, scores_two)), other = run_simulated(2, program)
    assert one == pytest.approx(two, rel=1e-9) and other[1] is None
    np.testing.assert_array_equal(ids, ids_two)
    np.testing.assert_allclose(scores, scores_two, rtol=1e-9)


@pytest.mark.second
@pytest.mark.parametrize("ranks", RANKS)
def test_links_through_the_commands(
    ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fields = named_links()
    np.savez("people.npz", **fields)
    command(
        ranks,
        "train",
        "--dataset",
        "people.npz",
        *flags({**LINK, "epochs": 5, "hidden": 8}),
        "--out",
        "run",
        "--save-predictions",
    )
    command(ranks, "evaluate", "run")
    command(ranks, "predict", "run", "--to", "links.csv")
    result = json.loads(Path("run/result.json").read_text())
    assert result["ranks"] == ranks and {"test_mrr", "test_hits10", "test_auc", "val_loss"} <= set(
        result["metrics"]
    )
    head, *rows = [line.split(",") for line in Path("links.csv").read_text().splitlines()]
    assert head == ["id_0", "id_1", "probability"]
    with np.load("run/predictions.npz") as saved:
        assert [row[:2] for row in rows] == saved["id"].tolist()
        np.testing.assert_allclose([float(row[2]) for row in rows], saved["probability"], rtol=1e-5)
        assert set(saved["id"].ravel()) <= set(fields["node_ids"])


def test_edges_are_regressed() -> None:
    graph = graph_of(roads())
    trainer = gt.Trainer("sage", graph, **{**EDGE, "epochs": 80}, lr=0.02)
    assert trainer.fit().metrics["test_r2"] > 0.6
    found = trainer.predict()
    assert found is not None
    ids, values = found
    np.testing.assert_array_equal(ids, np.arange(graph.n_edges))
    assert np.corrcoef(values.ravel(), graph.edge_y)[0, 1] > 0.8


@pytest.mark.parametrize("loops", ["yes", "no"])
def test_edges_keep_their_numbers_when_self_loops_come_or_go(loops: str) -> None:
    graph = graph_of(roads())
    found = gt.Trainer("sage", graph, **{**EDGE, "epochs": 0}, self_loops=loops).predict()
    assert found is not None
    own = graph.src == graph.dst
    np.testing.assert_array_equal(
        found[0], np.arange(900) if loops == "yes" else np.flatnonzero(~own)
    )
    assert len(found[1]) == len(found[0]) and own.any()


@pytest.mark.second
@pytest.mark.parametrize("ranks", RANKS)
def test_edges_through_the_commands(
    ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("roads.npz", **roads())
    command(
        ranks,
        "train",
        "--dataset",
        "roads.npz",
        "--model",
        "gat_e",
        "--heads",
        "2",
        *flags(EDGE),
        "--out",
        "run",
        "--metric",
        "mae",
    )
    # several workers evaluate and predict in the test of links
    command(1, "evaluate", "run", "--on", "test")
    command(1, "predict", "run")
    metrics = json.loads(Path("run/result.json").read_text())["metrics"]
    with np.load("run/predictions.npz") as saved:
        error = np.abs(saved["prediction"].reshape(-1) - roads()["edge_y"])[
            roads()["edge_test"]
        ].mean()
    assert error == pytest.approx(metrics["test_mae"], rel=1e-4)


def test_a_graph_too_small_to_hold_links_back() -> None:
    graph = gt.Graph(([0, 1, 2], [1, 2, 0]), x=np.eye(3))
    result = gt.Trainer("gcn", graph, **{**LINK, "epochs": 1}).fit()
    assert np.isfinite(result.history[0]["loss"])


def test_negatives_are_no_links() -> None:
    links = Links(np.arange(2), np.array([0, 1]), np.array([1, 2]), 2, np.array([1, 3, 5, 7]), 3, 0)
    ends, _ = links.draw(np.arange(2), 3)
    assert not links.taken(np.repeat([0, 1], 3), ends.ravel(), 3)[:3].any()
