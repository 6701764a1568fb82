import numpy as np
import pytest

import graphtheta.ops as gt
from graphtheta.errors import DataError, ShapeError, UserFunctionError
from graphtheta.inspect.checking.gradients import check_vjp
from graphtheta.ops import (
    RowSpace,
    Tape,
    Var,
    binary_cross_entropy,
    mean_squared_error,
    softmax_cross_entropy,
)
from graphtheta.ops.autodiff.expr import Tracer
from graphtheta.ops.functions.losses.row_loss import RowLoss
from graphtheta.ops.kernels.logits import cross_entropy_slope


def run(loss, x, *args, **options):
    v = Var(x, None, True)
    with Tape() as tape:
        out = loss(v, *args, **options)
    return out.value, tape.backward(out).of(v)


@pytest.mark.parametrize(
    ("loss", "targets", "name"),
    [
        (softmax_cross_entropy, "y", "cross_entropy"),
        (binary_cross_entropy, "targets", "binary_cross_entropy"),
    ],
)
def test_loss_agrees_with_pytorch(golden, loss, targets, name):
    ref = golden("losses")
    value, g = run(loss, ref["logits"], ref[targets], ref["mask"])
    assert value == pytest.approx(ref[name], abs=1e-10)
    assert np.allclose(g, ref[f"grad_{name}"], rtol=0, atol=1e-10)


CASES = [
    (softmax_cross_entropy, np.array([0, 2, -1, 1, 1, 0])),
    (binary_cross_entropy, np.eye(6, 3)),
    (mean_squared_error, np.eye(6, 3)),
]


@pytest.mark.parametrize(("loss", "targets"), CASES)
def test_loss_shares_of_workers_add_up(rng, loss, targets):
    x = rng.normal(size=(6, 3))
    mask = np.array([True, True, True, False, True, True])
    whole, g = run(loss, x, targets, mask)
    total = (mask & (targets >= 0)).sum() if targets.ndim == 1 else 3 * mask.sum()
    for cut in (0, 1, 4):
        a, b = (
            run(loss, x[s], targets[s], mask[s], total=total)
            for s in (slice(0, cut), slice(cut, 6))
        )
        assert a[0] + b[0] == pytest.approx(whole)
        assert np.allclose(np.concatenate([a[1], b[1]]), g)


@pytest.mark.parametrize(("loss", "targets"), CASES)
def test_loss_total_is_counted_over_workers(rng, loss, targets):
    x = rng.normal(size=(6, 3))
    with Tape(all_sum=lambda n: 2 * n):
        half = loss(Var(x), targets)
    assert half.value == pytest.approx(run(loss, x, targets)[0] / 2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("loss", "targets"), CASES)
@pytest.mark.parametrize("n", [0, 6])
def test_loss_of_no_targets_is_zero(loss, targets, n):
    value, g = run(loss, np.ones((n, 3), np.float32), targets[:n], np.zeros(n, bool))
    assert value == 0
    assert value.shape == ()
    assert value.dtype == g.dtype == np.float32
    assert np.array_equal(g, np.zeros((n, 3)))


@pytest.mark.parametrize("large", [1e4, 1e7])
def test_large_logits_take_no_digits_from_the_loss(large):
    logits = np.array([[large, large, 0], [-large, -2 * large, -large]], np.float32)
    value, _ = run(softmax_cross_entropy, logits, np.array([0, 2]))
    assert value == pytest.approx(np.log(2), rel=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("loss", "targets"), CASES[:2])
def test_loss_of_large_logits_is_finite(loss, targets):
    value, g = run(loss, np.array([[1e4, -1e4, 0]] * 6, np.float32), targets)
    assert np.isfinite(value)
    assert np.all(np.isfinite(g))


@pytest.mark.parametrize(("loss", "targets"), CASES)
def test_loss_gradient_agrees_with_differences(rng, loss, targets):
    check_vjp(lambda x: loss(x, targets), rng.normal(size=(6, 3)))


@pytest.mark.parametrize("loss", [binary_cross_entropy, mean_squared_error])
def test_loss_ignores_missing_targets(rng, loss):
    x = rng.normal(size=(6, 3))
    t = np.eye(6, 3)
    t[2, 1] = t[5] = np.nan
    value, g = run(loss, x, t)
    present = ~np.isnan(t)
    expected, _ = run(loss, x[present], t[present])
    assert value == pytest.approx(expected)
    assert np.all(g[~present] == 0)


def test_mean_squared_error_of_one_number_per_row(rng):
    x = rng.normal(size=5)
    t = rng.normal(size=5)
    value, g = run(mean_squared_error, x, t)
    assert value == pytest.approx(np.mean((x - t) ** 2))
    assert np.allclose(g, 2 * (x - t) / 5)


ROW_LOSSES = {
    "logarithm": (lambda o, y: gt.square(gt.log(y) - o), lambda o, y: (np.log(y) - o) ** 2),
    "quotient": (lambda o, y: gt.absolute(o - y) / y, lambda o, y: np.abs(o - y) / y),
    "power": (lambda o, y: o * y**-1.5, lambda o, y: o * y**-1.5),
    "infinite": (lambda o, y: o / (y - 1), lambda o, y: o / (y - 1)),
}


@pytest.mark.parametrize("name", ROW_LOSSES)
def test_unknown_labels_of_rows_that_count_change_nothing(name, rng):
    ours, twin = ROW_LOSSES[name]
    y = rng.uniform(1.5, 3, (6, 3))
    y[1, 0] = y[2] = y[4, 1:] = np.nan
    # a column in which nothing is known
    y[:, 2] = np.nan
    known = ~np.isnan(y)
    x = rng.normal(size=y.shape)
    out = Var(x, RowSpace(np.arange(6)), True)
    with Tape() as tape, np.errstate(all="ignore"):
        loss = RowLoss(ours)(out, y, None)
    assert loss.value == pytest.approx(twin(x[known], y[known]).mean())
    if name != "infinite":
        g = tape.backward(loss).of(out)
        assert np.all(g[~known] == 0) and np.all(np.isfinite(g)) and np.all(g[known] != 0)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint16", "int32", "uint64"])
def test_labels_of_any_integer_type(dtype):
    x = np.eye(4, 3)
    labels = np.array([0, 2, 1, 1])
    expected = run(softmax_cross_entropy, x, labels)
    found = run(softmax_cross_entropy, x, labels.astype(dtype))
    assert found[0] == expected[0] and np.array_equal(found[1], expected[1])
    with pytest.raises(DataError, match="a label is 3"):
        softmax_cross_entropy(Var(x), np.array([0, 3, 1, 2], dtype))


def test_loss_cuts_targets_to_the_rows_of_the_logits(rng):
    space = RowSpace(np.arange(6))
    logits = Var(rng.normal(size=(4, 3)), space.prefix(4), True)
    labels = Var(np.array([0, 1, 2, 0, 9, 9]), space)
    mask = Var(np.array([1, 1, 0, 1, 1, 1], bool), space)
    assert softmax_cross_entropy(logits, labels, mask).value == pytest.approx(
        run(softmax_cross_entropy, logits.value, [0, 1, -1, 0])[0]
    )


def test_loss_refuses_what_does_not_fit():
    x = Var(np.ones((4, 3)))
    with pytest.raises(DataError, match="a label is 3, but the model has 3 classes"):
        softmax_cross_entropy(x, np.array([0, 3, 1, 2]))
    with pytest.raises(ShapeError, match=r"targets has shape \[5\], but there are 4 rows"):
        softmax_cross_entropy(x, np.zeros(5, int))
    with pytest.raises(ShapeError, match="integer labels"):
        softmax_cross_entropy(x, np.zeros(4))
    with pytest.raises(ShapeError, match=r"targets \[4\] must have the shape \[4, 3\]"):
        mean_squared_error(x, np.zeros(4))
    with Tracer() as tracer, pytest.raises(UserFunctionError, match="inside gather"):
        softmax_cross_entropy(tracer.leaf("src", "h", (3,), np.float32), np.zeros(0, int))


@pytest.mark.parametrize("classes", [3, 8, 19])
def test_a_slope_has_the_same_bits_wherever_its_arrays_lie(classes):
    """Compiled loops may take another path, and another order of additions, for arrays that lie
    close together.
    """
    rng = np.random.default_rng(0)
    n = 2
    room = np.zeros(64 + 4 * n * classes)
    labels = np.array([0, 1])
    rows = np.arange(n)
    values = rng.standard_normal((n, classes))
    found = set()
    for gap in (*range(33), 64):
        logits, out = (
            room[at : at + n * classes].reshape(n, classes) for at in (0, n * classes + gap)
        )
        logits[...] = values
        cross_entropy_slope(
            logits=logits, labels=labels, rows=rows, begin=0, end=n, scale=0.7, out=out
        )
        found.add(out.tobytes())
    assert len(found) == 1


def test_the_values_of_a_loss_may_be_integers():
    """The mean of a mask or of counts has a fraction."""
    out = Var(np.arange(4.0), RowSpace(np.arange(4)), True)
    for dtype in (bool, np.int64):
        with Tape():
            loss = RowLoss(lambda o, y, dtype=dtype: gt.cast(o > 0, dtype))(out, np.ones(4), None)
        assert loss.value == 0.75
