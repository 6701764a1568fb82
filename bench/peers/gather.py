"""DGL as a contender: the sums and attentions of ``own/gather.py``, made of DGL's own operators.

PYTHONPATH=bench python bench/peers/gather.py GRAPH.npz TIMES CASE...
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

import dgl
import torch
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
from dgl import ops
from torch.nn import functional as F


def program(g: Any, kind: str, given: dict[str, Any]) -> Any:
    """The kind's sum of messages at each node."""
    if kind == "sum":
        return ops.copy_u_sum(g, given["h"])
    if kind in ("weight", "heads"):
        return ops.u_mul_e_sum(g, given["h"], given["weight"])
    score = ops.u_add_v(g, given["s"], given["t"])
    if kind != "gat":
        score = score + given["attr"] @ given["matrix"]
    weight = (
        torch.sigmoid(score) if kind == "gated" else ops.edge_softmax(g, F.leaky_relu(score, 0.2))
    )
    return ops.u_mul_e_sum(g, given["h"], weight[..., None])


def measure(g: Any, case: str, times: int, seconds: dict[str, list[float]]) -> list[float]:
    """Time one case; the sizes of its results."""
    kind, width = width_of(case)
    n = g.num_nodes()
    n_edges = g.num_edges()
    shape = row_shape(kind, width)
    leaves = {"h": drawn(n, *shape)}
    fixed = {"weight": drawn(n_edges)[:, None]} if kind == "weight" else {}
    if kind == "heads":
        fixed = {"weight": drawn(n_edges, HEADS)[..., None]}
    if kind in ("gat", "gat_e", "gated"):
        leaves |= {"s": drawn(n, HEADS), "t": drawn(n, HEADS)[::-1].copy()}
    if kind in ("gat_e", "gated"):
        leaves |= {"matrix": drawn(EDGE_ATTRIBUTES, HEADS)}
        fixed = {"attr": drawn(n_edges, EDGE_ATTRIBUTES)}
    given = {name: torch.from_numpy(x) for name, x in fixed.items()}
    variables = {name: torch.from_numpy(x).requires_grad_() for name, x in leaves.items()}
    seed = torch.from_numpy(drawn(n, 1, *shape)[:, 0])
    checks = []

    def run() -> tuple[float, float]:
        for v in variables.values():
            v.grad = None
        began = perf_counter()
        out = program(g, kind, {**variables, **given})
        middle = perf_counter()
        out.backward(seed)
        ended = perf_counter()
        if not checks:
            checks.extend(size_of(x) for x in (out.detach(), *(v.grad for v in variables.values())))
        return middle - began, ended - middle

    repeat(seconds, case, run, times)
    return checks


def main(graph: str, times: str, *cases: str) -> None:
    z = Input.read(graph, features=False)
    g = dgl.graph(
        (
            "csc",
            (
                torch.from_numpy(z.indptr),
                torch.from_numpy(z.indices).long(),
                torch.arange(z.n_edges),
            ),
        ),
        num_nodes=z.n,
    ).int()
    g.create_formats_()
    seconds: dict[str, list[float]] = {}
    checks = {case: measure(g, case, int(times), seconds) for case in cases}
    report(seconds, checks, f"dgl {dgl.__version__}, torch {torch.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
