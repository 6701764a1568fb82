"""DGL as a contender: from arrays to the first step, by part.

    PYTHONPATH=bench python bench/peers/build.py MODEL GRAPH.npz WEIGHTS.npz

The graph is made of an edge list, and then all sparse formats, so that no step has to make any.
"""
from __future__ import annotations

import sys

import dgl
import numpy as np
import torch
from contender import Input, Parts, edge_list, first_nodes, report
from fullbatch import NAMES, widths
from minibatch import LAYERS
from torch import nn
from torch.nn import functional as F


def main(model: str, graph: str, weights: str) -> None:
    z = Input.read(graph)
    with np.load(weights) as w:
        first = {name: w[name] for name in w.files}
    few, edges = first_nodes(z), edge_list(z)

    def run(z: Input, edges: tuple[np.ndarray, np.ndarray]) -> tuple[Parts, list[float]]:
        parts, losses = Parts(), []
        with parts.timed("start"):
            with parts.timed("construction"):
                g = dgl.graph(tuple(map(torch.from_numpy, edges)), num_nodes=z.n)
            with parts.timed("partition"):
                g = g.int()
                g.create_formats_()
            layers = nn.ModuleList([LAYERS[model](*widths(first, part)) for part in ("first", "last")])
            x, y, rows = torch.from_numpy(z.x), torch.from_numpy(z.y), torch.from_numpy(z.train)
            optimiser = torch.optim.Adam(layers.parameters(), 0.01)
        for layer, part in zip(layers, ("first", "last"), strict=True):
            given = {theirs: how(first[f"{part}.{ours}"]) for theirs, ours, how in NAMES["dgl", model]}
            layer.load_state_dict({theirs: torch.from_numpy(np.ascontiguousarray(w)) for theirs, w in given.items()})
        for step in ("first", "second"):
            with parts.timed(step):
                h = F.relu(layers[0](g, x).flatten(1))
                loss = F.cross_entropy(layers[1](g, h).flatten(1)[rows], y[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                losses.append(float(loss.detach()))
        return parts, losses

    run(few, edge_list(few))
    parts, losses = run(z, edges)
    report(parts.seconds, {"steps": losses}, f"dgl {dgl.__version__}, torch {torch.__version__}", processor=parts.processor)


if __name__ == "__main__":
    main(*sys.argv[1:])
