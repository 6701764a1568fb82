"""GAT-E with edge attributes against GAT without: node classes of molecules, and edge regression.

    python bench/edge_attributes.py                      node task on mol_tox21, every strategy
    python bench/edge_attributes.py --strategies mini --models gipa
    mpiexec -n 2 python bench/edge_attributes.py         the same numbers on two workers
    python bench/edge_attributes.py --widths 0 2 64      relations of these widths

The graph consists of all molecules of mol_tox21. The atomic number is hidden, and predicted from
the other attributes, the neighbours and the bonds. GAT-E and GIPA read the bonds, GAT does not;
"blind" is GAT-E with all bonds equal. Whole molecules are in training, validation or test. The last
row is an edge regression: flows of road links, split by region.

With --widths, a random graph has a relation of each width. Attributes at the widths of relations
are compared with one matrix, filled up with zeros: bytes, processor seconds of an epoch, losses.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter, process_time
from unittest.mock import patch

import numpy as np

import graphtheta as gt
from graphtheta.graph.data import typed

# epochs of a median
ROUNDS = 7

STRATEGIES: dict[str, dict] = {
    "global": {"strategy": "global", "epochs": 100, "eval_every": 10},
    "mini": {"strategy": "mini", "batch_size": 5000, "epochs": 6},
    "cluster": {"strategy": "cluster", "clusters": 80, "clusters_per_batch": 4, "epochs": 6},
}
MODELS = {"gat": "gat", "gat_e": "gat_e", "blind": "gat_e", "gipa": "gipa"}
COMMON = {
    "dataset": "mol_tox21",
    "hidden": 16,
    "heads": 4,
    "layers": 2,
    "residual": True,
    "norm": "batch",
    "dropout": 0.0,
    "lr": 0.01,
    "weight_decay": 0.0,
}
TRAFFIC = {
    "dataset": "traffic_chicago_regional",
    "hidden": 16,
    "heads": 2,
    "layers": 2,
    "dropout": 0.0,
    "lr": 0.01,
    "weight_decay": 0.0,
    "epochs": 100,
    "eval_every": 5,
}


def run(name: str, **keys: object) -> dict:
    """Train once; metrics of the best model."""
    began = perf_counter()
    job = gt.Job(**keys)
    graph = gt.load(job.dataset)
    if name == "blind":
        graph = graph.replace(edge_attr=np.ones_like(graph.edge_attr))
    trainer = gt.Trainer(graph=graph, job=job.without_dataset())
    result = trainer.fit()
    return {"ranks": trainer.comm.size, "seconds": perf_counter() - began, **keys, **result.metrics}


def at_widths(widths: list[int], edges: int, model: str, one_matrix: bool) -> dict:
    """Train on a graph with so many edges of each relation; bytes, seconds and the loss."""
    rng = np.random.default_rng(0)
    n = edges // 20
    names = [("node", f"relation {code}", "node") for code in range(len(widths))]
    given = {name: rng.normal(size=(edges, d)) for name, d in zip(names, widths, strict=True) if d}
    form = (lambda x, *_: np.asarray(x)) if one_matrix else typed.attributes_apart
    with patch.object(typed, "attributes_apart", form):
        graph = gt.Graph(
            {name: rng.integers(0, n, (2, edges)) for name in names},
            {"node": n},
            x={"node": rng.normal(size=(n, 16))},
            y={"node": rng.integers(0, 3, n)},
            train={"node": np.arange(n) % 2 == 0},
            edge_attr=given,
        )
        options = {"heads": 4, "self_loops": "no"} if model == "gat_e" else {}
        trainer = gt.Trainer(model, graph, hidden=16, seed=1, **options)
        seconds = []
        for epoch in range(1 + ROUNDS):
            began = process_time()
            loss = trainer.train_epoch(epoch)
            seconds.append(process_time() - began)
    return {
        "model": model,
        "widths": widths,
        "form": "one matrix" if one_matrix else "own widths",
        "attributes": graph.edge_attr.nbytes,
        "seconds": float(np.median(seconds[1:])),
        "loss": loss,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=list(MODELS), help="of the node task"
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON lines, one per run")
    parser.add_argument("--widths", type=int, nargs="+", help="of relations, for that comparison")
    parser.add_argument("--edges", type=int, default=200_000, help="of each of these relations")
    options = parser.parse_args()
    if options.widths:
        for model in ("gat_e", "gine"):
            for one_matrix in (True, False):
                row = at_widths(options.widths, options.edges, model, one_matrix)
                print(json.dumps(row), flush=True)
        return 0
    root = gt.start().rank == 0
    jobs = [
        (
            f"tox21 {strategy}",
            name,
            {**COMMON, **STRATEGIES[strategy], "model": MODELS[name], "seed": seed},
        )
        for strategy in options.strategies
        for name in options.models
        for seed in range(options.seeds)
    ]
    jobs += [
        ("traffic global", "gat_e", {**TRAFFIC, "model": "gat_e", "seed": seed})
        for seed in range(options.seeds)
    ]
    if root:
        print(
            f"{'task':16}{'model':8}{'seed':>5}"
            f"{'accuracy':>10}{'F1 macro':>10}{'R2':>8}{'seconds':>9}",
            flush=True,
        )
    for task, name, keys in jobs:
        row = run(name, **keys)
        if root:
            widths = (("test_accuracy", 10), ("test_f1_macro", 10), ("test_r2", 8))
            figures = "".join(f"{row[m]:>{w}.4f}" if m in row else " " * w for m, w in widths)
            print(f"{task:16}{name:8}{keys['seed']:5}{figures}{row['seconds']:9.1f}", flush=True)
            if options.out:
                with options.out.open("a", encoding="utf-8") as f:
                    f.write(json.dumps({"task": task, "name": name, **row}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
