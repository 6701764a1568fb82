"""GraphTheta's fused loops and separate passes, in turns in one process.

    PYTHONPATH=bench python bench/own/fused.py ROWS GRAPH.npz TIMES

Cases are "NAME DIRECTION fused|separate|product".
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from contender import (
    AGGREGATED,
    NOW,
    UPDATED,
    Input,
    drawn,
    drop_of,
    products_of,
    report,
    size_of,
    update_case,
)

import graphtheta as gt
from graphtheta.engine.layer.context import ActiveGraph
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.view import global_view
from graphtheta.ops.autodiff.space import RowSpace
from graphtheta.ops.autodiff.tape import Tape, Var
from graphtheta.ops.parallel.buffers import taken

Seconds = dict[str, list[float]]


def clock(run: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    """Seconds of a call, and what it returned."""
    began = NOW()
    made = run(*args)
    return NOW() - began, made


def written(x: Var) -> Var:
    """The same after its array was computed, so that no later operation is joined with it."""
    assert x.value is not None
    return x


def fused(xs: list[Var], ws: list[gt.Parameter], b: gt.Parameter, drop: float) -> Var:
    total = gt.linear(xs[-1], ws[-1], b)
    for x, w in zip(xs[:-1], ws[:-1], strict=True):
        total = gt.matmul(x, w) + total
    out = gt.relu(total)
    return written(gt.dropout(out, drop) if drop else out)


def separate(xs: list[Var], ws: list[gt.Parameter], b: gt.Parameter, drop: float) -> Var:
    total = written(written(gt.matmul(xs[-1], ws[-1])) + b)
    for x, w in zip(xs[:-1], ws[:-1], strict=True):
        total = written(written(gt.matmul(x, w)) + total)
    out = written(gt.relu(total))
    return written(gt.dropout(out, drop)) if drop else out


class Products:
    """The products of an UPDATE alone, in BLAS and into existing arrays.

    Args:
        xs: Inputs.
        ws: Their weights.
        g: Gradient of the result.
        constant: Whether the inputs need no gradient.
    """

    def __init__(self, xs: list[np.ndarray], ws: list[gt.Parameter], g: np.ndarray, constant: bool):
        self.pairs = [(x, w.value) for x, w in zip(xs, ws, strict=True)]
        self.g = g
        self.constant = constant
        self.y = np.empty_like(g)
        self.gw = np.empty_like(ws[0].value)
        self.gx = np.empty_like(xs[0])

    def seconds(self) -> dict[str, float]:
        """Of each direction."""
        forward = sum(clock(np.matmul, x, w, self.y)[0] for x, w in self.pairs)
        backward = sum(clock(np.matmul, x.T, self.g, self.gw)[0] for x, _ in self.pairs)
        if not self.constant:
            backward += sum(clock(np.matmul, self.g, w.T, self.gx)[0] for _, w in self.pairs)
        return {"forward": forward, "backward": backward}


def update(
    n: int, model: str, widths: tuple[int, int, bool], times: int, seconds: Seconds
) -> list[float]:
    """Time the UPDATE of a layer; sizes of the results of both ways.

    Args:
        n: Rows.
        model: "sage" or "gat".
        widths: Before and after, and whether the input needs no gradient.
        times: Timed runs.
        seconds: Receives the times.
    """
    d_in, d_out, constant = widths
    space = RowSpace(np.arange(n))
    inputs = [drawn(n, d_in), drawn(n, d_in)[::-1].copy()][: products_of(model)]
    ws = [gt.Parameter(drawn(d_in, d_out) * (i + 1)) for i in range(len(inputs))]
    b = gt.Parameter(drawn(d_out))
    g = drawn(n, 1, d_out)[:, 0].copy()
    products = Products(inputs, ws, g, constant)
    sizes: list[float] = []
    for i in range(times + 1):
        found = {"product": products.seconds()}
        # a result that is checked has no dropout, whose draws differ between libraries
        drop = drop_of(model) if i else 0.0
        for how, program in (("fused", fused), ("separate", separate)):
            with Tape(step=0) as tape:
                xs = [Var(x, space, needs_grad=not constant) for x in inputs]
                forward, out = clock(program, xs, ws, b, drop)
                backward, gradients = clock(tape.backward, out, g)
            found[how] = {"forward": forward, "backward": backward}
            sizes += [size_of(out.value) + size_of(gradients.of(ws[0]))] if i == 0 else []
        # the first time warms up
        for how, each in found.items() if i else ():
            for way, value in each.items():
                case = f"{update_case(model, d_in, d_out)} {way} {how}"
                seconds.setdefault(case, []).append(value)
    return sizes


class Aggregate(gt.Layer):
    def gather(self, edge: Any) -> Any:
        return edge.src.h * edge.attr


def aggregate(z: Input, heads: int, width: int, times: int, seconds: Seconds) -> list[float]:
    """Time one number of heads; sizes of the results of both ways."""
    src = z.indices
    dst = z.destinations()
    n = z.n
    m = z.n_edges
    alpha = drawn(m, heads)
    partition = build_partition(gt.Graph((src, dst), n, edge_attr=alpha), gt.start())
    view = global_view(partition, ["in"])
    layer = Aggregate()
    rows_in = drawn(n, heads, width)
    g = drawn(n, 1, heads, width)[:, 0].copy()
    by_destination, by_source = (
        scipy.sparse.csr_array((np.ones(m, np.float32), (end, np.arange(m))), (n, m))
        for end in (dst, src)
    )
    order = partition.masters
    sizes = []

    def passes(rows: np.ndarray, ends: np.ndarray, sums: Any) -> np.ndarray:
        messages = rows[ends]
        messages *= alpha[:, :, None]
        return (sums @ messages.reshape(m, -1)).reshape(n, heads, width)

    own_rows = taken(rows_in, order)
    own_g = taken(g, order)
    for i in range(times + 1):
        with Tape(training=False) as tape:
            active = ActiveGraph(view)
            h = Var(own_rows, active.space(n), needs_grad=True)
            forward, out = clock(layer, active, h)
            backward, gradients = clock(tape.backward, out, own_g)
        found = {"fused": (forward, backward)}
        one, total = clock(passes, rows_in, src, by_destination)
        two, gradient = clock(passes, g, dst, by_source)
        found["separate"] = (one, two)
        if i == 0:
            sizes = [
                size_of(out.value) + size_of(gradients.of(h)),
                size_of(total) + size_of(gradient),
            ]
        for how, each in found.items() if i else ():
            for way, value in zip(("forward", "backward"), each, strict=True):
                seconds.setdefault(f"aggregate {heads}x{width} {way} {how}", []).append(value)
    return sizes


def main(rows: str, path: str, times: str) -> None:
    seconds: Seconds = {}
    checks, n_bytes = {}, {}
    for model, *widths in UPDATED:
        case = update_case(model, *widths[:2])
        checks[case] = update(int(rows), model, tuple(widths), int(times), seconds)
    z = Input.read(path, features=False)
    for heads, width in AGGREGATED:
        name = f"aggregate {heads}x{width}"
        checks[name] = aggregate(z, heads, width, int(times), seconds)
        n_bytes[name] = 4 * (z.n_edges + z.n) * heads * width
    report(seconds, checks, f"graphtheta {gt.__version__}", bytes=n_bytes)


if __name__ == "__main__":
    main(*sys.argv[1:])
