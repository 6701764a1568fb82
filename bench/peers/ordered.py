"""PyG and DGL as contenders: recurrences over the in-edges of each node, as their SAGE layers have
them. PyG's takes the state after the zeros with which it pads shorter rows, so its numbers are
others and are not compared.

PYTHONPATH=bench python bench/peers/ordered.py pyg|dgl GRAPH.npz TIMES CASE...
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from contender import Input, drawn, repeat, report, size_of, width_of

GATES = {"lstm": 4, "gru": 3}


def drawn_module(kind: str, width: int) -> Any:
    """PyTorch's module with the weights of every contender, and biases of 0."""
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](width, width, batch_first=True)
    rows = GATES[kind] * width
    with torch.no_grad():
        module.weight_ih_l0.copy_(torch.from_numpy(drawn(rows, width)))
        module.weight_hh_l0.copy_(torch.from_numpy(drawn(rows, width, 1)[..., 0]))
        module.bias_ih_l0.zero_()
        module.bias_hh_l0.zero_()
    return module


def padded(z: Input, module: Any) -> tuple[Callable[[Any], Any], str]:
    """PyG's aggregation of the messages of all edges."""
    import torch_geometric
    from torch_geometric.nn.aggr import GRUAggregation, LSTMAggregation

    kind = LSTMAggregation if isinstance(module, torch.nn.LSTM) else GRUAggregation
    aggregation = kind(module.input_size, module.hidden_size)
    for name in ("lstm", "gru"):
        if hasattr(aggregation, name):
            setattr(aggregation, name, module)
    sources = torch.from_numpy(z.indices).long()
    ptr = torch.from_numpy(z.indptr)
    most = int((ptr[1:] - ptr[:-1]).max())
    index = torch.from_numpy(z.destinations())
    version = f"torch_geometric {torch_geometric.__version__}"
    return (
        lambda h: aggregation(h[sources], index, dim_size=z.n, max_num_elements=most),
        version,
    )


def bucketed(z: Input, module: Any) -> tuple[Callable[[Any], Any], str]:
    """DGL's reducer of the nodes of each number of in-edges."""
    import dgl

    g = dgl.graph(
        ("csc", (torch.from_numpy(z.indptr), torch.from_numpy(z.indices).long(), [])),
        num_nodes=z.n,
    )

    def last(nodes: Any) -> dict[str, Any]:
        return {"total": module(nodes.mailbox["m"])[1][0].squeeze(0)}

    def run(h: Any) -> Any:
        with g.local_scope():
            g.srcdata["h"] = h
            g.update_all(dgl.function.copy_u("h", "m"), last)
            return g.dstdata["total"]

    return run, f"dgl {dgl.__version__}"


def main(library: str, graph: str, times: str, *cases: str) -> None:
    z = Input.read(graph, features=False)
    seconds: dict[str, list[float]] = {}
    checks: dict[str, list[float]] = {}
    version = ""
    for case in cases:
        kind, width = width_of(case)
        module = drawn_module(kind, width)
        run_sum, version = (padded if library == "pyg" else bucketed)(z, module)
        h = torch.from_numpy(drawn(z.n, width)).requires_grad_()
        seed = torch.from_numpy(drawn(z.n, 1, width)[:, 0])
        found: list[float] = []

        def run(
            run_sum: Any = run_sum,
            module: Any = module,
            h: Any = h,
            seed: Any = seed,
            found: list[float] = found,
        ) -> tuple[float, float]:
            h.grad = None
            module.zero_grad()
            began = perf_counter()
            out = run_sum(h)
            middle = perf_counter()
            out.backward(seed)
            ended = perf_counter()
            if not found:
                learned = (h, module.weight_ih_l0, module.weight_hh_l0)
                found.extend(size_of(x) for x in (out.detach(), *(x.grad for x in learned)))
            return middle - began, ended - middle

        repeat(seconds, case, run, int(times))
        checks |= {case: found} if library == "dgl" else {}
    report(seconds, checks, f"{version}, torch {torch.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
