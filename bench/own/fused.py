"""GraphTheta's fused loops and separate passes, in turns in one process.

    PYTHONPATH=bench python bench/own/fused.py ROWS SCALE TIMES

Cases are "NAME DIRECTION fused|separate|product".
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import scipy
from contender import drawn, report, size_of

import graphtheta as gt
from graphtheta.engine.layer.context import ActiveGraph
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.view import global_view
from graphtheta.ops.autodiff.space import RowSpace
from graphtheta.ops.autodiff.tape import Tape, Var
from graphtheta.ops.parallel.buffers import taken

SHAPES = ((128, 256), (256, 256))
HEADS = ((1, 256), (4, 64))
Seconds = dict[str, list[float]]


def clock(run: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    """Seconds of a call, and what it returned."""
    began = perf_counter()
    made = run(*args)
    return perf_counter() - began, made


def written(x: Var) -> Var:
    """The same after its array was computed, so that no later operation is joined with it."""
    assert x.value is not None
    return x


def fused(x: Var, w: gt.Parameter, b: gt.Parameter) -> Var:
    return written(gt.dropout(gt.relu(gt.linear(x, w, b)), 0.5))


def separate(x: Var, w: gt.Parameter, b: gt.Parameter) -> Var:
    return written(gt.dropout(written(gt.relu(written(written(gt.matmul(x, w)) + b))), 0.5))


def update(n: int, d_in: int, d_out: int, times: int, seconds: Seconds) -> list[float]:
    """Time one pair of widths; sizes of the results of both ways."""
    space = RowSpace(np.arange(n))
    x = drawn(n, d_in)
    g = drawn(n, 1, d_out)[:, 0].copy()
    w = gt.Parameter(drawn(d_in, d_out))
    b = gt.Parameter(drawn(d_out))
    y = np.empty((n, d_out), np.float32)
    gw = np.empty((d_in, d_out), np.float32)
    gx = np.empty_like(x)
    sizes: list[float] = []
    for i in range(times + 1):
        product = {
            "forward": clock(np.matmul, x, w.value, y)[0],
            "backward": clock(np.matmul, x.T, g, gw)[0] + clock(np.matmul, g, w.value.T, gx)[0],
        }
        found = {"product": product}
        for how, program in (("fused", fused), ("separate", separate)):
            with Tape(step=0) as tape:
                one = Var(x, space, needs_grad=True)
                forward, out = clock(program, one, w, b)
                backward, gradients = clock(tape.backward, out, g)
            found[how] = {"forward": forward, "backward": backward}
            sizes += [size_of(out.value) + size_of(gradients.of(w))] if i == 0 else []
        # the first time warms up
        for how, each in found.items() if i else ():
            for way, value in each.items():
                seconds.setdefault(f"update {d_in}x{d_out} {way} {how}", []).append(value)
    return sizes


class Aggregate(gt.Layer):
    def gather(self, edge: Any) -> Any:
        return edge.src.h * edge.attr


def aggregate(graph: gt.Graph, heads: int, width: int, times: int, seconds: Seconds) -> list[float]:
    """Time one number of heads; sizes of the results of both ways."""
    src, dst = graph.edge_index
    n, m, alpha = graph.n_nodes, graph.n_edges, drawn(graph.n_edges, heads)
    partition = build_partition(gt.Graph((src, dst), n, edge_attr=alpha), gt.start())
    view = global_view(partition, ["in"])
    layer = Aggregate()
    z = drawn(n, heads, width)
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

    own_z = taken(z, order)
    own_g = taken(g, order)
    for i in range(times + 1):
        with Tape(training=False) as tape:
            active = ActiveGraph(view)
            h = Var(own_z, active.space(n), needs_grad=True)
            forward, out = clock(layer, active, h)
            backward, gradients = clock(tape.backward, out, own_g)
        found = {"fused": (forward, backward)}
        one, total = clock(passes, z, src, by_destination)
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


def main(rows: str, scale: str, times: str) -> None:
    seconds: Seconds = {}
    checks, n_bytes = {}, {}
    for d_in, d_out in SHAPES:
        checks[f"update {d_in}x{d_out}"] = update(int(rows), d_in, d_out, int(times), seconds)
    graph = gt.load(f"rmat:scale={scale},edge_factor=16", split="none")
    for heads, width in HEADS:
        name = f"aggregate {heads}x{width}"
        checks[name] = aggregate(graph, heads, width, int(times), seconds)
        n_bytes[name] = 4 * (graph.n_edges + graph.n_nodes) * heads * width
    report(seconds, checks, f"graphtheta {gt.__version__}", bytes=n_bytes)


if __name__ == "__main__":
    main(*sys.argv[1:])
