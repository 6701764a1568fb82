"""Aggregators are monoids with a gradient; the twin sums each destination's messages in one go."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheta.errors import ConfigError
from graphtheta.ops.edge.aggregator import (
    AGGREGATORS,
    BUILT_IN,
    LOG_SUM_EXP,
    NO_EDGE,
    SOFTMAX_SUM,
    Segments,
    aggregator,
)
from graphtheta.ops.edge.variance import DEVIATION, VARIANCE

ALL = {a.name: a for a in (*BUILT_IN, VARIANCE, DEVIATION)}
SHAPES = {"softmax-sum": [(2,), (2, 3)]}


def shapes_of(agg):
    return SHAPES.get(agg.name, [(2, 3)])


def segments(row):
    """Groups of edges that stand together."""
    start = np.flatnonzero(np.concatenate(([True], row[1:] != row[:-1])))
    return Segments(row[start], start, row)


def accumulate(agg, state, row, parts, gid, scale=None):
    """Take in edges in any order: sorted by destination as the caller of an aggregator does."""
    if len(row):
        order = np.lexsort((gid, row))
        agg.accumulate(
            state,
            segments(row[order]),
            [p[order] for p in parts],
            gid[order],
            None if scale is None else scale[order],
        )


def total(agg, n, row, parts, gid, scale=None):
    state = agg.start(n, [p.shape[1:] for p in parts], parts[0].dtype)
    accumulate(agg=agg, state=state, row=row, parts=parts, gid=gid, scale=scale)
    return state, agg.finish(state)


def numbers(agg, out):
    """The totals; the two parts of a normaliser are added."""
    return out.sum(-1) if agg is LOG_SUM_EXP else out


def gradients(agg, state, out, g, row, parts, gid, scale=None):
    g = np.stack([g, g], -1) if agg is LOG_SUM_EXP else g
    columns = agg.backward_state(agg.saved_state(state), out if agg.reads_total else None, g)
    return agg.backward({c: x[row] for c, x in columns.items()}, parts, gid, scale)


def twin(name, n, row, parts, scale=None):
    """Destination by destination, an edge of scale k repeated k times where it means that."""
    out = np.zeros((n, *parts[-1].shape[1:]))
    for r in range(n):
        mine = [p[row == r].astype(float) for p in parts]
        w = np.ones(len(mine[0])) if scale is None else scale[row == r]
        if not len(mine[0]):
            continue
        w = w.reshape(-1, *[1] * (mine[0].ndim - 1))
        if name == "sum":
            out[r] = (w * mine[0]).sum(0)
        elif name == "mean":
            out[r] = (w * mine[0]).sum(0) / w.sum()
        elif name in ("var", "std"):
            out[r] = (w * (mine[0] - (w * mine[0]).sum(0) / w.sum()) ** 2).sum(0) / w.sum()
            out[r] = np.sqrt(out[r]) if name == "std" else out[r]
        elif name in ("max", "min"):
            out[r] = getattr(mine[0], name)(0)
        elif name == "logsumexp":
            out[r] = np.log((w * np.exp(mine[0])).sum(0))
        else:
            e = w * np.exp(mine[0])
            e = e / e.sum(0)
            out[r] = (e[..., None] * mine[1]).sum(0)
    return out


def edges(name, seed, n=5, e=17, integers=False):
    rng = np.random.default_rng(seed)
    draw = (
        (lambda s: rng.integers(-2, 3, (e, *s)).astype(float))
        if integers
        else (lambda s: rng.standard_normal((e, *s)))
    )
    return (
        rng.integers(0, n - 1, e),
        [draw(s) for s in shapes_of(ALL[name])],
        rng.permutation(100)[:e],
        rng.integers(1, 5, e) / 2,
    )


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_equals_twin_and_empty_rows_are_zero(name, scaled):
    row, parts, gid, scale = edges(name, 0)
    _, out = total(
        agg=ALL[name], n=5, row=row, parts=parts, gid=gid, scale=scale if scaled else None
    )
    np.testing.assert_allclose(
        numbers(ALL[name], out), twin(name, 5, row, parts, scale if scaled else None), atol=1e-12
    )
    np.testing.assert_array_equal(out[4], 0)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_gradient_equals_differences(name, scaled):
    row, parts, gid, scale = edges(name, 1)
    scale = scale if scaled else None
    rng = np.random.default_rng(2)
    state, out = total(agg=ALL[name], n=5, row=row, parts=parts, gid=gid, scale=scale)
    g = rng.standard_normal(numbers(ALL[name], out).shape)
    found = gradients(
        agg=ALL[name], state=state, out=out, g=g, row=row, parts=parts, gid=gid, scale=scale
    )
    for i, p in enumerate(parts):
        v = rng.standard_normal(p.shape)
        values = []
        for t in (1e-6, -1e-6):
            moved = [q + t * v if j == i else q for j, q in enumerate(parts)]
            values.append(
                np.vdot(
                    g,
                    numbers(
                        ALL[name],
                        total(agg=ALL[name], n=5, row=row, parts=moved, gid=gid, scale=scale)[1],
                    ),
                )
            )
        assert np.vdot(found[i], v) == pytest.approx(
            (values[0] - values[1]) / 2e-6, rel=1e-7, abs=1e-7
        )


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(ALL)),
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
)
def test_any_split_and_any_order_of_merging_give_the_same(name, seed, n_chunks, integers, scaled):
    agg = ALL[name]
    row, parts, gid, scale = edges(name, seed, integers=integers)
    scale = scale if scaled else None
    whole, expected = total(agg=agg, n=5, row=row, parts=parts, gid=gid, scale=scale)
    rng = np.random.default_rng(seed)
    chunk = rng.integers(0, n_chunks, len(row))
    states = [
        agg.start(5, shapes_of(agg), float) for _ in range(1 + int(rng.integers(0, n_chunks)))
    ]
    for c in rng.permutation(n_chunks):
        at = chunk == c
        accumulate(
            agg=agg,
            state=states[rng.integers(len(states))],
            row=row[at],
            parts=[p[at] for p in parts],
            gid=gid[at],
            scale=None if scale is None else scale[at],
        )
    while len(states) > 1:
        other = states.pop(int(rng.integers(len(states))))
        rows = rng.permutation(5)
        agg.merge(
            states[int(rng.integers(len(states)))], rows, {c: x[rows] for c, x in other.items()}
        )
    np.testing.assert_allclose(agg.finish(states[0]), expected, atol=1e-12)
    if "edge" in whole:
        np.testing.assert_array_equal(states[0]["edge"], whole["edge"])


@pytest.mark.parametrize("name", ALL)
def test_neutral_state_changes_nothing(name):
    agg = ALL[name]
    row, parts, gid, _ = edges(name, 3)
    state, expected = total(agg, 5, row, parts, gid)
    neutral = agg.start(5, shapes_of(agg), float)
    agg.merge(state, np.arange(5), neutral)
    agg.merge(neutral, np.arange(5), state)
    np.testing.assert_array_equal(agg.finish(state), expected)
    np.testing.assert_array_equal(agg.finish(neutral), expected)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_type_is_kept_forward_and_backward(name, dtype):
    row, parts, gid, scale = edges(name, 4)
    parts = [p.astype(dtype) for p in parts]
    state, out = total(agg=ALL[name], n=5, row=row, parts=parts, gid=gid, scale=scale)
    grads = gradients(
        agg=ALL[name],
        state=state,
        out=out,
        g=np.ones_like(numbers(ALL[name], out)),
        row=row,
        parts=parts,
        gid=gid,
        scale=scale,
    )
    assert out.dtype == dtype and all(
        g.dtype == dtype and g.shape == p.shape for g, p in zip(grads, parts, strict=True)
    )
    assert all(
        x.dtype == dtype
        for n, x in ALL[name].backward_state(state, out, np.ones_like(out)).items()
        if n != "edge"
    )


@pytest.mark.parametrize("name", ALL)
def test_nothing_at_all(name):
    agg = ALL[name]
    for n in (0, 3):
        out = agg.finish(agg.start(n, shapes_of(agg), np.float32))
        assert (
            numbers(agg, out).shape == (n, *shapes_of(agg)[-1])
            and out.dtype == np.float32
            and not out.any()
        )


@pytest.mark.parametrize("sign, name", [(1, "max"), (-1, "min")])
def test_of_equal_messages_the_lowest_edge_wins_alone(sign, name):
    row = np.array([0, 0, 0, 0, 1])
    gid = np.array([9, 4, 2, 7, 1])
    x = sign * np.array([[5.0, 1], [5, 3], [1, 3], [5, 3], [-np.inf, 0]])
    for order in (np.arange(5), np.array([3, 2, 1, 0, 4])):
        agg = ALL[name]
        state, out = total(agg, 2, row[order], [x[order]], gid[order])
        np.testing.assert_array_equal(out, sign * np.array([[5, 3], [-np.inf, 0]]))
        np.testing.assert_array_equal(state["edge"], [[4, 2], [1, 1]])
        (g,) = gradients(
            agg=agg,
            state=state,
            out=out,
            g=np.array([[1.0, 2], [3, 4]]),
            row=row[order],
            parts=[x[order]],
            gid=gid[order],
        )
        np.testing.assert_array_equal(
            g[np.argsort(order)], [[0, 0], [1, 0], [0, 2], [0, 0], [3, 4]]
        )


@pytest.mark.parametrize("name", ["max", "min"])
def test_of_messages_that_are_nan_the_lowest_edge_wins_however_they_are_split(name):
    gid = np.array([1, 5, 3, 2])
    x = np.array([7.0, np.nan, np.nan, 9])
    row = np.zeros(4, int)
    for chunks in ([[0, 1, 2, 3]], [[0], [1], [2], [3]], [[3, 2], [1, 0]], [[2], [1, 0, 3]]):
        state = ALL[name].start(1, [()], float)
        for chunk in chunks:
            accumulate(ALL[name], state, row[chunk], [x[chunk]], gid[chunk])
        assert state["edge"] == [3]


@pytest.mark.parametrize("name", ["max", "min"])
def test_a_maximum_has_no_edge_where_there_is_none(name):
    state, _ = total(ALL[name], 2, np.array([1]), [np.ones((1, 1))], np.array([3]))
    np.testing.assert_array_equal(state["edge"], [[NO_EDGE], [3]])


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_nan_is_not_hidden(name):
    row = np.array([0, 0, 0, 1])
    gid = np.arange(4)
    x = np.array([1.0, np.nan, 3, 2])
    for order in (np.arange(4), np.array([1, 0, 2, 3]), np.array([2, 0, 1, 3])):
        agg = ALL[name]
        state = agg.start(2, [()], float)
        for i in order:
            accumulate(agg, state, row[[i]], [x[[i]]], gid[[i]])
        out = agg.finish(state)
        assert np.isnan(out[0]) and out[1] == 2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "score, weight",
    [
        ([1e30, -1e30, 0], [1, 0, 0]),
        ([-1e30, -1e30, -1e30], [1 / 3] * 3),
        ([-np.inf, 0, 0], [0, 0.5, 0.5]),
        ([-np.inf] * 3, [0, 0, 0]),
        ([-900, -900, -np.inf], [0.5, 0.5, 0]),
        ([80, 80, 80], [1 / 3] * 3),
    ],
)
def test_softmax_of_extreme_scores(dtype, score, weight):
    score = np.array(score, dtype)
    x = np.array([1, 10, 100], dtype)
    row = np.zeros(3, int)
    gid = np.arange(3)
    for cuts in ([3], [1, 1, 1], [1, 2], [2, 1]):
        state = SOFTMAX_SUM.start(2, [(), ()], dtype)
        for part in np.split(np.arange(3), np.cumsum(cuts)[:-1]):
            accumulate(SOFTMAX_SUM, state, row[part], [score[part], x[part]], gid[part])
        out = SOFTMAX_SUM.finish(state)
        assert out == pytest.approx([np.dot(weight, x), 0], rel=1e-5)
        g_score, g_x = gradients(
            agg=SOFTMAX_SUM,
            state=state,
            out=out,
            g=np.ones(2, dtype),
            row=row,
            parts=[score, x],
            gid=gid,
        )
        assert np.all(np.isfinite(g_score)) and np.all(np.isfinite(g_x))
        assert g_x == pytest.approx(weight, rel=1e-4, abs=1e-6)
        lse, normaliser = total(LOG_SUM_EXP, 2, row, [score], gid)
        assert np.all(np.isfinite(normaliser))
        assert gradients(
            agg=LOG_SUM_EXP,
            state=lse,
            out=normaliser,
            g=np.ones(2, dtype),
            row=row,
            parts=[score],
            gid=gid,
        )[0] == pytest.approx(weight, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_score_that_changes_nothing_has_no_gradient_at_all(rng, dtype):
    """The softmax over one edge is 1; rounding errors in place of 0 would become steps of Adam. A
    NaN is not hidden.
    """
    row = np.arange(50)
    gid = np.arange(50)
    g = rng.standard_normal((50, 2, 3)).astype(dtype)
    parts = [rng.standard_normal((50, *s)).astype(dtype) for s in SHAPES["softmax-sum"]]
    for scale in (None, rng.uniform(1, 9, 50)):
        state, out = total(agg=SOFTMAX_SUM, n=50, row=row, parts=parts, gid=gid, scale=scale)
        g_score, g_x = gradients(
            agg=SOFTMAX_SUM, state=state, out=out, g=g, row=row, parts=parts, gid=gid, scale=scale
        )
        assert not g_score.any() and g_score.dtype == dtype
        np.testing.assert_array_equal(g_x, g)
    parts[0][7] = np.nan
    state, out = total(SOFTMAX_SUM, 50, row, parts, gid)
    assert np.isnan(
        gradients(agg=SOFTMAX_SUM, state=state, out=out, g=g, row=row, parts=parts, gid=gid)[0][7]
    ).all()


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "logsumexp", "softmax-sum"])
def test_an_edge_of_scale_k_counts_as_k_edges(name):
    # a normaliser has another form without edges, and adds nothing to the sum then
    for least in (1,) if name == "logsumexp" else (1, 0):
        row, parts, gid, _ = edges(name, 6)
        times = np.random.default_rng(0).integers(least, 4, len(row))
        times[row == row[0]] *= least
        _, scaled = total(
            agg=ALL[name], n=5, row=row, parts=parts, gid=gid, scale=times.astype(float)
        )
        _, repeated = total(
            ALL[name],
            5,
            np.repeat(row, times),
            [np.repeat(p, times, axis=0) for p in parts],
            np.repeat(gid, times),
        )
        np.testing.assert_allclose(scaled, repeated, atol=1e-12)


def test_unknown_name():
    assert aggregator("mean") is AGGREGATORS["mean"]
    with pytest.raises(ConfigError, match=r"sum = 'mode'.*sum, mean, max, min.*gt.softmax"):
        aggregator("mode")


@pytest.mark.parametrize("agg", [VARIANCE, DEVIATION])
def test_a_large_mean_cancels_no_variance(agg):
    """In float32, where the mean of squares less the square of the mean would be 0 or negative."""
    x = 1e4 + np.arange(4, dtype=np.float32)[:, None] * 0.25
    _, out = total(agg, 1, np.zeros(4, int), [x], np.arange(4))
    expected = np.var(x.astype(float)) if agg is VARIANCE else np.std(x.astype(float))
    np.testing.assert_allclose(out, [[expected]], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ulps", [0, 1, 8])
def test_the_deviation_of_messages_that_are_equal_up_to_rounding_is_0(ulps, dtype):
    """Their distance from the mean is a rounding error, which the gradient divides by another."""
    x = np.full((3, 2), 0.1, dtype)
    x[1] += ulps * np.spacing(x[1])
    row = np.zeros(3, int)
    state, out = total(DEVIATION, 1, row, [x], np.arange(3))
    (g,) = gradients(
        agg=DEVIATION,
        state=state,
        out=out,
        g=np.ones_like(out),
        row=row,
        parts=[x],
        gid=np.arange(3),
    )
    assert not g.any() and not out.any()


def test_the_deviation_of_other_messages_has_the_slope_of_a_unit_vector():
    x = np.array([[1.0], [1.0 + 1e-12], [1.0]])
    row = np.zeros(3, int)
    state, out = total(DEVIATION, 1, row, [x], np.arange(3))
    (g,) = gradients(
        agg=DEVIATION,
        state=state,
        out=out,
        g=np.ones_like(out),
        row=row,
        parts=[x],
        gid=np.arange(3),
    )
    assert out > 0 and np.sqrt(3 * np.square(g).sum()) == pytest.approx(1, rel=1e-3)


def test_the_deviation_of_nan_is_nan():
    _, out = total(DEVIATION, 1, np.zeros(2, int), [np.array([[np.nan], [1.0]])], np.arange(2))
    assert np.isnan(out).all()


def test_a_class_of_its_own_rule_is_given_all_it_may_read() -> None:
    class Squares(type(BUILT_IN[0])):
        name = "squares"

        def backward_state(self, state, total, g):
            return {"g": 2 * g * state["sum"] * total}

    class Same(type(BUILT_IN[0])):
        name = "same"

    state = {"sum": np.ones((2, 3))}
    assert Squares().saved_state(state) == state
    assert Squares.reads_total
    assert Same().saved_state(state) == {}
    assert not Same.reads_total
