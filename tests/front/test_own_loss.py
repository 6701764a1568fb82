"""Losses of one's own: the mean over all rows that count, on any number of workers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from own_loops import GRAPH, KEYS, LINK, MINI, SIZES, close, weights

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, UserFunctionError

pytestmark = pytest.mark.reference


def entropy(out: Any, y: Any) -> Any:
    return -gt.pick(gt.log_softmax(out), y)


def weighted(out: Any, y: Any) -> Any:
    return entropy(out, y), np.array([1.0, 4.0, 0.0])[y.value]


def squares(out: Any, y: Any) -> Any:
    return (out - y) ** 2


def ranking(out: Any, y: Any) -> Any:
    return gt.softplus(out[..., 1:] - out[..., :1])


def losses_of(
    comm: Any, graph: gt.Graph = GRAPH, **keys: Any
) -> tuple[list[float], dict[str, np.ndarray], dict[str, float]]:
    trainer = gt.Trainer(graph=graph, comm=comm, **{**KEYS, **keys})
    return [trainer.train_epoch(i) for i in range(2)], weights(trainer), trainer.measure()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("strategy", [{}, MINI], ids=["global", "mini"])
def test_an_own_loss_is_the_mean_over_all_workers(strategy: dict[str, Any], size: int) -> None:
    """Against the losses of the package, which mean the same."""
    expected = run_simulated(1, losses_of, **strategy)[0]
    found = run_simulated(size, losses_of, loss=entropy, **strategy)[0]
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-9)
    close(found[1], expected[1])
    assert found[2] == pytest.approx(expected[2], rel=1e-8)


@pytest.mark.parametrize("size", SIZES)
def test_labels_that_are_missing_do_not_count(size: int) -> None:
    rng = np.random.default_rng(1)
    y = np.where(rng.random((60, 2)) < 0.3, np.nan, rng.normal(size=(60, 2)))
    train = (np.arange(60) < 40) & ~np.isnan(y).all(axis=1)
    graph = gt.Graph((GRAPH.src, GRAPH.dst), 60, x=GRAPH.x, y=y, train=train)
    keys = {"model": "sage", "strategy": "mini", "batch_size": 15}
    expected = run_simulated(1, losses_of, graph, **keys)[0]
    found = run_simulated(size, losses_of, graph, loss=squares, **keys)[0]
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-9)
    # one value for each row counts whole rows
    rows = run_simulated(
        size, losses_of, graph, loss=lambda out, y: squares(out, y).sum(-1), **keys
    )[0]
    alone = run_simulated(1, losses_of, graph, loss=lambda out, y: squares(out, y).sum(-1), **keys)[
        0
    ]
    assert np.isfinite(rows[0]).all()
    np.testing.assert_allclose(rows[0], alone[0], rtol=1e-9)


def test_weights_of_classes_by_hand() -> None:
    def program(comm: Any) -> tuple[float, Any, Any]:
        keys = {**KEYS, "dropout": 0.0, "norm": "none", "scores": "logits"}
        run = gt.Run(graph=GRAPH, comm=comm, loss=weighted, **keys)
        view = next(run.views(0))
        return run.backward(run.loss(run.forward(view), view)), run.measure(), run.predict()

    for size in SIZES:
        loss, metrics, found = run_simulated(size, program)[0]
        out = found[1] - np.log(np.exp(found[1]).sum(1, keepdims=True))
        for split, value in (
            ("train", loss),
            ("train", metrics["train_loss"]),
            ("test", metrics["test_loss"]),
        ):
            rows = np.flatnonzero(getattr(GRAPH, split))
            by = np.array([1.0, 4.0, 0.0])[GRAPH.y[rows]]
            assert value == pytest.approx(
                -(by * out[rows, GRAPH.y[rows]]).sum() / by.sum(), rel=1e-9
            )


@pytest.mark.second
@pytest.mark.parametrize("size", SIZES)
def test_links_are_compared_with_their_negatives(size: int) -> None:
    keys = {**LINK, "dropout": 0.0}
    one = run_simulated(1, losses_of, loss=ranking, **keys)[0]
    found = run_simulated(size, losses_of, loss=ranking, **keys)[0]
    np.testing.assert_allclose(found[0], one[0], rtol=1e-9)
    close(found[1], one[1])

    def program(comm: Any) -> None:
        run = gt.Run(graph=GRAPH, comm=comm, loss=ranking, **{**KEYS, **keys})
        for view in run.views(0):
            out = run.forward(view)
            pairs = view.pairs
            share = float(run.loss(out, view).value)
            # pairs of a link have its number times four and the next three
            table = {
                int(gid): (float(score), float(label))
                for gid, score, label in zip(pairs.gid, out.value, pairs.label, strict=True)
            }
            terms = [
                math.log1p(math.exp(table[gid + i][0] - score))
                for gid, (score, label) in table.items()
                if label == 1
                for i in (1, 2, 3)
                if not any(math.isnan(table[gid + j][1]) for j in (1, 2, 3))
            ]
            total, count = comm.all_sum(np.array([sum(terms), len(terms)], float))
            assert float(comm.all_sum(np.asarray(share))) == pytest.approx(total / count, rel=1e-9)

    run_simulated(size, program)


@pytest.mark.parametrize(
    "loss, error, message",
    [
        (lambda out, y: entropy(out, y).sum(), Exception, "axis"),
        (
            lambda out, y: 1.0,
            UserFunctionError,
            "returned float; expected a value for each row of out",
        ),
        (lambda out, y: (entropy(out, y), np.ones(2)), ValueError, "weights of shape"),
        (
            lambda out, y: (entropy(out, y), -np.ones(out.shape[0])),
            UserFunctionError,
            "a negative weight",
        ),
        ("mse", ConfigError, "loss is 'mse'; expected a function"),
    ],
    ids=["sum", "number", "shape", "negative", "text"],
)
def test_a_wrong_loss_is_refused(loss: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gt.Trainer(graph=GRAPH, loss=loss, **KEYS).train_epoch(0)


def test_pick_and_log_softmax() -> None:
    x = np.random.default_rng(0).normal(size=(5, 3)) * 50
    gt.check_vjp(lambda x: gt.pick(x, np.array([0, 2, 1, 1, 0])), x)
    gt.check_vjp(gt.log_softmax, x[:, :2] / 50)
    np.testing.assert_allclose(np.exp(gt.log_softmax(x)).sum(1), 1)
    with pytest.raises(ValueError, match="numbers from 0 to 3; expected 0 to 2"):
        gt.pick(x, np.array([0, 2, 3, 1, 0]))
