"""Metrics against scikit-learn, and sums over workers against the whole."""
from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from graphtheta.engine.train import metric
from graphtheta.errors import ConfigError, ShapeError


@pytest.fixture
def skl():
    return pytest.importorskip("sklearn.metrics")


def test_classes(rng, skl):
    y, p = rng.integers(0, 6, 500), rng.integers(0, 5, 500)
    y[:3] = 5
    matrix = metric.confusion(y, p, 8)
    np.testing.assert_array_equal(matrix[:6, :6], skl.confusion_matrix(y, p))
    assert metric.accuracy(metric.counts_of(matrix)) == pytest.approx(skl.accuracy_score(y, p))
    for average in ("micro", "macro"):
        assert metric.f1(metric.counts_of(matrix), average) == pytest.approx(skl.f1_score(y, p, average=average))


def test_unlabelled_rows_do_not_count():
    matrix = metric.confusion(np.array([0, -1, 1]), np.array([0, 0, 0]), 2)
    assert matrix.tolist() == [[1, 0], [1, 0]] and metric.accuracy(metric.counts_of(matrix)) == 0.5


def test_several_labels(rng, skl):
    y, score = (rng.random((300, 7)) < 0.4).astype(np.float32), rng.standard_normal((300, 7))
    counts = metric.label_counts(y, score > 0)
    for average in ("micro", "macro"):
        assert metric.f1(counts, average) == pytest.approx(skl.f1_score(y, score > 0, average=average))
    y[0, 0] = np.nan
    assert metric.label_counts(y, score > 0)[0].sum() <= counts[0].sum()


@pytest.mark.parametrize("ties", [False, True])
def test_auc(rng, skl, ties):
    y, score = (rng.random((200, 4)) < 0.3).astype(np.float32), rng.standard_normal((200, 4))
    score = np.round(score) if ties else score
    assert metric.auc(y, score) == pytest.approx(skl.roc_auc_score(y, score, average="macro"))
    # unknown labels are left out, and so is a column with one class only
    y[::5, 0] = np.nan
    y[:, 1] = 1
    known = ~np.isnan(y[:, 0])
    want = np.mean([skl.roc_auc_score(y[known, 0], score[known, 0]), skl.roc_auc_score(y[:, 2], score[:, 2]),
                    skl.roc_auc_score(y[:, 3], score[:, 3])])
    assert metric.auc(y, score) == pytest.approx(want)
    score[0, 2] = np.nan
    assert np.isnan(metric.auc(y, score))
    integers = (score[:, 0] > 0).astype(np.int64)
    assert metric.auc(integers, score[:, 0]) == 1


def test_regression(rng, skl):
    y = rng.standard_normal((400, 3))
    p = y + rng.standard_normal((400, 3))
    sums = metric.regression_sums(y, p)
    assert metric.mae(sums) == pytest.approx(skl.mean_absolute_error(y, p), rel=1e-6)
    assert metric.rmse(sums) == pytest.approx(np.sqrt(skl.mean_squared_error(y, p)), rel=1e-6)
    assert metric.r2(sums) == pytest.approx(skl.r2_score(y, p), rel=1e-6)
    holes = y[:, 0].copy()
    holes[:100] = np.nan
    assert metric.mae(metric.regression_sums(holes, p[:, 0])) == pytest.approx(skl.mean_absolute_error(y[100:, 0], p[100:, 0]), rel=1e-6)
    assert np.isnan(metric.r2(metric.regression_sums(np.ones(4), np.zeros(4))))


def test_ranking():
    positive = np.array([0.9, 0.5, 0.1])
    negative = np.array([[0.1, 0.2], [0.5, 0.7], [0.3, -np.inf]])
    rank = metric.ranks(positive, negative)
    assert rank.tolist() == [1, 2.5, 2]
    sums = metric.ranking_sums(rank, (1, 2))
    assert metric.mrr(sums) == pytest.approx((1 + 0.4 + 0.5) / 3)
    assert [metric.hits(sums, k, (1, 2)) for k in (1, 2)] == pytest.approx([1 / 3, 2 / 3])
    # shared negatives are the same as repeated ones
    shared = np.array([0.5, 0.3, 0.9, 0.3])
    np.testing.assert_array_equal(metric.ranks(positive, shared), metric.ranks(positive, np.tile(shared, (3, 1))))
    # a constant score earns the middle, not the top
    assert metric.ranks(np.zeros(1), np.zeros((1, 10))).tolist() == [6]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_that_are_equal_but_for_rounding_tie(rng, dtype):
    """In the order of additions nobody can see which of two equal scores is larger."""
    labels, scores = (rng.random(200) < 0.4).astype(np.float32), rng.integers(-3, 4, 200).astype(dtype) / 3
    positive, negative = scores[:20], rng.choice(scores, (20, 30))
    for _ in range(10):
        moved = [x * (1 + np.finfo(dtype).eps * rng.integers(-3, 4, x.shape)).astype(dtype) for x in (scores, positive, negative)]
        assert any(not np.array_equal(a, b) for a, b in zip(moved, (scores, positive, negative), strict=True))
        assert metric.auc(labels, moved[0]) == metric.auc(labels, scores)
        np.testing.assert_array_equal(metric.ranks(*moved[1:]), metric.ranks(positive, negative))
    # and what differs by more does not
    assert metric.ranks(np.array([1], dtype), np.array([[1 + 1e-3, 1 - 1e-3]], dtype)).tolist() == [2]


def test_scores_that_are_no_numbers_have_no_rank():
    rank = metric.ranks(np.array([np.nan, 0.5, 0.5]), np.array([[0.1, 0.2], [np.nan, 0.1], [0.1, 0.7]]))
    assert np.isnan(rank).tolist() == [True, True, False] and rank[2] == 2
    assert np.isnan(metric.mrr(metric.ranking_sums(rank)))


def test_sums_over_workers(rng):
    y, p, k = rng.integers(-1, 4, 90), rng.integers(0, 4, 90), rng.standard_normal((90, 2))
    cuts = [0, 0, 17, 50, 90, 90]
    shares = [slice(a, b) for a, b in pairwise(cuts)]
    for function, arrays in ((lambda a, b: metric.confusion(a, b, 4), (y, p)), (metric.regression_sums, (k, k + 1)),
                             (metric.label_counts, (k > 0, k > 1)), (lambda a: metric.ranking_sums(a), (1.0 + p,)),
                             (metric.class_sums, (y, rng.standard_normal((90, 4)))), (metric.label_sums, (k > 0, k))):
        whole = function(*arrays)
        np.testing.assert_allclose(sum(function(*(a[s] for a in arrays)) for s in shares), whole, rtol=1e-12)


@pytest.mark.filterwarnings("error")
def test_no_rows_at_all():
    none = np.zeros(0, np.int64)
    matrix = metric.confusion(none, none, 3)
    assert matrix.tolist() == [[0] * 3] * 3
    ranking = metric.ranking_sums(metric.ranks(np.zeros(0), np.zeros((0, 5))))
    regression = metric.regression_sums(np.zeros((0, 2)), np.zeros((0, 2)))
    counts = metric.counts_of(matrix)
    for figure in (metric.accuracy(counts), metric.f1(counts, "macro"), metric.f1(counts),
                   metric.auc(np.zeros((0, 2)), np.zeros((0, 2))), metric.mrr(ranking), metric.mae(regression), metric.r2(regression),
                   metric.rmse(regression), *(metric.hits(ranking, k) for k in metric.KS)):
        assert np.isnan(figure)


def test_what_does_not_fit():
    with pytest.raises(ShapeError, match=r"\[3\] and predictions \[2\]"):
        metric.confusion(np.zeros(3, int), np.zeros(2, int), 2)
    with pytest.raises(ConfigError, match="'weighted'"):
        metric.f1(np.zeros((2, 3)), "weighted")
    with pytest.raises(ShapeError, match="3 positive scores"):
        metric.ranks(np.zeros(3), np.zeros((2, 5)))
