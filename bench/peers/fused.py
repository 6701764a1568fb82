"""UPDATE and AGG of ``own/fused.py``, of the operations of PyTorch, and the sums of DGL.

    PYTHONPATH=bench python bench/peers/fused.py {torch|dgl} ROWS GRAPH.npz TIMES

UPDATE is that of both libraries' layers: products, bias, relu and dropout one after another. AGG is
the sum of rows of sources times weights: with DGL its own operator, with PyTorch as PyTorch
Geometric has it, rows of all edges, which are multiplied and added up.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from contender import (
    AGGREGATED,
    NOW,
    UPDATED,
    Input,
    drawn,
    drop_of,
    products_of,
    repeat,
    report,
    size_of,
    update_case,
)
from torch.nn import functional as F


def update(
    n: int, model: str, widths: tuple[int, int, bool], times: int, seconds: dict[str, list[float]]
) -> list[float]:
    """Time the UPDATE of a layer; sizes of the results without dropout.

    Args:
        n: Rows.
        model: "sage" or "gat".
        widths: Before and after, and whether the input needs no gradient.
        times: Timed runs.
        seconds: Receives the times.
    """
    d_in, d_out, constant = widths
    arrays = [drawn(n, d_in), drawn(n, d_in)[::-1].copy()][: products_of(model)]
    xs = [torch.from_numpy(x).requires_grad_(not constant) for x in arrays]
    # as torch.nn.Linear has them
    ws = [
        torch.from_numpy((drawn(d_in, d_out) * (i + 1)).T.copy()).requires_grad_()
        for i in range(len(xs))
    ]
    b = torch.from_numpy(drawn(d_out)).requires_grad_()
    g = torch.from_numpy(drawn(n, 1, d_out)[:, 0].copy())
    checks: list[float] = []

    def run() -> tuple[float, float]:
        for leaf in (*xs, *ws, b):
            leaf.grad = None
        drop = drop_of(model) if checks else 0.0
        began = NOW()
        total = F.linear(xs[-1], ws[-1], b)
        for x, w in zip(xs[:-1], ws[:-1], strict=True):
            total = F.linear(x, w) + total
        out = F.relu(total)
        out = F.dropout(out, drop) if drop else out
        middle = NOW()
        out.backward(g)
        ended = NOW()
        if not checks:
            checks.append(size_of(out.detach()) + size_of(ws[0].grad))
        return middle - began, ended - middle

    repeat(seconds, update_case(model, d_in, d_out), run, times)
    return checks * 2


def aggregate(
    graph: Any, z: Input, heads: int, width: int, times: int, seconds: dict[str, list[float]]
) -> list[float]:
    """Time one number of heads; sizes of the results.

    Args:
        graph: Of DGL; None for PyTorch alone.
        z: The same graph.
        heads, width: Of a row.
        times: Timed runs.
        seconds: Receives the times.
    """
    src = torch.from_numpy(z.indices).long()
    dst = torch.from_numpy(z.destinations())
    rows = torch.from_numpy(drawn(z.n, heads, width)).requires_grad_()
    alpha = torch.from_numpy(drawn(z.n_edges, heads))[..., None]
    g = torch.from_numpy(drawn(z.n, 1, heads, width)[:, 0].copy())
    checks: list[float] = []

    def summed() -> Any:
        if graph is None:
            return torch.zeros_like(g).index_add(0, dst, rows.index_select(0, src) * alpha)
        from dgl import ops

        return ops.u_mul_e_sum(graph, rows, alpha)

    def run() -> tuple[float, float]:
        rows.grad = None
        began = NOW()
        out = summed()
        middle = NOW()
        out.backward(g)
        ended = NOW()
        if not checks:
            checks.append(size_of(out.detach()) + size_of(rows.grad))
        return middle - began, ended - middle

    repeat(seconds, f"aggregate {heads}x{width}", run, times)
    return checks * 2


def main(library: str, n: str, path: str, times: str) -> None:
    seconds: dict[str, list[float]] = {}
    checks = {}
    z = Input.read(path, features=False)
    graph = None
    version = f"torch {torch.__version__}"
    if library == "dgl":
        import dgl

        ends = (torch.from_numpy(z.indptr), torch.from_numpy(z.indices).long())
        graph = dgl.graph(("csc", (*ends, torch.arange(z.n_edges))), num_nodes=z.n).int()
        graph.create_formats_()
        version = f"dgl {dgl.__version__}, {version}"
    else:
        for model, *widths in UPDATED:
            case = update_case(model, *widths[:2])
            checks[case] = update(int(n), model, tuple(widths), int(times), seconds)
    for heads, width in AGGREGATED:
        name = f"aggregate {heads}x{width}"
        checks[name] = aggregate(graph, z, heads, width, int(times), seconds)
    report(seconds, checks, version)


if __name__ == "__main__":
    main(*sys.argv[1:])
