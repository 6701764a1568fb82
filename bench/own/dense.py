"""GraphTheta's dense stages and the same products in numpy's BLAS, in turns in one process.

    python bench/own/dense.py ROWS TIMES

Cases are "STAGE INxOUT DIRECTION WHO". BLAS multiplies into arrays that exist already. Backward is the gradient of the
weights, and of the input too where that is no constant (all but the first layer).
"""
from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from contender import drawn, report, size_of

import graphtheta as gt
from graphtheta.ops.space import RowSpace
from graphtheta.ops.tape import Tape, Var

# width before, width after, whether the input is a constant
SHAPES = ((602, 128, True), (128, 128, False), (128, 41, False))
STAGES: dict[str, Callable[..., Any]] = {
    "product": lambda x, w, b, degree: gt.matmul(x, w),
    "scaled": lambda x, w, b, degree: gt.matmul(x, w) * degree,
    "perceptron": lambda x, w, b, degree: gt.dropout(gt.relu(gt.linear(x, w, b)), 0.5),
}


def clock(run: Callable[[], Any]) -> tuple[float, Any]:
    began = perf_counter()
    made = run()
    return perf_counter() - began, made


def main(rows: str, times: str) -> None:
    n = int(rows)
    space = RowSpace(np.arange(n))
    degree = Var(drawn(n), space)
    seconds: dict[str, list[float]] = {}
    checks: dict[str, list[float]] = {}
    for d_in, d_out, constant in SHAPES:
        x, g = drawn(n, d_in), drawn(n, 1, d_out)[:, 0].copy()
        w, b = gt.Parameter(drawn(d_in, d_out)), gt.Parameter(drawn(d_out))
        y, gw, gx = np.empty((n, d_out), np.float32), np.empty((d_in, d_out), np.float32), np.empty_like(x)

        def blas_back(x=x, g=g, w=w, gw=gw, gx=gx, constant=constant) -> None:
            np.matmul(x.T, g, out=gw)
            if not constant:
                np.matmul(g, w.value.T, out=gx)

        for i in range(int(times) + 1):
            taken = {"forward blas": clock(lambda: np.matmul(x, w.value, out=y))[0], "backward blas": clock(blas_back)[0]}
            for stage, program in STAGES.items():
                with Tape(step=i) as tape:
                    rows_in = Var(x, space, needs_grad=not constant)
                    forward, out = clock(lambda: program(rows_in, w, b, degree))
                    backward, gradients = clock(lambda: tape.backward(out, g))
                if stage == "product" and i == 0:
                    checks[f"{d_in}x{d_out}"] = [size_of(out.value) / size_of(y), size_of(gradients.of(w)) / size_of(gw)]
                if i:
                    for way, own in (("forward", forward), ("backward", backward)):
                        seconds.setdefault(f"{stage} {d_in}x{d_out} {way} own", []).append(own)
                        seconds.setdefault(f"{stage} {d_in}x{d_out} {way} blas", []).append(taken[f"{way} blas"])
    report(seconds, checks, f"graphtheta {gt.__version__}, numpy {np.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
