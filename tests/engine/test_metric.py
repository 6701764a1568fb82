"""Metrics against scikit-learn, and sums over workers against the whole."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from graphtheta.errors import ConfigError, ShapeError
from graphtheta.ops.functions.metrics import calibration, counts, ranking, regression, scores


@pytest.fixture
def skl():
    return pytest.importorskip("sklearn.metrics")


def test_classes(rng, skl):
    y = rng.integers(0, 6, 500)
    p = rng.integers(0, 5, 500)
    y[:3] = 5
    matrix = counts.confusion(y, p, 8)
    np.testing.assert_array_equal(matrix[:6, :6], skl.confusion_matrix(y, p))
    assert counts.accuracy(counts.counts_of(matrix)) == pytest.approx(skl.accuracy_score(y, p))
    for average in ("micro", "macro"):
        assert counts.f1(counts.counts_of(matrix), average) == pytest.approx(
            skl.f1_score(y, p, average=average)
        )


def test_unlabelled_rows_do_not_count():
    matrix = counts.confusion(np.array([0, -1, 1]), np.array([0, 0, 0]), 2)
    assert matrix.tolist() == [[1, 0], [1, 0]] and counts.accuracy(counts.counts_of(matrix)) == 0.5


def test_several_labels(rng, skl):
    y = (rng.random((300, 7)) < 0.4).astype(np.float32)
    score = rng.standard_normal((300, 7))
    found = counts.label_counts(y, score > 0)
    for average in ("micro", "macro"):
        assert counts.f1(found, average) == pytest.approx(
            skl.f1_score(y, score > 0, average=average)
        )
    y[0, 0] = np.nan
    assert counts.label_counts(y, score > 0)[0].sum() <= found[0].sum()


@pytest.mark.parametrize("ties", [False, True])
def test_auc(rng, skl, ties):
    y = (rng.random((200, 4)) < 0.3).astype(np.float32)
    score = rng.standard_normal((200, 4))
    score = np.round(score) if ties else score
    assert scores.auc(y, score) == pytest.approx(skl.roc_auc_score(y, score, average="macro"))
    # unknown labels are left out, and so is a column with one class only
    y[::5, 0] = np.nan
    y[:, 1] = 1
    known = ~np.isnan(y[:, 0])
    want = np.mean(
        [
            skl.roc_auc_score(y[known, 0], score[known, 0]),
            skl.roc_auc_score(y[:, 2], score[:, 2]),
            skl.roc_auc_score(y[:, 3], score[:, 3]),
        ]
    )
    assert scores.auc(y, score) == pytest.approx(want)
    score[0, 2] = np.nan
    assert np.isnan(scores.auc(y, score))
    integers = (score[:, 0] > 0).astype(np.int64)
    assert scores.auc(integers, score[:, 0]) == 1


def test_regression(rng, skl):
    y = rng.standard_normal((400, 3))
    p = y + rng.standard_normal((400, 3))
    sums = regression.regression_sums(y, p)
    assert regression.mae(sums) == pytest.approx(skl.mean_absolute_error(y, p), rel=1e-6)
    assert regression.rmse(sums) == pytest.approx(np.sqrt(skl.mean_squared_error(y, p)), rel=1e-6)
    assert regression.r2(sums) == pytest.approx(skl.r2_score(y, p), rel=1e-6)
    holes = y[:, 0].copy()
    holes[:100] = np.nan
    assert regression.mae(regression.regression_sums(holes, p[:, 0])) == pytest.approx(
        skl.mean_absolute_error(y[100:, 0], p[100:, 0]), rel=1e-6
    )
    assert np.isnan(regression.r2(regression.regression_sums(np.ones(4), np.zeros(4))))


def test_ranking():
    positive = np.array([0.9, 0.5, 0.1])
    negative = np.array([[0.1, 0.2], [0.5, 0.7], [0.3, -np.inf]])
    rank = ranking.ranks(positive, negative)
    assert rank.tolist() == [1, 2.5, 2]
    sums = ranking.ranking_sums(rank, (1, 2))
    assert ranking.mrr(sums) == pytest.approx((1 + 0.4 + 0.5) / 3)
    assert [ranking.hits(sums, k, (1, 2)) for k in (1, 2)] == pytest.approx([1 / 3, 2 / 3])
    # shared negatives are the same as repeated ones
    shared = np.array([0.5, 0.3, 0.9, 0.3])
    np.testing.assert_array_equal(
        ranking.ranks(positive, shared), ranking.ranks(positive, np.tile(shared, (3, 1)))
    )
    # a constant score earns the middle, not the top
    assert ranking.ranks(np.zeros(1), np.zeros((1, 10))).tolist() == [6]


def test_scores_that_are_no_numbers_have_no_rank():
    rank = ranking.ranks(
        np.array([np.nan, 0.5, 0.5]), np.array([[0.1, 0.2], [np.nan, 0.1], [0.1, 0.7]])
    )
    assert np.isnan(rank).tolist() == [True, True, False] and rank[2] == 2
    sums = ranking.ranking_sums(rank)
    assert np.isnan([ranking.mrr(sums), ranking.hits(sums, 1)]).all()


def test_sums_over_workers(rng):
    y = rng.integers(-1, 4, 90)
    p = rng.integers(0, 4, 90)
    k = rng.standard_normal((90, 2))
    cuts = [0, 0, 17, 50, 90, 90]
    shares = [slice(a, b) for a, b in pairwise(cuts)]
    for function, arrays in (
        (lambda a, b: counts.confusion(a, b, 4), (y, p)),
        (counts.label_counts, (k > 0, k > 1)),
        (lambda a: ranking.ranking_sums(a), (1.0 + p,)),
        (counts.class_sums, (y, rng.standard_normal((90, 4)))),
        (counts.label_sums, (k > 0, k)),
        (counts.class_recalls, (y, rng.standard_normal((90, 4)))),
        (counts.label_recalls, (k > 0, k)),
    ):
        whole = function(*arrays)
        np.testing.assert_allclose(
            sum(function(*(a[s] for a in arrays)) for s in shares), whole, rtol=1e-12
        )


@pytest.mark.filterwarnings("error")
def test_no_rows_at_all():
    none = np.zeros(0, np.int64)
    matrix = counts.confusion(none, none, 3)
    assert matrix.tolist() == [[0] * 3] * 3
    ranked = ranking.ranking_sums(ranking.ranks(np.zeros(0), np.zeros((0, 5))))
    errors = regression.regression_sums(np.zeros((0, 2)), np.zeros((0, 2)))
    found = counts.counts_of(matrix)
    for figure in (
        counts.accuracy(found),
        counts.f1(found, "macro"),
        counts.f1(found),
        scores.auc(np.zeros((0, 2)), np.zeros((0, 2))),
        ranking.mrr(ranked),
        regression.mae(errors),
        regression.r2(errors),
        regression.rmse(errors),
        *(ranking.hits(ranked, k) for k in ranking.KS),
    ):
        assert np.isnan(figure)


def test_what_does_not_fit():
    with pytest.raises(ShapeError, match=r"\[3\] and predictions \[2\]"):
        counts.confusion(np.zeros(3, int), np.zeros(2, int), 2)
    with pytest.raises(ConfigError, match="'weighted'"):
        counts.f1(np.zeros((2, 4)), "weighted")
    with pytest.raises(ShapeError, match="3 positive scores"):
        ranking.ranks(np.zeros(3), np.zeros((2, 5)))


def logits(rng, shape):
    return rng.standard_normal(shape) * 2


@pytest.mark.parametrize(
    "absent", [(), (2,), (0, 1, 2)], ids=["all occur", "one is absent", "one occurs"]
)
def test_balanced_accuracy_and_the_report_of_each_class(rng, skl, absent):
    y = rng.integers(0, 4, 300)
    out = logits(rng, (300, 4))
    y[np.isin(y, absent)] = 3
    said = out.argmax(axis=1)
    recalls = [np.mean(said[y == c] == c) for c in np.unique(y)]
    assert counts.balanced_accuracy(counts.class_recalls(y, out)) == pytest.approx(np.mean(recalls))
    found = counts.class_report(counts.class_sums(y, out))
    wanted = skl.precision_recall_fscore_support(y, said, labels=range(4), zero_division=0)
    for name, column in zip(("precision", "recall", "f1", "support"), wanted, strict=True):
        np.testing.assert_allclose(found[name], column)


def test_balanced_accuracy_of_labels_is_the_mean_over_columns(rng, skl):
    y = (rng.random((200, 3)) < 0.2).astype(np.float32)
    out = logits(rng, (200, 3))
    want = [skl.balanced_accuracy_score(a, b > 0) for a, b in zip(y.T, out.T, strict=True)]
    assert counts.balanced_accuracy(counts.label_recalls(y, out)) == pytest.approx(np.mean(want))
    y[:, 1] = 1
    want[1] = np.mean(out[:, 1] > 0)
    assert counts.balanced_accuracy(counts.label_recalls(y, out)) == pytest.approx(np.mean(want))


@pytest.mark.parametrize("ties", [False, True])
def test_average_precision(rng, skl, ties):
    y = (rng.random((200, 4)) < 0.1).astype(np.float32)
    out = logits(rng, (200, 4))
    out = np.round(out) if ties else out
    assert scores.average_precision(y, out) == pytest.approx(
        skl.average_precision_score(y, out, average="macro")
    )
    y[::5, 0] = np.nan
    known = ~np.isnan(y[:, 0])
    y[:, 1] = 0
    want = [
        skl.average_precision_score(y[known, 0], out[known, 0]),
        0,
        *(skl.average_precision_score(y[:, i], out[:, i]) for i in (2, 3)),
    ]
    assert scores.average_precision(y, out) == pytest.approx(np.mean(want))
    assert scores.average_precision(np.ones(9), np.zeros(9)) == 1
    out[0, 2] = np.nan
    assert np.isnan(scores.average_precision(y, out)) and np.isnan(
        scores.average_precision(y[:0], out[:0])
    )


@pytest.mark.parametrize(
    "goal, of", [("f1", "f1_score"), ("balanced_accuracy", "balanced_accuracy_score")]
)
@pytest.mark.parametrize("ties", [False, True])
def test_no_threshold_is_better_than_the_chosen_one(rng, skl, goal, of, ties):
    y = (rng.random((60, 2)) < 0.15).astype(np.float32)
    out = logits(rng, (60, 2))
    out = np.round(out) if ties else out
    for cut, a, b in zip(scores.best_thresholds(y, out, goal), y.T, out.T, strict=True):
        best = max(getattr(skl, of)(a, b > t) for t in (*b, -np.inf))
        assert getattr(skl, of)(a, b > cut) == pytest.approx(best)
        # in the middle between two scores, so that rounding decides nothing
        assert np.isinf(cut) or np.abs(b - cut).min() > 1e-6


def test_thresholds_without_positives_or_with_scores_that_are_no_numbers():
    y = np.array([[0, 1, 1], [0, 0, 1.0]])
    out = np.array([[1, np.nan, 3], [2, 1, 2.0]])
    assert scores.best_thresholds(y, out, "f1").tolist() == [0, 0, -np.inf]
    assert scores.best_thresholds(y[:0], out[:0], "f1").tolist() == [0, 0, 0]


def test_calibration_error(rng):
    """Against the definition of the paper, bin by bin."""
    y = rng.integers(-1, 3, 400)
    out = logits(rng, (400, 3))
    known = y >= 0
    p = np.exp(out[known]) / np.exp(out[known]).sum(axis=1, keepdims=True)
    top = p.max(axis=1)
    right = p.argmax(axis=1) == y[known]
    edges = np.linspace(0, 1, 16)
    want = 0.0
    for low, high in pairwise(edges):
        inside = (top > low) & (top <= high)
        want += (
            inside.mean() * abs(right[inside].mean() - top[inside].mean()) if inside.any() else 0
        )
    whole = calibration.class_calibration_sums(y, out)
    assert calibration.calibration_error(whole) == pytest.approx(want, abs=1e-8)
    # to the bit, whatever the workers
    parts = [
        calibration.class_calibration_sums(y[s], out[s])
        for s in (slice(0, 3), slice(3, 300), slice(300, 400), slice(0, 0))
    ]
    assert np.array_equal(sum(parts[::-1]), whole) and whole[:, 0].sum() == known.sum()
    assert np.isnan(calibration.calibration_error(whole * 0))


def test_calibration_of_a_label_is_that_of_two_classes(rng):
    y = rng.integers(0, 2, 300)
    out = logits(rng, 300)
    classes = calibration.class_calibration_sums(y, np.stack((np.zeros(300), out), axis=1))
    labels = calibration.label_calibration_sums(
        np.append(y, np.nan)[:, None], np.append(out, 1)[:, None]
    )
    assert np.array_equal(classes[:, :2], labels[:, :2])
    np.testing.assert_allclose(classes[:, 2], labels[:, 2], atol=300)
    sure = calibration.class_calibration_sums(np.array([0, 1]), np.array([[1e4, 0], [np.nan, 0]]))
    assert sure[:, 0].tolist() == [0] * 14 + [2]
