"""What the folder of a run may hold before the run writes to it."""

from __future__ import annotations

from pathlib import Path

from graphtheta.base.atomic import NotOurs, check_replaceable, file_errors
from graphtheta.engine.runtime.timeline import TRACE_FILE, files_of
from graphtheta.errors import ConfigError
from graphtheta.run.checkpoints.checkpoint import CHECKPOINTS, check_own
from graphtheta.run.checkpoints.weights import WEIGHTS
from graphtheta.run.job.keyfile import JOB_FILE
from graphtheta.run.job.run_files import METRICS_FILE, PREDICTIONS_FILE, PROFILE_FILE, RESULT_FILE


def check_run_folder(folder: Path, resumes: bool) -> None:
    """Check that a run can write all of its files to a folder without changing those of others.

    Args:
        folder: It may hold anything under other names; symbolic links to files are replaced.
        resumes: Whether the run resumes from the checkpoints in it.

    Raises:
        ConfigError: It is the root of the file system.
        FormatError: A name is taken by something that GraphTheta did not write, or cannot be looked
            up.
    """
    if folder.absolute() == Path(folder.absolute().anchor):
        raise ConfigError(
            f"{folder} is the root of the file system; choose another folder with --out"
        )
    names = (
        JOB_FILE,
        METRICS_FILE,
        RESULT_FILE,
        PROFILE_FILE,
        WEIGHTS,
        PREDICTIONS_FILE,
        TRACE_FILE,
    )
    with file_errors(folder, "the run", "choose another folder with --out"):
        if folder.exists() and not folder.is_dir():
            raise NotOurs(folder, "there is a file")
        for path in (*(folder / name for name in names), *files_of(folder / TRACE_FILE)):
            check_replaceable(path)
        check_own(folder / CHECKPOINTS, resumes)
