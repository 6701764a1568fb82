import threading

import numpy as np
import pytest

from graphtheta.errors import ShapeError, UserFunctionError
from graphtheta.inspect.checking.gradients import check_vjp
from graphtheta.ops import (
    Parameter,
    RowSpace,
    RunningStats,
    Tape,
    Var,
    batch_norm,
    dtype_scope,
    layer_norm,
)
from graphtheta.ops.autodiff.expr import Tracer


def stats(*shape, dtype="float64"):
    with dtype_scope(dtype):
        return RunningStats(*shape)


def test_batch_norm_agrees_with_pytorch(golden):
    ref = golden("losses")
    x = Var(ref["logits"], None, True)
    gamma = Parameter(ref["bn_weight"])
    beta = Parameter(ref["bn_bias"])
    running = stats(5)
    with Tape() as tape:
        y = batch_norm(x, gamma, beta, running)
    assert np.allclose(y.value, ref["batch_norm"], rtol=0, atol=1e-10)
    assert np.allclose(
        tape.backward(y, ref["probe"]).of(x), ref["grad_batch_norm"], rtol=0, atol=1e-10
    )
    assert np.allclose(running.mean, ref["running_mean"], rtol=0, atol=1e-10)
    assert np.allclose(running.var, ref["running_var"], rtol=0, atol=1e-10)


@pytest.mark.parametrize("shape", [(4,), (2, 3)])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_gradient_agrees_with_differences(rng, shape, training):
    running = stats(*shape)

    def f(x, gamma, beta):
        with Tape(training=training) as tape:
            y = batch_norm(x, gamma, beta, running)
        return y, tape

    x, gamma, beta = (
        Var(rng.normal(size=(7, *shape)), None, True),
        Parameter(rng.normal(size=shape)),
        Parameter(rng.normal(size=shape)),
    )
    if training:
        check_vjp(lambda *a: batch_norm(*a, running), x, gamma, beta)
        return
    running.mean = rng.normal(size=shape)
    (y, tape), u, v = f(x, gamma, beta), rng.normal(size=(7, *shape)), rng.normal(size=(7, *shape))
    g = tape.backward(y, u).of(x)
    moved = f(Var(x.value + v), gamma, beta)[0].value - y.value
    assert np.vdot(g, v) == pytest.approx(np.vdot(u, moved))


class Workers:
    """all_sum for ranks that are threads."""

    def __init__(self, size):
        self.parts = [None] * size
        self.barrier = threading.Barrier(size)

    def run(self, f):
        results = [None] * len(self.parts)

        def work(rank):
            results[rank] = f(rank, lambda x: self.all_sum(rank, x))

        threads = [threading.Thread(target=work, args=(r,)) for r in range(len(self.parts))]
        for t in threads:
            t.start()
        for t in threads:
            t.join(20)
        return results

    def all_sum(self, rank, x):
        self.parts[rank] = np.array(x)
        self.barrier.wait(10)
        total = sum(self.parts)
        self.barrier.wait(10)
        return total


def test_batch_norm_over_workers_equals_one_and_some_have_no_rows(rng):
    x, u, gamma, beta = (
        rng.normal(3, 2, (9, 4)),
        rng.normal(size=(9, 4)),
        rng.normal(size=4),
        rng.normal(size=4),
    )

    def f(rows, all_sum):
        v = Var(x[rows], RowSpace(np.arange(9)[rows]), True)
        g = Parameter(gamma)
        b = Parameter(beta)
        running = stats(4)
        with Tape(all_sum=all_sum) as tape:
            y = batch_norm(v, g, b, running)
        grads = tape.backward(y, u[rows])
        return y.value, grads.of(v), grads.of(g), grads.of(b), running.mean, running.var

    whole = f(slice(0, 9), None)
    spread = [slice(0, 5), slice(5, 5), slice(5, 9)]
    parts = Workers(3).run(lambda rank, all_sum: f(spread[rank], all_sum))
    for i in (0, 1):
        assert np.allclose(np.concatenate([p[i] for p in parts]), whole[i], atol=1e-12)
    for i in (2, 3):
        assert np.allclose(sum(p[i] for p in parts), whole[i], atol=1e-12)
    for i in (4, 5):
        assert all(np.allclose(p[i], whole[i], atol=1e-12) for p in parts)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n", [0, 1])
def test_batch_norm_of_hardly_any_rows_is_finite(n):
    x = Var(np.ones((n, 3), np.float32), RowSpace(np.arange(n)), True)
    running = stats(3, dtype="float32")
    with Tape() as tape:
        y = batch_norm(
            x, Parameter(np.ones(3, np.float32)), Parameter(np.ones(3, np.float32)), running
        )
    assert np.array_equal(y.value, np.ones((n, 3)))
    assert np.array_equal(tape.backward(y).of(x), np.zeros((n, 3)))
    assert np.all(np.isfinite(running.var))
    assert np.array_equal(running.mean, [0.1 * n] * 3) or np.allclose(running.mean, 0.1)


def test_batch_norm_in_float32_survives_a_large_mean(rng):
    x = rng.normal(size=(5000, 2))
    y = batch_norm_in_training((x + 1e4).astype(np.float32))
    assert y.dtype == np.float32
    assert np.allclose(y.std(axis=0), 1, atol=1e-2)
    assert np.allclose(y.mean(axis=0), 0, atol=1e-2)


def batch_norm_in_training(x):
    with Tape():
        return batch_norm(
            Var(x),
            Parameter(np.ones(2, np.float32)),
            Parameter(np.zeros(2, np.float32)),
            stats(2, dtype="float32"),
        ).value


def test_batch_norm_in_evaluation_reads_but_keeps_statistics(rng):
    running = stats(2)
    running.mean, running.var = np.array([1.0, 2]), np.array([4.0, 9])
    x = rng.normal(size=(3, 2))
    with Tape(training=False):
        y = batch_norm(Var(x), np.ones(2), np.zeros(2), running, eps=0.0)
    assert np.allclose(y.value, (x - [1, 2]) / [2, 3])
    assert np.array_equal(running.mean, [1, 2])


def test_batch_norm_refuses_wrong_shapes_and_edges():
    with pytest.raises(
        ShapeError, match=r"gamma must have the trailing shape \[3\] of x, got \[2\]"
    ):
        batch_norm(Var(np.ones((2, 3))), np.ones(2), np.ones(3), stats(3))
    with Tracer() as tracer, pytest.raises(UserFunctionError, match="inside gather"):
        batch_norm(tracer.leaf("src", "h", (3,), np.float64), np.ones(3), np.ones(3), stats(3))


def test_layer_norm_normalises_each_row(rng):
    x = rng.normal(2, 3, (5, 2, 8))
    gamma = rng.normal(size=8)
    beta = rng.normal(size=8)
    y = layer_norm(Var(x, RowSpace(np.arange(5))), Parameter(gamma), Parameter(beta))
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(
        x.var(-1, keepdims=True) + 1e-5
    ) * gamma + beta
    assert np.allclose(y.value, expected)
    check_vjp(layer_norm, x, gamma, beta)
    with Tracer() as tracer:
        assert layer_norm(tracer.leaf("src", "h", (3,), np.float32)).dims == (3,)
    with pytest.raises(ShapeError, match="one number per row"):
        layer_norm(Var(np.ones(5), RowSpace(np.arange(5))))
