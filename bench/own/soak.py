"""A long training on the ranks of this program, which records memory, files and threads.

PYTHONPATH=bench mpiexec -n 4 python bench/own/soak.py '{"strategy": "mini", ...}' EVERY
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from contender import report

import graphtheta as gt
from graphtheta.engine.runtime.start import start
from graphtheta.run.checkpoints.checkpoint import CHECKPOINTS, steps_in


class Notes:
    """What each rank holds after every so many steps: bytes, open files, threads."""

    def __init__(self, every: int):
        self.every = every
        self.held: list[tuple[int, int, int, int]] = []

    def begin(self, history: list[dict[str, Any]]) -> None:
        """Training begins."""

    def epoch(self, row: dict[str, Any]) -> dict[str, Any]:
        """An epoch was evaluated."""
        if row["step"] % self.every == 0:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
            files, threads = (len(os.listdir(f"/proc/self/{name}")) for name in ("fd", "task"))
            self.held.append((row["step"], pages * os.sysconf("SC_PAGE_SIZE"), files, threads))
        return {}


def main(keys: str, every: str) -> None:
    comm = start()
    job = gt.Job(**json.loads(keys))
    notes = Notes(int(every))
    trainer = gt.Trainer(job=job, comm=comm)
    result = trainer.fit(notes)
    ranks = comm.all_gather(notes.held)
    if comm.rank == 0:
        report(
            {"all": [result.seconds]},
            {"loss": [row["loss"] for row in result.history]},
            f"graphtheta {gt.__version__}",
            ranks=ranks,
            checkpoints=[step for step, _ in steps_in(job.folder / CHECKPOINTS)],
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
