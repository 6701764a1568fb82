"""Writes checkpoints of a run in the background, and finds the one to resume from."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread
from time import monotonic
from types import TracebackType

from graphtheta.base.atomic import sweep_asides
from graphtheta.base.console import complain, say
from graphtheta.base.strict_json import to_json
from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import ConfigError, FormatError
from graphtheta.run.checkpoints.checkpoint import (
    CHECKPOINTS,
    Checkpoint,
    CheckpointManifest,
    newest_good,
    prune,
    read_checkpoint,
    steps_in,
    sweep,
    write_checkpoint,
)
from graphtheta.run.checkpoints.run_folder import refuse_to_replace
from graphtheta.run.job.job import Job, as_flag, as_text
from graphtheta.run.job.rules import flag

# seconds between two checkpoints if checkpoint_every is 0
MINUTE = 60.0
# keys that may differ in a resumed run: they change numbers by rounding only, or only its length;
# a trainer compares views_per_step itself, whose default depends on mode and workers
FREE = (
    "out",
    "resume",
    "overwrite",
    "checkpoint_every",
    "keep",
    "log_level",
    "trace",
    "save_predictions",
    "scores",
    "inference_memory",
    "data_dir",
    "partitioner",
    "masters",
    "mode",
    "views_per_step",
    "views_in_flight",
    "pipeline",
    "stage_threads",
    "macrobatch",
    "fetch_batch",
    "feature_cache",
    "machine_cache",
    "cache_policy",
    "recompute",
    "backend",
    "epochs",
    "steps",
    "patience",
)


class Keeper:
    """Context manager that writes checkpoints in a background thread of rank 0, one at a time.

    A checkpoint offered while another one is being written waits, and a newer one replaces it. A
    write error is reported once, and training continues.

    Args:
        job: Gives the folder, the interval, and how many checkpoints are kept.
        active: Whether this rank writes.
        step: Step of the checkpoint that the run resumes from; 0 for a new run.

    Attributes:
        failure: Why the last one could not be written; None if it could.
    """

    def __init__(self, job: Job, active: bool, step: int = 0):
        self.folder = job.folder / CHECKPOINTS
        self.every = job.checkpoint_every
        self.keep = job.keep
        self.active = active
        self.failure: str | None = None
        self._written = step
        self._last = monotonic()
        self._waiting: Checkpoint | None = None
        self._thread: Thread | None = None
        self._lock = Lock()

    def __enter__(self) -> Keeper:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # a second Ctrl-C ends the process at once
        if kind is not KeyboardInterrupt:
            self.close()

    def due(self, step: int) -> bool:
        """Whether a checkpoint is due after ``step`` updates."""
        if not self.active:
            return False
        return step % self.every == 0 if self.every else monotonic() - self._last >= MINUTE

    def offer(self, make: Callable[[], Checkpoint]) -> None:
        """Queue a checkpoint for the background thread; returns at once."""
        if not self.active:
            return
        self._last = monotonic()
        with self._lock:
            self._waiting = make()
            if self._thread is None:
                self._thread = Thread(target=self._write, name="checkpoints", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Wait until everything offered has been written."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _write(self) -> None:
        """Run in the thread: write waiting checkpoints until there are none."""
        while True:
            with self._lock:
                checkpoint = self._waiting
                self._waiting = None
                if checkpoint is None:
                    self._thread = None
                    return
            step = checkpoint.manifest.step
            try:
                self._write_one(checkpoint, step)
                self._written = step
                self.failure = None
            # training continues after any error; a run that is asked to stop reports ``failure``
            except Exception as e:
                why = str(getattr(e, "strerror", None) or str(e) or type(e).__name__)
                if why != self.failure:
                    there = (
                        f"the newest one is of step {self._written}"
                        if self._written
                        else "this run has none yet"
                    )
                    complain(
                        f"{self.folder}: the checkpoint of step {step} cannot be written: {why};"
                        f" {there}; training continues and retries: free disk space or make the"
                        " folder writable"
                    )
                self.failure = why

    def _write_one(self, checkpoint: Checkpoint, step: int) -> None:
        # the state of a run at a step is unique, so an intact checkpoint of this step is the same
        if not any(other == step and _is_good(path) for other, path in steps_in(self.folder)):
            write_checkpoint(self.folder, checkpoint)
        prune(self.folder, step, self.keep)


def _is_good(path: Path) -> bool:
    try:
        read_checkpoint(path)
    except FormatError:
        return False
    return True


def find_checkpoint(job: Job, comm: Comm) -> Checkpoint | None:
    """The checkpoint to resume from; None for a new run. Arrays with a row for each node are on
    rank 0 alone.

    Raises:
        ConfigError: The folder holds an unfinished run, or one of another job; on all ranks
            together.

    Collective: all ranks of comm.
    """
    newest = None
    with comm.agreed():
        if comm.rank == 0:
            try:
                newest = _find(job)
            except OSError as error:
                raise FormatError(
                    f"{job.folder / CHECKPOINTS}: cannot be read: {error.strerror or error};"
                    " choose another folder with --out"
                ) from None
    whole = (
        None
        if newest is None
        else {"manifest": newest.manifest.model_dump(), "arrays": newest.shared}
    )
    whole = comm.broadcast(whole)
    if whole is None or comm.rank == 0:
        return newest
    return Checkpoint(CheckpointManifest.model_validate(whole["manifest"]), whole["arrays"])


def _find(job: Job) -> Checkpoint | None:
    folder = job.folder / CHECKPOINTS
    sweep_asides(job.folder)
    sweep(folder)
    # another job may have ended here since the folder was chosen
    refuse_to_replace(job)
    if not job.resume:
        sweep(folder, everything=True)
        return None
    newest = newest_good(folder, complain)
    if newest is None and steps_in(folder):
        raise FormatError(
            f"{folder}: none of the checkpoints can be read; choose another folder with --out, or"
            " delete this one to start from the beginning"
        )
    if newest is None:
        say(f"{folder}: there is no checkpoint to resume from; starting from the beginning")
        return None
    check_same(job, newest.manifest, job.folder)
    return newest


def check_same(job: Job, manifest: CheckpointManifest, folder: Path) -> None:
    """Refuse to resume a run with another job.

    Raises:
        ConfigError: A key that changes numbers differs.
    """
    if manifest.job_hash == job_hash(job):
        return
    ours = job.model_dump(mode="json")
    defaults = Job().model_dump(mode="json")
    for key in {**ours, **manifest.job}:
        here = ours.get(key, defaults.get(key))
        theirs = manifest.job.get(key, defaults.get(key))
        if key in FREE or here == theirs:
            continue
        here_shown = "not given" if here is None else as_text(here)
        shown = "not given" if theirs is None else as_text(theirs)
        config = shlex.quote(str(folder / "job.yaml"))
        remedy = f"drop {flag(key)}" if theirs is None else f"give {as_flag(key, theirs)}"
        raise ConfigError(
            f"{key}={here_shown}, but the run in {folder} has {key}={shown}; {remedy} to resume it,"
            f" all of its keys with --config {config}, or choose another folder with --out"
        )


def job_hash(job: Job) -> str:
    """A hash of the keys that change numbers."""
    keys = {key: value for key, value in job.model_dump(mode="json").items() if key not in FREE}
    return hashlib.blake2b(to_json(keys, sort_keys=True).encode(), digest_size=16).hexdigest()
