"""Processes of a job, as its ``launch`` sees them: children, orphans, and the memory that they
share.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from graphtheta.base.atomic import remove_new

# of linux/prctl.h
_PDEATHSIG, _SUBREAPER = 1, 36
# where MPI libraries put the memory that ranks of a machine share, and the beginning of their names
SHARED = Path("/dev/shm")
LIBRARIES = ("mpich_shm_", "ucx_shm_", "vader_segment.", "sm_segment.", "psm2_shm.", "psm3_shm.")


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process, where the system is Linux."""
    if sys.platform == "linux":
        _LIBC.prctl(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    """Make descendants of this process, whose parents end, its children."""
    prctl(_SUBREAPER, 1)


def dies_with(parent: int) -> Callable[[], None]:
    """A ``preexec_fn`` for a new child, which has it killed when its parent dies."""

    def prepare() -> None:
        prctl(_PDEATHSIG, signal.SIGKILL)
        # the parent may have died before the call
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def children(pid: int | None = None, further: bool = False) -> set[int]:
    """Children of a process, by default of this one, and with ``further`` theirs, and so on."""
    with suppress(psutil.NoSuchProcess):
        return {child.pid for child in psutil.Process(pid).children(recursive=further)}
    return set()


def runs(pid: int) -> bool:
    """Whether a process has not ended, even if nobody has asked about its end."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def has_lost_its_ranks(starter: int, others: set[int]) -> bool:
    """Whether a program that starts ranks has no child that runs, while this process has adopted
    some of its descendants.

    So it is when a proxy of mpiexec was killed: mpiexec waits for it, and ranks wait for mpiexec.

    Args:
        starter: The process of the program.
        others: Children of this process that do not belong to the job.
    """
    return bool(children() - others - {starter}) and not any(map(runs, children(starter)))


def kill_all_but(others: set[int]) -> None:
    """Kill all children but these, and wait for them; a job left them behind."""
    while left := children() - others:
        for pid in left:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


class SharedMemory:
    """The shared memory that MPI has made for the ranks of a job on this machine; it stays there
    when they are killed.

    Files are told by the maps of the processes of the job, so that those of other jobs stay.
    """

    def __init__(self) -> None:
        # with the number of the file, since another job may reuse a name
        self._files: dict[Path, int] = {}
        self._seen = set[int]()

    def note(self, pids: Iterable[int]) -> None:
        """Look what some processes map, until each has mapped some."""
        for pid in set(pids) - self._seen:
            with suppress(OSError):
                for line in (
                    Path(f"/proc/{pid}/maps")
                    .read_text(encoding="utf-8", errors="replace")
                    .splitlines()
                ):
                    fields = line.split(maxsplit=5)
                    path = Path(fields[5]) if len(fields) == 6 else Path()
                    if path.parent == SHARED and path.name.startswith(LIBRARIES):
                        self._files[path] = int(fields[4])
                        self._seen.add(pid)

    def remove(self) -> None:
        """Remove the files that are still there, once no process of the job runs."""
        for path, number in self._files.items():
            with suppress(OSError):
                if path.stat().st_ino == number:
                    remove_new(path)
        self._files.clear()
        self._seen.clear()


_LIBC = ctypes.CDLL(None)
