"""Products compute deferred rows, and decode those of columns, a block at a time, and give what
they give of stored rows, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from covering import covering

from graphtheta.ops import Parameter, RowSpace, Tape, Var, dropout, dtype_scope
from graphtheta.ops.autodiff import fusion
from graphtheta.ops.autodiff.checkpoint import run_segment
from graphtheta.ops.autodiff.fusion import Deferred
from graphtheta.ops.autodiff.stored import StoredRows
from graphtheta.ops.functions.elementwise import elu, relu
from graphtheta.ops.rows import computed
from graphtheta.ops.rows.computed import BLOCK, ComputedRows
from graphtheta.ops.rows.products import is_tiled

# rows of several parts of a weight gradient, of which none ends with a block; numbers of each
N, D = 16 * 512 + 77, 40
WEIGHTS = {"w": (D, 32), "narrow": (D, 3), "back": (32, D), "b": (D,)}
READ: dict[str, Callable[[Any, Any], Any]] = {
    "a product": lambda h, p: h @ p["w"],
    "a product by BLAS": lambda h, p: h @ p["narrow"],
    "two products": lambda h, p: relu(h @ p["w"]) @ p["back"] + h @ p["w"] @ p["back"],
    "a product, and a function": lambda h, p: h @ p["w"] @ p["back"] + h * 2,
    "a function, and a product": lambda h, p: (lambda y: h @ p["w"] @ p["back"] + y)(h * 2),
    "a function of a product": lambda h, p: relu(dropout(h, 0.2) @ p["w"]) @ p["back"],
}
VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "rows as they are": lambda x, p: x,
    "dropout": lambda x, p: dropout(x, 0.5),
    "bias": lambda x, p: dropout(relu(x + p["b"]), 0.5),
    "costly": lambda x, p: elu(x) + p["b"],
    "two leaves": lambda x, p: relu(x * 2 + x * x * p["b"]),
}


def decoded(dtype: str, space: RowSpace) -> StoredRows:
    """Rows of codes."""
    codes = np.random.default_rng(3).integers(-128, 128, (N, D)).astype(np.int8)
    scale = np.linspace(0.01, 0.02, D).astype(dtype)

    def decoding(n: int) -> Callable[[int, int], np.ndarray]:
        return lambda begin, end: codes[:n][begin:end] * scale

    return StoredRows(
        read=lambda n: codes[:n] * scale,
        shape=(N, D),
        dtype=dtype,
        listed=None,
        space=space,
        name="x",
        decoding=decoding,
    )


def run(
    value: str, read: str, dtype: str, short: bool, rows: str
) -> tuple[list[np.ndarray], list[Any]]:
    """The result and the gradients of a program of learned, constant or decoded rows; and these
    rows and the value that the program reads.
    """
    rng = np.random.default_rng(3)
    with dtype_scope(dtype), Tape(seed=3) as tape:
        tape.dtype = np.dtype(dtype)
        space = RowSpace(np.arange(N) * 3)
        numbers = rng.normal(size=(N, D)).astype(dtype)
        x = (
            decoded(dtype, space)
            if rows == "decoded"
            else Var(numbers, space, needs_grad=rows == "learned")
        )
        p = {k: Parameter(rng.normal(size=s).astype(dtype) / 5) for k, s in WEIGHTS.items()}
        with tape.storing(short):
            h = VALUES[value](x, p)
            out = READ[read](h, p)
        result = out.value.copy()
    grads = tape.backward(out, np.cos(np.arange(result.size)).reshape(result.shape).astype(dtype))
    return [result, *(g for y in (x, *p.values()) if (g := grads.of(y)) is not None)], [x, h]


@pytest.mark.parametrize(
    "value, read, numbers, rows",
    covering(
        list(VALUES),
        list(READ),
        ["float32", "float64", "bfloat16"],
        ["learned", "constant", "decoded"],
    ),
)
def test_results_are_those_of_stored_rows(
    value: str, read: str, numbers: str, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fusion, "SMALLEST", 1)
    monkeypatch.setattr(computed, "NEAR", 3 * BLOCK * D * 4)
    keys: dict[str, Any] = {
        "value": value,
        "read": read,
        "dtype": numbers.replace("bfloat16", "float32"),
        "short": numbers == "bfloat16",
        "rows": rows,
    }
    found, _ = run(**keys)
    monkeypatch.setattr(Deferred, "lent", lambda self: None)
    monkeypatch.setattr(StoredRows, "lent", lambda self: None)
    expected, _ = run(**keys)
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


def test_the_product_is_computed_by_tiles() -> None:
    """Otherwise the cases above would test BLAS only."""
    assert is_tiled(N, D, 32, np.float32)


@pytest.mark.parametrize("value", VALUES)
def test_what_one_product_reads_is_not_stored(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "SMALLEST", 1)
    for short in (False, True):
        for read in ("a product", "two products", "a product, and a function"):
            _, (x, h) = run(value, read, dtype="float32", short=short, rows="decoded")
            assert not x.stored_bytes, read
            stored = h is not x and (value == "costly" or read != "a product")
            assert bool(h.stored_bytes) is stored, read


def test_a_product_reads_rounded_rows_whoever_reads_them_in_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as a model that prints values."""
    monkeypatch.setitem(
        READ, "a value", lambda h, p: (lambda y: (h.value, y)[1])(READ["a product"](h, p))
    )
    keys: dict[str, Any] = {"dtype": "float32", "short": True, "rows": "decoded"}
    for value in ("rows as they are", "dropout", "bias"):
        found, _ = run(value, "a value", **keys)
        expected, _ = run(value, "a product", **keys)
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_array_equal(x, y)


def test_slices_and_blocks_of_rows() -> None:
    x = np.random.default_rng(1).normal(size=(700, 5))
    filled = []

    def fill(begin: int, end: int, out: np.ndarray) -> None:
        filled.append((begin, end))
        out[...] = x[begin:end]

    rows = ComputedRows(fill, lambda: None, x.shape, x.dtype)
    np.testing.assert_array_equal(rows[3:9], x[3:9])
    parts = [(a, b, block.copy()) for a, b, block in rows.blocks(100, 650)]
    np.testing.assert_array_equal(np.concatenate([block for _, _, block in parts]), x[100:650])
    assert [a for a, _, _ in parts] == [100] and not list(rows.blocks(7, 7))
    stored = ComputedRows(fill, lambda: x, x.shape, x.dtype)
    filled.clear()
    assert stored[1:3].base is x and not filled
    ((begin, end, block),) = stored.blocks(2, 6)
    assert (begin, end) == (2, 6) and block.base is x


def test_outputs_of_a_segment_are_computed_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "SMALLEST", 1)
    rng = np.random.default_rng(4)
    x = rng.normal(size=(N, D))
    w = Parameter(rng.normal(size=(D, 32)))

    def gradient(checkpointed: bool) -> np.ndarray:
        with Tape(seed=3) as tape:
            leaf = Var(x, RowSpace(np.arange(N)), True)
            outputs: list[Var] = []

            def run() -> list[Var]:
                h = dropout(relu(leaf), 0.5)
                return [h, h @ w]

            if checkpointed:
                run_segment(lambda: outputs.extend(run()) or outputs, run)
                assert outputs[0].stored_bytes
            else:
                outputs += run()
            out = outputs[1] + outputs[0] @ w
        return np.asarray(tape.backward(out).of(leaf))

    np.testing.assert_array_equal(gradient(True), gradient(False))
