"""Sums of products by letters, against NumPy, and the sums that would mix rows."""

from __future__ import annotations

import numpy as np
import pytest

import graphtheta as gt
import graphtheta.ops as ops
from graphtheta.errors import ShapeError, UserFunctionError
from graphtheta.ops import Parameter, RowSpace, Tape, Var

SIZES = {"a": 2, "b": 3, "c": 1, "d": 4, "e": 2}


def drawn(rng):
    """Values with some letters, of which at least one has rows, and a result."""
    n = int(rng.integers(0, 5))
    space = RowSpace(np.arange(n))
    parts = []
    values = []
    for i in range(rng.integers(1, 4)):
        letters = "".join(rng.permutation(list(SIZES))[: rng.integers(0, 4)])
        rows = i == 0 or rng.random() < 0.4
        shape = [SIZES[x] for x in letters]
        x = rng.normal(size=([n] if rows else []) + shape)
        values.append(Var(x, space, True) if rows else Parameter(x, name=f"p{i}"))
        parts.append(("n" if rows else "") + letters)
    order = rng.permutation(len(parts))
    used = sorted({*"".join(parts)} - {"n"})
    result = "".join(rng.permutation(used)[: rng.integers(0, len(used) + 1)])
    subscripts = ",".join(parts[i] for i in order) + f"->n{result}"
    return subscripts, [values[i] for i in order]


@pytest.mark.parametrize("seed", range(60))
def test_any_sum_of_products_is_that_of_numpy(seed):
    rng = np.random.default_rng(seed)
    subscripts, values = drawn(rng)
    expected = np.einsum(subscripts, *(x.value for x in values))
    for text in (subscripts, subscripts.replace("n", "...")):
        with Tape() as tape:
            y = ops.einsum(text, *values)
            weights = rng.normal(size=y.shape)
            grads = tape.backward(y, weights)
        np.testing.assert_allclose(y.value, expected, atol=1e-12, err_msg=text)
    for i, x in enumerate(values):
        # the sum is linear in each value
        g = grads.of(x)
        turned = rng.normal(size=x.value.shape)
        moved = [turned if j == i else other.value for j, other in enumerate(values)]
        slope = (np.einsum(subscripts, *moved) * weights).sum()
        got = 0.0 if g is None else (g * turned).sum()
        np.testing.assert_allclose(got, slope, atol=1e-10, err_msg=subscripts)


def test_a_letter_of_no_numbers():
    """One that both values and the result have, of the products that are stacked."""
    x = Var(np.ones((4, 0, 2)), RowSpace(np.arange(4)), True)
    w = Parameter(np.ones((0, 2, 3)))
    with Tape() as tape:
        y = ops.einsum("nha,hab->nhb", x, w)
    grads = tape.backward(y, np.ones((4, 0, 3)))
    assert y.shape == (4, 0, 3)
    assert [grads.of(value).shape for value in (x, w)] == [x.shape, w.shape]


def rows(*shape):
    return Var(np.ones((4, *shape)), SPACE, True)


SPACE = RowSpace(np.arange(4))


@pytest.mark.parametrize(
    ("subscripts", "values", "error", "said"),
    [
        ("nd->d", lambda: [rows(3)], UserFunctionError, "does not begin with the rows, n"),
        ("...d->d", lambda: [rows(3)], UserFunctionError, "does not begin with the rows"),
        ("nd->dn", lambda: [rows(3)], UserFunctionError, "does not begin with the rows, n"),
        ("nd,md->nm", lambda: [rows(3), rows(3)], UserFunctionError, "rows of two values"),
        ("nd,...d->n", lambda: [rows(3), rows(3)], UserFunctionError, "rows of two values"),
        (
            "nd,nd->nd",
            lambda: [rows(3), np.ones((4, 3))],
            UserFunctionError,
            "names the rows and another axis",
        ),
        ("...dd->...", lambda: [rows(3, 3)], UserFunctionError, "names an axis twice in 'dd'"),
        ("...d->...e", lambda: [rows(3)], UserFunctionError, "which no value has"),
        ("...d", lambda: [rows(3)], UserFunctionError, "give the axes of each value"),
        ("...d,de->...e", lambda: [rows(3)], UserFunctionError, "axes of 2 values, and 1"),
        ("...d,...e->...", lambda: [rows(3), np.ones(2)], UserFunctionError, "axes are letters"),
        ("...de->...d", lambda: [rows(3)], ShapeError, "names 2 trailing axes of a value with 1"),
        ("...d,de->...e", lambda: [rows(3), np.ones((2, 2))], ShapeError, "of 3 and 2 numbers"),
    ],
)
def test_what_mixes_rows_or_does_not_fit_is_refused(subscripts, values, error, said):
    with pytest.raises(error, match=said), Tape():
        ops.einsum(subscripts, *values())


class Bilinear(gt.Layer):
    """Attention of heads by matrices, between the ends of an edge and its attributes."""

    def __init__(self, d, d_edge, heads=2):
        self.form = gt.Parameter.normal(heads, d, d)
        self.edge = gt.Parameter.normal(d_edge, heads)
        self.value = gt.Parameter.normal(d, heads, 3)

    def gather(self, edge):
        left = gt.einsum("ed,hdk->ehk", edge.src.h, self.form)
        score = gt.einsum("ehk,ek->eh", left, edge.dst.h)
        score = score + gt.einsum("...a,ah->...h", edge.attr, self.edge)
        return gt.softmax(score) * gt.einsum("ed,dhf->ehf", edge.src.h, self.value)

    def apply(self, node, total):
        return gt.einsum("...hf->...fh", total)


@pytest.mark.second
@pytest.mark.fused
def test_a_layer_of_sums_of_products():
    gt.check(Bilinear(4, 3))
