"""Memory of a deep residual network, trained in full batches.

    PYTHONPATH=bench python bench/own/deep.py DEPTH {keep|recompute} DATASET STEPS

"base" is the memory of the process before the first step, "predicted" the peak that is predicted
then, "least" and "most" the range of the memory in the last nine tenths of its steps.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

from contender import report

import graphtheta as gt

KEYS = {
    "model": "gcn",
    "hidden": 64,
    "residual": True,
    "norm": "layer",
    "dropout": 0.2,
    "weight_decay": 0.0,
    "strategy": "global",
}


def resident() -> int:
    """What this process holds, in bytes."""
    line = next(
        s
        for s in Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        if s.startswith("VmRSS")
    )
    return int(line.split()[1]) * 1024


def main(depth: str, way: str, dataset: str, steps: str) -> None:
    trainer = gt.Trainer(
        job=gt.Job(**KEYS, dataset=dataset, layers=int(depth), recompute=way == "recompute")
    )
    base = resident()
    predicted = trainer.predicted_peak()
    seconds = []
    losses = []
    held = []
    for epoch in range(int(steps)):
        began = perf_counter()
        losses.append(trainer.train_epoch(epoch))
        seconds.append(perf_counter() - began)
        held.append(resident())
    late = held[len(held) // 10 :]
    report(
        {"step": seconds[1:]},
        {f"losses of {depth} layers": losses},
        f"graphtheta {gt.__version__}",
        base=base,
        predicted=predicted,
        least=min(late),
        most=max(late),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
