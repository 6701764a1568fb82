"""GraphTheta as a contender: full-batch epochs of two R-GCN layers with relu and dropout between
them.

PYTHONPATH=bench python bench/own/relations.py GRAPH.npz WEIGHTS.npz EPOCHS DROPOUT BASES
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from contender import Input, report, train
from own.fullbatch import Net, as_graph

import graphtheta as gt
from graphtheta.models import RGCN

HIDDEN = 64


def build(d_in: int, d_out: int, relations: int, bases: int) -> Net:
    """Two layers, 64 wide."""
    return Net(
        RGCN(d_in, HIDDEN, relations, bases=bases), RGCN(HIDDEN, d_out, relations, bases=bases)
    )


def codes_of(graph: str) -> np.ndarray:
    """The relation of each edge, in the order of the in-edges."""
    with np.load(graph) as file:
        codes: np.ndarray = file["relation"]
        return codes


def main(graph: str, weights: str, epochs: str, dropout: str, bases: str) -> None:
    z = Input.read(graph)
    codes = codes_of(graph)
    whole = as_graph(z, None).replace(edge_columns={"relation": codes})

    def make(d_in: int, d_out: int, relations: int) -> Net:
        return build(d_in, d_out, relations, int(bases))

    trainer: Any = gt.Trainer(make, whole, strategy="global", lr=0.01, weight_decay=0.0)
    with np.load(weights) as w:
        trainer.model.load_state({name: w[name] for name in w.files})
    count = iter(range(1 << 30))

    def step(share: float) -> float:
        trainer.model.dropout = share
        return float(trainer.train_epoch(next(count)))

    seconds, losses = train(step, int(epochs), float(dropout))
    report({"epoch": seconds}, {"epoch": losses}, f"graphtheta {gt.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
