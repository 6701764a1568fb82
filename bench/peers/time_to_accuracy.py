"""GraphBolt, DGL or PyTorch Geometric as a contender: test accuracy over seconds of training.

    PYTHONPATH=bench python bench/peers/time_to_accuracy.py {graphbolt|dgl|pyg} MODEL GRAPH.npz \\
        SECONDS LR DROPOUT DECAY WEIGHTS.npz,... [BATCH FANOUT]

GraphBolt samples mini-batches, the others train on the whole graph. All measure on the whole graph.
There is a file of initial weights for each seed. Time begins with the arrays in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from contender import Input, learning_curve, report
from fullbatch import NAMES, dgl_layers, pyg_layers, widths
from torch import nn
from torch.nn import functional as F


def on_whole_graph(
    library: str, model: str, z: Input, weights: Any
) -> tuple[nn.ModuleList, Callable[[float], torch.Tensor], str]:
    """Layers with initial weights, the outputs of all nodes given the dropout, and the version."""
    make = {"pyg": pyg_layers}.get(library, dgl_layers)
    parts = [f"layers.{i}" for i in range(2)]
    made, call, version = make(model, z, [widths(weights, part) for part in parts])
    names = NAMES["pyg" if library == "pyg" else "dgl", model]
    for layer, part in zip(made, parts, strict=True):
        given = {theirs: how(weights[f"{part}.{ours}"]) for theirs, ours, how in names}
        layer.load_state_dict(
            {theirs: torch.from_numpy(np.ascontiguousarray(w)) for theirs, w in given.items()}
        )
    layers = nn.ModuleList(made)
    x = torch.from_numpy(z.x)

    def forward(dropout: float) -> torch.Tensor:
        h = F.dropout(F.relu(call(layers[0], x)), dropout)
        return call(layers[1], h)

    return layers, forward, version


def batches(z: Input, size: int, fanout: str) -> Iterator[Any]:
    """Batches of GraphBolt, epoch after epoch."""
    from dgl import graphbolt as gb

    whole = gb.fused_csc_sampling_graph(
        torch.from_numpy(z.indptr), torch.from_numpy(z.indices).long()
    )
    y = torch.from_numpy(z.y)
    nodes = torch.from_numpy(np.flatnonzero(z.train))
    items = gb.ItemSet((nodes, y[nodes]), names=("seed_nodes", "labels"))
    fanouts = list(map(int, fanout.split(",")))[::-1]
    while True:
        order = gb.ItemSampler(items, batch_size=size, shuffle=True)
        yield from gb.DataLoader(order.sample_neighbor(whole, fanouts), num_workers=0)


def main(
    library: str,
    model: str,
    graph: str,
    seconds: str,
    lr: str,
    dropout: str,
    decay: str,
    weights: str,
    *sampled: str,
) -> None:
    z = Input.read(graph)
    y, rows, tested = (torch.from_numpy(a) for a in (z.y, z.train, z.test))
    version = ""
    curves = []
    for seed, path in enumerate(weights.split(",")):
        with np.load(path) as w:
            first = {name: w[name] for name in w.files}
        torch.manual_seed(seed)

        def begin(first: Any = first) -> tuple[Callable[[], None], Callable[[], float]]:
            nonlocal version
            layers, forward, version = on_whole_graph(library, model, z, first)
            optimiser = torch.optim.Adam(layers.parameters(), float(lr), weight_decay=float(decay))

            def learn(loss: torch.Tensor) -> None:
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()

            def accuracy() -> float:
                with torch.no_grad():
                    return float((forward(0.0)[tested].argmax(1) == y[tested]).float().mean())

            if library != "graphbolt":
                return (
                    lambda: learn(F.cross_entropy(forward(float(dropout))[rows], y[rows])),
                    accuracy,
                )
            from minibatch import forward as through

            made = batches(z, int(sampled[0]), sampled[1])
            x = torch.from_numpy(z.x)

            def update() -> None:
                batch = next(made)
                out = through(layers, batch.blocks, x[batch.input_nodes], float(dropout))
                learn(F.cross_entropy(out, batch.labels))

            return update, accuracy

        curves.append(learning_curve(begin, float(seconds)))
    report({}, {}, version, curves=curves)


if __name__ == "__main__":
    main(*sys.argv[1:])
