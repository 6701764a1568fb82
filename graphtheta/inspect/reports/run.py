"""Reads the output folder of a run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from graphtheta.base.regular import read_regular
from graphtheta.engine.runtime.timeline import TRACE_FILE, files_of
from graphtheta.errors import FormatError
from graphtheta.run.job.job import Job
from graphtheta.run.job.keyfile import JOB_FILE
from graphtheta.run.job.run_files import METRICS_FILE, PROFILE_FILE, RESULT_FILE, missing
from graphtheta.run.log.profile import Profile
from graphtheta.tasks.kinds.class_report import ClassReport

# numbers that every epoch and every result has
ROW = ("epoch", "step", "loss")
RESULT = ("best_epoch", "seconds")
# those of them that are integers
COUNTS = ("epoch", "step", "best_epoch")
TEXTS = ("positive", "eval_fanout", "metric", "strategy")
# largest number of metrics in a row; each has a plot
MOST_NAMES = 100
LARGEST = 1e100
# bytes of a file of a run that is text
LARGEST_FILE = 1 << 28


@dataclass
class RunRecord:
    """The content of the output folder of a run.

    Attributes:
        folder: The folder.
        job: The job of the run.
        rows: One per evaluated epoch, with the same names; what a row does not have is NaN.
        result: Metrics of the best model; None if the run did not finish.
        profile: Time, traffic and memory; None if the run did not finish.
        classes: Report of each class; None if the run did not finish, or has no classes.
        traces: Names of the timeline files.
    """

    folder: Path
    job: Job
    rows: list[dict[str, Any]]
    result: dict[str, Any] | None
    profile: Profile | None
    classes: ClassReport | None
    traces: list[str]


def read_run(folder: Path) -> RunRecord:
    """Read the folder of a run, which may have been interrupted.

    Raises:
        ConfigError: The folder holds no run.
        FormatError: A file in it is damaged.
    """
    for name in (JOB_FILE, METRICS_FILE):
        if not (folder / name).is_file():
            raise missing(folder, name)
    rows = [
        _record(line, f"{folder / METRICS_FILE}: line {i}", ROW)
        for i, line in enumerate(_text(folder / METRICS_FILE).splitlines(), 1)
    ]
    # a run that is resumed with other caches counts other rows
    names = dict.fromkeys(name for row in rows for name in row)
    rows = [{name: row.get(name, float("nan")) for name in names} for row in rows]
    result = folder / RESULT_FILE
    record = _record(_text(result), str(result), RESULT) if result.exists() else None
    return RunRecord(
        folder=folder,
        job=Job.from_yaml(folder / JOB_FILE),
        rows=rows,
        result=record,
        profile=Profile.read(folder / PROFILE_FILE) if (folder / PROFILE_FILE).exists() else None,
        classes=_classes(record, result) if record is not None and "classes" in record else None,
        traces=[path.name for path in files_of(folder / TRACE_FILE)],
    )


def _classes(record: dict[str, Any], path: Path) -> ClassReport:
    try:
        return ClassReport.model_validate(record["classes"])
    except ValidationError as error:
        raise FormatError(
            f"{path}: classes: {error.errors()[0]['msg']}; delete the file, or train again"
        ) from None


def _text(path: Path) -> str:
    try:
        return read_regular(path, LARGEST_FILE).decode("utf-8")
    except OSError as error:
        raise FormatError(
            f"{path}: cannot be read: {error.strerror or error}; check the file"
        ) from None
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: cannot be read: {error}; delete it, or train again") from None


def _record(text: str, where: str, names: tuple[str, ...]) -> dict[str, Any]:
    """A JSON mapping with these names; its values are numbers, mappings, or texts if in ``TEXTS``.

    null is NaN.
    """
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where}: damaged ({error}); delete it, or train again") from None
    if not isinstance(record, dict) or not set(names) <= set(record) or len(record) > MOST_NAMES:
        raise FormatError(
            f"{where}: expected a mapping with {', '.join(names)}; delete it, or train again"
        )
    record = {name: float("nan") if value is None else value for name, value in record.items()}
    wrong = [
        name
        for name, value in record.items()
        if not _plain(name, value) and (name in names or not isinstance(value, dict))
    ]
    if wrong:
        raise FormatError(
            f"{where}: {wrong[0]:.60} is not a number, or is out of range; delete it, or train"
            " again"
        )
    return record


def _plain(name: str, value: Any) -> bool:
    """Whether it is a number that can be printed and drawn, or a text; a loss may not be finite."""
    if name in TEXTS:
        return isinstance(value, str)
    if name in COUNTS:
        return type(value) is int and 0 <= value <= LARGEST
    return type(value) in (int, float) and (
        not abs(value) > LARGEST or value in (float("inf"), -float("inf"))
    )
