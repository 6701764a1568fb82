"""Every metric against scikit-learn and plain loops, for any rows; the same on any shares of the
rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from math import prod

import libraries
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import special

from graphtheta.errors import ShapeError
from graphtheta.ops.functions.metrics import (
    calibration,
    counts,
    curves,
    ranking,
    regression,
    retrieval,
    scores,
)
from graphtheta.ops.parallel.buffers import LARGE

skl = libraries.Later("sklearn.metrics")
EPS = np.finfo(np.float64).eps
SEEDS = st.integers(0, 2**32 - 1)
LABELS = st.sampled_from([bool, np.int8, np.uint8, np.int64, np.float32, np.float64])
# how scores lie: distinct, with ties, in a few ulps, with outliers, with infinities, integers
SCORES = st.sampled_from(
    ["normal", "rounded", "ulps", "chain", "outlier", "huge", "infinite", "integers", "equal"]
)
FLOATS = st.sampled_from([np.float16, np.float32, np.float64])
SHARES = st.lists(st.floats(0, 1), max_size=4)


def drawn_scores(rng: np.random.Generator, kind: str, n: int, dtype: type) -> np.ndarray:
    x = rng.standard_normal(n)
    if kind == "rounded":
        x = np.round(x)
    elif kind == "ulps":
        x = 1 + np.finfo(dtype).eps * rng.integers(0, 5, n)
    elif kind == "chain":
        x = 1 + np.finfo(dtype).eps * rng.permutation(n)
    elif kind == "outlier":
        x[rng.integers(n)] *= 1e4
    elif kind == "huge":
        x[rng.random(n) < 0.3] = np.finfo(dtype).min
        x[rng.random(n) < 0.1] = np.finfo(dtype).max
    elif kind == "infinite":
        x[rng.random(n) < 0.2] = np.inf
        x[rng.random(n) < 0.3] = -np.inf
    elif kind == "integers":
        return rng.integers(-3, 4, n)
    elif kind == "equal":
        x[:] = 0.1
    return x.astype(dtype)


def order(x: np.ndarray) -> np.ndarray:
    """The places of scores in their order, which scikit-learn takes where it refuses infinite
    scores.
    """
    return np.unique(x, return_inverse=True)[1]


def drawn_labels(rng: np.random.Generator, n: int, share: float, dtype: type) -> np.ndarray:
    return (rng.random(n) < share).astype(dtype)


def shares(rows: int, cuts: list[float]) -> Iterator[slice]:
    """One to five shares of the rows; some may be empty."""
    at = sorted(int(cut * rows) for cut in cuts)
    yield from (slice(a, b) for a, b in pairwise([0, *at, rows]))


def of_sklearn(name: str, *args: object, **keys: object) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(getattr(skl, name)(*args, **keys))


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 60), st.sampled_from([0, 0.1, 0.5, 1]), SCORES, LABELS, FLOATS)
def test_areas_under_curves(
    seed: int, n: int, share: float, kind: str, label: type, dtype: type
) -> None:
    rng = np.random.default_rng(seed)
    y = drawn_labels(rng, n, share, label)
    x = drawn_scores(rng, kind, n, dtype)
    area = scores.auc(y, x)
    if 0 < y.sum(dtype=int) < n:
        assert area == pytest.approx(of_sklearn("roc_auc_score", y, order(x)), abs=1e-12)
    else:
        assert np.isnan(area)
    precision = scores.average_precision(y, x)
    assert precision == pytest.approx(
        of_sklearn("average_precision_score", y.astype(int), order(x)), abs=1e-12
    )
    # to the bit in any order of the rows, and so for any shares of them
    moved = rng.permutation(n)
    assert np.array_equal(scores.auc(y[moved], x[moved]), area, equal_nan=True)
    assert scores.average_precision(y[moved], x[moved]) == precision
    x = x.astype(np.float64)
    x[rng.integers(n)] = np.nan
    assert np.isnan(scores.average_precision(y, x)) and np.isnan(scores.auc(y, x))


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 40), st.integers(1, 4), SCORES)
def test_columns_with_unknown_labels(seed: int, n: int, width: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    y = drawn_labels(rng, n * width, 0.3, np.float32).reshape(n, width)
    y[rng.random((n, width)) < 0.2] = np.nan
    x = drawn_scores(rng, kind, n * width, np.float32).reshape(n, width)
    areas = []
    precisions = []
    for a, b in zip(y.T, x.T, strict=True):
        known = ~np.isnan(a)
        if known.any():
            precisions.append(of_sklearn("average_precision_score", a[known], order(b[known])))
        if len(np.unique(a[known])) == 2:
            areas.append(of_sklearn("roc_auc_score", a[known], order(b[known])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(scores.auc(y, x), np.mean(areas), atol=1e-12)
        np.testing.assert_allclose(scores.average_precision(y, x), np.mean(precisions), atol=1e-12)


def test_areas_of_many_rows() -> None:
    rng = np.random.default_rng(0)
    y = rng.random(300_000) < 0.1
    x = (rng.standard_normal(300_000) + 1.5 * y).astype(np.float32)
    for outlier in (0, 100, 1e30, np.inf):
        x[np.flatnonzero(y)[0]] = outlier
        assert scores.auc(y, x) == pytest.approx(of_sklearn("roc_auc_score", y, order(x)), abs=1e-9)
        assert scores.average_precision(y, x) == pytest.approx(
            of_sklearn("average_precision_score", y, order(x)), abs=1e-9
        )


@pytest.mark.second
@settings(max_examples=60, deadline=None)
@given(
    SEEDS,
    st.integers(1, 30),
    st.sampled_from([0.1, 0.5, 1]),
    SCORES,
    LABELS,
    st.sampled_from([np.float32, np.float64]),
)
def test_no_threshold_is_better(
    seed: int, n: int, share: float, kind: str, label: type, dtype: type
) -> None:
    rng = np.random.default_rng(seed)
    y = drawn_labels(rng, n, share, label)
    x = drawn_scores(rng, kind, n, dtype)
    truth = y.astype(int)
    for goal, measure in (("f1", "f1_score"), ("balanced_accuracy", "balanced_accuracy_score")):
        (cut,) = scores.best_thresholds(y[:, None], x[:, None], goal)
        reachable = [x > t for t in (*x, -np.inf)]
        best = max(of_sklearn(measure, truth, said) for said in reachable)
        if truth.any():
            assert of_sklearn(measure, truth, x.astype(np.float64) > cut) == pytest.approx(
                best, abs=1e-12
            )
        else:
            assert cut == 0


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.integers(2, 60), st.floats(1e-12, 1e-3))
def test_rounding_moves_areas_no_more_than_documented(seed: int, n: int, delta: float) -> None:
    rng = np.random.default_rng(seed)
    y = drawn_labels(rng, n, 0.4, bool)
    # many scores are equal before rounding
    x = np.round(rng.standard_normal(n), 1)
    moved = x + rng.uniform(-delta, delta, n)
    near = np.abs(x[:, None] - x) <= 2 * delta
    if 0 < y.sum() < n:
        assert abs(scores.auc(y, moved) - scores.auc(y, x)) <= near[y][:, ~y].mean() + 1e-12
    if y.any():
        # of the rows that score at least as high as a positive, only those that are near can be
        # other ones
        bound = np.mean(near[y].sum(axis=1) / (x >= x[y][:, None]).sum(axis=1))
        assert (
            abs(scores.average_precision(y, moved) - scores.average_precision(y, x))
            <= bound + 1e-12
        )
    k = n // 2
    before, after = (ranking.ranks(z[:1], z[None, 1:]) for z in (x, moved))
    assert np.abs(after - before).max() <= near[0, 1:].sum() and k >= 1


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 20), st.integers(0, 8), SCORES, FLOATS, SHARES)
def test_ranks(seed: int, n: int, k: int, kind: str, dtype: type, cuts: list[float]) -> None:
    rng = np.random.default_rng(seed)
    x = drawn_scores(rng, kind, n * (k + 1), dtype).reshape(n, k + 1)
    positive = x[:, 0]
    negative = x[:, 1:]
    for given_counts, counted in ((None, negative != -np.inf), (rng.random((n, k)) < 0.7,) * 2):
        found = ranking.ranks(positive, negative, given_counts)
        want = []
        for own, others, some in zip(positive, negative, counted, strict=True):
            others = others[some]
            want.append(
                1 + sum(others > own) + sum(others == own) / 2 if len(others) else ranking.NO_RANK
            )
        np.testing.assert_array_equal(found, want)
        real = found[found != ranking.NO_RANK]
        sums = ranking.ranking_sums(found)
        if len(real):
            assert (
                ranking.mrr(sums) == pytest.approx(np.mean(1 / real)) and 0 < ranking.mrr(sums) <= 1
            )
            assert [ranking.hits(sums, i) for i in ranking.KS] == pytest.approx(
                [np.mean(real <= i) for i in ranking.KS]
            )
        else:
            assert np.isnan([ranking.mrr(sums), *(ranking.hits(sums, i) for i in ranking.KS)]).all()
        parts = sum(ranking.ranking_sums(found[share]) for share in shares(n, cuts))
        np.testing.assert_allclose(parts, sums, rtol=n * EPS)


def test_ranks_of_infinite_scores() -> None:
    finite = np.array([[1.0, 2.0]])
    infinite = np.array([[np.inf, np.inf]])
    assert ranking.ranks(np.array([np.inf]), finite).tolist() == [1]
    assert ranking.ranks(np.array([np.inf]), infinite).tolist() == [2]
    assert ranking.ranks(np.array([-np.inf]), finite).tolist() == [3]
    for mask in (-1e30, np.finfo(np.float32).min, -np.inf):
        assert ranking.ranks(
            np.ones(1, np.float32), np.array([[2, 0, mask]], np.float32)
        ).tolist() == [2]
    # a negative that counts may score -inf
    assert ranking.ranks(
        np.array([-np.inf]), np.array([[-np.inf, -np.inf]]), np.ones((1, 2), bool)
    ).tolist() == [2]
    assert ranking.ranks(
        np.ones(1), np.array([[np.nan, 0]]), np.array([[False, True]])
    ).tolist() == [1]


@settings(max_examples=60, deadline=None)
@given(
    SEEDS,
    st.integers(2, 60),
    st.sampled_from([0, 1, 1e4, 1e8, 1.7e9, -1e12]),
    st.floats(1e-3, 1e3),
    SHARES,
)
# two targets that are a rounding error apart
@example(seed=1, n=2, mean=-1e12, deviation=2**-7, cuts=[])
def test_regression(seed: int, n: int, mean: float, deviation: float, cuts: list[float]) -> None:
    rng = np.random.default_rng(seed)
    y = mean + deviation * rng.standard_normal((n, 2))
    p = y + deviation * rng.standard_normal((n, 2))
    whole = regression.regression_sums(y, p)
    parts = regression.merged(
        [regression.regression_sums(y[share], p[share]) for share in shares(n, cuts)]
    )
    # a target has a relative error of eps, so an error of the prediction has one of eps * mean /
    # deviation
    rtol = 1e-12 + 16 * EPS * abs(mean) / deviation
    for sums in (whole, parts):
        assert regression.mae(sums) == pytest.approx(
            of_sklearn("mean_absolute_error", y, p), rel=rtol
        )
        assert regression.rmse(sums) == pytest.approx(
            np.sqrt(of_sklearn("mean_squared_error", y, p)), rel=rtol
        )
        # differences of near numbers are exact, and their mean is not rounded to that of large ones
        unexplained = 1 - of_sklearn("r2_score", y - y[:1], p - y[:1])
        assert 1 - regression.r2(sums) == pytest.approx(unexplained, rel=n * rtol, abs=n * 1e-15)
    # shares are put together to the documented bound, wherever the targets lie
    assert 1 - regression.r2(parts) == pytest.approx(1 - regression.r2(whole), rel=8 * n * EPS)
    for measure in (regression.mae, regression.rmse):
        # of both columns together
        assert measure(parts) == pytest.approx(measure(whole), rel=2 * n * EPS)


@settings(max_examples=40, deadline=None)
@given(
    SEEDS,
    st.integers(1, 40),
    st.sampled_from([0.1, 1 / 3, 1e6 / 3, 1.7e9, 1e300]),
    SHARES,
    st.sampled_from([np.float32, np.float64]),
)
def test_equal_targets_have_no_r2(
    seed: int, n: int, value: float, cuts: list[float], dtype: type
) -> None:
    with np.errstate(over="ignore"):
        y = np.full(n, value).astype(dtype)
    y[~np.isfinite(y)] = 1
    p = y + np.random.default_rng(seed).standard_normal(n).astype(dtype)
    parts = [regression.regression_sums(y[share], p[share]) for share in shares(n, cuts)]
    assert np.isnan(regression.r2(regression.merged(parts))) and np.isnan(
        regression.r2(regression.regression_sums(y, p))
    )


def test_times_in_float32_and_targets_of_any_type() -> None:
    rng = np.random.default_rng(0)
    # a day, in steps of float32
    y = (np.float32(1.7e9) + 128 * rng.integers(0, 700, 1000)).astype(np.float32)
    p = (y + 256 * rng.standard_normal(1000)).astype(np.float32)
    want = of_sklearn("r2_score", y.astype(np.float64), p.astype(np.float64))
    assert regression.r2(regression.regression_sums(y, p)) == pytest.approx(want, abs=1e-12)
    for dtype in (np.int64, np.uint8, bool, np.float16):
        a, b = (rng.integers(0, 2, 50).astype(dtype) for _ in range(2))
        want = of_sklearn("r2_score", a.astype(float), b.astype(float))
        assert regression.r2(regression.regression_sums(a, b)) == pytest.approx(want, abs=1e-12)
    holes = np.where(rng.random(1000) < 0.3, np.nan, y.astype(np.float64))
    known = ~np.isnan(holes)
    want = of_sklearn("r2_score", holes[known], p.astype(np.float64)[known])
    assert regression.r2(regression.regression_sums(holes, p)) == pytest.approx(want, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(
    SEEDS,
    st.integers(1, 60),
    st.integers(2, 5),
    st.sampled_from([np.int8, np.uint8, np.int64]),
    SHARES,
)
def test_decisions_of_classes(
    seed: int, n: int, n_classes: int, dtype: type, cuts: list[float]
) -> None:
    rng = np.random.default_rng(seed)
    # classes may be absent from truth, prediction or both
    y = rng.integers(0, rng.integers(1, n_classes + 1), n).astype(dtype)
    out = np.eye(n_classes)[rng.integers(0, rng.integers(1, n_classes + 1), n)]
    said = out.argmax(axis=1)
    found = counts.class_sums(y, out)
    assert np.array_equal(
        sum(counts.class_sums(y[share], out[share]) for share in shares(n, cuts)), found
    )
    assert counts.accuracy(found) == pytest.approx(of_sklearn("accuracy_score", y, said))
    for average in ("micro", "macro"):
        assert counts.f1(found, average) == pytest.approx(
            of_sklearn("f1_score", y, said, average=average)
        )
    assert counts.balanced_accuracy(counts.class_recalls(y, out)) == pytest.approx(
        of_sklearn("balanced_accuracy_score", y, said)
    )
    matrix = counts.confusion(y, said.astype(np.uint64), n_classes)
    np.testing.assert_array_equal(matrix, skl.confusion_matrix(y, said, labels=range(n_classes)))


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.integers(1, 60), st.integers(1, 4), st.sampled_from([0, 0.2, 1]), LABELS)
def test_decisions_of_labels(seed: int, n: int, width: int, share: float, dtype: type) -> None:
    rng = np.random.default_rng(seed)
    y = drawn_labels(rng, n * width, share, dtype).reshape(n, width)
    out = rng.standard_normal((n, width)) - rng.integers(0, 2) * 9
    found = counts.label_sums(y, out)
    truth = y.astype(int)
    said = (out > 0).astype(int)
    each = [
        of_sklearn("f1_score", a, b, zero_division=np.nan)
        for a, b in zip(truth.T, said.T, strict=True)
    ]
    pooled = of_sklearn("f1_score", truth.ravel(), said.ravel(), zero_division=np.nan)
    np.testing.assert_allclose(counts.f1(found), pooled)
    real = [x for x in each if not np.isnan(x)]
    np.testing.assert_allclose(counts.f1(found, "macro"), np.mean(real) if real else np.nan)
    want = [
        of_sklearn("balanced_accuracy_score", a, b) for a, b in zip(truth.T, said.T, strict=True)
    ]
    assert counts.balanced_accuracy(counts.label_recalls(y, out)) == pytest.approx(np.mean(want))
    if width == 1:
        np.testing.assert_allclose(counts.f1(counts.binary_sums(y[:, 0], out[:, 0])), pooled)


@settings(max_examples=60, deadline=None)
@given(
    SEEDS,
    st.sampled_from([(0, 3), (1, 1), (4, 7), (9, 40), (70_000, 3), (2, 3, 4)]),
    SCORES,
    FLOATS,
    st.booleans(),
)
def test_probabilities(
    seed: int, shape: tuple[int, ...], kind: str, dtype: type, turned: bool
) -> None:
    rng = np.random.default_rng(seed)
    n = int(np.prod(shape))
    x = drawn_scores(rng, kind, n, dtype).astype(dtype) if n else np.zeros(0, dtype)
    x[rng.random(n) < 0.01] = np.nan
    x = x.reshape(shape[::-1]).T if turned else x.reshape(shape)
    wide = x.astype(np.float64)
    rtol, atol = (1e-13, 1e-300) if dtype is np.float64 else (1e-5, 1e-37)
    found = curves.class_probabilities(x)
    assert found.dtype == np.result_type(dtype, np.float32)
    top = wide.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", over="ignore"):
        shares = np.where(wide == top, 1, np.exp(wide - top))
    np.testing.assert_allclose(found, shares / shares.sum(axis=-1, keepdims=True), rtol, atol)
    np.testing.assert_allclose(curves.label_probabilities(x), special.expit(wide), rtol, atol)


def by_bins(p: np.ndarray, right: np.ndarray) -> float:
    """The definition, bin by bin."""
    error = 0.0
    for low, high in pairwise(np.arange(calibration.BINS + 1) / calibration.BINS):
        inside = (p > low) & (p <= high)
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - p[inside].mean())
    return error


@settings(max_examples=50, deadline=None)
@given(
    SEEDS,
    st.integers(1, 60),
    st.integers(2, 4),
    st.sampled_from([0.1, 1, 50]),
    st.sampled_from([0, 0.3]),
    SHARES,
)
def test_calibration(
    seed: int, n: int, n_classes: int, scale: float, sure: float, cuts: list[float]
) -> None:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    out = scale * rng.standard_normal((n, n_classes))
    # probabilities of exactly 0 and 1
    certain = rng.random(n) < sure
    out[certain] = np.where(np.eye(n_classes, dtype=bool)[y[certain]], 0, -np.inf)
    p = np.exp(out - out.max(axis=1, keepdims=True))
    p = p.max(axis=1) / p.sum(axis=1)
    whole = calibration.class_calibration_sums(y, out)
    assert calibration.calibration_error(whole) == pytest.approx(
        by_bins(p, out.argmax(axis=1) == y), abs=1e-8
    )
    assert np.array_equal(
        sum(calibration.class_calibration_sums(y[share], out[share]) for share in shares(n, cuts)),
        whole,
    )
    infinite = calibration.class_calibration_sums(
        np.array([0, 0, 0]), np.array([[np.inf, 1], [np.inf, np.inf], [-np.inf, -np.inf]])
    )
    assert infinite[[7, 14], 0].tolist() == [2, 1]
    logits = out[:, 0]
    logits[certain] = np.where(y[certain] > 0, np.inf, -np.inf)
    truth = np.minimum(y, 1)
    with np.errstate(over="ignore"):
        p = 1 / (1 + np.exp(-np.abs(logits)))
    found = calibration.label_calibration_sums(truth[:, None].astype(np.float32), logits[:, None])
    assert calibration.calibration_error(found) == pytest.approx(
        by_bins(p, (logits > 0) == truth), abs=1e-8
    )


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 30), st.integers(1, 60), SHARES)
def test_retrieval(seed: int, groups: int, n: int, cuts: list[float]) -> None:
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, n)
    # ranks in ties are halves
    rank = 1 + rng.integers(0, 120, n) / 2
    whole = retrieval.gains(rank, group, groups)
    parts = [retrieval.gains(rank[share], group[share], groups) for share in shares(n, cuts)]
    for a, b in zip(whole, (sum(x) for x in zip(*parts, strict=True)), strict=True):
        np.testing.assert_allclose(b, a, rtol=n * EPS)
    some = whole[0] > 0
    recall, ndcg = retrieval.retrieved(*(x[some] for x in whole))
    for i, g in enumerate(np.flatnonzero(some)):
        own = rank[group == g]
        for j, k in enumerate(retrieval.TOPS):
            best = sum(1 / np.log2(2 + np.arange(min(k, len(own)))))
            assert recall[i, j] == pytest.approx(np.mean(own <= k))
            assert ndcg[i, j] == pytest.approx(sum(1 / np.log2(1 + own[own <= k])) / best)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (counts.matrix_sums, (41,)),
        (counts.class_sums, (41,)),
        (counts.class_recalls, (2,)),
        (counts.label_sums, (41,)),
        (counts.label_recalls, (41,)),
        (counts.binary_sums, ()),
        (calibration.class_calibration_sums, (41,)),
        (calibration.label_calibration_sums, (41,)),
        (curves.class_curve_sums, (10,)),
        (curves.label_curve_sums, (10,)),
    ],
)
def test_many_rows_are_counted_as_shares_of_them_are(
    function: Callable[[np.ndarray, np.ndarray], np.ndarray], shape: tuple[int, ...]
) -> None:
    # more rows than one thread takes, and shares that it takes whole
    n = LARGE // prod(shape) // 4
    rng = np.random.default_rng(1)
    out = np.round(2 * rng.standard_normal((n, *shape)))
    out[rng.random(n) < 0.01] = -np.inf
    out[rng.random(n) < 0.01] = np.nan
    of_classes = function.__name__.startswith(("class", "matrix"))
    y = rng.integers(-1, shape[0], n) if of_classes else 1.0 * (rng.random(out.shape) < 0.3)
    cuts = np.linspace(0, n, 8).astype(int)
    assert np.array_equal(
        function(y, out), sum(function(y[a:b], out[a:b]) for a, b in pairwise(cuts))
    )
    with pytest.raises((IndexError, ValueError, ShapeError)):
        function(y[1:], out)
