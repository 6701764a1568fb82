import numpy as np
import pytest

import graphtheta.ops as ops
from graphtheta.errors import ArgumentError, ShapeError
from graphtheta.inspect.checking.gradients import check_vjp
from graphtheta.ops import Parameter, RowSpace, Var
from graphtheta.ops.autodiff.expr import Tracer

SPACE = RowSpace(np.arange(4))


def row(rng, *shape):
    return Var(rng.normal(size=(4, *shape)), SPACE, True)


@pytest.mark.parametrize("axis", [0, 1, -3, None, (-1, 0)])
@pytest.mark.parametrize("function", [ops.sum, ops.mean, ops.max])
def test_reduction_over_rows_is_refused(rng, function, axis):
    with pytest.raises(ShapeError, match="the row axis belongs to the engine"):
        function(row(rng, 2, 3), axis)


def test_reduction_of_one_number_per_row_is_refused(rng):
    with pytest.raises(ShapeError, match="none to reduce"):
        row(rng).sum(-1)
    with Tracer() as tracer, pytest.raises(ShapeError, match="none to reduce"):
        tracer.leaf("src", "s", (), np.float32).sum(-1)


@pytest.mark.parametrize("axis", [1.5, (0, 1)])
def test_sums_along_an_axis_have_one_whole_axis(axis):
    with pytest.raises(ArgumentError, match=r"cumsum.*as an integer"):
        ops.cumsum(np.ones((2, 3)), axis)
    np.testing.assert_array_equal(ops.cumsum(np.ones(3), np.int64(-1)), [1, 2, 3])


@pytest.mark.parametrize("axis", [0, 1, (0, 1), None])
def test_reduction_without_rows_follows_numpy(rng, axis):
    p = Parameter(rng.normal(size=(2, 3)))
    assert np.allclose(ops.sum(p, axis).value, p.value.sum(axis))
    assert np.allclose(ops.mean(p, axis).value, p.value.mean(axis))
    assert ops.sum(Parameter(np.array(2.0)), None).shape == ()


def test_reshape_keeps_rows(rng):
    x = row(rng, 2, 3)
    assert x.reshape(3, -1).shape == (4, 3, 2)
    assert x.flatten().shape == (4, 6)
    assert row(rng).reshape(1).shape == (4, 1)
    assert row(rng).flatten().shape == (4, 1)
    assert ops.reshape(Parameter(np.ones((2, 3))), -1).shape == (6,)
    with Tracer() as tracer:
        assert tracer.leaf("src", "h", (2, 3), np.float32).reshape(-1, 2).dims == (3, 2)


@pytest.mark.parametrize("shape", [(4, 2), (-1, -1), (5, -1), (-2, -3)])
def test_reshape_to_another_size_is_refused(rng, shape):
    with pytest.raises(ShapeError, match="cannot become"):
        row(rng, 2, 3).reshape(*shape)


def test_reshape_infers_without_rows():
    x = Var(np.ones((0, 2, 3)), RowSpace(np.arange(0)))
    assert x.reshape(-1).shape == (0, 6)


def test_concat_equals_numpy_and_cuts_rows(rng):
    x = row(rng, 2)
    y = Var(rng.normal(size=(3, 3)), SPACE.prefix(3), True)
    out = ops.concat([x, y])
    assert np.array_equal(out.value, np.concatenate([x.value[:3], y.value], -1))
    assert out.space.n == 3
    check_vjp(lambda a, b: ops.concat([a, b]), x, y)


def test_concat_repeats_values_without_rows(rng):
    x = row(rng, 2)
    p = Parameter(rng.normal(size=3))
    out = ops.concat([p, x])
    assert np.array_equal(out.value[:, :3], np.broadcast_to(p.value, (4, 3)))
    check_vjp(lambda a, b: ops.concat([b, a]), x, p)
    with Tracer() as tracer:
        h = tracer.leaf("src", "h", (2,), np.float64)
        assert ops.concat([h, h, p]).dims == (7,)


@pytest.mark.parametrize("axis", [0, -3])
def test_concat_along_rows_is_refused(rng, axis):
    with pytest.raises(ShapeError, match="the row axis belongs to the engine"):
        ops.concat([row(rng, 2, 3), row(rng, 2, 3)], axis)


def test_concat_of_other_axes_that_differ_is_refused(rng):
    with pytest.raises(ShapeError, match=r"must agree, got \[2, 3\], \[3, 3\]"):
        ops.concat([row(rng, 2, 3), row(rng, 3, 3)])
    with pytest.raises(ShapeError, match="at least one"):
        ops.concat([])


def test_stack_along_rows_is_refused(rng):
    with pytest.raises(ShapeError, match="use -2 to -1"):
        ops.stack([row(rng, 2)], 0)


def test_repeat_rows_and_broadcast_to(rng):
    x = row(rng, 1, 3)
    p = Parameter(rng.normal(size=2))
    assert ops.repeat_rows(p, x).shape == (4, 2)
    assert ops.broadcast_to(x, 2, 3).shape == (4, 2, 3)
    assert ops.broadcast_to(p, 3, 2).shape == (3, 2)
    with pytest.raises(ShapeError, match="expand_last"):
        ops.broadcast_to(x, 2, 2, 3)
    with pytest.raises(ShapeError, match="without rows"):
        ops.repeat_rows(x, x)


@pytest.mark.parametrize(
    "key", [0, (0, ...), slice(1, 3), (..., 0, 0, 0), (slice(None), 0, 0, 0), [0, 1], None]
)
def test_getitem_of_rows_is_refused(rng, key):
    with pytest.raises(ShapeError, match=r"row axis|row value"):
        row(rng, 2, 3)[key]


def test_getitem_refuses_what_is_not_constant(rng):
    with pytest.raises(ShapeError, match="not a constant"):
        row(rng, 2, 3)[..., Parameter(np.ones(2))]
    with pytest.raises(ShapeError, match="one list"):
        row(rng, 2, 3)[..., 0, [1, 2]]
    for key in ((..., 7), (..., [0, 3]), (..., [-4]), (..., [0, -3, -4])):
        with pytest.raises(ShapeError):
            row(rng, 2, 3)[key]
    for booleans in ([True, False], [True] * 4, np.ones(2, bool)):
        with pytest.raises(ShapeError, match="Booleans was used on an axis of length 3"):
            row(rng, 2, 3)[..., booleans]
    with pytest.raises(ShapeError, match="row axis"):
        row(rng, 2, 3)[()]


def test_getitem_without_rows_follows_numpy():
    p = Parameter(np.arange(6.0).reshape(2, 3))
    assert np.array_equal(p[1].value, [3, 4, 5])
    assert p[1, 2].value == 5
