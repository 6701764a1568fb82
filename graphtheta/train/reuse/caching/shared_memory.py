"""Memory that all workers of a machine can read.

Each worker gives a part, which it alone can change: the others map it read-only. The parts are
files of a file system in memory that have no names once they are mapped, so the operating system
frees them when the last process ends, however it ends.
"""

from __future__ import annotations

import mmap
import os
from contextlib import ExitStack
from pathlib import Path
from tempfile import gettempdir

import numpy as np

from graphtheta.base.atomic import named_temporary_file
from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import MemoryLimitError

FOLDER = Path("/dev/shm")


def mates(comm: Comm) -> np.ndarray:
    """Ranks on the machine of this one, ascending, itself included."""
    return np.flatnonzero(comm.machines == comm.machines[comm.rank])


def share(comm: Comm, n_bytes: int) -> list[np.ndarray]:
    """Memory of the workers of this machine.

    What a worker writes to its part is visible to another one that has received a later message
    from it.

    Args:
        comm: All ranks.
        n_bytes: Bytes of this worker's part.

    Returns:
        The part of each rank in ``mates``, [n_bytes of that rank] uint8 of zeros; all but the own
        one are read-only.

    Raises:
        MemoryLimitError: There is no room; on all ranks together.

    Collective: all ranks of comm.
    """
    folder = FOLDER if FOLDER.is_dir() else Path(gettempdir())
    with ExitStack() as stack:
        with comm.agreed():
            try:
                opened, path = stack.enter_context(named_temporary_file(folder))
                os.posix_fallocate(opened.fileno(), 0, max(n_bytes, 1))
                part = np.frombuffer(mmap.mmap(opened.fileno(), max(n_bytes, 1)), np.uint8)
            except OSError as error:
                raise MemoryLimitError(
                    f"{folder} has no room for {n_bytes:,} bytes that the workers of a machine"
                    f" share ({error.strerror}); make --machine-cache smaller, or enlarge that file"
                    " system"
                ) from None
        paths = comm.all_gather(path)
        # nobody removes a file that another one has yet to open
        with comm.agreed():
            return [
                part if rank == comm.rank else _part_of(rank, paths[rank]) for rank in mates(comm)
            ]


def _part_of(rank: int, path: str) -> np.ndarray:
    """The part of another rank, which is read-only."""
    try:
        with open(path, "rb") as other:
            return np.frombuffer(mmap.mmap(other.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except OSError as error:
        raise MemoryLimitError(
            f"memory of rank {rank} cannot be shared ({error.strerror}), although it is on this"
            " machine; drop --machine-cache if they are in different containers"
        ) from None
