"""GraphTheta as a contender: steps of sampled mini-batches.

    PYTHONPATH=bench python bench/own/minibatch.py MODEL GRAPH.npz WEIGHTS.npz SAMPLER FANOUT \\
        TARGETS BATCHES [bfloat16]

With bfloat16, values are stored so, and the loss is compared with no other.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

import numpy as np
from contender import WARM, Input, first_nodes, report

import graphtheta as gt
from graphtheta.models import GAT, GCN, SAGE

HEADS = 4


class Net(gt.Model):
    """Layers with relu and dropout between them."""

    def __init__(self, layers: list[gt.Layer]):
        self.layers = layers
        self.dropout = 0.5

    def forward(self, graph: Any) -> Any:
        h = graph.x
        for layer in self.layers[:-1]:
            h = gt.dropout(gt.relu(layer(graph, h)), self.dropout)
        return self.layers[-1](graph, h)


def build(model: str, d_in: int, hidden: int, d_out: int, hops: int) -> Net:
    """The network of a model's name with a layer for each hop."""
    widths = [d_in] + [hidden] * (hops - 1)
    if model in ("sage", "gcn"):
        layer = {"sage": SAGE, "gcn": GCN}[model]
        return Net([layer(d, e) for d, e in zip(widths, [*widths[1:], d_out], strict=True)])
    return Net([*(GAT(d, hidden // HEADS, HEADS) for d in widths[:-1]), GAT(widths[-1], d_out)])


def as_graph(z: Input) -> gt.Graph:
    """The graph for ``gt.Trainer``."""
    return gt.Graph(
        (z.indices, z.destinations()), z.n, x=z.x, y=z.y, n_classes=z.classes, train=z.train
    )


def main(
    model: str,
    graph: str,
    weights: str,
    sampler: str,
    fanout: str,
    targets: str,
    batches: str,
    values: str = "",
) -> None:
    z = Input.read(graph)
    hops = len(fanout.split(","))
    with np.load(weights) as w:
        first = {name: w[name] for name in w.files}
    hidden = next(iter(first.values())).size // z.x.shape[1]

    def make(d_in: int, d_out: int, d_edge: int) -> Net:
        return build(model, d_in, hidden, d_out, hops)

    def trainer_of(graph: gt.Graph, **keys: Any) -> gt.Trainer:
        # older versions have no other values
        keys |= {"values": values} if values else {}
        trainer = gt.Trainer(make, graph, lr=0.003, weight_decay=0.0, **keys)
        trainer.model.load_state(first)
        return trainer

    few = trainer_of(as_graph(first_nodes(z)), strategy="global")
    few.model.dropout = 0.0
    losses = [few.train_epoch(0)]
    whole = as_graph(z)
    del z, few
    trainer = trainer_of(
        whole, strategy="mini", sampler=sampler, fanout=fanout, batch_size=int(targets)
    )
    del whole
    strategy = trainer.strategy
    seconds = {"step": [], "sampling": []}
    sizes = []
    for i in range(int(batches) + WARM):
        began = perf_counter()
        view = strategy.batch(*divmod(i, strategy.steps_per_epoch))
        drawn = perf_counter()
        trainer.training.update(view)
        seconds["step"].append(perf_counter() - began)
        seconds["sampling"].append(drawn - began)
        sizes.append((view.space.n, sum(level.n_edges for level in view.levels)))
    report(
        {case: s[WARM:] for case, s in seconds.items()},
        {f"loss of {values}" if values else "loss": losses},
        f"graphtheta {gt.__version__}",
        sizes=np.mean(sizes[WARM:], axis=0).tolist(),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
