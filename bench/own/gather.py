"""GraphTheta as a contender: gather and sum of edge programs, forward and backward.

    PYTHONPATH=bench python bench/own/gather.py GRAPH.npz TIMES CASE...

A case is the kind of program and the width of its rows, such as "weight 128". The time is that of a
superstep without transform and apply.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

from contender import (
    EDGE_ATTRIBUTES,
    HEADS,
    Input,
    drawn,
    repeat,
    report,
    row_shape,
    size_of,
    width_of,
)

import graphtheta as gt
from graphtheta.engine.layer.context import ActiveGraph
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.view.view import GraphView, global_view
from graphtheta.ops.autodiff.tape import Tape, Var
from graphtheta.ops.parallel.buffers import taken


class Sum(gt.Layer):
    def gather(self, edge: Any) -> Any:
        return edge.src.h


class Weight(gt.Layer):
    def gather(self, edge: Any) -> Any:
        return edge.src.h * edge.weight


class Heads(gt.Layer):
    def gather(self, edge: Any) -> Any:
        return edge.src.h * edge.attr


class Attention(gt.Layer):
    def gather(self, edge: Any) -> Any:
        return gt.softmax(gt.leaky_relu(edge.src.s + edge.dst.t, 0.2)) * edge.src.h


class EdgeAttention(gt.Layer):
    def __init__(self) -> None:
        self.weight = gt.Parameter(drawn(EDGE_ATTRIBUTES, HEADS))

    def gather(self, edge: Any) -> Any:
        return (
            gt.softmax(
                gt.leaky_relu(edge.src.s + edge.dst.t + gt.matmul(edge.attr, self.weight), 0.2)
            )
            * edge.src.h
        )


class Gated(EdgeAttention):
    def gather(self, edge: Any) -> Any:
        return gt.sigmoid(edge.src.s + edge.dst.t + gt.matmul(edge.attr, self.weight)) * edge.src.h


KINDS: dict[str, type[gt.Layer]] = {
    "sum": Sum,
    "weight": Weight,
    "heads": Heads,
    "gat": Attention,
    "gat_e": EdgeAttention,
    "gated": Gated,
}


def view_of(z: Input, attributes: int) -> GraphView:
    """The whole graph with one weight and so many attributes an edge, on this one worker."""
    attr = drawn(z.n_edges, attributes) if attributes else None
    graph = gt.Graph(
        (z.indices, z.destinations()), z.n, edge_weight=drawn(z.n_edges), edge_attr=attr
    )
    return global_view(build_partition(graph, gt.start()), ["in"])


def measure(view: GraphView, case: str, times: int, seconds: dict[str, list[float]]) -> list[float]:
    """Time one case; the sizes of its results."""
    kind, width = width_of(case)
    layer = KINDS[kind]()
    n = view.space.n
    ids = view.partition.masters
    arrays = {"h": taken(drawn(n, *row_shape(kind, width)), ids)}
    if kind in ("gat", "gat_e", "gated"):
        arrays |= {"s": taken(drawn(n, HEADS), ids), "t": taken(drawn(n, HEADS)[::-1], ids)}
    g = taken(drawn(n, 1, *row_shape(kind, width))[:, 0], ids)
    checks = []

    def run() -> tuple[float, float]:
        with Tape(training=False) as tape:
            graph = ActiveGraph(view)
            columns = {name: Var(x, graph.space(n), needs_grad=True) for name, x in arrays.items()}
            began = perf_counter()
            out = layer(graph, **columns)
            middle = perf_counter()
            gradients = tape.backward(out, g)
            ended = perf_counter()
        if not checks:
            checks.extend(
                size_of(x)
                for x in (
                    out.value,
                    *(gradients.of(c) for c in (*columns.values(), *layer.parameters())),
                )
            )
        return middle - began, ended - middle

    repeat(seconds, case, run, times)
    return checks


def main(graph: str, times: str, *cases: str) -> None:
    z = Input.read(graph, features=False)
    seconds: dict[str, list[float]] = {}
    checks: dict[str, list[float]] = {}
    for attributes, kinds in (
        (0, ("sum", "weight", "gat")),
        (HEADS, ("heads",)),
        (EDGE_ATTRIBUTES, ("gat_e", "gated")),
    ):
        chosen = [case for case in cases if width_of(case)[0] in kinds]
        view = view_of(z, attributes) if chosen else None
        for case in chosen:
            assert view is not None
            checks[case] = measure(view, case, int(times), seconds)
    report(seconds, checks, f"graphtheta {gt.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
