"""Training on facebook100: time of an epoch, memory and accuracy by strategy and number of workers.

    python bench/facebook100.py                                  year, SAGE, 1 and 2 workers
    python bench/facebook100.py --cases global --epochs 100
    python bench/facebook100.py --target gender
    python bench/facebook100.py --converge --colleges 20         accuracy at convergence

The graph is a store, which all workers map. Nodes are divided by ``block`` among the workers and
60/20/20 % for training, validation and test. Features are one-hot; "mini" has batches of 4,096
targets with 10 and 10 neighbours, and "cluster" batches of 8 colleges. "start" is the time from
the store to the first step, "processor" the processor time of an epoch on all workers, "MiB" the
peak of the worker that needs most, with the pages of the store that it uses, and "own" this peak
without a process that has no graph. Losses of all numbers of workers must agree. Accuracy is that
of one run.

"--converge" trains on one worker instead until validation accuracy has not been better for as many
evaluations as PATIENCE says, which are as many epochs apart as EVERY says. Accuracy is that of the
weights with the best validation accuracy, and "best epoch" theirs; a line for each seed. The split
is the same for all seeds. The first 20 colleges have about as many nodes and edges as Reddit;
batches of fewer colleges have a share of the targets and colleges above.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from disk import store_of
from harness import Contender, append, disagreement, finish, on_workers, parser, race, script

import graphtheta as gt
from graphtheta.graph.datasets.dataset import find_file

CASES: dict[str, dict[str, Any]] = {
    "global": {"strategy": "global"},
    "mini": {"strategy": "mini", "batch_size": 4096, "fanout": "10,10"},
    "cluster": {"strategy": "cluster", "clusters_per_batch": 8},
}
MODEL = {"model": "sage", "hidden": 64, "layers": 2, "lr": 0.01, "masters": "block"}
EPOCHS = {"global": 30, "mini": 3, "cluster": 10}
# of runs to convergence: the most epochs, epochs between evaluations, and evaluations to wait
MOST = {"global": 500, "mini": 100, "cluster": 200}
EVERY = {"global": 10, "mini": 1, "cluster": 1}
PATIENCE = 10
COLLEGES = 89
COLUMNS = [
    "case",
    "contender",
    "start",
    "epoch",
    "processor",
    "epochs",
    "evaluation",
    "MiB",
    "own",
    "accuracy",
    "note",
]
CONVERGED = ["case", "seed", "accuracy", "val_accuracy", "best epoch", "epochs", "seconds"]


def colleges(folder: Path, number: int) -> Path:
    """A file with the college of each node of the first ones, as clusters."""
    path = folder / f"facebook100-colleges-{number}.npy"
    if not path.exists():
        with np.load(find_file("facebook100", "facebook100_packed.npz", None)) as z:
            np.save(path, np.repeat(np.arange(number), np.diff(z["school_ptr"][: number + 1])))
    return path


def keys_of(case: str, number: int, folder: Path) -> dict[str, Any]:
    """Keys of a job on the first colleges, whose batches are as large a share of them as all."""
    keys = MODEL | CASES[case]
    for name in ("batch_size", "clusters_per_batch"):
        if name in keys:
            keys[name] = max(round(keys[name] * number / COLLEGES), 1)
    if case == "cluster":
        keys["cluster_method"] = str(colleges(folder, number))
    return keys


def row_of(case: str, epochs: int, c: Contender) -> dict[str, Any]:
    """Figures of a run; memory is that of the largest worker."""
    peaks = c.figures.get("peaks", [])
    used = c.figures.get("processor", [])
    return {
        "case": case,
        "contender": c.name,
        **{part: c.median(part) for part in ("start", "first", "epoch", "evaluation")},
        "processor": median(used[1:] or used) if used else None,
        "epochs": str(epochs),
        "MiB": max((p[1] for p in peaks), default=0) / 2**20,
        "own": max((p[1] - p[0] for p in peaks), default=0) / 2**20,
        "all MiB": sum(p[1] for p in peaks) / 2**20,
        "accuracy": c.figures.get("accuracy"),
        "losses": c.figures.get("losses"),
        "seconds": c.median("epoch"),
        "label": f"{case} {c.name}",
        "note": c.error,
        "version": c.version,
    }


def converged(store: Path, case: str, keys: dict[str, Any], seed: int) -> dict[str, Any]:
    """A row of a run that early stopping ends."""
    job = gt.Job(
        **keys,
        epochs=MOST[case],
        eval_every=EVERY[case],
        patience=PATIENCE,
        seed=seed,
    )
    result = gt.Trainer(graph=gt.load(str(store), split="fraction"), job=job).fit()
    return {
        "case": case,
        "contender": "converged",
        "seed": seed,
        "accuracy": result.metrics["test_accuracy"],
        "val_accuracy": result.metrics["val_accuracy"],
        "best epoch": result.best_epoch,
        "epochs": result.history[-1]["epoch"],
        "most epochs": job.epochs,
        "eval_every": job.eval_every,
        "patience": job.patience,
        "seconds": result.seconds,
        "label": f"{case} converged",
        "version": f"graphtheta {gt.__version__}",
    }


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument("--target", choices=("year", "gender"), default="year")
    options.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    options.add_argument("--colleges", type=int, default=COLLEGES, help="the first ones; all 89")
    options.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    options.add_argument("--epochs", type=int, default=0, help=f"of each run; {EPOCHS}")
    options.add_argument(
        "--converge", action="store_true", help="train until validation is no longer better"
    )
    options.add_argument("--seeds", type=int, default=1, help="of runs to convergence; 1")
    options.add_argument("--first", type=int, default=0, help="the first of them; 0")
    options = options.parse_args()
    few = f",colleges={options.colleges}" if options.colleges < COLLEGES else ""
    about = {
        "bench": "facebook100",
        "target": options.target,
        "model": str(MODEL["model"]),
        "colleges": options.colleges,
    }
    store = store_of(f"facebook100:target={options.target}{few}", "stored", options.folder)
    rows, faults = [], []
    for case in options.cases:
        keys = keys_of(case, options.colleges, options.folder)
        if options.converge:
            for seed in range(options.first, options.first + options.seeds):
                rows.append(converged(store, case, keys, seed))
                append(options, rows[-1:], **about)
            continue
        epochs = options.epochs or EPOCHS[case]
        words = script(
            "own", "facebook", store, epochs, *(f"{key}={value}" for key, value in keys.items())
        )
        runs = [
            Contender(f"{n} worker{'s' * (n > 1)}", on_workers(n, words)) for n in options.workers
        ]
        for n, run in zip(options.workers, runs, strict=True):
            race([run], options.rounds, max(1, options.threads // n))
        rows += [row_of(case, epochs, run) for run in runs]
        faults += disagreement(runs)
    columns = CONVERGED if options.converge else COLUMNS
    return finish(options, rows, columns, faults, written=options.converge, **about)


if __name__ == "__main__":
    sys.exit(main())
