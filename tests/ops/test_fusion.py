"""Elementwise functions that are deferred give what they give at once, values and gradients."""

import textwrap

import numpy as np
import pytest

from graphtheta.ops import (
    Parameter,
    RowSpace,
    RunningStats,
    Tape,
    Var,
    batch_norm,
    dropout,
    dtype_scope,
)
from graphtheta.ops.autodiff import fusion
from graphtheta.ops.autodiff.primitive import PRIMITIVES
from graphtheta.ops.autodiff.stored import StoredRows
from graphtheta.ops.autodiff.tape import frozen_scope, version_scope
from graphtheta.ops.compile import fusion_code
from graphtheta.ops.compile.fusion_code import FusedStep, Leaf, Structure
from graphtheta.ops.functions import shape
from graphtheta.ops.functions.elementwise import (
    absolute,
    add,
    clip,
    div,
    elu,
    leaky_relu,
    maximum,
    minimum,
    mul,
    neg,
    power,
    relu,
    sigmoid,
    square,
    sub,
    tanh,
)
from graphtheta.ops.functions.rows import expand_last
from graphtheta.ops.parallel.pool import set_threads, threads
from graphtheta.ops.rows.row_list import RowList

N = 600
SPACE = RowSpace(np.arange(N) * 3)


def statistics(n):
    with dtype_scope("float64"):
        return RunningStats(n)


FUSED = {
    "batch norm, relu, dropout": (
        lambda x, g, b: dropout(relu(batch_norm(x, g, b, statistics(16))), 0.5),
        [(16,)],
        [(16,), (16,)],
    ),
    "bias, relu, dropout": (
        lambda x, f, b: dropout(relu(add(mul(x, f), b)), 0.5),
        [(16,), ()],
        [(16,)],
    ),
    "attention": (lambda z, a: shape.sum(mul(z, a)), [(4, 8)], [(4, 8)]),
    "mean of weighted heads": (lambda z, s: shape.mean(mul(z, s), -2), [(4, 8), (4,)], []),
    "two leaves of one gradient": (
        lambda x, y, b: relu(add(add(x, y), b)),
        [(16,), (16,)],
        [(16,)],
    ),
    "a leaf used three times": (
        lambda x, y: sub(add(mul(x, x), mul(y, x)), mul(3.0, y)),
        [(16,), (1,)],
        [],
    ),
    "a parameter without axes": (
        lambda x, y, e: add(mul(add(e, 1.0), x), leaky_relu(y, 0.2)),
        [(16,), (16,)],
        [()],
    ),
    "a factor of each row": (
        lambda x, y: mul(square(x), expand_last(maximum(y, 0.5))),
        [(16,), ()],
        [],
    ),
    "a parameter at two shapes": (lambda x, w: mul(mul(x, w), w), [(4, 4)], [(4, 1)]),
    "no axis but rows": (lambda x: add(clip(neg(x), -1, 0.5), absolute(x)), [()], []),
    "sum over all axes": (lambda x, w: shape.sum(mul(x, w), (-1, -2)), [(4, 4)], [(1, 4)]),
    "outer product": (lambda x, y: mul(x, sub(y, x)), [(1, 8), (4, 1)], []),
    "a sum that is read on": (
        lambda x, y: mul(shape.sum(mul(x, y), -1, keepdims=True), x),
        [(8,), (8,)],
        [],
    ),
    "a value read twice": (
        lambda x, y: (lambda z: add(relu(z), mul(z, y)))(mul(x, 2.0)),
        [(16,), (16,)],
        [],
    ),
    "costly in between": (
        lambda x, y: minimum(power(add(square(x), 1.0), -0.5), y),
        [(16,), (16,)],
        [],
    ),
    "dropout of what is repeated": (
        lambda x, y: mul(dropout(mul(x, 2.0), 0.3), y),
        [(4, 1), (4, 8)],
        [],
    ),
    "powers 0 and 1": (lambda x, y: mul(mul(power(x, 0), power(y, 1)), y), [(16,), (16,)], []),
    "quick exponentials": (
        lambda x, y: mul(elu(mul(x, 3.0), 0.7), sigmoid(mul(y, 9.0))),
        [(16,), (16,)],
        [],
    ),
    "gates of wider rows": (
        lambda x, y: mul(sigmoid(add(x[..., 1, :], y)), tanh(x[..., 3, :])),
        [(4, 8), (8,)],
        [],
    ),
    "some columns, and all of them": (
        lambda x, y: mul(add(x[..., 1:4], y[..., ::2]), shape.sum(x, -1, keepdims=True)),
        [(8,), (6,)],
        [],
    ),
    "very long": (
        lambda x, y: add(*[sum(((mul(x, 0.1), y)[k % 2] for k in range(20)), start=x)] * 2),
        [(16,), (16,)],
        [],
    ),
}


def run(monkeypatch, smallest, make, rows, wholes, dtype=np.float64, n=N):
    monkeypatch.setattr(fusion, "SMALLEST", smallest)
    rng = np.random.default_rng(0)
    space = SPACE.prefix(n)
    leaves = [Var(rng.normal(size=(n, *s)).astype(dtype), space, True) for s in rows]
    leaves += [Parameter(rng.normal(size=s).astype(dtype)) for s in wholes]
    with Tape() as tape:
        out = make(*leaves)
        grads = tape.backward(out, rng.normal(size=out.shape).astype(dtype))
    return out, [grads.of(x) for x in leaves]


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", FUSED)
def test_fused_functions_equal_one_by_one(monkeypatch, name):
    now, later = (run(monkeypatch, smallest, *FUSED[name]) for smallest in (1 << 40, 0))
    assert isinstance(later[0], fusion.Deferred) and not isinstance(now[0], fusion.Deferred)
    assert later[0].space is now[0].space and later[0].shape == now[0].shape
    for a, b in zip([now[0].value, *now[1]], [later[0].value, *later[1]], strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(16,), (4, 8)])
@pytest.mark.parametrize("n", [0, 1, N])
@pytest.mark.parametrize("writable", [True, False])
def test_stored_rows_are_read_where_they_are(monkeypatch, n, shape, writable):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(2 * N, *shape)).astype(np.float32)
    x.flags.writeable = writable
    listed = RowList(x, rng.permutation(2 * N)[:n])
    weight = rng.normal(size=shape).astype(np.float32)
    g = rng.normal(size=(n, *shape)).astype(np.float32)
    copies = []

    def read(rows):
        copies.append(rows)
        return listed[:rows]

    def passed(smallest, where):
        monkeypatch.setattr(fusion, "SMALLEST", smallest)
        space = SPACE.prefix(n)
        stored = StoredRows(
            read=read, shape=listed.shape, dtype=x.dtype, listed=where, space=space, name="x"
        )
        w = Parameter(weight)
        with Tape() as tape:
            # the first of the two functions is not the leaf's only reader
            out = dropout(relu(add(mul(stored, w), stored)), 0.5)
            return out.value, tape.backward(out, g).of(w)

    found = passed(0, listed)
    assert not copies
    for a, b in zip(found, passed(0, None), strict=True):
        np.testing.assert_array_equal(a, b)
    assert copies
    for a, b in zip(found, passed(1 << 40, listed), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1])
def test_few_rows_or_none(monkeypatch, n):
    out, grads = run(monkeypatch, 0, *FUSED["bias, relu, dropout"], n=n)
    assert out.value.shape == (n, 16) and grads[2].shape == (16,)


def test_single_precision_stays(monkeypatch):
    out, grads = run(monkeypatch, 0, *FUSED["bias, relu, dropout"], dtype=np.float32)
    assert {x.dtype for x in (out.value, *grads)} == {np.dtype(np.float32)}


def test_operations_keep_their_order(monkeypatch):
    """What is added to a large number is rounded, and subtracting the number again shows it."""
    make = lambda x: sub(add(x, 1e9), 1e9)
    now, later = (
        run(
            monkeypatch=monkeypatch,
            smallest=smallest,
            make=make,
            rows=[(16,)],
            wholes=[],
            dtype=np.float32,
        )
        for smallest in (1 << 40, 0)
    )
    assert isinstance(later[0], fusion.Deferred)
    np.testing.assert_array_equal(later[0].value, now[0].value)


def test_the_number_of_threads_does_not_show(monkeypatch):
    results = []
    many = threads()
    monkeypatch.setattr("graphtheta.ops.parallel.buffers.BLOCK", 256)
    monkeypatch.setattr("graphtheta.ops.parallel.pool.WORTH", 0)
    try:
        for n in (1, min(2, many)):
            set_threads(n)
            out, grads = run(monkeypatch, 0, *FUSED["bias, relu, dropout"], dtype=np.float32)
            results.append([out.value, *grads])
    finally:
        set_threads(many)
    for a, b in zip(*results, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.second
def test_nan_shows(monkeypatch):
    monkeypatch.setattr(fusion, "SMALLEST", 0)
    x = np.array([[np.nan, -1.0, 1.0]])
    for f in (relu, elu, sigmoid, lambda v: maximum(v, 0.0), lambda v: clip(v, 0.0, 1.0)):
        for dtype in (np.float32, np.float64):
            assert np.isnan(np.asarray(f(Var(x.astype(dtype), RowSpace(np.arange(1)))).value)[0, 0])


@pytest.mark.parametrize("shape", [(1,), (5,), None])
def test_divisors_whose_reciprocal_is_infinite(monkeypatch, shape):
    tiny = np.float32(1e-40)
    x = np.array([0.0, 1.0, -3.0, 1e38], np.float32)[:, None] * np.full(5, tiny)
    found = []
    for smallest in (1 << 40, 0):
        monkeypatch.setattr(fusion, "SMALLEST", smallest)
        rows = Var(x, RowSpace(np.arange(4)), True)
        by = Parameter(np.full(shape, tiny)) if shape else float(tiny)
        with np.errstate(over="ignore"), Tape() as tape:
            out = div(rows, by)
            found.append((out.value, tape.backward(out, x).of(rows)))
    np.testing.assert_array_equal(*(np.stack(pair) for pair in found))
    np.testing.assert_array_equal(found[0][0][:3, 0], [0.0, 1.0, -3.0])


def test_quick_exponentials_are_as_exact_as_promised(monkeypatch):
    monkeypatch.setattr(fusion, "SMALLEST", 0)
    x = np.concatenate((-np.logspace(-20, 1.9, 20_000), [0.0, -np.inf, np.inf, 50.0])).astype(
        np.float32
    )
    got = elu(Var(x, RowSpace(np.arange(len(x))))).value
    true = np.where(x > 0, x, np.expm1(np.minimum(x, 0).astype(np.float64)))
    near = np.isfinite(true)
    assert np.array_equal(got[~near], true[~near])
    assert np.all(
        np.abs(got[near] - true[near]) <= np.spacing(np.abs(true[near]).astype(np.float32))
    )
    got = sigmoid(Var(x, RowSpace(np.arange(len(x))))).value
    np.testing.assert_allclose(got, 1 / (1 + np.exp(-x.astype(np.float64))), rtol=5e-7, atol=2e-38)


def test_small_values_are_computed_at_once():
    assert not isinstance(relu(Var(np.ones((4, 2)), SPACE.prefix(4))), fusion.Deferred)


def test_nothing_is_recorded_outside_of_a_tape(monkeypatch):
    monkeypatch.setattr(fusion, "SMALLEST", 0)
    out = mul(Var(np.ones((4, 2)), SPACE.prefix(4), True), 2.0)
    assert not out.needs_grad and np.array_equal(out.value, np.full((4, 2), 2.0))


def grown(p):
    """An update, as an optimiser makes it: a new array."""
    p.value = p.value * 5


@pytest.mark.parametrize("smallest", [0, 1 << 40])
def test_a_value_is_that_of_its_call_whenever_it_is_read(monkeypatch, smallest):
    """Parameters are updated, constants changed in place, and versions exchanged before a value is
    read.
    """
    monkeypatch.setattr(fusion, "SMALLEST", smallest)
    x = Var(np.ones((N, 2)), SPACE, True)
    p = Parameter(np.ones(2))
    factor = np.ones(2)
    with Tape() as tape:
        first = x * p * factor
        grown(p)
        factor[:] = 7.0
        # the same parameter before and after an update
        both = first + p
        with version_scope({p: np.full(2, 3.0)}):
            older = relu(both * p)
        with frozen_scope(frozenset({p})):
            frozen = mul(older, p)
        grown(p)
    assert isinstance(frozen, fusion.Deferred) is (smallest == 0)
    assert np.array_equal(frozen.value, np.full((N, 2), (1 + 5) * 3.0 * 5))
    grads = tape.backward(frozen)
    # through the factor 1 of first, the addend 5, and the factor 3
    assert np.array_equal(grads.of(p), np.full(2, N * (15.0 + 15.0 + 6 * 5)))
    assert np.array_equal(grads.of(x), np.full((N, 2), 15.0))


def test_a_value_that_is_read_where_its_parameter_is_frozen_has_its_gradient(monkeypatch):
    monkeypatch.setattr(fusion, "SMALLEST", 0)
    p = Parameter(np.ones(2))
    with Tape() as tape:
        out = mul(Var(np.ones((N, 2)), SPACE), p)
        with frozen_scope(frozenset({p})):
            assert np.array_equal(out.value, np.ones((N, 2)))
    assert np.array_equal(tape.backward(out).of(p), np.full(2, N))


def test_the_example_in_the_docstring_of_the_writer_is_what_it_writes():
    leaves = (Leaf("row", True), Leaf("row", True), Leaf("whole", True))
    forms = [PRIMITIVES[name].form({}) for name in ("mul", "add", "relu")]
    steps = tuple(
        FusedStep("scalar", form, args, (), (1,) * len(args))
        for form, args in zip(forms, ((0, 1), (3, 2), (4,)), strict=True)
    )
    unit = tuple((k == 1,) for k in range(6))
    written = fusion_code.FusionWriter(Structure(leaves, steps, unit)).forward()
    assert textwrap.indent(written, "    ") in fusion_code.__doc__
