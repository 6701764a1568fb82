"""Locks the folder of a run, so that two jobs do not overwrite each other's results.

The lock is an ``flock``, which the system releases when the process dies. A file whose existence
is the lock would outlive the process.
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
# seconds to wait for an earlier job that a scheduler is ending, perhaps on another host
PATIENCE = 5.0


@contextmanager
def exclusive(folder: Path, comm: Comm, flag: str = "--out") -> Iterator[None]:
    """Lock a folder for this job until the block or its process ends.

    Has no effect if the file system does not support locks or is not writable.

    Args:
        folder: Folder of the run; it is created.
        comm: All ranks of the job; rank 0 holds the lock.
        flag: The flag that chooses the folder, for the message.

    Raises:
        FormatError: Another job holds the lock; on all ranks together.

    Collective: all ranks of comm.
    """
    file, error = None, None
    if comm.rank == 0:
        # a folder that is not writable is reported by the code that writes results
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
        if file is not None and not _lock(file, PATIENCE):
            os.close(file)
            file, error = None, taken(folder, flag)
    try:
        comm.agree(error)
        yield
    finally:
        if file is not None:
            os.close(file)


def check_free(folder: Path) -> None:
    """Check that no job is training in a folder; changes nothing there.

    Raises:
        FormatError: Another job is training in it.
    """
    with suppress(OSError):
        file = os.open(folder / LOCK_FILE, os.O_RDWR)
        try:
            if not _lock(file, PATIENCE):
                raise taken(folder)
        finally:
            os.close(file)


def taken(folder: Path, flag: str = "--out") -> FormatError:
    """The error for a locked folder."""
    return FormatError(f"{folder}: another job is writing to this folder; wait until it ends, or choose another folder with {flag}")


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
