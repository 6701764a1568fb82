"""What the benches of accuracy share: a row of figures over runs, and the command."""
from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import table


def row(task: str, figures: list[float], epochs: list[int], seconds: float, published: str) -> dict[str, Any]:
    """Mean and standard deviation of the figures of runs, and the median of their best epochs."""
    return {"task": task, "mean": float(np.mean(figures)), "deviation": float(np.std(figures, ddof=1)) if len(figures) > 1 else 0.0,
            "epoch": float(np.median(epochs)), "runs": len(figures), "seconds": seconds, "published": published, "figures": figures}


def command(about: str | None, tasks: Sequence[str], run: Callable[[str, int], dict[str, Any]], columns: list[str], seeds: int) -> int:
    """Read the flags, and run, write and print the tasks; returns the exit code.

    Args:
        about: Text of the help.
        tasks: Their names.
        run: Makes the row of a task with so many seeds.
        columns: Of the table.
        seeds: Their number, unless a flag gives another.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=tasks, default=tasks, metavar="TASK", help=", ".join(tasks))
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--out", type=Path, help="JSON lines, one per row")
    options = parser.parse_args()
    rows = []
    for task in options.tasks:
        rows.append(run(task, options.seeds))
        if options.out:
            with options.out.open("a", encoding="utf-8") as f:
                f.write(json.dumps(rows[-1]) + "\n")
    print(table(rows, columns))
    return 0
