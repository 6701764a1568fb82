"""The folder that a run is written to: which one, and what it may hold before.

No run is lost: a run that a folder holds is replaced only if the job says ``overwrite``, whoever
starts it, ``graphtheta train`` or ``Trainer.fit``.
"""

from __future__ import annotations

import re
from pathlib import Path

from graphtheta.base.atomic import (
    BEGINNINGS,
    NotOurs,
    beginning_of_values,
    check_replaceable,
    file_errors,
)
from graphtheta.base.console import say
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.runtime.timeline import TRACE_FILE, files_of
from graphtheta.errors import ConfigError, FormatError
from graphtheta.run.checkpoints.checkpoint import CHECKPOINTS, check_own, read_manifest, steps_in
from graphtheta.run.checkpoints.lock import check_free
from graphtheta.run.checkpoints.weights import WEIGHTS
from graphtheta.run.job.job import Job
from graphtheta.run.job.keyfile import JOB_FILE
from graphtheta.run.job.run_files import METRICS_FILE, PREDICTIONS_FILE, PROFILE_FILE, RESULT_FILE

# how the files of a run begin, by name; see ``graphtheta.base.atomic``
BEGINNING_OF = {
    JOB_FILE: BEGINNINGS["job"],
    METRICS_FILE: BEGINNINGS["metrics"],
    RESULT_FILE: BEGINNINGS["result"],
    PROFILE_FILE: BEGINNINGS["profile"],
    WEIGHTS: BEGINNINGS["weights"],
    PREDICTIONS_FILE: beginning_of_values("prediction", Path(PREDICTIONS_FILE).suffix),
    TRACE_FILE: BEGINNINGS["timeline"],
}
# below the folder of a job with several seeds
SEED = "seed-"
OTHERWISE = (
    "choose another folder with --out (out=...), or replace it with --overwrite (overwrite=True)"
)


def seed_jobs(job: Job) -> list[Job]:
    """The job for each of its seeds, in a folder of its own; the job itself if it has one."""
    if job.seeds == 1:
        return [job]
    return [
        job.change(seed=seed, seeds=1, out=str(job.folder / f"{SEED}{seed}"))
        for seed in range(job.seed, job.seed + job.seeds)
    ]


def placed(job: Job, comm: Comm) -> Job:
    """The job with the folder that it is written to, in which no run is lost.

    The default folder has a number if the last run of its name is finished; a job that resumes or
    overwrites takes that run.

    Raises:
        ConfigError: The folder holds a run, which the job neither resumes nor overwrites; on all
            ranks together.
        FormatError: The folder holds something that GraphTheta did not write, or another job is
            training in it; on all ranks together.

    Collective: all ranks of comm.
    """
    folder = str(job.folder)
    with comm.agreed():
        if comm.rank == 0:
            if not job.out:
                folder = str(_folder_of_name(job))
            if folder != str(job.folder) and not (job.resume or job.overwrite):
                say(f"{job.folder} holds a run; this one is written to {folder}")
            for one in seed_jobs(job.change(out=folder)):
                check_run_folder(one.folder, job.resume)
                check_free(one.folder)
                refuse_to_replace(one)
            if job.seeds > 1:
                _refuse_single_run(job.change(out=folder))
    return job.change(out=comm.broadcast(folder))


def run_of(job: Job) -> Path:
    """The folder of the run that the job resumes: that of ``out``, or the last one of its name."""
    return job.folder if job.out else _numbered(job.folder)[-1]


def _folder_of_name(job: Job) -> Path:
    """The folder of a job without ``out``."""
    first = job.folder
    last = run_of(job)
    if job.resume or job.overwrite or not holds_run(last):
        return last
    if any(_stopped(folder) for folder in (last, *last.glob(f"{SEED}*"))):
        return last
    number = int(last.name.removeprefix(first.name).lstrip("-") or 1)
    return first.with_name(f"{first.name}-{number + 1}")


def _numbered(first: Path) -> list[Path]:
    """The first folder of a name, and those with a number that hold a run, in order."""
    pattern = re.compile(rf"{re.escape(first.name)}-([1-9]\d{{0,8}})")
    with file_errors(first, "the run", "choose another folder with --out"):
        inside = list(first.parent.iterdir()) if first.parent.is_dir() else []
        numbers = {int(m[1]) for path in inside if (m := pattern.fullmatch(path.name))}
        later = (first.with_name(f"{first.name}-{number}") for number in sorted(numbers))
        return [first, *(folder for folder in later if holds_run(folder))]


def holds_run(folder: Path) -> bool:
    """Whether there is anything of a run in a folder, or runs of several seeds."""
    with file_errors(folder, "the run", "choose another folder with --out"):
        return any(
            any((one / name).is_file() for name in BEGINNING_OF)
            or bool(steps_in(one / CHECKPOINTS))
            for one in (folder, *folder.glob(f"{SEED}*"))
        )


def refuse_to_replace(job: Job) -> None:
    """Refuse to train in a folder if a run in it would be lost.

    Raises:
        ConfigError: It holds one, and the job neither resumes nor overwrites it; or one that is
            finished and has no checkpoint to resume from, or runs of several seeds.
    """
    folder = job.folder
    if job.overwrite or not holds_run(folder):
        return
    if not (folder / JOB_FILE).is_file() and any(map(holds_run, folder.glob(f"{SEED}*"))):
        raise ConfigError(
            f"{folder} holds runs of several seeds; go on with them with --seeds and --resume,"
            f" {OTHERWISE}"
        )
    if not job.resume and (stopped := _stopped(folder)):
        raise ConfigError(stopped)
    has_ended = (folder / RESULT_FILE).is_file()
    state = "a finished run" if has_ended else "a run"
    if not job.resume:
        raise ConfigError(
            f"{folder} holds {state}; go on with it with --resume (resume=True), {OTHERWISE}"
        )
    if has_ended and not steps_in(folder / CHECKPOINTS):
        raise ConfigError(f"{folder} holds {state} without checkpoints to resume from; {OTHERWISE}")


def _refuse_single_run(job: Job) -> None:
    """Refuse a folder for several seeds that holds a single run, or other seeds.

    Raises:
        ConfigError: It does, and the job does not overwrite it.
    """
    alone = (job.folder / JOB_FILE).is_file()
    others = (job.folder / RESULT_FILE).is_file() and not job.resume
    if (alone or others) and not job.overwrite:
        raise ConfigError(
            f"{job.folder} holds {'the run of one seed' if alone else 'runs of several seeds'};"
            f" {OTHERWISE}"
        )


def _stopped(folder: Path) -> str:
    """Why the run in a folder is not finished, and what to do; empty if it is, or if it has no
    checkpoint.
    """
    damaged = None
    for _, path in steps_in(folder / CHECKPOINTS):
        try:
            manifest = read_manifest(path)
        except FormatError as e:
            damaged = damaged or e
            continue
        if manifest.progress.over:
            return ""
        return (
            f"{folder} holds a run that stopped in epoch {manifest.progress.epoch + 1}, after step"
            f" {manifest.step}; resume it with --resume (resume=True), {OTHERWISE}"
        )
    return (
        ""
        if damaged is None
        else f"{damaged}; this may be a run that has not finished: {OTHERWISE}"
    )


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
    with file_errors(folder, "the run", "choose another folder with --out"):
        if folder.exists() and not folder.is_dir():
            raise NotOurs(folder, "there is a file")
        for name, begins in BEGINNING_OF.items():
            check_replaceable(folder / name, begins)
        for timeline in files_of(folder / TRACE_FILE):
            check_replaceable(timeline, BEGINNING_OF[TRACE_FILE])
        check_own(folder / CHECKPOINTS, resumes)
