"""Accuracy on knowledge graphs: learned vectors of nodes with a decoder, with and without an R-GCN.

    python bench/knowledge.py                               every run, with one seed
    python bench/knowledge.py --runs "fb15k_237 distmult" --seeds 5 --first 2       seeds 2 to 6

The weights are those with the best MRR on validation triples. Ranks are those of test triples among
all nodes without known ones, for heads and for tails. Each run also ranks some test triples by the
formula in NumPy, in float64 with a plain loop over the known triples; "checked" is the largest
difference of the reciprocals of the ranks from those of the engine. "seconds" is processor time of
training with evaluations. The table has means over seeds, "+-" the standard deviation of the MRR,
and of "checked" the largest; --out has a line for each seed; the run of a seed that ended early
continues when it is started again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from accuracy_rows import command, kept

import graphtheta as gt
from graphtheta.tasks.triples.answers import without_reciprocal

DATA = "{}:features=0,relations=none"
SHALLOW: dict[str, Any] = {
    "model": "mlp",
    "layers": 0,
    "embedding": 200,
    "strategy": "mini",
    "weight_decay": 0.0,
    "dropout": 0.0,
    "negatives": 64,
}
DISTMULT = {**SHALLOW, "decoder": "distmult", "link_loss": "softmax"}
ROTATE = {**SHALLOW, "decoder": "rotate", "link_loss": "adversarial"}
# one layer over half of the triples, the others are targets
ENCODED = {
    "model": "rgcn",
    "layers": 1,
    "hidden": 200,
    "embedding": 200,
    "decoder": "distmult",
    "link_loss": "softmax",
    "negatives": 32,
    "strategy": "mini",
    "weight_decay": 0.0,
    "dropout": 0.3,
}
FB = {"batch_size": 2048, "lr": 0.003}
WN = {"batch_size": 1024, "lr": 0.003}
RUNS: dict[str, dict[str, Any]] = {
    "fb15k_237 distmult": {
        **DISTMULT,
        **FB,
        "reciprocal": True,
        "dropout": 0.4,
        "negatives": 128,
        "negative_groups": 16,
        "epochs": 12,
        "eval_every": 3,
    },
    "wn18rr distmult": {**DISTMULT, **WN, "epochs": 12, "eval_every": 4},
    "wn18rr rotate": {
        **ROTATE,
        **WN,
        "margin": 6.0,
        "adversarial_temperature": 0.5,
        "epochs": 48,
        "eval_every": 8,
    },
    "fb15k_237 rotate": {
        **ROTATE,
        **FB,
        "lr": 0.002,
        "margin": 9.0,
        "embedding": 400,
        "dropout": 0.1,
        "negatives": 128,
        "negative_groups": 16,
        "epochs": 12,
        "eval_every": 4,
    },
    "fb15k_237 rgcn distmult": {
        **ENCODED,
        "batch_size": 16384,
        "lr": 0.01,
        "bases": 4,
        "fanout": (10,),
        "epochs": 15,
        "eval_every": 3,
    },
    "wn18rr rgcn distmult": {
        **ENCODED,
        "batch_size": 8192,
        "lr": 0.01,
        "bases": 4,
        "dropout": 0.4,
        "epochs": 20,
        "eval_every": 5,
    },
}
MEANS = ["mrr", "hits1", "hits3", "hits10", "epoch", "seconds"]
COLUMNS = ["run", "seeds", "mrr", "+-", *MEANS[1:], "checked"]
CHECKED = 100


def checked(trainer: gt.Trainer, graph: gt.Graph, decoder: str) -> float | None:
    """Largest difference of a reciprocal rank from that of the formula, over some test triples;
    None with an encoder.
    """
    if trainer.job.layers:
        return None
    learned = trainer.setup.tables[0]
    x = learned.values()[np.argsort(learned.masters)].astype(np.float64)
    k = x.shape[1] // 2
    complex_of = lambda rows: rows[:, :k] + 1j * rows[:, k:]
    found = dict(zip(*_engine_ranks(trainer), strict=True))
    relation = graph.edge_columns["relation"]
    known = set(zip(graph.src.tolist(), relation.tolist(), graph.dst.tolist(), strict=True))
    # reciprocal relations have the numbers after those of relations
    shift = len(trainer.setup.kind.relations) if trainer.job.reciprocal else 0
    worst, (state,) = 0.0, (p.value.astype(np.float64) for p in trainer.model.parameters())
    for e in np.random.default_rng(0).choice(
        np.flatnonzero(graph.edge_test), CHECKED, replace=False
    ):
        h = int(graph.src[e])
        r = int(relation[e])
        t = int(graph.dst[e])
        if decoder == "distmult":
            scores = (x[h] * state[r]) @ x.T, (x[t] * state[r + shift]) @ x.T
        else:
            z = complex_of(x)
            turn = np.exp(1j * state[r])
            scores = -np.abs(z[h] * turn - z).sum(axis=1), -np.abs(z * turn - z[t]).sum(axis=1)
        for side, own, true in ((0, scores[0], t), (1, scores[1], h)):
            other = [
                c for c in range(len(x)) if ((h, r, c) if side == 0 else (c, r, t)) not in known
            ]
            rank = 1 + np.sum(own[other] > own[true]) + np.sum(own[other] == own[true]) / 2
            worst = max(
                worst, min(abs(1 / rank - 1 / ours) for ours in found[side, r, t if side else h])
            )
    return worst


def _engine_ranks(trainer: gt.Trainer) -> tuple[list[tuple[int, int, int]], list[list[float]]]:
    """For each side, relation and given end, the ranks of the test triples."""
    n = trainer.partition.n_nodes
    found = {}
    relations = len(trainer.setup.kind.relations)
    with trainer.setup.scope():
        for block in trainer.setup.evaluator.blocks(trainer.model, "test"):
            queries = without_reciprocal(block.query, n, relations)
            for query, rank in zip(queries.tolist(), block.rank.tolist(), strict=True):
                found.setdefault((query // n % 2, query // n // 2, query % n), []).append(rank)
    return list(found), list(found.values())


def run(name: str, seed: int, folder: Path | None) -> dict[str, Any]:
    """The figures of one seed."""
    data, *_ = name.split()
    began = process_time()
    graph = gt.load(DATA.format(data))
    trainer = gt.Trainer(graph=graph, seed=seed, **RUNS[name], **kept(folder))
    result = trainer.fit()
    seconds = process_time() - began
    row = {
        "run": name,
        "seed": seed,
        **{key: result.metrics[f"test_{key}"] for key in MEANS[:4]},
        "epoch": result.best_epoch,
        "seconds": seconds,
        "checked": checked(trainer, graph, RUNS[name]["decoder"]),
    }
    return {**row, "history": result.history, "keys": RUNS[name]}


def over_seeds(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of the table."""
    mrr = [row["mrr"] for row in rows]
    worst = [row["checked"] for row in rows if row["checked"] is not None]
    return {
        "run": rows[0]["run"],
        "seeds": len(rows),
        **{key: float(np.mean([row[key] for row in rows])) for key in MEANS},
        "+-": float(np.std(mrr, ddof=1)) if len(mrr) > 1 else None,
        "checked": max(worst, default=None),
    }


def main() -> int:
    return command(__doc__, list(RUNS), run, COLUMNS, seeds=1, name="run", combined=over_seeds)


if __name__ == "__main__":
    sys.exit(main())
