"""Products by tiles: right for all sizes and layouts, and equal to the bit whatever the vectors,
threads, blocks and lists of rows are.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphtheta as gt
from graphtheta.inspect.checking.gradients import check_vjp
from graphtheta.ops.kernels.products import loops, shapes
from graphtheta.ops.kernels.products.code import Tile
from graphtheta.ops.parallel.pool import set_threads, threads
from graphtheta.ops.rows import products
from graphtheta.ops.rows.row_list import RowList

REGISTERS = {"avx512": shapes.AVX512, "avx2": shapes.AVX2, "neon": shapes.NEON}
HERE = next(name for name, value in REGISTERS.items() if value is shapes.registers())


@contextmanager
def all_are_tiled() -> Iterator[None]:
    """Inside, tiles compute even the smallest products."""
    with pytest.MonkeyPatch.context() as patch:
        # a tile of a transposed product has at least six rows
        for name, least in (("MULTIPLICATIONS", 0), ("INNER", 6), ("COLUMNS", 0)):
            patch.setattr(products, f"TILED_{name}", least)
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


LAYOUTS = ("plain", "columns", "fortran", "backwards", "unaligned", "listed")


@settings(max_examples=40, deadline=None)
@given(
    n=st.sampled_from([1, 2, 13, 127, 128, 129, 700, 1025, 2500]),
    inner=st.sampled_from([1, 6, 7, 8, 13, 14, 15, 64, 1023, 1024, 1025, 2049]),
    columns=st.sampled_from([1, 5, 16, 17, 41, 48, 64, 65, 130]),
    dtype=st.sampled_from(["float32", "float64"]),
    layout=st.sampled_from(LAYOUTS),
)
def test_products_are_exact_where_sums_are(
    n: int, inner: int, columns: int, dtype: str, layout: str
) -> None:
    rng = np.random.default_rng([n, inner, columns])
    a, w, g = (whole(rng, dtype, *shape) for shape in ((n, inner), (inner, columns), (n, columns)))
    x = laid_out(a, layout)
    np.testing.assert_array_equal(products.product(x, w), a @ w)
    np.testing.assert_array_equal(products.product(g, w.T), g @ w.T)
    np.testing.assert_array_equal(products.long_product(x, g), a.T @ g)
    side = g if layout == "listed" else laid_out(g, layout)
    np.testing.assert_array_equal(products.long_product(a, side), a.T @ g)


@pytest.mark.parametrize("dtype, close", [("float32", 1e-6), ("float64", 1e-15)])
def test_products_are_close_to_blas(dtype: str, close: float) -> None:
    rng = np.random.default_rng(3)
    for n, inner, columns in ((3000, 602, 41), (5000, 33, 128), (1100, 3000, 16)):
        a = rng.standard_normal((n, inner)).astype(dtype)
        w = rng.standard_normal((inner, columns)).astype(dtype)
        g = rng.standard_normal((n, columns)).astype(dtype)
        exact = np.longdouble if dtype == "float64" else np.float64
        for found, left, right in (
            (products.product(a, w), a, w),
            (products.long_product(a, g), a.T, g),
        ):
            expected = left.astype(exact) @ right.astype(exact)
            size = np.linalg.norm(left, axis=1)[:, None] * np.linalg.norm(right, axis=0)
            assert np.all(np.abs(found - expected) <= 8 * close * size)


def test_what_is_no_number_stays_in_its_row_and_column() -> None:
    rng = np.random.default_rng(5)
    a = rng.standard_normal((300, 20)).astype(np.float32)
    w = rng.standard_normal((20, 17)).astype(np.float32)
    a[7, 3] = np.nan
    a[299, 19] = np.inf
    w[4, 16] = -np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.isfinite(products.product(a, w)), np.isfinite(a @ w))
        g = np.ones((1200, 17), np.float32)
        g[5, 16] = np.nan
        x = np.ones((1200, 20), np.float32)
        found = products.long_product(x, g)
    assert np.isnan(found[:, 16]).all()
    assert np.isfinite(found[:, :16]).all()


def test_numbers_in_the_other_order_of_bytes_are_left_to_blas() -> None:
    x = np.arange(600.0).reshape(30, 20).astype(np.dtype(np.float32).newbyteorder())
    np.testing.assert_array_equal(products.product(x, x.T), x @ x.T)


def computed(registers: str, dtype: str) -> list[np.ndarray]:
    """Products for which several panels, tiles and parts of tiles are needed."""
    rng = np.random.default_rng(9)
    a, w, g = (
        rng.standard_normal(shape).astype(dtype) for shape in ((1333, 1100), (1100, 41), (1333, 41))
    )
    chosen = REGISTERS[registers]
    with pytest.MonkeyPatch.context() as patch, all_are_tiled():
        patch.setattr(loops, "registers", lambda: chosen)
        return [products.product(a, w), products.product(g, w.T), products.long_product(a, g)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("registers", [name for name in REGISTERS if name != HERE])
def test_bits_do_not_depend_on_vectors(registers: str, dtype: str) -> None:
    for x, y in zip(computed(HERE, dtype), computed(registers, dtype), strict=True):
        np.testing.assert_array_equal(x, y)


def test_bits_do_not_depend_on_rows_beside_or_threads() -> None:
    rng = np.random.default_rng(2)
    a, w, g = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((5000, 70), (70, 24), (5000, 24))
    )
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
        at = [i for i, line in enumerate(lines) if re.search(r"vfn?madd.*[yz]mm", line)]
        if len(at) > 1:
            count += len(at)
            spilled = [line for line in lines[at[0] : at[-1]] if SPILL.search(line)]
            assert not spilled, spilled
    assert count >= 8, "no loop of vector code"
    assert "prefetch" in text


def compile_all() -> None:
    """Compile the kernel of each tile of this processor, and check its assembly."""
    size, rows, transposed = shapes.registers()
    for dtype in ("float32", "float64"):
        lanes = size // np.dtype(dtype).itemsize
        for kernels, make in ((rows, loops._rows_kernel), (transposed, loops._transposed_kernel)):
            for vectors, n in kernels.items():
                kernel = make(Tile(rows=n, vectors=vectors, lanes=lanes, dtype=dtype))
                kernel.compile((numba.int64,) * 11)
                (text,) = kernel.inspect_asm().values()
                check_assembly(text)


AVX2 = "+64bit,+avx,+avx2,+bmi,+bmi2,+fma,+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3,+popcnt"


@pytest.mark.second
@pytest.mark.skipif(HERE == "neon", reason="names of x86 registers")
@pytest.mark.parametrize("registers", ["avx512", "avx2"])
def test_sums_stay_in_registers(registers: str, tmp_path: Path) -> None:
    if registers == "avx512" and HERE != "avx512":
        pytest.skip("this processor has no AVX-512")
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
