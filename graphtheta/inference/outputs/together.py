"""Work on files of a folder that all workers share, whose errors are raised on all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphtheta.base.atomic import unwritable
from graphtheta.engine.comm.communicator import Comm


@contextmanager
def together(comm: Comm, folder: Path, what: str) -> Iterator[None]:
    """A block that writes files; an error is raised on all ranks.

    Args:
        comm: The workers.
        folder: Where the files are.
        what: Their name in a message.

    Raises:
        FormatError: A file cannot be written.
        GraphThetaError: What the block raised.

    Collective: all ranks of comm.
    """
    with comm.agreed():
        try:
            yield
        except OSError as error:
            raise unwritable(
                error.filename or folder,
                what,
                error,
                "free disk space, or choose a folder that is writable and on a file system that "
                "all workers share",
            ) from None
