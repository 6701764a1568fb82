"""GraphTheta's products by tiles, and by BLAS, in turns; and the peak of fused multiply-adds.

PYTHONPATH=bench python bench/own/products.py ROWS TIMES INNERxCOLUMNS...

Cases are "rows SHAPE", "transposed SHAPE" and "gradient SHAPE", with " blas" behind them for BLAS,
and " bf16" for rows that are stored as bfloat16; the gradient is rounded in the time.
The case "peak" is no time, but floating-point operations a second.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any
from unittest import mock

import numba
import numpy as np
from contender import drawn, report, size_of
from threadpoolctl import threadpool_limits

import graphtheta as gt
from graphtheta.ops.kernels.products.code import NUMBER, Code, Tile, tile_function
from graphtheta.ops.kernels.products.shapes import registers
from graphtheta.ops.parallel.pool import run_blocks, threads
from graphtheta.ops.rows import products
from graphtheta.ops.rows.bfloat16 import rounded

STEPS = 1 << 20


def peak_tile(code: Code, steps: Any, out: Any) -> None:
    """Fused multiply-adds of independent vectors, without loads."""

    # lanes of different numbers, or LLVM would compute one number for all
    vector = code.load(out, code.vector)

    def step(i: Any) -> tuple[list[Any], list[Any]]:
        numbers = [
            code.b.sitofp(code.b.add(steps, NUMBER(row)), code.number)
            for row in range(code.tile.rows)
        ]
        return numbers, [vector]

    for i, row in enumerate(code.sums(NUMBER(0), steps, step)):
        code.store(row[0], code.at_vector(out, i))


def peak(times: int) -> list[float]:
    """Floating-point operations a second of all threads."""
    lanes = registers().size // 4
    tile = Tile(rows=12, vectors=1, lanes=lanes, dtype="float32", factor="float32")
    add = tile_function(peak_tile, tile)

    @numba.njit(nogil=True)
    def kernel(steps, out):
        add(steps, out)

    n = threads()
    out = drawn(n, tile.rows * tile.lanes)
    rates = []
    for _ in range(times + 1):
        began = perf_counter()
        run_blocks(lambda b: kernel(STEPS, out[b].ctypes.data), n)
        rates.append(2 * n * STEPS * tile.rows * tile.lanes / (perf_counter() - began))
    return rates[1:]


def main(rows: str, times: str, *shapes: str) -> None:
    # as in jobs: each thread of the pool calls BLAS, whose own threads would spin beside it
    threadpool_limits(1)
    seconds: dict[str, list[float]] = {"peak": peak(int(times))}
    checks = {}
    by_blas = mock.patch.object(products, "is_tiled", return_value=False)
    for shape in shapes:
        inner, columns = map(int, shape.split("x"))
        a, g = drawn(int(rows), inner), drawn(int(rows), columns)
        b = drawn(inner, columns)
        short = rounded(a)
        cases = {
            f"rows {shape}": lambda a=a, b=b: products.product(a, b),
            f"transposed {shape}": lambda a=a, g=g: products.long_product(a, g),
            f"gradient {shape}": lambda g=g, b=b: products.product(g, b.T),
        }
        of_short = {
            f"rows {shape}": lambda a=short, b=b: products.product(a, b),
            f"transposed {shape}": lambda a=short, g=g: products.long_product(a, g),
            f"gradient {shape}": lambda g=g, b=b: products.product(rounded(g), b.T),
        }
        for case, run in cases.items():
            checks[case] = [size_of(run())]
            of_short[case]()
            for _ in range(int(times)):
                began = perf_counter()
                run()
                ended = perf_counter()
                seconds.setdefault(case, []).append(ended - began)
                began = perf_counter()
                of_short[case]()
                ended = perf_counter()
                seconds.setdefault(f"{case} bf16", []).append(ended - began)
                with by_blas:
                    began = perf_counter()
                    run()
                    seconds.setdefault(f"{case} blas", []).append(perf_counter() - began)
    report(seconds, checks, f"graphtheta {gt.__version__}, numpy {np.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
