"""GraphBolt as a contender: steps of sampled mini-batches.

    PYTHONPATH=bench python bench/peers/minibatch.py MODEL GRAPH.npz WEIGHTS.npz SAMPLER FANOUT \\
        TARGETS BATCHES
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import chain, count
from time import perf_counter
from typing import Any

import dgl
import numpy as np
import torch
from contender import WARM, Input, first_nodes, report
from dgl import graphbolt as gb
from dgl.nn import GATConv, GraphConv, SAGEConv
from fullbatch import NAMES, widths
from sampling import METHODS
from torch import nn
from torch.nn import functional as F

LAYERS: dict[str, Callable[[int, int, int], nn.Module]] = {
    "gcn": lambda d, heads, width: GraphConv(d, width),
    "sage": lambda d, heads, width: SAGEConv(d, width, "mean"),
    "gat": lambda d, heads, width: GATConv(d, width, heads),
}


def layers_of(model: str, weights: str) -> nn.ModuleList:
    """The layers with GraphTheta's initial weights."""
    with np.load(weights) as w:
        first = {name: w[name] for name in w.files}
    layers: list[nn.Module] = []
    while any(name.startswith(f"layers.{len(layers)}.") for name in first):
        part = f"layers.{len(layers)}"
        d, heads, width = widths(first, part)
        layer = LAYERS[model](d, heads, width)
        given = {theirs: how(first[f"{part}.{ours}"]) for theirs, ours, how in NAMES["dgl", model]}
        layer.load_state_dict(
            {theirs: torch.from_numpy(np.ascontiguousarray(w)) for theirs, w in given.items()}
        )
        layers.append(layer)
    return nn.ModuleList(layers)


def forward(
    layers: nn.ModuleList, graphs: list[Any], h: torch.Tensor, dropout: float
) -> torch.Tensor:
    for layer, graph in zip(layers[:-1], graphs, strict=False):
        h = F.dropout(F.relu(layer(graph, h).flatten(1)), dropout)
    return layers[-1](graphs[-1], h).flatten(1)


def small_loss(layers: nn.ModuleList, z: Input) -> float:
    """The loss on all edges of a graph."""
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
    )
    out = forward(layers, [g] * len(layers), torch.from_numpy(z.x), 0.0)
    rows = torch.from_numpy(z.train)
    return float(F.cross_entropy(out[rows], torch.from_numpy(z.y)[rows]).detach())


def main(
    model: str, graph: str, weights: str, sampler: str, fanout: str, targets: str, batches: str
) -> None:
    z = Input.read(graph)
    layers = layers_of(model, weights)
    losses = [small_loss(layers, first_nodes(z))]
    seconds: dict[str, list[float]] = {"step": [], "sampling": []}
    sizes = []
    if sampler in METHODS:
        whole = gb.fused_csc_sampling_graph(
            torch.from_numpy(z.indptr), torch.from_numpy(z.indices).long()
        )
        features = gb.TorchBasedFeature(torch.from_numpy(z.x))
        y = torch.from_numpy(z.y)
        nodes = torch.from_numpy(np.flatnonzero(z.train))
        items, fanouts = (
            gb.ItemSet((nodes, y[nodes]), names=("seed_nodes", "labels")),
            list(map(int, fanout.split(",")))[::-1],
        )

        def epoch() -> Iterator[Any]:
            batches = gb.ItemSampler(items, batch_size=int(targets), shuffle=True)
            return iter(
                gb.DataLoader(getattr(batches, METHODS[sampler])(whole, fanouts), num_workers=0)
            )

        loader = chain.from_iterable(epoch() for _ in count())
        optimiser = torch.optim.Adam(layers.parameters(), 0.003)
        for _ in range(int(batches) + WARM):
            began = perf_counter()
            batch = next(loader)
            drawn = perf_counter()
            blocks = batch.blocks
            h = features.read(batch.input_nodes)
            loss = F.cross_entropy(forward(layers, blocks, h, 0.5), batch.labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            float(loss.detach())
            seconds["step"].append(perf_counter() - began)
            seconds["sampling"].append(drawn - began)
            sizes.append((len(h), sum(block.num_edges() for block in blocks)))
    report(
        {case: s[WARM:] for case, s in seconds.items()},
        {"loss": losses},
        f"dgl {dgl.__version__}, torch {torch.__version__}",
        sizes=np.mean(sizes[WARM:], axis=0).tolist() if sizes else (None, None),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
