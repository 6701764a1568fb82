import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphtheta.ops as ops
from graphtheta.errors import ShapeError
from graphtheta.ops import RowSpace, Tape, Var

NAMES = ["segment_sum", "segment_mean", "segment_max", "segment_min", "segment_softmax"]


@st.composite
def segments(draw):
    lengths = draw(st.lists(st.integers(0, 4), max_size=8))
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    trailing = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    # small integers, so that ties happen
    seed = draw(st.integers(0, 1000))
    return (
        np.random.default_rng(seed)
        .integers(-3, 3, (int(indptr[-1]), *trailing))
        .astype(np.float64),
        indptr,
    )


@pytest.mark.parametrize("name", NAMES)
@given(case=segments())
@settings(max_examples=60, deadline=None)
def test_segment_equals_its_slow_twin(name, case):
    values, indptr = case
    found = getattr(ops, name)(values, indptr)
    expected = getattr(naive, name)(values, indptr)
    assert found.shape == expected.shape
    assert np.allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@given(case=segments())
@settings(max_examples=40, deadline=None)
def test_segment_gradient_sends_each_total_back_once(name, case):
    values, indptr = case
    x = Var(values, None, True)
    with Tape() as tape:
        out = getattr(ops, name)(x, indptr)
    g = tape.backward(out).of(x)
    # of the sum over a softmax nothing can be gained; all others weigh the rows of a segment with a
    # total of one, or each
    per_segment = naive.segment_sum(g, indptr)
    filled = (np.diff(indptr) > 0).astype(float).reshape(-1, *[1] * (values.ndim - 1))
    expected = {
        "segment_sum": np.diff(indptr).reshape(filled.shape),
        "segment_softmax": 0 * filled,
    }.get(name, filled)
    assert np.allclose(per_segment, np.broadcast_to(expected, per_segment.shape), atol=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("indptr", [[0], [0, 0], [0, 0, 0, 0]])
def test_segment_of_no_rows(name, indptr):
    x = Var(np.zeros((0, 3), np.float32), RowSpace(np.arange(0), "edge"), True)
    with Tape() as tape:
        out = getattr(ops, name)(x, np.array(indptr))
    assert out.dtype == np.float32
    assert np.all(out.value == 0)
    assert tape.backward(out).of(x).shape == (0, 3)


def test_segment_softmax_keeps_rows_and_survives_large_scores():
    space = RowSpace(np.arange(3), "edge")
    out = ops.segment_softmax(Var(np.array([1e4, 1e4, -1e4]), space), np.array([0, 2, 3]))
    assert np.allclose(out.value, [0.5, 0.5, 1])
    assert out.space is space


@pytest.mark.parametrize("indptr", [[0, 2], [1, 3], [0, 2, 1, 3], [], [[0, 3]]])
def test_segment_with_wrong_bounds_is_refused(indptr):
    with pytest.raises(ShapeError, match="segment_sum: indptr"):
        ops.segment_sum(np.ones((3, 2)), np.array(indptr, np.int64))


@pytest.mark.parametrize("name", ["segment_max", "segment_min"])
def test_rows_that_do_not_win_get_no_part_of_an_infinite_gradient(name):
    x = Var(np.array([1.0, 1.0, -2.0, -2.0]), None, True)
    with Tape() as tape:
        out = getattr(ops, name)(x, np.array([0, 4]))
    g = tape.backward(out, np.array([np.inf])).of(x)
    assert sorted(g) == [0, 0, 0, np.inf]
