"""DGL or PyTorch Geometric as a contender: full-batch epochs of two R-GCN layers.

    PYTHONPATH=bench python bench/peers/relations.py {dgl|pyg} GRAPH.npz WEIGHTS.npz EPOCHS \\
        DROPOUT BASES

``dgl`` is HeteroGraphConv over a GraphConv for each relation, and ``pyg`` RGCNConv; FastRGCNConv
has a matrix for each edge, which needs more memory than most machines have. Both have a mean for
each relation, a matrix for the node itself, and a bias. The initial weights are GraphTheta's.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from contender import Input, report, train
from torch import nn
from torch.nn import functional as F


class Hetero(nn.Module):
    """HeteroGraphConv with what R-GCN adds to it; with bases, the matrices of the relations are
    combined before.
    """

    def __init__(self, weights: dict[str, torch.Tensor], relations: int):
        super().__init__()
        from dgl.nn import GraphConv, HeteroGraphConv

        self.weight, self.root, self.bias = (
            nn.Parameter(weights[name]) for name in ("weight", "root", "bias")
        )
        self.comp = nn.Parameter(weights["comp"]) if "comp" in weights else None
        d_in, _, d_out = self.weight.shape
        self.conv = HeteroGraphConv(
            {
                str(r): GraphConv(d_in, d_out, norm="right", weight=False, bias=False)
                for r in range(relations)
            }
        )

    def forward(self, g: Any, h: torch.Tensor) -> torch.Tensor:
        matrices = (
            self.weight.transpose(0, 1)
            if self.comp is None
            else torch.einsum("rb,dbo->rdo", self.comp, self.weight)
        )
        each = {str(r): {"weight": w} for r, w in enumerate(matrices.contiguous())}
        return self.conv(g, {"node": h}, mod_kwargs=each)["node"] + h @ self.root + self.bias


def dgl_layers(
    z: Input, codes: np.ndarray, weights: list[dict[str, torch.Tensor]]
) -> tuple[list[nn.Module], Any, str]:
    import dgl

    src = torch.from_numpy(z.indices).long()
    dst = torch.from_numpy(z.destinations())
    relations = int(codes.max()) + 1
    edges = {("node", str(r), "node"): (src[codes == r], dst[codes == r]) for r in range(relations)}
    g = dgl.heterograph(edges, num_nodes_dict={"node": z.n}).int()
    g.create_formats_()
    return (
        [Hetero(w, relations) for w in weights],
        lambda layer, h: layer(g, h),
        f"dgl {dgl.__version__}, torch {torch.__version__}",
    )


def pyg_layers(
    z: Input, codes: np.ndarray, weights: list[dict[str, torch.Tensor]]
) -> tuple[list[nn.Module], Any, str]:
    import torch_geometric
    from torch_geometric.nn import RGCNConv

    relation, relations = torch.from_numpy(codes).long(), int(codes.max()) + 1
    edges = torch.stack((torch.from_numpy(z.indices).long(), torch.from_numpy(z.destinations())))
    layers = []
    for w in weights:
        d_in, k, d_out = w["weight"].shape
        layer = RGCNConv(d_in, d_out, relations, num_bases=k if "comp" in w else None)
        layer.load_state_dict({**w, "weight": w["weight"].transpose(0, 1).contiguous()})
        layers.append(layer)
    version = f"torch_geometric {torch_geometric.__version__}, torch {torch.__version__}"
    return layers, lambda layer, h: layer(h, edges, relation), version


def main(library: str, graph: str, weights: str, epochs: str, dropout: str, bases: str) -> None:
    z = Input.read(graph)
    with np.load(graph) as file:
        codes = file["relation"]
    with np.load(weights) as w:
        first = [
            {
                name.split(".")[1]: torch.from_numpy(w[name])
                for name in w.files
                if name.startswith(part)
            }
            for part in ("first", "last")
        ]
    layers, call, version = {"dgl": dgl_layers, "pyg": pyg_layers}[library](z, codes, first)
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
