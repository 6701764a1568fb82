"""All operations against NumPy and finite differences, from one table: see ``table.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from table import OTHERS, TABLE, Case, Rows, Whole

import graphtheta.ops as gt
from graphtheta.checking.gradients import check_vjp
from graphtheta.ops import Parameter, RowSpace, Tape, Var
from graphtheta.ops.autodiff import fusion
from graphtheta.ops.functions import comparison

FLOATS = {"float32": 2e-5, "float64": 1e-12}
INTEGERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 0.75])
# rows of which three numbers each are more than lazy fusion computes at once
MANY = 70_000
NAMES = list(TABLE)


def arrays(case: Case, n: int, dtype: str, seed: int = 0) -> list[np.ndarray]:
    """Arguments for n rows; floats of a type."""
    rng = np.random.default_rng(seed)
    made = [a.draw(rng, ((n,) if isinstance(a, Rows) else ()) + a.shape) for a in case.args]
    return [np.asarray(x, dtype if np.asarray(x).dtype.kind == "f" else None) for x in made]


def variables(case: Case, given: list[np.ndarray], space: RowSpace | None = None) -> list[Any]:
    """Row values and parameters, into which gradients flow if they are floats."""
    n = next((len(x) for x, a in zip(given, case.args, strict=True) if isinstance(a, Rows)), 0)
    space = space or RowSpace(np.arange(n) * 7)
    return [
        Var(x, space, x.dtype.kind == "f")
        if isinstance(a, Rows)
        else Parameter(x)
        if x.dtype.kind == "f"
        else Var(x)
        for x, a in zip(given, case.args, strict=True)
    ]


def expected(case: Case, given: list[np.ndarray]) -> np.ndarray:
    """What the twin gives, computed in float64."""
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in given]
    if case.aligned:
        axes = max(len(a.shape) for a in case.args)
        wide = [
            x.reshape(x.shape + (1,) * (axes + 1 - x.ndim)) if isinstance(a, Rows) and axes else x
            for x, a in zip(wide, case.args, strict=True)
        ]
    with np.errstate(all="ignore"):
        return np.asarray(case.twin(*wide))


def spoiled(given: list[np.ndarray]) -> list[np.ndarray]:
    """Arguments with infinity, NaN and both zeros in place of most floats."""
    rng = np.random.default_rng(0)
    return [
        np.where(rng.random(x.shape) < 0.7, rng.choice(SPECIAL, x.shape), x)
        if x.dtype.kind == "f"
        else x
        for x in given
    ]


def check(case: Case, made: Any, given: list[np.ndarray], tolerance: float) -> None:
    """The value is that of the twin, and infinite or NaN where that is."""
    want = expected(case, given)
    assert made.value.shape == want.shape
    np.testing.assert_allclose(made.value.astype(want.dtype), want, rtol=tolerance, atol=tolerance)


def test_every_operation_is_in_the_table():
    functions = {
        name
        for name in gt.__all__
        if not isinstance(getattr(gt, name), type) and callable(getattr(gt, name))
    }
    assert functions - OTHERS <= TABLE.keys(), "add an operation to table.py"
    # comparisons and functions of masks are operators alone
    assert all(hasattr(comparison, name) for name in TABLE.keys() - functions - {"unequal"})


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", NAMES)
def test_values(name, dtype):
    for k, case in enumerate(TABLE[name]):
        for n in (case.n,) if case.n else (0, 1, 5):
            given = arrays(case, n, dtype, k)
            with Tape(training=False):
                made = case.ours(*variables(case, given))
            check(case, made, given, FLOATS[dtype])
            assert (
                made.dtype == (dtype if case.slope else made.dtype) or case.types == made.dtype
            ), (k, made.dtype)


@pytest.mark.parametrize("name", [n for n in NAMES if any(c.slope for c in TABLE[n])])
def test_gradients(name):
    for k, case in enumerate(TABLE[name]):
        if case.slope and case.types != "float32":
            given = variables(case, arrays(case, case.n or 5, "float64", k))
            check_vjp(case.ours, *given)


@pytest.mark.parametrize("name", [n for n in NAMES if any(c.special for c in TABLE[n])])
def test_infinity_and_nan(name):
    for k, case in enumerate(TABLE[name]):
        if not case.special:
            continue
        given = spoiled(arrays(case, case.n or 40, "float64", k))
        with np.errstate(all="ignore"), Tape(training=False):
            check(case, case.ours(*variables(case, given)), given, 1e-12)


def large(name):
    """The cases of an operation with rows of three numbers, or the first one."""
    cases = [c for c in TABLE[name] if not c.n and isinstance(c.args[0], Rows)]
    return [c for c in cases if c.args[0].shape == (3,)] or cases[:1]


@pytest.mark.parametrize("name", [n for n in NAMES if large(n)])
def test_many_rows(name, monkeypatch):
    """Values and gradients of as many rows as are deferred and divided among threads, infinity and NaN among them."""
    for k, case in enumerate(large(name)):
        given = arrays(case, MANY, "float64", k)
        if case.special:
            given = [
                x if isinstance(a, Whole) else y
                for x, y, a in zip(given, spoiled(given), case.args, strict=True)
            ]
        found = []
        for smallest in (fusion.SMALLEST, 1 << 60):
            monkeypatch.setattr(fusion, "SMALLEST", smallest)
            leaves = variables(case, given)
            with np.errstate(all="ignore"), Tape(training=name != "batch_norm") as tape:
                made = case.ours(*leaves)
                check(case, made, given, 1e-9)
                grads = tape.backward(made, np.ones(made.shape))
            found.append([grads.of(x) for x in leaves])
        for a, b in zip(*found, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    "name", [n for n in NAMES if any(c.types not in ("floats", "masks") for c in TABLE[n])]
)
def test_integers_and_masks(name, dtype):
    """Types by NumPy's rule, and fractions in the float type of the pass."""
    for k, case in enumerate(TABLE[name]):
        if case.types in ("floats", "masks"):
            continue
        drawn, rng = arrays(case, case.n or 5, "float64", k), np.random.default_rng(k)
        given = [
            rng.integers(1, 4, x.shape).astype(dtype) if x.dtype.kind == "f" else x for x in drawn
        ]
        with np.errstate(all="ignore"), Tape(training=False) as tape:
            tape.dtype = np.dtype("float32")
            made = case.ours(*variables(case, given))
            counted = given
            if case.types == "float":
                counted = [x.astype(np.float64) if x.dtype == dtype else x for x in given]
            elif case.types == "arithmetic":
                counted = [x.astype(np.int32) if x.dtype == bool else x for x in given]
            want = expected(case, counted)
        assert made.dtype == result_type(case, given, want), (k, made.dtype)
        np.testing.assert_allclose(made.value, want.astype(made.dtype), rtol=2e-6, err_msg=str(k))


def result_type(case: Case, given: list[np.ndarray], want: np.ndarray) -> Any:
    """The type of the result by the rule of a case; ``want`` is the twin's."""
    if case.types in ("arithmetic", "weak", "sum"):
        return want.dtype
    of = {
        "float": "float32",
        "same": given[0].dtype,
        "first": given[0].dtype,
        "branches": given[-1].dtype,
    }
    return of.get(case.types, case.types)
