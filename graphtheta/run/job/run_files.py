"""Names of the files of a run in its folder, beside ``job.yaml``, weights, timelines and
checkpoints.
"""

from __future__ import annotations

from pathlib import Path

from graphtheta.errors import ConfigError
from graphtheta.run.job.keyfile import JOB_FILE

METRICS_FILE = "metrics.jsonl"
RESULT_FILE = "result.json"
PROFILE_FILE = "profile.json"
PREDICTIONS_FILE = "predictions.npz"


def missing(folder: str | Path, name: str) -> ConfigError:
    """The error about a folder without one of the files that a run ends with: it is none, it holds
    runs, or the run has not ended.
    """
    job = Path(folder, JOB_FILE)
    if job.is_file() and Path(folder, RESULT_FILE).exists():
        return ConfigError(
            f"{folder}: the run has ended, but {name} is missing; train it again with "
            f"graphtheta train --config {job} --out ANOTHER"
        )
    if job.is_file():
        return ConfigError(
            f"{folder}: the run has not ended, there is no {name}; continue it with "
            f"graphtheta train --config {job} --out {folder} --resume"
        )
    inside = sorted(path.parent for path in Path(folder).glob(f"*/{JOB_FILE}"))
    if inside:
        of_seeds = " of several seeds" * inside[0].name.startswith("seed-")
        return ConfigError(f"{folder} holds runs{of_seeds}; give one of them, such as {inside[0]}")
    return ConfigError(
        f"{folder}: the folder has no {name}; give the output folder that `graphtheta train`"
        " printed at its end"
    )
