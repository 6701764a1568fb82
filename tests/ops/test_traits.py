"""Declared traits are true of the functions that declare them."""

from __future__ import annotations

import numpy as np
import pytest

from graphtheta.ops import PRIMITIVES

OURS = {
    name: p for name, p in PRIMITIVES.items() if p.forward.__module__.startswith("graphtheta.ops")
}
_rng = np.random.default_rng(0)
X, Y = _rng.standard_normal((2, 5, 2, 3))
# arguments and keywords of operations that need others than one or two arrays of a shape
GIVEN = {
    "matmul": ((X, _rng.standard_normal((3, 4))), {}),
    "sum": ((X,), {"axis": (-1,), "keepdims": False}),
    "reshape": ((X,), {"keep": 1, "shape": (6,)}),
    "expand_last": ((X,), {"n": 2}),
    "broadcast_to": ((X[:, :1],), {"keep": 1, "shape": (2, 3)}),
    "getitem": ((X,), {"key": (("...",), ("slice", None, None, -1))}),
    "repeat_rows": ((X[0], Y), {}),
    "cumsum": ((X,), {"axis": -1}),
    "permute": ((X,), {"keep": 1, "order": (1, 0)}),
    "prefix": ((X,), {"n": 3}),
    "cast": ((X,), {"dtype": "float64"}),
    "power": ((np.abs(X),), {"exponent": 1}),
    "dropout": ((X, np.arange(5), 7), {"rate": 0.4, "site": 1}),
}


def given(name):
    args, static = GIVEN.get(name, ((X, Y)[: len(OURS[name].args)], {}))
    return list(args), static


def having(*names):
    return [
        n
        for n, p in OURS.items()
        if any(getattr(p.traits, name) not in (None, False, ()) for name in names)
    ]


@pytest.mark.parametrize("name", having("linear"))
def test_linear(name):
    (args, static), forward = given(name), OURS[name].forward
    for k in OURS[name].traits.linear:
        other = _rng.standard_normal(args[k].shape)
        at = lambda x: forward(*args[:k], x, *args[k + 1 :], **static)  # noqa: B023
        np.testing.assert_allclose(
            at(2 * args[k] - 3 * other), 2 * at(args[k]) - 3 * at(other), atol=1e-12
        )


@pytest.mark.parametrize("name", having("additive"))
def test_additive(name):
    forward = OURS[name].forward
    np.testing.assert_allclose(
        forward(2 * X, 2 * Y) + forward(Y, X), forward(2 * X + Y, 2 * Y + X), atol=1e-12
    )


@pytest.mark.parametrize("name", having("neutral", "commutative"))
def test_neutral_and_commutative(name):
    forward, traits = OURS[name].forward, OURS[name].traits
    np.testing.assert_array_equal(forward(X, np.full_like(X, traits.neutral)), X)
    if traits.commutative:
        np.testing.assert_array_equal(forward(X, Y), forward(Y, X))


@pytest.mark.parametrize("name", having("involution", "constant"))
def test_involution_and_constant(name):
    forward, traits = OURS[name].forward, OURS[name].traits
    if traits.involution:
        np.testing.assert_array_equal(forward(forward(X)), X)
    if traits.constant is not None:
        np.testing.assert_array_equal(forward(X), np.full_like(X, traits.constant))


@pytest.mark.parametrize("name", having("identity"))
def test_identity(name):
    (args, static), p = given(name), OURS[name]
    same = {
        "reshape": {"keep": 1, "shape": (2, 3)},
        "expand_last": {"n": 0},
        "broadcast_to": {"keep": 1, "shape": (1, 3)},
    }.get(name, static)
    assert p.traits.identity(same)
    np.testing.assert_array_equal(p.forward(*args, **same), args[0])


@pytest.mark.parametrize("name", having("joined"))
def test_joined(name):
    (args, inner), p = given(name), OURS[name]
    outer = {
        "reshape": {"keep": 1, "shape": (3, 2)},
        "expand_last": {"n": 1},
        "broadcast_to": {"keep": 1, "shape": (2, 3)},
    }[name]
    np.testing.assert_array_equal(
        p.forward(p.forward(*args, **inner), **outer),
        p.forward(*args, **p.traits.joined(inner, outer)),
    )


@pytest.mark.parametrize("name", having("structural"))
def test_structural(name):
    args, static = given(name)
    result = OURS[name].forward(*args, **static)
    assert set(np.ravel(result)) <= set(np.ravel(args[0]))


@pytest.mark.parametrize("name", having("kept_axes"))
def test_kept_axes(name):
    """A change at one index of the leading axes changes the result at that index only."""
    (args, static), p = given(name), OURS[name]
    before = p.forward(*args, **static)
    n = p.traits.kept_axes(args[0].shape[1:], before.shape[1:], static)
    for at in np.ndindex(args[0].shape[1 : 1 + n]):
        changed = args[0].copy()
        changed[(slice(None), *at)] += 1
        there = p.forward(changed, *args[1:], **static)
        there[(slice(None), *at)] = before[(slice(None), *at)]
        np.testing.assert_array_equal(there, before)


def test_a_product_is_a_contraction():
    (name,) = having("contraction")
    (x, w), _ = given(name)
    np.testing.assert_allclose(OURS[name].forward(x, w), np.tensordot(x, w, 1), atol=1e-12)


def test_random_operations_change_nothing_without_a_key():
    (name,) = having("random")
    (x, ids, _), static = given(name)
    assert OURS[name].forward(x, ids, None, **static) is x
