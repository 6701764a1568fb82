"""Compares the losses of two versions of the code to the last bit.

    python bench/bits.py --write before.jsonl          in an environment with the first version
    python bench/bits.py --against before.jsonl        in an environment with the second version

Settings are those of ``accuracy.py``, for a few epochs, and all strategies with several models on
small graphs, on one worker and on three. Numbers depend on the processor and on the BLAS library,
so both runs must be on one machine. The exit code is 1 if a number differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import LATE, ROWS

import graphtheta as gt

EPOCHS = 5
GRAPHS = ("sbm", "rmat:scale=8,edge_factor=6")
MODELS = ("gcn", "sage", "gat", "gin")
STRATEGIES: dict[str, dict[str, Any]] = {
    "global": {"strategy": "global"},
    "mini": {"strategy": "mini", "batch_size": 30},
    "sampled": {"strategy": "mini", "batch_size": 30, "fanout": "4,4"},
    "cluster": {"strategy": "cluster", "clusters_per_batch": 2},
}
# workers, and where edges live
PLACES = ((1, "1d-src"), (3, "vertex-cut"))


def settings(only: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Name, number of workers and keys of each run whose name has the text in it."""
    found = {
        f"{graph} {model} {name}": {"dataset": graph, "model": model, "epochs": EPOCHS, **keys}
        for graph in GRAPHS
        for model in MODELS
        for name, keys in STRATEGIES.items()
    }
    found = {
        f"{name}, {n} worker(s)": (n, {**keys, "partitioner": p})
        for name, keys in found.items()
        for n, p in PLACES
    }
    late = {name for name in ROWS if name.endswith(tuple(f"-stale-{s}" for s in LATE))}
    found |= {
        name: (1, {**gt.preset(setting), **keys, "epochs": EPOCHS, "patience": 0})
        for name, (setting, keys, _) in ROWS.items()
        if name not in late
    }
    yield from ((name, n, keys) for name, (n, keys) in found.items() if only in name)


def numbers(comm: Any, keys: dict[str, Any]) -> dict[str, Any]:
    """The losses of a run, and a hash of the weights at its end."""
    trainer = gt.Trainer(comm=comm, **keys)
    losses = [float(trainer.train_epoch(epoch)).hex() for epoch in range(keys["epochs"])]
    state = trainer.model.state()
    weights = sha256(
        b"".join(np.ascontiguousarray(state[name]).tobytes() for name in sorted(state))
    )
    return {"losses": losses, "weights": weights.hexdigest()[:16]}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, help="JSON lines, one per run")
    parser.add_argument("--against", type=Path, help="what --write has left")
    parser.add_argument("--only", default="", help="runs whose name has this in it")
    options = parser.parse_args()
    before = (
        {row["run"]: row for row in map(json.loads, options.against.read_text().splitlines())}
        if options.against
        else {}
    )
    changed = 0
    for name, n, keys in settings(options.only):
        row = {"run": name, **on(n, keys)}
        differs = name in before and before[name] != row
        changed += differs
        print(
            f"{name:44}{row['losses'][-1]:>24} "
            f" {'DIFFERS' if differs else 'equal' if name in before else ''}",
            flush=True,
        )
        if options.write:
            with options.write.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    if before:
        print(f"{changed} runs differ")
    return int(changed > 0)


def on(n: int, keys: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a run on some simulated workers."""
    if n == 1:
        return numbers(gt.start(), keys)
    return import_module("graphtheta.engine.comm.simulated").run_simulated(
        n, lambda comm: numbers(comm, keys)
    )[0]


if __name__ == "__main__":
    sys.exit(main())
