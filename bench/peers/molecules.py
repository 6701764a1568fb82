"""PyG as a contender: steps of GIN on batches of molecules, as in the examples of the Open Graph
Benchmark.

    PYTHONPATH=bench python bench/peers/molecules.py MOLECULES.npz WEIGHTS.npz BATCH_SIZE STEPS

Layers are GINEConv with a sum of embeddings for a bond's attributes, and the first one reads a sum
of embeddings for an atom's. Where GraphTheta has an activation or no bias, so has this network.
"""

from __future__ import annotations

import sys
from itertools import chain, count
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
import torch_geometric
from contender import CHECKED, WARM, report
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_mean_pool

# molecules whose losses are compared
FEW = 256
Weights = dict[str, torch.Tensor]


class Embeddings(nn.Module):
    """The sum of an embedding for each attribute; its codes follow those of the attribute before.

    Args:
        weight: Rows of all codes, [k, d].
        first: The lowest code of each attribute.
    """

    def __init__(self, weight: torch.Tensor, first: list[int]):
        super().__init__()
        ends = [*first[1:], len(weight)]
        rows = [weight[a:b].clone() for a, b in zip(first, ends, strict=True)]
        self.tables = nn.ModuleList(nn.Embedding.from_pretrained(x, freeze=False) for x in rows)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        return sum(table(codes[:, i]) for i, table in enumerate(self.tables))


class Net(nn.Module):
    """The network, with GraphTheta's initial weights."""

    def __init__(self, w: Weights, atoms: list[int], bonds: list[int]):
        super().__init__()
        self.atoms = Embeddings(w["embed.weights.0"], atoms)
        self.bias = nn.Parameter(w["embed.biases.0"])
        n = sum(name.endswith("weight_edge") for name in w)
        self.bonds = nn.ModuleList(
            Embeddings(w[f"layers.{i}.weight_edge"], bonds) for i in range(n)
        )
        self.convs = nn.ModuleList(
            conv(w[f"layers.{i}.mlp.weights.0"], w[f"layers.{i}.mlp.weights.1"]) for i in range(n)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(w[f"norms.{i}.gamma"].shape[0]) for i in range(n))
        self.head = linear(w["head.weights.0"], w["head.biases.0"])

    def forward(self, batch: Any, share: float) -> torch.Tensor:
        h = F.dropout(F.relu(self.atoms(batch.x) + self.bias), share)
        for conv, bonds, norm in zip(self.convs, self.bonds, self.norms, strict=True):
            h = norm(conv(h, batch.edge_index, bonds(batch.edge_attr)))
            h = F.dropout(h if norm is self.norms[-1] else F.relu(h), share)
        return self.head(global_mean_pool(h, batch.batch, batch.num_graphs))


def conv(*weights: torch.Tensor) -> GINEConv:
    first, last = map(linear, weights)
    made = GINEConv(
        nn.Sequential(first, nn.BatchNorm1d(first.out_features), nn.ReLU(), last), train_eps=True
    )
    # which has drawn other weights
    for layer, weight in zip((first, last), weights, strict=True):
        layer.weight.data = weight.T.contiguous()
    return made


def linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> nn.Linear:
    made = nn.Linear(*weight.shape, bias=bias is not None)
    made.load_state_dict(
        {"weight": weight.T.contiguous(), **({} if bias is None else {"bias": bias})}
    )
    return made


def molecules_of(z: Any) -> tuple[list[Data], list[int], list[int]]:
    """The training molecules, and the lowest codes of the attributes of atoms and of bonds."""
    atom = torch.from_numpy(z["atom"])
    bond = torch.from_numpy(z["bond"])
    y = torch.from_numpy(z["y"]).float()
    starts = [x.min(dim=0).values.tolist() for x in (atom, bond)]
    atom, bond = (x - torch.tensor(first) for x, first in zip((atom, bond), starts, strict=True))
    ends = torch.from_numpy(np.stack((z["src"], z["dst"])))
    # atoms and bonds of a molecule follow each other
    nodes = np.searchsorted(z["of"], np.arange(len(y) + 1))
    edges = np.searchsorted(z["of"][z["src"]], np.arange(len(y) + 1))
    made = [
        Data(
            x=atom[nodes[i] : nodes[i + 1]],
            edge_index=ends[:, edges[i] : edges[i + 1]] - int(nodes[i]),
            edge_attr=bond[edges[i] : edges[i + 1]],
            y=y[i : i + 1],
        )
        for i in np.flatnonzero(z["train"])
    ]
    return made, *starts


def main(molecules: str, weights: str, batch_size: str, steps: str) -> None:
    with np.load(molecules) as z:
        data, atoms, bonds = molecules_of(z)
    with np.load(weights) as w:
        first = {name: torch.from_numpy(w[name]) for name in w.files}

    def stepper() -> Any:
        net = Net(first, atoms, bonds)
        optimiser = torch.optim.Adam(net.parameters(), 0.001)

        def step(batch: Any, share: float) -> float:
            out = net(batch, share)
            known = batch.y == batch.y
            loss = F.binary_cross_entropy_with_logits(out[known], batch.y[known])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            return float(loss.detach())

        return step

    step, few = stepper(), Batch.from_data_list(data[:FEW])
    losses = [step(few, 0.0) for _ in range(CHECKED)]
    step, loader = stepper(), DataLoader(data, batch_size=int(batch_size), shuffle=True)
    batches = chain.from_iterable(iter(loader) for _ in count())
    seconds: dict[str, list[float]] = {"step": [], "batch": [], "processor": []}
    sizes = []
    for _ in range(int(steps) + WARM):
        began = perf_counter()
        used = process_time()
        batch = next(batches)
        made = perf_counter()
        step(batch, 0.5)
        seconds["step"].append(perf_counter() - began)
        seconds["batch"].append(made - began)
        seconds["processor"].append(process_time() - used)
        sizes.append((batch.num_nodes, batch.num_edges))
    report(
        {case: s[WARM:] for case, s in seconds.items()},
        {"loss": losses},
        f"torch_geometric {torch_geometric.__version__}, torch {torch.__version__}",
        sizes=np.mean(sizes[WARM:], axis=0).tolist(),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
