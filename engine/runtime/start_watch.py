"""Ends a job of which a process ended before it started MPI: the others would wait for it in
MPI_Init without end.

While MPI starts, it holds the interpreter, so that a thread could not run. A child process looks
from time to time whether all processes of MPICH's launcher on this machine are there. It ends when
MPI has started. Launchers of other libraries end such jobs themselves, or have an option for it.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname

# the launcher's process on each machine, by the beginning of its name
LAUNCHER = "hydra"
# variables of the launcher: a process's rank, and processes of the job, of all machines and of this
# one
RANK = "PMI_RANK"
SIZE = "PMI_SIZE"
LOCAL = "MPI_LOCALNRANKS"
# seconds between looks, and looks in a row that miss the same processes: others may be about to
# fail alike, and say why themselves
PERIOD = 1.0
LOOKS = 3


@contextmanager
def watched_start() -> Iterator[None]:
    """Context in which MPI starts; if a process of the job on this machine ends before, all of it
    ends, with a message on its rank.
    """
    local = os.environ.get(LOCAL, "")
    parent = Path("/proc", str(os.getppid()))
    if (
        not local.isdigit()
        or not os.environ.get(RANK, "").isdigit()
        or not _text(parent / "comm").startswith(LAUNCHER)
    ):
        yield
        return
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(write)
            _watch(read, parent, int(local), int(os.environ[RANK]))
        finally:
            os._exit(0)
    os.close(read)
    try:
        yield
    finally:
        os.close(write)
        os.waitpid(child, 0)


def _watch(started: int, launcher: Path, local: int, rank: int) -> None:
    """Look for the processes of the launcher until ``started`` is closed, and end the one that
    waits if one is missing.

    Args:
        started: End of a pipe.
        launcher: Folder of the launcher in /proc.
        local: Processes of the job on this machine.
        rank: That of the process that waits.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # the process that waits decides, and its end closes the pipe
        signal.signal(number, signal.SIG_IGN)
    waits = os.getppid()
    missed = 0
    last: list[int] = []
    while not select.select([started], [], [], PERIOD)[0]:
        there = living(launcher)
        missed = missed + 1 if there == last else 1
        last = there
        # the lowest rank speaks for all, and the launcher ends the others when it is killed
        if missed >= LOOKS and 0 < len(there) < local and rank == min(there):
            os.write(
                2,
                f"rank {rank}: CommError: MPI cannot start, because {missing(there, local)} ended"
                " before it did; see the messages above for the cause, or run the program on one"
                " process, without mpiexec\n".encode(),
            )
            os.kill(waits, signal.SIGKILL)
            return


def missing(there: list[int], local: int) -> str:
    """The processes of this machine that ended, in words.

    Args:
        there: Ranks of the others.
        local: Processes of the job on this machine.
    """
    if os.environ.get(SIZE) == str(local):
        return f"rank {', '.join(str(rank) for rank in range(local) if rank not in there)}"
    return (
        f"{local - len(there)} of the {local} processes on {gethostname()}, of which rank"
        f" {', '.join(map(str, there))} still run,"
    )


def living(launcher: Path) -> list[int]:
    """Ranks of the processes of a launcher that have not ended, ascending; empty if the system does
    not list them.
    """
    ranks = []
    for child in _text(launcher / "task" / launcher.name / "children").split():
        # nothing is left of the environment of a process that ended
        variables = dict(
            item.partition("=")[::2]
            for item in _text(launcher.with_name(child) / "environ").split("\0")
        )
        if variables.get(RANK, "").isdigit():
            ranks.append(int(variables[RANK]))
    return sorted(ranks)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
