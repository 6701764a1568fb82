import numpy as np
import pytest

from graphtheta.errors import ShapeError, UserFunctionError
from graphtheta.ops import Parameter, RowSpace, Tape, Var, add, cast, expand_last, mul, prefix
from graphtheta.ops.autodiff.expr import Tracer
from graphtheta.ops.functions.rows import align
from graphtheta.ops.rows.columns import unbroadcast

SPACE = RowSpace(np.arange(5))


def row(*shape, space=SPACE, dtype=np.float64):
    return Var(
        np.arange(space.n * int(np.prod(shape)), dtype=dtype).reshape(space.n, *shape), space, True
    )


def test_align_adds_trailing_axes_of_rows_at_the_right():
    score = row(2)
    z = row(2, 3)
    out = mul(score, z)
    assert np.array_equal(out.value, score.value[:, :, None] * z.value)


@pytest.mark.parametrize(
    ("shape", "fixed", "expected"),
    [
        ((), (3,), (3,)),
        ((2,), (2, 3), (2, 3)),
        ((2, 3), (3,), (2, 3)),
        ((1,), (4,), (4,)),
        ((), (), ()),
    ],
)
def test_align_never_lets_rows_meet_a_parameter_axis(shape, fixed, expected):
    out = add(row(*shape), Parameter(np.zeros(fixed)))
    assert out.shape == (5, *expected)
    assert out.space is SPACE


def test_align_of_as_many_rows_as_columns_keeps_the_row_axis_apart():
    out = add(row(), Parameter(np.arange(5.0)))
    assert out.shape == (5, 5)


def test_align_without_rows_follows_numpy():
    assert mul(Parameter(np.ones((2, 1))), np.ones(3)).shape == (2, 3)
    assert type(add(np.ones(2), 1)) is np.ndarray


def test_align_cuts_nested_rows_and_gradients_are_padded():
    inner = SPACE.prefix(3)
    x = row(2)
    y = Var(np.ones((3, 2)), inner, True)
    with Tape() as tape:
        out = mul(x, y)
    assert out.space is inner
    grads = tape.backward(out)
    assert np.array_equal(grads.of(x), [[1, 1]] * 3 + [[0, 0]] * 2)
    assert grads.of(y).shape == (3, 2)


def test_align_refuses_rows_of_unrelated_sets():
    with pytest.raises(UserFunctionError, match="different sets of rows"):
        add(row(2), row(2, space=RowSpace(np.arange(5), "edge")))


def test_align_refuses_two_float_types():
    with pytest.raises(UserFunctionError, match="float32, float64"):
        add(row(2), Parameter(np.ones(2, np.float32)))


@pytest.mark.parametrize(
    "constant",
    [2, 0.5, np.float64(0.5), np.int64(3), np.ones(2), np.arange(2), np.array(1.5), True],
)
def test_align_constants_take_the_type_of_variables(constant):
    x = row(2, dtype=np.float32)
    assert add(x, constant).dtype == np.float32
    assert add(constant, x).dtype == np.float32


def test_align_inside_gather():
    with Tracer() as tracer:
        score = tracer.leaf("src", "s", (2,), np.float32)
        z = tracer.leaf("dst", "z", (2, 3), np.float32)
        out = score * z + Parameter(np.ones(3, np.float32))
        assert (out.rows, out.dims, out.dtype) == (True, (2, 3), np.float32)
        assert [getattr(a, "dims", a.shape) for a in align(score, np.ones((2, 3)))] == [
            (2, 1),
            (2, 3),
        ]
        with pytest.raises(UserFunctionError, match="float32, float64"):
            add(z, Parameter(np.ones(3)))


def test_prefix_keeps_the_space_nested():
    out = prefix(row(2), 2)
    assert out.shape == (2, 2)
    assert out.space.nested_with(SPACE)
    assert prefix(out, 2) is out


def test_prefix_of_too_few_rows_is_refused():
    with pytest.raises(ShapeError, match="9 rows requested"):
        prefix(row(2), 9)
    with Tracer() as tracer, pytest.raises(UserFunctionError, match="inside gather"):
        prefix(tracer.leaf("src", "x", (), np.float32), 0)


def test_expand_last_of_nothing_is_the_value_itself():
    x = row(2)
    assert expand_last(x, 0) is x
    assert expand_last(x).shape == (5, 2, 1)


def test_cast_brings_gradients_back_in_the_old_type():
    x = row(2, dtype=np.float32)
    with Tape() as tape:
        out = cast(x, "float64")
    assert out.dtype == np.float64
    assert tape.backward(out).of(x).dtype == np.float32


@pytest.mark.parametrize(
    ("shape", "big"),
    [((3,), (2, 3)), ((1, 3), (2, 3)), ((), (2, 3)), ((2, 1, 3), (4, 2, 5, 3)), ((1,), (0, 1))],
)
def test_unbroadcast_is_the_adjoint_of_broadcasting(rng, shape, big):
    x = rng.normal(size=shape)
    g = rng.normal(size=big)
    assert unbroadcast(g, x).shape == shape
    assert np.vdot(unbroadcast(g, x), x) == pytest.approx(np.vdot(g, np.broadcast_to(x, big)))
