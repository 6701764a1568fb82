"""PyTorch as a contender: the products of ``own/products.py``.

PYTHONPATH=bench python bench/peers/products.py ROWS TIMES INNERxCOLUMNS...
"""

from __future__ import annotations

import sys
from time import perf_counter

import torch
from contender import drawn, report, size_of


def main(rows: str, times: str, *shapes: str) -> None:
    seconds: dict[str, list[float]] = {}
    checks = {}
    for shape in shapes:
        inner, columns = map(int, shape.split("x"))
        a, g, b = (
            torch.from_numpy(drawn(n, width))
            for n, width in ((int(rows), inner), (int(rows), columns), (inner, columns))
        )
        cases = {
            f"rows {shape}": lambda a=a, b=b: a @ b,
            f"transposed {shape}": lambda a=a, g=g: a.T @ g,
            f"gradient {shape}": lambda g=g, b=b: g @ b.T,
        }
        for case, run in cases.items():
            checks[case] = [size_of(run().numpy())]
            for _ in range(int(times)):
                began = perf_counter()
                run()
                seconds.setdefault(case, []).append(perf_counter() - began)
    report(seconds, checks, f"torch {torch.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
