"""What the benches of accuracy share: a row of figures over runs, and the command."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import table


def row(
    task: str, figures: list[float], epochs: list[int], seconds: float, published: str
) -> dict[str, Any]:
    """Mean and standard deviation of the figures of runs, and the median of their best epochs."""
    return {
        "task": task,
        "mean": float(np.mean(figures)),
        "deviation": float(np.std(figures, ddof=1)) if len(figures) > 1 else 0.0,
        "epoch": float(np.median(epochs)),
        "runs": len(figures),
        "seconds": seconds,
        "published": published,
        "figures": figures,
    }


def over_seeds(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of a task, of the lines of its seeds: figures of all runs, and means of further
    numbers.
    """
    figures = [x for one in runs for x in one["figures"]]
    first = runs[0]
    found = row(
        first["task"],
        figures,
        [one["epoch"] for one in runs],
        sum(one["seconds"] for one in runs),
        first["published"],
    )
    return {
        **{
            name: float(np.mean([one[name] for one in runs]))
            for name, x in first.items()
            if isinstance(x, float)
        },
        **found,
    }


def kept(folder: Path | None) -> dict[str, Any]:
    """Keys of a job with checkpoints in a folder, to continue from; none without a folder."""
    return {"out": str(folder), "resume": True} if folder else {}


def command(
    about: str | None,
    tasks: Sequence[str],
    run: Callable[[str, int, Path | None], dict[str, Any]],
    columns: list[str],
    seeds: int,
    *,
    name: str = "task",
    combined: Callable[[list[dict[str, Any]]], dict[str, Any]] = over_seeds,
) -> int:
    """Read the flags, and run, write and print the tasks; returns the exit code.

    A line is written as soon as the run of a seed is over, so that ``--first`` continues with the
    next seed. With ``--out``, the run of a seed has checkpoints in a folder beside the file, in
    ``runs``, so that a run that ended early continues when it is started again; the folder is
    deleted when its line is written. Seconds of such a run are those since it was continued.

    Args:
        about: Text of the help.
        tasks: Their names.
        run: Runs a task with one seed, with checkpoints in a folder if one is given; returns the
            line of it, with the task and the seed.
        columns: Of the table.
        seeds: Their number, unless a flag gives another.
        name: What a task is called, in lines and as a flag.
        combined: Makes a row of the table of the lines of all seeds of a task.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        f"--{name}s",
        nargs="+",
        choices=tasks,
        default=tasks,
        metavar=name.upper(),
        dest="tasks",
        help=", ".join(tasks),
    )
    parser.add_argument("--seeds", type=int, default=seeds, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them; 0")
    parser.add_argument(
        "--out",
        type=Path,
        help="JSON lines, one for each seed; those of the same tasks are in the table too",
    )
    options = parser.parse_args()
    rows = []
    for task in options.tasks:
        known = {
            line["seed"]: line
            for line in _lines(options.out)
            if line[name] == task and "seed" in line
        }
        for seed in range(options.first, options.first + options.seeds):
            folder = (
                options.out and options.out.parent / "runs" / f"{options.out.stem}-{task}-{seed}"
            )
            known[seed] = run(task, seed, folder)
            if options.out:
                with options.out.open("a", encoding="utf-8") as f:
                    f.write(json.dumps(known[seed]) + "\n")
                shutil.rmtree(folder, ignore_errors=True)
        rows.append(combined([known[seed] for seed in sorted(known)]))
    print(table(rows, columns))
    return 0


def _lines(path: Path | None) -> list[dict[str, Any]]:
    """The lines that have been written before."""
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if path and path.exists()
        else []
    )
