"""A checkpointed segment: one step of the tape, the same draws, sums in the same order."""

import numpy as np
import pytest

from graphtheta.errors import TapeError
from graphtheta.ops import (
    Parameter,
    RowSpace,
    RunningStats,
    Tape,
    Var,
    add,
    batch_norm,
    dropout,
    mul,
    square,
)
from graphtheta.ops.autodiff.checkpoint import run_segment

SPACE = RowSpace(np.arange(50))


def again(run):
    """Run a function of one result as a segment."""
    made = []

    def once():
        made.append(run())
        return [made[-1]]

    run_segment(once, once)
    return made[0]


def passed(wrap, x, p, stats):
    """A value that is read inside and outside of a segment, draws before, in and after it, and a
    segment in a segment.
    """
    with Tape(seed=4) as tape:
        h = dropout(mul(x, p), 0.5)
        a = wrap(lambda: add(dropout(h, 0.5), wrap(lambda: batch_norm(mul(h, p), p, p, stats))))
        out = add(mul(dropout(a, 0.5), h), mul(a, x))
        nodes = len(tape.nodes)
        grads = tape.backward(out)
    return [out.value, grads.of(x), grads.of(p), stats.mean, stats.var], nodes


def test_a_segment_gives_the_bits_of_one_run():
    rng = np.random.default_rng(0)
    x = Var(rng.normal(size=(50, 3)), SPACE, True)
    p = Parameter(rng.normal(size=3))
    (expected, kept), (found, left) = (
        passed(wrap, x, p, RunningStats(3)) for wrap in (lambda run: run(), again)
    )
    assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))
    # batch norm is two operations
    assert left == kept - 4


def test_a_segment_without_gradients_leaves_nothing():
    with Tape() as tape:
        again(lambda: square(Var(np.ones((50, 2)), SPACE)))
        assert not tape.nodes


def test_a_segment_that_returns_what_it_was_given():
    p = Parameter(np.ones(2))
    with Tape() as tape:
        y = square(p)
        out = again(lambda: y)
        grads = tape.backward(mul(out, y))
    assert out is y and np.array_equal(grads.of(p), [4, 4])


def test_what_leaves_a_segment_by_another_way_is_found():
    p = Parameter(np.ones(2))
    left = []
    with Tape():
        again(lambda: left.append(square(p)) or square(left[0]))
        with pytest.raises(TapeError, match=r"return it from the function"):
            square(left[0])


def test_the_second_run_changes_no_state():
    p, stats = Parameter(np.ones(2)), RunningStats(2)
    x = Var(np.random.default_rng(0).normal(size=(50, 2)), SPACE)
    with Tape() as tape:
        out = again(lambda: batch_norm(mul(x, p), p, p, stats))
        tape.backward(out)
        assert len(tape.changes) == 1 and not stats.mean.any()
    assert stats.mean == pytest.approx(0.1 * x.value.mean(axis=0))
