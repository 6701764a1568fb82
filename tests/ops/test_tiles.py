"""Products by tiles: right for all sizes and layouts, and equal to the bit whatever the vectors,
threads, blocks and lists of rows are.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import graphtheta as gt
from graphtheta.inspect.checking.gradients import check_vjp
from graphtheta.ops.kernels.products import loops, shapes
from graphtheta.ops.kernels.products.code import PAIRS, SHORT, Tile
from graphtheta.ops.parallel.pool import set_threads, threads
from graphtheta.ops.rows import products
from graphtheta.ops.rows.bfloat16 import expanded, rounded
from graphtheta.ops.rows.row_list import RowList

REGISTERS = {
    "avx512 pairs": shapes.AVX512_PAIRS,
    "avx512": shapes.AVX512,
    "avx2": shapes.AVX2,
    "neon": shapes.NEON,
}
HERE = next(name for name, value in REGISTERS.items() if value is shapes.registers())


@contextmanager
def all_are_tiled() -> Iterator[None]:
    """Inside, tiles compute even the smallest products."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MULTIPLICATIONS", "INNER", "COLUMNS"):
            patch.setattr(products, f"TILED_{name}", 0)
        yield


@contextmanager
def for_processor(name: str) -> Iterator[None]:
    """Inside, products are computed by the tiles of a processor; any other name changes nothing."""
    with pytest.MonkeyPatch.context() as patch:
        if name in REGISTERS:
            patch.setattr(loops, "registers", lambda: REGISTERS[name])
        yield


@pytest.fixture(autouse=True)
def _tiled() -> Iterator[None]:
    with all_are_tiled():
        yield


def whole(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    """Small integers, whose sums of products are exact in any order."""
    return rng.integers(-4, 5, shape).astype(dtype)


def laid_out(x: np.ndarray, layout: str) -> Any:
    """The same rows in another layout; what lies around them is not a number."""
    n, width = x.shape
    if layout == "columns":
        around = np.full((n, width + 7), np.nan, x.dtype)
        around[:, 3 : 3 + width] = x
        return around[:, 3 : 3 + width]
    if layout == "fortran":
        return np.asfortranarray(x)
    if layout == "backwards":
        return x[::-1].copy()[::-1]
    if layout == "unaligned":
        raw = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
        raw[...] = x
        return raw
    if layout == "listed":
        order = np.random.default_rng(n).permutation(n)
        place = np.empty(n, np.int64)
        place[order] = np.arange(n)
        return RowList(x[order], place)
    return x


def stored(x: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers in a type, of which NumPy knows all but bfloat16."""
    return rounded(x.astype(np.float32)) if dtype == "bfloat16" else x.astype(dtype)


LAYOUTS = ("plain", "columns", "fortran", "backwards", "unaligned", "listed")


@pytest.mark.parametrize("registers", [HERE, pytest.param("avx2", marks=pytest.mark.second)])
@settings(max_examples=25, deadline=None)
@given(
    n=st.sampled_from([0, 1, 2, 13, 127, 128, 129, 700, 1025, 2500]),
    inner=st.sampled_from([1, 2, 7, 8, 13, 14, 15, 64, 1023, 1024, 1025, 2049]),
    columns=st.sampled_from([1, 5, 16, 17, 41, 48, 64, 65, 130]),
    dtype=st.sampled_from(["float32", "float64", "bfloat16"]),
    layout=st.sampled_from(LAYOUTS),
)
# half a pair, and no pair before it
@example(n=13, inner=1, columns=5, dtype="bfloat16", layout="plain")
def test_products_are_exact_where_sums_are(
    registers: str, n: int, inner: int, columns: int, dtype: str, layout: str
) -> None:
    rng = np.random.default_rng([n, inner, columns])
    sums = "float64" if dtype == "float64" else "float32"
    a, w, g = (whole(rng, sums, *shape) for shape in ((n, inner), (inner, columns), (n, columns)))
    x = laid_out(stored(a, dtype), layout)
    side = stored(g, dtype)
    with for_processor(registers):
        np.testing.assert_array_equal(products.product(x, w), a @ w)
        np.testing.assert_array_equal(products.product(side, w.T), g @ w.T)
        np.testing.assert_array_equal(products.long_product(x, g), a.T @ g)
        side = side if layout == "listed" else laid_out(side, layout)
        np.testing.assert_array_equal(products.long_product(stored(a, dtype), side), a.T @ g)


@pytest.mark.parametrize("dtype, close", [("float32", 1e-6), ("float64", 1e-15)])
def test_products_are_close_to_blas(dtype: str, close: float) -> None:
    for shape in SHAPES:
        a, w, g = (x.astype(dtype) for x in factors(*shape))
        exact = np.longdouble if dtype == "float64" else np.float64
        for found, left, right in (
            (products.product(a, w), a, w),
            (products.long_product(a, g), a.T, g),
        ):
            expected = left.astype(exact) @ right.astype(exact)
            check_close(found, expected, left, right, close)


SHAPES = ((3000, 602, 41), (5000, 33, 128), (1100, 3000, 16))


def factors(n: int, inner: int, columns: int) -> list[np.ndarray]:
    """Rows, a matrix, and gradients of their product."""
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape) for shape in ((n, inner), (inner, columns), (n, columns))]


def check_close(
    found: np.ndarray, expected: np.ndarray, left: np.ndarray, right: np.ndarray, close: float
) -> None:
    """A product left @ right is close to an exact one, beside the sizes of its factors."""
    size = np.linalg.norm(left, axis=1)[:, None] * np.linalg.norm(right, axis=0)
    assert np.all(np.abs(found - expected) <= 8 * close * size)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("registers", [HERE, "avx512", "avx2", "BLAS"])
def test_products_of_bfloat16_round_the_factors_only(
    registers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if registers == "BLAS":
        monkeypatch.setattr(products, "TILED_MULTIPLICATIONS", np.inf)
    for shape in SHAPES:
        short = [rounded(x.astype(np.float32)) for x in factors(*shape)]
        a, w, g = (expanded(x).astype(np.float64) for x in short)
        with for_processor(registers):
            forward = products.product(short[0], expanded(short[1]))
            backward = products.long_product(short[0], expanded(short[2]))
        assert forward.dtype == backward.dtype == np.float32
        check_close(forward, a @ w, a, w, 1e-6)
        check_close(backward, a.T @ g, a.T, g, 1e-6)


@pytest.mark.parametrize("registers", ["avx512", "avx2"])
@pytest.mark.parametrize("layout", ["plain", "unaligned", "listed"])
@pytest.mark.parametrize("inner", [7, 21, 2049])
def test_expanded_rows_are_multiplied_as_float32_ones(
    inner: int, layout: str, registers: str
) -> None:
    rng = np.random.default_rng(inner)
    a, w, g = (
        rounded(rng.standard_normal(shape).astype(np.float32))
        for shape in ((1333, inner), (inner, 41), (1333, 41))
    )
    x = laid_out(a, layout)
    with for_processor(registers):
        for found, expected in (
            (products.product(x, expanded(w)), products.product(expanded(a), expanded(w))),
            (products.long_product(x, g), products.long_product(expanded(a), expanded(g))),
        ):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("registers", [*dict.fromkeys((HERE, "avx512", "avx2"))])
def test_no_copy_of_short_rows_is_made(registers: str) -> None:
    x = rounded(np.ones((20_000, 500), np.float32))
    g = rounded(np.ones((20_000, 17), np.float32))
    w = np.ones((500, 17), np.float32)
    with for_processor(registers):
        for run in (lambda: products.product(x, w), lambda: products.long_product(x, g)):
            # compiled kernels, and memory that is kept for results
            run()
            tracemalloc.start()
            run()
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert most < x.nbytes / 2


@pytest.mark.parametrize("registers", [*dict.fromkeys((HERE, "avx512"))])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("inner", [20, 21])
def test_what_is_no_number_stays_in_its_row_and_column(
    dtype: str, inner: int, registers: str
) -> None:
    with for_processor(registers):
        check_what_is_no_number(dtype, inner)


def check_what_is_no_number(dtype: str, inner: int) -> None:
    rng = np.random.default_rng(5)
    a = rng.standard_normal((300, inner)).astype(np.float32)
    w = rng.standard_normal((inner, 17)).astype(np.float32)
    a[7, 3] = np.nan
    a[299, inner - 1] = np.inf
    w[4, 16] = -np.inf
    with np.errstate(invalid="ignore"):
        found = products.product(stored(a, dtype), w)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(a @ w))
        np.testing.assert_array_equal(np.isinf(found), np.isinf(a @ w))
        g = np.ones((1201, 17), np.float32)
        g[5, 16] = np.nan
        x = np.ones((1201, inner), np.float32)
        found = products.long_product(stored(x, dtype), g)
    assert np.isnan(found[:, 16]).all()
    assert np.isfinite(found[:, :16]).all()


def test_numbers_in_the_other_order_of_bytes_are_left_to_blas() -> None:
    x = np.arange(600.0).reshape(30, 20).astype(np.dtype(np.float32).newbyteorder())
    np.testing.assert_array_equal(products.product(x, x.T), x @ x.T)


def computed(registers: str, dtype: str) -> list[np.ndarray]:
    """Products for which several panels, tiles and parts of tiles are needed."""
    rng = np.random.default_rng(9)
    a, w, g = (
        rng.standard_normal(shape).astype("float64" if dtype == "float64" else "float32")
        for shape in ((1333, 1100), (1100, 41), (1333, 41))
    )
    a, g = stored(a, dtype), stored(g, dtype)
    with for_processor(registers), all_are_tiled():
        return [products.product(a, w), products.product(g, w.T), products.long_product(a, g)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("registers", ["avx512", "avx2", "neon"])
def test_bits_do_not_depend_on_vectors(registers: str, dtype: str) -> None:
    # without the instruction that adds pairs
    first = "avx512" if dtype == "bfloat16" else HERE
    for x, y in zip(computed(first, dtype), computed(registers, dtype), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("registers", [*dict.fromkeys((HERE, "avx2"))])
def test_bits_do_not_depend_on_rows_beside_or_threads(registers: str, dtype: str) -> None:
    rng = np.random.default_rng(2)
    a, w, g = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((5000, 71), (71, 24), (5000, 24))
    )
    a = stored(a, dtype)
    with for_processor(registers):
        out = products.product(a, w)
        for rows in (slice(0, 1), slice(17, 2100), slice(4000, 5000)):
            np.testing.assert_array_equal(products.product(a[rows], w), out[rows])
        chosen = np.array([4999, 3, 3, 0, 1700])
        np.testing.assert_array_equal(products.product(RowList(a, chosen), w), out[chosen])
        long = products.long_product(a, g)
        before = threads()
        try:
            for n in (1, 2, 3):
                set_threads(n)
                np.testing.assert_array_equal(products.product(a, w), out)
                np.testing.assert_array_equal(products.long_product(a, g), long)
        finally:
            set_threads(before)


@pytest.mark.parametrize("n", [6, 1100])
def test_gradients_agree_with_differences(n: int) -> None:
    rng = np.random.default_rng(4)
    check_vjp(gt.matmul, rng.standard_normal((n, 7)), rng.standard_normal((7, 2)))


SPILL = re.compile(r"\tv\w+\s.*\(%rsp.*%[yz]mm|\tv\w+\s.*%[yz]mm.*\(%rsp")


def check_assembly(text: str) -> None:
    """Loops of multiply-adds keep their sums in registers, and read rows ahead."""
    count = 0
    # instructions from one label to the next
    for block in re.split(r"\n\.LBB\w+:", text):
        lines = block.splitlines()
        at = [i for i, line in enumerate(lines) if re.search(r"(vfn?madd|vdpbf16).*[yz]mm", line)]
        if len(at) > 1:
            count += len(at)
            spilled = [line for line in lines[at[0] : at[-1]] if SPILL.search(line)]
            assert not spilled, spilled
    assert count >= 8, "no loop of vector code"
    assert "prefetch" in text


def compile_all() -> None:
    """Compile the kernel of each tile of this processor, and check its assembly."""
    size, rows, transposed, pairs = shapes.registers()
    cases = [
        (loops._rows_kernel, rows, 13, "float32", "float32"),
        (loops._rows_kernel, rows, 13, "float64", "float64"),
        (loops._rows_kernel, rows, 13, "float32", SHORT),
        (loops._transposed_kernel, transposed, 14, "float32", "float32"),
        (loops._transposed_kernel, transposed, 14, "float64", "float64"),
        (loops._transposed_kernel, transposed, 14, "float32", SHORT),
    ]
    if pairs:
        cases.append((loops._rows_kernel, rows, 13, "float32", PAIRS))
        cases.append((loops._transposed_kernel, transposed, 14, "float32", PAIRS))
    for make, kernels, arguments, dtype, factor in cases:
        lanes = size // np.dtype(dtype).itemsize
        for vectors, n in kernels.items():
            kernel = make(Tile(rows=n, vectors=vectors, lanes=lanes, dtype=dtype, factor=factor))
            kernel.compile((numba.int64,) * arguments)
            (text,) = kernel.inspect_asm().values()
            check_assembly(text)


AVX2 = "+64bit,+avx,+avx2,+bmi,+bmi2,+fma,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3,+popcnt"


@pytest.mark.second
@pytest.mark.skipif(HERE == "neon", reason="names of x86 registers")
@pytest.mark.parametrize("registers", [*dict.fromkeys((HERE, "avx2"))])
def test_sums_stay_in_registers(registers: str, tmp_path: Path) -> None:
    # what was loaded from a cache has no assembly
    environment = {**os.environ, "GRAPHTHETA_CACHE": str(tmp_path)}
    if registers != HERE:
        environment |= {"NUMBA_CPU_NAME": "znver3", "NUMBA_CPU_FEATURES": AVX2}
    program = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}
import test_tiles as t
assert t.HERE == {registers!r}, t.HERE
t.compile_all()
for x in t.computed(t.HERE, "float32"):
    print(hashlib.sha256(x.tobytes()).hexdigest())
"""
    ran = subprocess.run(
        [sys.executable, "-c", "import hashlib" + program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    here = [hashlib.sha256(x.tobytes()).hexdigest() for x in computed(HERE, "float32")]
    assert ran.stdout.split() == here
