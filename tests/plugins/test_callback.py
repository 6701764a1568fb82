"""A callback from outside of the package."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from typing import Any

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated

FILE = Path(__file__).parent / "callback.py"
Until = run_path(str(FILE))["Until"]
KEYS: dict[str, Any] = {
    "dataset": "sbm:n_nodes=60,n_edges=300,classes=3,features=4",
    "epochs": 40,
    "backend": "reference",
    "dtype": "float64",
    "hidden": 4,
    "lr": 0.1,
}


def test_the_training_ends_where_the_callback_says_on_any_number_of_workers() -> None:
    def program(comm: Any) -> tuple[int, int, list[float]]:
        until = Until(0.9)
        result = gt.Trainer(comm=comm, **KEYS).fit(callbacks=[until])
        return until.updates, len(result.history), [round(row["loss"], 9) for row in result.history]

    found = [rank for size in (1, 3) for rank in run_simulated(size, program)]
    assert all(rank == found[0] for rank in found)
    updates, epochs, losses = found[0]
    assert updates == epochs < 40 and losses[-1] < 0.9 <= min(losses[:-1])
