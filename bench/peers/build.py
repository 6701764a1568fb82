"""DGL or PyTorch Geometric as a contender: from arrays to the first step, by part.

    PYTHONPATH=bench python bench/peers/build.py {dgl|pyg} MODEL GRAPH.npz WEIGHTS.npz

The graph is made of an edge list, and then the form with which the library is fastest: all sparse
formats of DGL, so that no step has to make any; a sparse matrix for PyG, with the weights of GCN.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from contender import Input, Parts, edge_list, first_nodes, report
from fullbatch import NAMES, pyg_modules, widths
from torch import nn
from torch.nn import functional as F

# the layers of a model and how to call one
Made = tuple[list[nn.Module], Callable[[Any, Any], Any]]
Sizes = list[tuple[int, int, int]]


def with_dgl(
    model: str, z: Input, edges: tuple[np.ndarray, np.ndarray], sizes: Sizes, parts: Parts
) -> Made:
    """A graph of DGL and its layers."""
    import dgl
    from minibatch import LAYERS

    with parts.timed("construction"):
        g = dgl.graph(tuple(map(torch.from_numpy, edges)), num_nodes=z.n)
    with parts.timed("partition"):
        g = g.int()
        g.create_formats_()
    return [LAYERS[model](*size) for size in sizes], lambda layer, h: layer(g, h).flatten(1)


def with_pyg(
    model: str, z: Input, edges: tuple[np.ndarray, np.ndarray], sizes: Sizes, parts: Parts
) -> Made:
    """A graph of PyG, the sparse matrix of its edges, and layers."""
    from torch_geometric.data import Data
    from torch_geometric.utils import degree, to_torch_csr_tensor

    with parts.timed("construction"):
        data = Data(
            x=torch.from_numpy(z.x),
            edge_index=torch.stack(tuple(map(torch.from_numpy, edges))),
            num_nodes=z.n,
        )
    with parts.timed("partition"):
        src, dst = adjacent = data.edge_index
        if model != "gat":
            count = [degree(ends, z.n).clamp(min=1) for ends in (src, dst)]
            weight = (count[0][src] * count[1][dst]).rsqrt() if model == "gcn" else None
            adjacent = to_torch_csr_tensor(data.edge_index.flip(0), weight, (z.n, z.n))
    return pyg_modules(model, sizes), lambda layer, h: layer(h, adjacent)


def version(library: str) -> str:
    """Of the library and of PyTorch."""
    module = __import__({"dgl": "dgl", "pyg": "torch_geometric"}[library])
    return f"{module.__name__} {module.__version__}, torch {torch.__version__}"


def main(library: str, model: str, graph: str, weights: str) -> None:
    z = Input.read(graph)
    with np.load(weights) as w:
        first = {name: w[name] for name in w.files}
    few = first_nodes(z)
    edges = edge_list(z)
    begin = {"dgl": with_dgl, "pyg": with_pyg}[library]

    def run(z: Input, edges: tuple[np.ndarray, np.ndarray]) -> tuple[Parts, list[float]]:
        parts = Parts()
        losses = []
        with parts.timed("start"):
            layers, call = begin(
                model, z, edges, [widths(first, part) for part in ("first", "last")], parts
            )
            x = torch.from_numpy(z.x)
            y = torch.from_numpy(z.y)
            rows = torch.from_numpy(z.train)
            optimiser = torch.optim.Adam([p for layer in layers for p in layer.parameters()], 0.01)
        for layer, part in zip(layers, ("first", "last"), strict=True):
            given = {
                theirs: how(first[f"{part}.{ours}"]) for theirs, ours, how in NAMES[library, model]
            }
            layer.load_state_dict(
                {theirs: torch.from_numpy(np.ascontiguousarray(w)) for theirs, w in given.items()}
            )
        for step in ("first", "second"):
            with parts.timed(step):
                h = F.relu(call(layers[0], x))
                loss = F.cross_entropy(call(layers[1], h)[rows], y[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                losses.append(float(loss.detach()))
        return parts, losses

    run(few, edge_list(few))
    parts, losses = run(z, edges)
    report(parts.seconds, {"steps": losses}, version(library), processor=parts.processor)


if __name__ == "__main__":
    main(*sys.argv[1:])
