"""GraphTheta as a contender: steps of GIN on batches of molecules.

PYTHONPATH=bench python bench/own/molecules.py MOLECULES.npz WEIGHTS.npz BATCH_SIZE STEPS
"""

from __future__ import annotations

import sys
from time import perf_counter, process_time
from typing import Any

import numpy as np
import scipy.sparse as sp
from contender import CHECKED, WARM, report

import graphtheta as gt

# molecules whose losses are compared
FEW = 256
# of https://arxiv.org/abs/2005.00687
OPTIONS: dict[str, Any] = {
    "layers": 5,
    "hidden": 300,
    "train_eps": True,
    "norm": "batch",
    "jumping": "none",
    "readout": "mean",
}


def one_hot(codes: np.ndarray) -> Any:
    """Codes of several attributes, [n, k], as sparse rows with a column for each code."""
    n, k = codes.shape
    return sp.csr_array(
        (np.ones(codes.size, np.float32), codes.ravel(), np.arange(n + 1) * k),
        shape=(n, int(codes.max()) + 1),
    )


def as_graph(z: Any) -> gt.Graph:
    """The graph for ``gt.Trainer``."""
    base = gt.Graph(
        (z["src"], z["dst"]),
        len(z["of"]),
        x=one_hot(z["atom"]),
        edge_attr=one_hot(z["bond"]).toarray(),
    )
    return gt.whole_graphs(base, z["y"], graph_of=z["of"], train=z["train"], multilabel=True)


def main(molecules: str, weights: str, batch_size: str, steps: str) -> None:
    with np.load(molecules) as z:
        graph = as_graph(z)
    with np.load(weights) as w:
        first = {name: w[name] for name in w.files}

    def trainer_of(graph: gt.Graph, **keys: Any) -> gt.Trainer:
        trainer = gt.Trainer(
            "gine",
            graph,
            strategy="mini",
            lr=0.001,
            weight_decay=0.0,
            metric="auc",
            **OPTIONS,
            **keys,
        )
        trainer.model.load_state(first)
        return trainer

    readouts = graph.nodes_of("graph")
    few = np.zeros(graph.n_nodes, bool)
    few[readouts[np.flatnonzero(graph.train[readouts])[:FEW]]] = True
    small = trainer_of(graph.replace(train=few), batch_size=FEW, dropout=0.0)
    losses = [small.train_epoch(i) for i in range(CHECKED)]
    del small
    trainer = trainer_of(graph, batch_size=int(batch_size), dropout=0.5)
    strategy = trainer.strategy
    seconds = {"step": [], "batch": [], "processor": []}
    sizes = []
    for i in range(int(steps) + WARM):
        began = perf_counter()
        used = process_time()
        view = strategy.batch(*divmod(i, strategy.steps_per_epoch))
        made = perf_counter()
        trainer.training.update(view)
        seconds["step"].append(perf_counter() - began)
        seconds["batch"].append(made - began)
        seconds["processor"].append(process_time() - used)
        sizes.append(
            (view.space.n - view.n_targets, view.levels[0].n_edges - view.space.n + view.n_targets)
        )
    report(
        {case: s[WARM:] for case, s in seconds.items()},
        {"loss": losses},
        f"graphtheta {gt.__version__}",
        sizes=np.mean(sizes[WARM:], axis=0).tolist(),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
