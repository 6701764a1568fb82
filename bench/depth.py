"""Peak memory of deep networks without sampling, on a graph with hubs, against the prediction.

    python bench/depth.py       32-layer residual GCN on Cora; 2 and 4 layers on R-MAT, mini-batches
    mpiexec -n 2 python bench/depth.py

Without sampling, the neighbourhood of a few targets in a graph with hubs is nearly the whole graph.
The peak memory of the process must stay below the bound that is computed before the run.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from pathlib import Path
from time import perf_counter

import graphtheta as gt

RMAT = "rmat:scale=17,edge_factor=8,features=32,classes=8"
MINI = {
    "dataset": RMAT,
    "model": "gcn",
    "hidden": 32,
    "strategy": "mini",
    "batch_size": 256,
    "steps": 8,
    "split": "fraction",
}
DEEP = {
    "dataset": "cora",
    "model": "gcn",
    "layers": 32,
    "hidden": 64,
    "residual": True,
    "norm": "layer",
    "dropout": 0.2,
    "epochs": 60,
}
RUNS: dict[str, dict] = {
    "cora, 32 layers": {**DEEP, "eval_every": 5},
    "rmat mini, 2 layers": {**MINI, "layers": 2},
    "rmat mini, 4 layers": {**MINI, "layers": 4},
    "rmat mini, 4 layers, fanout 10": {**MINI, "layers": 4, "fanout": "10"},
}


def run(keys: dict) -> dict:
    """Train a few steps; predicted and measured peak of the worst worker, in MiB."""
    trainer = gt.Trainer(job=gt.Job(**keys))
    predicted = trainer.predicted_peak()
    began = perf_counter()
    if "steps" in keys:
        trainer.train_epoch(0)
        metrics: dict = {}
    else:
        metrics = trainer.fit().metrics
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    over = trainer.comm.all_gather([predicted / 2**20, peak])
    predicted, peak = max(over, key=lambda pair: pair[1] / pair[0])
    return {
        "predicted": predicted,
        "measured": peak,
        "steps": trainer.step,
        "seconds": perf_counter() - began,
        "ranks": trainer.comm.size,
        **metrics,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--out", type=Path, help="JSON lines, one per run")
    options = parser.parse_args()
    root = gt.start().rank == 0
    if root:
        print(
            f"{'run':32}{'predicted MiB':>15}{'measured MiB':>14}"
            f"{'steps':>7}{'seconds':>9}{'test':>7}",
            flush=True,
        )
    for name in options.only:
        row = run(RUNS[name])
        if root:
            test = f"{row['test_accuracy']:7.3f}" if "test_accuracy" in row else " " * 7
            print(
                f"{name:32}{row['predicted']:15.0f}{row['measured']:14.0f}"
                f"{row['steps']:7}{row['seconds']:9.1f}{test}",
                flush=True,
            )
            if options.out:
                with options.out.open("a", encoding="utf-8") as f:
                    f.write(json.dumps({"run": name, **row}) + "\n")
        if row["measured"] > row["predicted"]:
            sys.exit(f"{name}: the peak exceeded the prediction")
    return 0


if __name__ == "__main__":
    sys.exit(main())
