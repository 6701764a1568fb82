"""Weights of links and triples in the loss, by an edge column: those of the formula, in training
and in evaluation, on any workers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError

pytestmark = pytest.mark.reference

KEYS: dict[str, Any] = {
    "model": "mlp",
    "layers": 0,
    "embedding": 6,
    "dtype": "float64",
    "backend": "reference",
    "optimiser": "sgd",
    "lr": 0.1,
    "epochs": 1,
    "negatives": 3,
    "eval_negatives": 2,
    "weight_decay": 0.0,
    "dropout": 0.0,
    "sample_weights": "w",
}
ALL = {"strategy": "mini", "batch_size": 1000}
TASKS: dict[str, dict[str, Any]] = {
    "link": {"task": "link"},
    "link softmax": {"task": "link", "link_loss": "softmax", "negatives_from": "batch"},
    "triple": {"task": "triple", "decoder": "distmult"},
    "triple adversarial": {
        "task": "triple",
        "decoder": "rotate",
        "link_loss": "adversarial",
        "negative_groups": 2,
    },
    "triple reciprocal": {"task": "triple", "decoder": "distmult", "reciprocal": True},
}
MINI = {"strategy": "mini", "batch_size": 5}
STRATEGIES: dict[str, dict[str, Any]] = {
    "global": {},
    "mini": {**MINI, "fanout": "2"},
    "cluster": {"strategy": "cluster", "clusters": 3, "clusters_per_batch": 2},
    "independent": {**MINI, "mode": "independent", "views_per_step": 1},
    "timed": {**MINI, "fanout": "2", "sampler": "temporal"},
}


@cache
def plain() -> gt.Graph:
    """Edges between different nodes, each unordered pair once: two in three for training."""
    rng = np.random.default_rng(3)
    n, (a, b) = 12, np.triu_indices(12, 1)
    chosen = rng.permutation(len(a))[:24]
    src, dst = np.where(rng.random(24) < 0.5, (a[chosen], b[chosen]), (b[chosen], a[chosen]))
    part = np.arange(24) % 6
    return gt.Graph(
        (src, dst),
        n,
        edge_train=part < 4,
        edge_val=part == 4,
        edge_test=part == 5,
        edge_columns={"relation": rng.integers(0, 2, 24), "time": rng.integers(0, 4, 24)},
    )


def weighted(w: np.ndarray) -> gt.Graph:
    return plain().replace(edge_columns={**plain().edge_columns, "w": w})


W = np.random.default_rng(4).integers(0, 5, 24) / 2


def run(
    comm: Any, w: np.ndarray, **keys: Any
) -> tuple[list[float], dict[str, float], dict[str, Any]]:
    trainer = gt.Trainer(graph=weighted(w), comm=comm, **{**KEYS, **keys})
    # a batch of all links supervises all of them
    trainer.setup.task._supervision = 1
    losses = [trainer.train_epoch(i) for i in range(trainer.job.epochs)]
    return losses, trainer.measure(), trainer.model.state()


def of_each(splits: tuple[str, ...], keys: dict[str, Any], read: Any) -> np.ndarray:
    """What is read of jobs in which one edge of these splits weighs 1, and all others of its split
    weigh 0, [n_edges]; 0 for edges of other splits.
    """
    found = np.zeros(24)
    for split in splits:
        rows = getattr(plain(), f"edge_{split}")
        for e in np.flatnonzero(rows):
            w = np.where(rows, 0.0, 1.0)
            w[e] = 1
            found[e] = read(split, run(SerialComm(), w, **keys))
    return found


@pytest.mark.one_in(7)
@pytest.mark.parametrize("task", TASKS)
def test_losses_are_weighted_means_of_those_of_single_links(task: str) -> None:
    # a step of all links has the loss of the initial weights, as an evaluation without a step
    keys = {**ALL, **TASKS[task]}
    trained = of_each(("train",), keys, lambda split, found: found[0][0])
    measured = of_each(
        ("val", "test"), {**keys, "epochs": 0}, lambda split, found: found[1][f"{split}_loss"]
    )
    assert len(np.unique(measured.round(12))) > 6
    for size in (1, 3):
        losses, metrics, _ = run_simulated(
            size, run, W, **keys, lr=1e-300, partitioner="vertex-cut"
        )[0]
        for split, each, loss in (
            ("train", trained, losses[0]),
            ("val", measured, metrics["val_loss"]),
            ("test", measured, metrics["test_loss"]),
        ):
            rows = getattr(plain(), f"edge_{split}")
            assert loss == pytest.approx((W[rows] * each[rows]).sum() / W[rows].sum(), rel=1e-9), (
                split
            )
            assert not np.isclose(loss, each[rows].mean())


@pytest.mark.one_in(13, 3)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_workers_do_not_change_the_numbers(task: str, name: str) -> None:
    model = {"model": "rgcn", "bases": 2} if "triple" in task else {"model": "gcn"}
    if name == "timed":
        # models that read no degrees, which count later edges
        model = {"model": "rgat" if "triple" in task else "sage"}
    keys = {**model, "layers": 1, "hidden": 4, **STRATEGIES[name], **TASKS[task], "epochs": 2}
    one, three = (run_simulated(size, run, W, **keys)[0] for size in (1, 3))
    np.testing.assert_allclose(three[0], one[0], rtol=1e-9)
    assert three[1] == pytest.approx(one[1], rel=1e-8)
    for parameter, x in one[2].items():
        np.testing.assert_allclose(three[2][parameter], x, rtol=1e-9, atol=1e-12)
    even, ten = (run(SerialComm(), w, **keys) for w in (np.ones(24), np.full(24, 10.0)))
    np.testing.assert_allclose(ten[0], even[0], rtol=1e-12)
    assert not np.allclose(one[0], even[0])
    without = run(SerialComm(), np.ones(24), **{**keys, "sample_weights": ""})
    np.testing.assert_allclose(even[0], without[0], rtol=1e-9)


def test_an_own_loss_is_weighted_too() -> None:
    def own(out: Any, y: Any) -> Any:
        return gt.softplus(out[:, 1:] - out[:, :1]).mean(axis=-1)

    keys = {**ALL, **TASKS["link"], "loss": own, "lr": 1e-300}
    each = of_each(("train",), keys, lambda split, found: found[0][0])
    rows = plain().edge_train
    assert run(SerialComm(), W, **keys)[0][0] == pytest.approx(
        (W[rows] * each[rows]).sum() / W[rows].sum()
    )


@pytest.mark.parametrize("task", ["link", "triple"])
def test_wrong_weights_are_an_error(task: str) -> None:
    keys = TASKS[task]
    with pytest.raises(ConfigError, match=r"no such column.*did you mean 'w'"):
        run(SerialComm(), W, **keys, sample_weights="ww")
    wrong = {
        "row 3 is -1": np.where(np.arange(24) == 3, -1.0, W),
        "all training targets weigh 0": np.where(plain().edge_train, 0.0, 1.0),
    }
    for words, w in wrong.items():
        with pytest.raises(DataError, match=words):
            run_simulated(2, run, w, **keys)
