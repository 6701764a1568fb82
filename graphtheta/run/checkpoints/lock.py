"""Locks the folder of a run, so that two jobs do not overwrite each other's results.

The lock is that of the marker of ``graphtheta.base.atomic``, which the system releases when the
process dies. A file whose existence is the lock would outlive the process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from graphtheta.base.atomic import (
    MARKER,
    NotOurs,
    Taken,
    claim,
    locked,
    make_folder,
    open_marker,
    sign,
    unwritable,
)
from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import FormatError

# seconds to wait for an earlier job that a scheduler is ending, perhaps on another host
PATIENCE = 5.0


@contextmanager
def exclusive(
    folder: Path, comm: Comm, flag: str = "--out", names: re.Pattern[str] | None = None
) -> Iterator[None]:
    """Lock a folder for this job until the block or its process ends.

    Has no effect if the file system does not support locks or is not writable.

    Args:
        folder: Folder of the run; it is created.
        comm: All ranks of the job; rank 0 holds the lock.
        flag: The flag that chooses the folder, for the message.
        names: Of a folder that is made anew: paths below it that an interrupted job may have left,
            which are removed.

    Raises:
        FormatError: Another job holds the lock, or the folder holds something else; on all ranks
            together.

    Collective: all ranks of comm.
    """
    file = None
    try:
        with comm.agreed():
            if comm.rank == 0:
                file = _lock(folder, flag, names)
        yield
    finally:
        if file is not None:
            os.close(file)


def _lock(folder: Path, flag: str, names: re.Pattern[str] | None) -> int | None:
    """The descriptor of the lock, see ``exclusive``; None for a folder that cannot be locked."""
    try:
        return _run_lock(folder) if names is None else claim(folder, names, PATIENCE)
    except Taken:
        raise taken(folder, flag) from None
    except OSError as error:
        # a run folder that is not writable is reported by the code that writes results
        if names is None and not isinstance(error, NotOurs):
            return None
        raise unwritable(folder, "the output", error) from None


def check_free(folder: Path) -> None:
    """Check that no job is training in a folder; changes nothing there.

    Raises:
        FormatError: Another job is training in it.
    """
    if (folder / MARKER).is_file():
        with suppress(OSError):
            file = open_marker(folder)
            try:
                if not locked(file, PATIENCE):
                    raise taken(folder)
            finally:
                os.close(file)


def taken(folder: Path, flag: str = "--out") -> FormatError:
    """The error for a locked folder."""
    return FormatError(
        f"{folder}: another job is writing to this folder; wait until it ends, or choose another"
        f" folder with {flag}"
    )


def _run_lock(folder: Path) -> int:
    make_folder(folder)
    file = open_marker(folder)
    if not locked(file, PATIENCE):
        os.close(file)
        raise Taken(str(folder))
    sign(file)
    return file
