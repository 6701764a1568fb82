"""DGL or PyTorch Geometric as a contender: full-batch epochs of two layers, relu and dropout.

    PYTHONPATH=bench python bench/peers/fullbatch.py {dgl|pyg} MODEL GRAPH.npz WEIGHTS.npz EPOCHS \\
        DROPOUT

Layers are those of the library, with its own choice of kernels and of the order of product and sum.
The graph is in the form with which the library is fastest: for DGL, CSC and CSR made beforehand;
for PyG, a sparse matrix where the layer accepts one, edge lists otherwise. The initial weights are
GraphTheta's, so that losses can be compared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from contender import EDGE_ATTRIBUTES, Input, drawn, report, train
from torch import nn
from torch.nn import functional as F

# the weights of a layer, from GraphTheta's name and layout to the library's: (theirs, ours, how)
KEEP: Callable[[Any], Any] = lambda w: w
TURN: Callable[[Any], Any] = lambda w: w.reshape(len(w), -1).T
FRONT: Callable[[Any], Any] = lambda w: w[None]
NAMES: dict[tuple[str, str], list[tuple[str, str, Callable[[Any], Any]]]] = {
    ("dgl", "gcn"): [("weight", "weight", KEEP), ("bias", "bias", KEEP)],
    ("pyg", "gcn"): [("lin.weight", "weight", TURN), ("bias", "bias", KEEP)],
    ("dgl", "sage"): [
        ("fc_neigh.weight", "neighbour", TURN),
        ("fc_self.weight", "root", TURN),
        ("fc_self.bias", "bias", KEEP),
    ],
    ("pyg", "sage"): [
        ("lin_l.weight", "neighbour", TURN),
        ("lin_r.weight", "root", TURN),
        ("lin_l.bias", "bias", KEEP),
    ],
    ("dgl", "gat"): [
        ("fc.weight", "weight", TURN),
        ("attn_l", "att_src", FRONT),
        ("attn_r", "att_dst", FRONT),
        ("bias", "bias", KEEP),
    ],
    ("pyg", "gat"): [
        ("lin.weight", "weight", TURN),
        ("att_src", "att_src", FRONT),
        ("att_dst", "att_dst", FRONT),
        ("bias", "bias", KEEP),
    ],
}
NAMES["pyg", "gat_e"] = [
    *NAMES["pyg", "gat"],
    ("lin_edge.weight", "weight_edge", TURN),
    ("att_edge", "att_edge", FRONT),
]


def widths(weights: Any, layer: str) -> tuple[int, int, int]:
    """Width before, heads and width of each head of a layer, from its weights."""
    if f"{layer}.neighbour" in weights:
        return weights[f"{layer}.neighbour"].shape[0], 1, weights[f"{layer}.neighbour"].shape[1]
    shape = weights[f"{layer}.weight"].shape
    return shape[0], (shape[1] if len(shape) == 3 else 1), shape[-1]


def dgl_layers(
    model: str, z: Input, sizes: list[tuple[int, int, int]]
) -> tuple[list[nn.Module], Callable[..., Any], str]:
    """Layers, how to call one, and the version."""
    import dgl
    from dgl.nn import GATConv, GraphConv, SAGEConv

    # edge numbers must be given: without them its kernel for attention fails
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
    made: dict[str, Callable[[int, int, int], nn.Module]] = {
        "gcn": lambda d, k, o: GraphConv(d, o),
        "sage": lambda d, k, o: SAGEConv(d, o, "mean"),
        "gat": lambda d, k, o: GATConv(d, o, k),
    }
    version = f"dgl {dgl.__version__}, torch {torch.__version__}"
    return [made[model](*size) for size in sizes], lambda layer, h: layer(g, h).flatten(1), version


def pyg_modules(model: str, sizes: list[tuple[int, int, int]]) -> list[nn.Module]:
    """Layers of PyG; those of GCN take the weights of edges as they are."""
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    made: dict[str, Callable[[int, int, int], nn.Module]] = {
        "gcn": lambda d, k, o: GCNConv(d, o, normalize=False),
        "sage": lambda d, k, o: SAGEConv(d, o),
        "gat": lambda d, k, o: GATConv(d, o, k, add_self_loops=False),
        "gat_e": lambda d, k, o: GATConv(d, o, k, add_self_loops=False, edge_dim=EDGE_ATTRIBUTES),
    }
    return [made[model](*size) for size in sizes]


def pyg_layers(
    model: str, z: Input, sizes: list[tuple[int, int, int]]
) -> tuple[list[nn.Module], Callable[..., Any], str]:
    """Layers, how to call one, and the version."""
    import torch_geometric

    src = torch.from_numpy(z.indices).long()
    dst = torch.from_numpy(z.destinations())
    more = {}
    if model in ("gcn", "sage"):
        degree = torch.from_numpy(np.diff(z.indptr)).float()
        weight = (degree[src] * degree[dst]).rsqrt() if model == "gcn" else torch.ones(z.n_edges)
        edges = torch.sparse_csr_tensor(torch.from_numpy(z.indptr), src, weight, size=(z.n, z.n))
    else:
        edges = torch.stack((src, dst))
    if model == "gat_e":
        more = {"edge_attr": torch.from_numpy(drawn(z.n_edges, EDGE_ATTRIBUTES))}
    version = f"torch_geometric {torch_geometric.__version__}, torch {torch.__version__}"
    return pyg_modules(model, sizes), lambda layer, h: layer(h, edges, **more), version


def main(library: str, model: str, graph: str, weights: str, epochs: str, dropout: str) -> None:
    z = Input.read(graph)
    with np.load(weights) as w:
        first = {name: w[name] for name in w.files}
    parts = ("first", "last")
    make = {"dgl": dgl_layers, "pyg": pyg_layers}[library]
    layers, call, version = make(model, z, [widths(first, part) for part in parts])
    for layer, part in zip(layers, parts, strict=True):
        given = {
            theirs: how(first[f"{part}.{ours}"]) for theirs, ours, how in NAMES[library, model]
        }
        layer.load_state_dict(
            {theirs: torch.from_numpy(np.ascontiguousarray(w)) for theirs, w in given.items()}
        )
    x, y, rows = torch.from_numpy(z.x), torch.from_numpy(z.y), torch.from_numpy(z.train)
    optimiser = torch.optim.Adam([p for layer in layers for p in layer.parameters()], 0.01)

    def step(share: float) -> float:
        h = F.dropout(F.relu(call(layers[0], x)), share)
        loss = F.cross_entropy(call(layers[1], h)[rows], y[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    seconds, losses = train(step, int(epochs), float(dropout))
    report({"epoch": seconds}, {"epoch": losses}, version)


if __name__ == "__main__":
    main(*sys.argv[1:])
