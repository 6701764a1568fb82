"""Steps of jobs on workers of this machine, timed in several processes that are minutes apart; of
each step the shortest counts.

Other programs, also those of other guests of the same host, only lengthen a step (a loop in one
thread took 1.4 to 1.75 times as long for some seconds, without other processes here). So an epoch
takes the sum of the shortest time of each step, over all processes.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import numpy as np
from contender import BEGIN
from harness import HERE, on_workers, script

# runs of a process that compiles kernels, which slow it and which it holds in memory
TRIES = 3
PATIENCE = 900


def run_job(
    keys: dict[str, Any], workers: int, epochs: int, seconds: float, link: str = ""
) -> dict[str, Any]:
    """Train a job in processes of its own; again where they have compiled kernels.

    Args:
        keys: Of the job.
        workers: Their number.
        epochs, seconds: For which it is timed at least.
        link: Latency and bandwidth of the links between workers; none by default.

    Returns:
        The epochs in "epochs", and by worker what ``own/steps.py`` reports in "ranks".
    """
    words = script("own", "steps", json.dumps(keys), epochs, seconds)
    for _ in range(TRIES):
        done = subprocess.run(
            on_workers(workers, words) if workers > 1 else words,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=PATIENCE,
            env={**os.environ, "PYTHONPATH": str(HERE), "GRAPHTHETA_LINK": link},
        )
        found = json.loads(
            next(line for line in done.stdout.splitlines() if line.startswith(BEGIN))[len(BEGIN) :]
        )
        if not any(rank["compiled"] for rank in found["more"]["ranks"]):
            break
    return {"epochs": found["seconds"]["epoch"], "ranks": found["more"]["ranks"]}


def shortest(runs: list[dict[str, Any]], field: str) -> np.ndarray:
    """Seconds of an epoch of each worker, of which every step is the shortest of some runs,
    [workers].

    Args:
        runs: Of one job, as ``run_job`` returns them.
        field: "seconds" of the clock, or of the "processor".
    """
    found: np.ndarray = np.min(
        [[rank[field] for rank in run["ranks"]] for run in runs], axis=0
    ).sum(axis=1)
    return found
