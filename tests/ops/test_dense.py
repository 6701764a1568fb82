import numpy as np
import pytest
import scipy.sparse as sp

from graphtheta.errors import ShapeError, UserFunctionError
from graphtheta.inspect.checking.gradients import check_vjp
from graphtheta.ops import Parameter, RowSpace, Tape, Var, add, linear, matmul
from graphtheta.ops.autodiff.expr import Tracer
from graphtheta.ops.parallel.pool import set_threads, threads

SPACE = RowSpace(np.arange(4))


@pytest.mark.parametrize(
    ("shape", "w"),
    [((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3, 2)), ((2, 3), (3, 5, 2)), ((3,), (3, 0))],
)
def test_matmul_contracts_last_with_first(rng, shape, w):
    x = rng.normal(size=(4, *shape))
    w = rng.normal(size=w)
    out = matmul(Var(x, SPACE), Parameter(w))
    assert np.allclose(out.value, np.tensordot(x, w, (-1, 0)))
    assert out.space is SPACE


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_matmul_of_sparse_rows_equals_dense(rng, dtype):
    dense = (rng.normal(size=(4, 6)) * (rng.random((4, 6)) < 0.4)).astype(dtype)
    w = Parameter(rng.normal(size=(6, 2, 3)).astype(dtype))
    results = []
    for x in (dense, sp.csr_array(dense)):
        with Tape() as tape:
            out = matmul(Var(x, SPACE), w)
        results.append((out.value, tape.backward(out, np.arange(24).reshape(4, 2, 3)).of(w)))
        assert (out.dtype, out.shape) == (dtype, (4, 2, 3))
    for a, b in zip(*results, strict=True):
        assert a.dtype == b.dtype
        assert np.allclose(a, b)


@pytest.mark.parametrize("sparse", [False, True])
def test_products_do_not_depend_on_the_number_of_threads(rng, sparse):
    x = rng.normal(size=(70_000, 6)).astype(np.float32)
    w = Parameter(rng.normal(size=(6, 5)).astype(np.float32))
    x[rng.random(x.shape) < 0.5] = 0
    rows = RowSpace(np.arange(len(x)))
    g = rng.normal(size=(len(x), 5))
    many = threads()
    results = []
    try:
        for n in (1, min(2, many)):
            set_threads(n)
            with Tape() as tape:
                out = matmul(Var(sp.csr_array(x) if sparse else x, rows), w)
            results.append((out.value, tape.backward(out, g).of(w)))
    finally:
        set_threads(many)
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))
    assert np.allclose(results[0][0], x @ w.value, atol=1e-4)
    assert np.allclose(results[0][1], x.T @ g, rtol=1e-3, atol=1e-2)


def test_matmul_gives_sparse_rows_no_gradient(rng):
    x = Var(sp.csr_array(np.eye(4)), SPACE, True)
    with Tape() as tape:
        out = matmul(x, Parameter(rng.normal(size=(4, 2))))
    assert tape.backward(out).of(x) is None


def test_matmul_never_contracts_the_row_axis():
    with pytest.raises(ShapeError, match=r"x \[rows\] and w \[4\]"):
        matmul(Var(np.ones(4), SPACE), Parameter(np.ones(4)))
    with pytest.raises(ShapeError, match=r"\[rows, 3\] must be as long as the first of w \[4, 2\]"):
        matmul(Var(np.ones((4, 3)), SPACE), Parameter(np.ones((4, 2))))
    with pytest.raises(UserFunctionError, match="second factor"):
        matmul(Parameter(np.ones((2, 4))), Var(np.ones((4, 3)), SPACE))


def test_matmul_inside_gather_and_as_operator(rng):
    w = Parameter(rng.normal(size=(3, 2, 2)))
    with Tracer() as tracer:
        e = tracer.leaf("src", "h", (5, 3), np.float64) @ w
    assert e.dims == (5, 2, 2)
    assert (np.ones((4, 3)) @ w).shape == (4, 2, 2)


def test_linear_adds_the_bias_to_every_row(rng):
    x = rng.normal(size=(4, 3))
    w = rng.normal(size=(3, 2))
    b = rng.normal(size=2)
    assert np.allclose(linear(x, w, b), x @ w + b)
    assert np.allclose(linear(x, w), x @ w)
    check_vjp(linear, x, w, b)


def test_sparse_rows_meet_other_primitives_dense():
    x = Var(sp.csr_array(np.eye(4, dtype=np.float32)), SPACE)
    out = add(x, np.ones(4))
    assert np.array_equal(out.value, np.eye(4) + 1)
    assert out.dtype == np.float32
