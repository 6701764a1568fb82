"""GraphTheta as a contender: full-batch epochs of two layers with relu and dropout between them.

    PYTHONPATH=bench python bench/own/fullbatch.py MODEL GRAPH.npz WEIGHTS.npz EPOCHS DROPOUT \\
        [precompute | bfloat16]

With bfloat16, values are stored so, and losses are compared with no others. An epoch is
``Trainer.train_epoch`` under the global strategy: forward, loss, backward, update.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import scipy.sparse as sp
from contender import EDGE_ATTRIBUTES, Input, drawn, report, train

import graphtheta as gt
from graphtheta.models import GAT, GATE, GCN, SAGE

HIDDEN, HEADS = 128, 4
# gt.load keeps features sparse where fewer of them differ from 0; no import: older versions run
# this too
SPARSE_BELOW = 0.25


class Net(gt.Model):
    """Two layers; the first of an attention model has HEADS heads side by side, the last one."""

    def __init__(self, first: gt.Layer, last: gt.Layer):
        self.first = first
        self.last = last
        self.dropout = 0.5

    def forward(self, graph: Any) -> Any:
        h = gt.relu(self.first(graph, graph.x))
        return self.last(graph, gt.dropout(h, self.dropout) if self.dropout else h)


def build(model: str, d_in: int, d_out: int, d_edge: int) -> Net:
    """The network of a model's name."""
    if model in ("gcn", "sage"):
        layer = {"gcn": GCN, "sage": SAGE}[model]
        return Net(layer(d_in, HIDDEN), layer(HIDDEN, d_out))
    if model == "gat":
        return Net(GAT(d_in, HIDDEN // HEADS, HEADS), GAT(HIDDEN, d_out))
    return Net(GATE(d_in, HIDDEN // HEADS, d_edge, HEADS), GATE(HIDDEN, d_out, d_edge))


def as_graph(z: Input, attr: np.ndarray | None) -> gt.Graph:
    """The graph as gt.load would hand it over: a bag of words is sparse."""
    x = sp.csr_array(z.x) if np.count_nonzero(z.x) < SPARSE_BELOW * z.x.size else z.x
    return gt.Graph(
        (z.indices, z.destinations()),
        z.n,
        x=x,
        y=z.y,
        n_classes=z.classes,
        edge_attr=attr,
        train=z.train,
    )


def main(model: str, graph: str, weights: str, epochs: str, dropout: str, option: str = "") -> None:
    z = Input.read(graph)
    whole = as_graph(z, drawn(z.n_edges, EDGE_ATTRIBUTES) if model == "gat_e" else None)

    def make(d_in: int, d_out: int, d_edge: int) -> Net:
        return build(model, d_in, d_out, d_edge)

    # older versions have no other values
    keys = {"values": option} if option == "bfloat16" else {"precompute": option == "precompute"}
    trainer = gt.Trainer(make, whole, strategy="global", lr=0.01, weight_decay=0.0, **keys)
    del whole, z
    with np.load(weights) as w:
        trainer.model.load_state({name: w[name] for name in w.files})
    count = iter(range(1 << 30))

    def step(share: float) -> float:
        trainer.model.dropout = share
        return trainer.train_epoch(next(count))

    seconds, losses = train(step, int(epochs), float(dropout))
    case = "epoch of bfloat16" if option == "bfloat16" else "epoch"
    report({"epoch": seconds}, {case: losses}, f"graphtheta {gt.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
