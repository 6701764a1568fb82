"""GraphTheta as a contender: sums in order, forward and backward.

PYTHONPATH=bench python bench/own/ordered.py GRAPH.npz TIMES CASE...
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

import numpy as np
from contender import Input, drawn, repeat, report, size_of, width_of

import graphtheta as gt
from graphtheta.engine.layer.context import ActiveGraph
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.view import GraphView, global_view
from graphtheta.ops.autodiff.tape import Tape, Var
from graphtheta.ops.parallel.buffers import taken

# gates of each kind, and what makes it
KINDS: dict[str, tuple[int, Any]] = {"lstm": (4, gt.LSTM), "gru": (3, gt.GRU)}


class Summed(gt.Layer):
    def __init__(self, kind: str, width: int):
        gates, make = KINDS[kind]
        self.sum = make(width, width)
        # as PyTorch has them, [gates * width, width], so that peers draw the same
        for name, x in (("weight", drawn(gates * width, width)), ("recurrent", None)):
            x = drawn(gates * width, width, 1)[..., 0] if x is None else x
            getattr(self.sum, name).value = np.ascontiguousarray(x.T).reshape(width, gates, width)


def measure(view: GraphView, case: str, times: int, seconds: dict[str, list[float]]) -> list[float]:
    """Time one case; the sizes of its results."""
    kind, width = width_of(case)
    layer = Summed(kind, width)
    n = view.space.n
    h = taken(drawn(n, width), view.partition.masters)
    g = taken(drawn(n, 1, width)[:, 0], view.partition.masters)
    checks = []

    def run() -> tuple[float, float]:
        with Tape() as tape:
            graph = ActiveGraph(view)
            given = Var(h, graph.space(n), needs_grad=True)
            began = perf_counter()
            out = layer(graph, given)
            middle = perf_counter()
            gradients = tape.backward(out, g)
            ended = perf_counter()
        if not checks:
            learned = (given, layer.sum.weight, layer.sum.recurrent)
            checks.extend(size_of(x) for x in (out.value, *(gradients.of(x) for x in learned)))
        return middle - began, ended - middle

    repeat(seconds, case, run, times)
    return checks


def main(graph: str, times: str, *cases: str) -> None:
    z = Input.read(graph, features=False)
    held = gt.Graph((z.indices, z.destinations()), z.n)
    view = global_view(build_partition(held, gt.start()), ["in"])
    seconds: dict[str, list[float]] = {}
    checks = {case: measure(view, case, int(times), seconds) for case in cases}
    report(seconds, checks, f"graphtheta {gt.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
