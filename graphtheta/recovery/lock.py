"""One job at a time in the folder of a run: two would write over each other's metrics and checkpoints.

A lock of the system's on a file, which a process that is killed loses; a file that says "taken" by being there would outlive it.
"""
from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import FormatError

LOCK_FILE = ".lock"
# seconds that an earlier job may take to end, which a scheduler has killed elsewhere
PATIENCE = 5.0


@contextmanager
def alone(folder: Path, comm: Comm) -> Iterator[None]:
    """Have a folder for this job until the block ends, or its process does.

    Where the file system knows no locks, or cannot be written, nothing is kept out.

    Args:
        folder: Of the run; is made.
        comm: All ranks of the job; rank 0 holds the lock.

    Raises:
        FormatError: Another job has it; on all ranks together.

    Collective: all ranks of comm.
    """
    file, error = None, None
    if comm.rank == 0:
        # what cannot be written is said by those who write
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
        if file is not None and not _lock(file, PATIENCE):
            os.close(file)
            file, error = None, taken(folder)
    try:
        comm.agree(error)
        yield
    finally:
        if file is not None:
            os.close(file)


def check_free(folder: Path) -> None:
    """Refuse a folder in which a job is training; changes nothing there.

    Raises:
        FormatError: There is one.
    """
    with suppress(OSError):
        file = os.open(folder / LOCK_FILE, os.O_RDWR)
        try:
            if not _lock(file, PATIENCE):
                raise taken(folder)
        finally:
            os.close(file)


def taken(folder: Path) -> FormatError:
    """The error to raise."""
    return FormatError(f"{folder}: another job is training in this folder; wait until it ends, or choose another folder with --out")


def _lock(file: int, patience: float) -> bool:
    """Lock a file until it is closed; False if it stays locked by others for ``patience`` seconds."""
    end = monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() > end:
                return False
            sleep(0.1)
        except OSError:
            return True  # no locks here
        else:
            return True
