"""GraphTheta's dense stages and the same products in NumPy's BLAS, in turns in one process.

    PYTHONPATH=bench python bench/own/dense.py ROWS TIMES

Cases are "STAGE INxOUT DIRECTION WHO". BLAS writes into existing arrays. Backward is the gradient
of the weights, and also of the input unless it is constant (in all but the first layer).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from contender import drawn, report, size_of

import graphtheta as gt
from graphtheta.ops.autodiff.space import RowSpace
from graphtheta.ops.autodiff.tape import Tape, Var

# width before, width after, whether the input is a constant
SHAPES = ((602, 128, True), (128, 128, False), (128, 41, False))
STAGES: dict[str, Callable[..., Any]] = {
    "product": lambda x, w, b, degree: gt.matmul(x, w),
    "scaled": lambda x, w, b, degree: gt.matmul(x, w) * degree,
    "perceptron": lambda x, w, b, degree: gt.dropout(gt.relu(gt.linear(x, w, b)), 0.5),
}


def clock(run: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    """Seconds of a call, and what it returned."""
    began = perf_counter()
    made = run(*args)
    return perf_counter() - began, made


class Shape:
    """All arrays of one pair of widths.

    Args:
        n: Rows.
        d_in, d_out: Widths before and after.
        constant: Whether the input needs no gradient.
    """

    def __init__(self, n: int, d_in: int, d_out: int, constant: bool):
        self.name = f"{d_in}x{d_out}"
        self.constant = constant
        self.space = RowSpace(np.arange(n))
        self.x = drawn(n, d_in)
        self.g = drawn(n, 1, d_out)[:, 0].copy()
        self.w, self.b, self.degree = (
            gt.Parameter(drawn(d_in, d_out)),
            gt.Parameter(drawn(d_out)),
            Var(drawn(n), self.space),
        )
        self.y, self.gw, self.gx = (
            np.empty((n, d_out), np.float32),
            np.empty((d_in, d_out), np.float32),
            np.empty_like(self.x),
        )

    def blas_forward(self) -> None:
        np.matmul(self.x, self.w.value, out=self.y)

    def blas_backward(self) -> None:
        np.matmul(self.x.T, self.g, out=self.gw)
        if not self.constant:
            np.matmul(self.g, self.w.value.T, out=self.gx)

    def stage(self, program: Callable[..., Any], step: int) -> tuple[float, float, list[float]]:
        """Seconds forward and backward, and at step 0 the sizes of result and gradient over those
        of BLAS.
        """
        with Tape(step=step) as tape:
            x = Var(self.x, self.space, needs_grad=not self.constant)
            forward, out = clock(program, x, self.w, self.b, self.degree)
            backward, gradients = clock(tape.backward, out, self.g)
        sizes = (
            []
            if step
            else [
                size_of(out.value) / size_of(self.y),
                size_of(gradients.of(self.w)) / size_of(self.gw),
            ]
        )
        return forward, backward, sizes


def main(rows: str, times: str) -> None:
    seconds: dict[str, list[float]] = {}
    checks: dict[str, list[float]] = {}
    for d_in, d_out, constant in SHAPES:
        shape = Shape(int(rows), d_in, d_out, constant)
        for i in range(int(times) + 1):
            blas = clock(shape.blas_forward)[0], clock(shape.blas_backward)[0]
            for stage, program in STAGES.items():
                *own, sizes = shape.stage(program, i)
                if stage == "product" and sizes:
                    checks[shape.name] = sizes
                # the first time warms up
                for way, one, other in (
                    zip(("forward", "backward"), own, blas, strict=True) if i else ()
                ):
                    seconds.setdefault(f"{stage} {shape.name} {way} own", []).append(one)
                    seconds.setdefault(f"{stage} {shape.name} {way} blas", []).append(other)
    report(seconds, checks, f"graphtheta {gt.__version__}, numpy {np.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
