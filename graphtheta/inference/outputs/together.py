"""Work on files of a folder that all workers share, whose errors are raised on all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from graphtheta.base.atomic import unwritable
from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import GraphThetaError


def together(
    comm: Comm, folder: Path, what: str, work: Callable[[], object], here: bool = True
) -> None:
    """Do work that writes files; an error is raised on all ranks.

    Args:
        comm: The workers.
        folder: Where the files are.
        what: Their name in a message.
        work: What is done.
        here: Whether this rank does it.

    Raises:
        FormatError: A file cannot be written.
        GraphThetaError: What ``work`` raised.

    Collective: all ranks of comm.
    """
    error: GraphThetaError | None = None
    try:
        if here:
            work()
    except GraphThetaError as e:
        error = e
    except OSError as e:
        error = unwritable(
            e.filename or folder,
            what,
            e,
            "free disk space, or choose a folder that is writable and on a file system that "
            "all workers share",
        )
    comm.agree(error)
