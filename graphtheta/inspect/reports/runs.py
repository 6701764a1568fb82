"""Finds the runs in a folder, and compares their keys and their best metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

from graphtheta.base.console import figure, table
from graphtheta.engine.train.metrics import METRICS
from graphtheta.errors import ConfigError, GraphThetaError
from graphtheta.inspect.reports.run import RunRecord, read_run
from graphtheta.run.job.job import as_text
from graphtheta.run.job.keyfile import JOB_FILE

# levels of folders below that of the runs: a run, or seeds of one
LEVELS = 2
# keys that say where a run is, and how it was begun, and not what it computes
PLACE = ("out", "resume", "overwrite")
NONE = "-"


@dataclass(frozen=True)
class Line:
    """A run in a comparison.

    Attributes:
        name: Its folder, from that of the runs.
        finished: Whether it has ended.
        epoch: Epoch of the best model so far; 0 before the first evaluation.
        metric: Name of the metric that the best model has the best value of.
        metrics: Metrics of the best model, by split and name.
        keys: The keys that are not the same in all runs, as texts.
    """

    name: str
    finished: bool
    epoch: int
    metric: str
    metrics: dict[str, float]
    keys: dict[str, str]


@dataclass(frozen=True)
class Comparison:
    """Runs side by side.

    Attributes:
        runs: A line for each.
        others: Why other folders are in no line, by name.
    """

    runs: list[Line]
    others: dict[str, str]

    def text(self) -> str:
        """Tables of the runs, and of other folders."""
        keys = list(dict.fromkeys(key for line in self.runs for key in line.keys))
        names = list(
            dict.fromkeys(
                name
                for line in self.runs
                for split in ("val", "test")
                if (name := f"{split}_{line.metric}") in line.metrics
            )
        )
        rows = [
            (
                line.name,
                *(line.keys.get(key, NONE) for key in keys),
                "yes" if line.finished else "no",
                str(line.epoch),
                *(figure(line.metrics[name]) if name in line.metrics else NONE for name in names),
            )
            for line in self.runs
        ]
        parts = [table(("run", *keys, "finished", "best epoch", *names), rows)] if rows else []
        if self.others:
            parts.append(table(("not compared", "why"), list(self.others.items()), left=2))
        return "\n\n".join(parts) or "there are no runs"


def compare_runs(folder: Path) -> Comparison:
    """The runs in a folder, side by side.

    Args:
        folder: A run, or a folder of runs and of runs of several seeds.

    Raises:
        ConfigError: It is no folder, or cannot be read.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder; give a folder of runs")
    runs: dict[str, RunRecord] = {}
    others: dict[str, str] = {}
    for path, why in _candidates(folder, LEVELS):
        name = str(path.relative_to(folder)) if path != folder else path.name or str(path)
        if why:
            others[name] = why
            continue
        try:
            runs[name] = read_run(path)
        except (GraphThetaError, OSError) as error:
            others[name] = " ".join(str(error).split())
    differing = _differing(list(runs.values()))
    lines = [
        _line(name, run, values)
        for (name, run), values in zip(runs.items(), differing, strict=True)
    ]
    return Comparison(lines, others)


def runs_in(folder: Path) -> list[Path]:
    """The runs in a folder, and the seeds of one; the folder itself if it is a run.

    Raises:
        ConfigError: There is none, or the folder cannot be read.
    """
    runs = [path for path, why in _candidates(folder, LEVELS) if not why] if folder.is_dir() else []
    if not runs:
        raise ConfigError(f"{folder}: there is no run; give the output folder of one")
    return runs


def newest_run(folder: Path) -> Path:
    """The run in a folder, or the seed of one, that began last.

    Raises:
        ConfigError: There is none, or the folder cannot be read.
    """
    return max(runs_in(folder), key=lambda path: (path / JOB_FILE).stat().st_mtime_ns)


def _candidates(folder: Path, levels: int) -> Iterator[tuple[Path, str]]:
    """Folders of runs and others below a folder, with why they are none; empty for runs.

    Raises:
        ConfigError: The folder cannot be read.
    """
    if (folder / JOB_FILE).exists():
        yield folder, ""
        return
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
        if levels == LEVELS:
            raise ConfigError(f"{folder}: {why}; give another folder") from None
        yield folder, why
        return
    below = [pair for path in inside for pair in _candidates(path, levels - 1)] if levels else []
    if levels == LEVELS or any(not why for _, why in below):
        yield from below
    else:
        yield folder, f"is no run: it has no {JOB_FILE}"


def _differing(runs: Sequence[RunRecord]) -> list[dict[str, str]]:
    """The keys of each run that another one has with another value, or does not have."""
    values = [
        {key: as_text(x) for key, x in run.job.model_dump().items() if key not in PLACE}
        for run in runs
    ]
    keys = dict.fromkeys(key for of_run in values for key in of_run)
    differ = [key for key in keys if len({of_run.get(key) for of_run in values}) > 1]
    return [{key: of_run[key] for key in differ if key in of_run} for of_run in values]


def _line(name: str, run: RunRecord, keys: dict[str, str]) -> Line:
    result = run.result or {}
    metrics = _metrics(result.get("metrics"))
    epoch = result.get("best_epoch", 0)
    metric = main_metric(run)
    if run.result is None and run.rows:
        row = best_row(run.rows, metric)
        epoch = row["epoch"]
        metrics = _metrics(row)
    return Line(
        name=name,
        finished=run.result is not None,
        epoch=epoch,
        metric=metric,
        metrics=metrics,
        keys=keys,
    )


def _metrics(values: Any) -> dict[str, float]:
    """The metrics among values that a file says; null is NaN."""
    if not isinstance(values, dict):
        return {}
    numbers = {name: nan if x is None else x for name, x in values.items() if _is_metric(name)}
    return {name: x for name, x in numbers.items() if type(x) in (int, float)}


def _is_metric(name: str) -> bool:
    return name.startswith(("train_", "val_", "test_"))


def main_metric(run: RunRecord) -> str:
    """The metric that the best epoch is the best of; of a run that has not written which one, its
    key, or the first one; the loss without any.
    """
    result = run.result or {}
    if result.get("metric"):
        return str(result["metric"])
    if not run.job.is_default("metric"):
        return run.job.metric.rpartition(":")[2]
    names = _metrics(result.get("metrics")) or (run.rows[0] if run.rows else {})
    ends = (name.partition("_")[2] for name in names if _is_metric(name))
    return next((end for end in ends if end != "loss"), "loss")


def best_row(rows: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    """The row of the best validation metric, or of the best training metric without one; of equal
    ones that of the smallest validation loss, as in training.
    """
    name = next((n for n in (f"val_{metric}", f"train_{metric}") if n in rows[0]), "loss")
    definition = METRICS.get(metric)
    smaller = name.endswith("loss") or (definition is not None and definition.smaller_is_better)

    def rank(value: Any, smaller: bool) -> float:
        if type(value) not in (int, float) or isnan(value):
            return -inf
        return -value if smaller else value

    def quality(row: dict[str, Any]) -> tuple[float, float]:
        return rank(row[name], smaller), rank(row.get("val_loss"), True)

    return max(rows, key=quality)
