"""Start and end of a process: its communicator, its threads, and its exit status.

Plain ``python`` never imports MPI. A process that a launcher (``mpiexec``, ``srun``) has started
joins the others.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from graphtheta.base.console import complain, open_streams
from graphtheta.errors import CommError, ConfigError

from ..comm.communicator import Comm
from ..comm.failure import close_output, exit_code, report
from ..comm.serial import SerialComm
from .affinity import Threads, choose_threads
from .start_watch import watched_start

if TYPE_CHECKING:
    from .mpi import MpiComm

# what all ranks run; it may call ``start`` for the communicator, and returns the exit status, None
# for 0
Program: TypeAlias = Callable[[], int | None]

_log = logging.getLogger("graphtheta.engine")
_comm: Comm | None = None
_threads: Threads | None = None
# environment variables of rank and size, by launcher. Slurm sets SLURM_NTASKS in batch scripts
# too, where only one process runs; SLURM_STEP_NUM_TASKS is the number of processes srun has really
# started.
_LAUNCHERS = (
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
# set by torchrun alone, unlike WORLD_SIZE
_TORCHRUN = "TORCHELASTIC_RUN_ID"


def launched() -> tuple[int, int]:
    """Rank and size from the environment of the launcher; (0, 1) for plain ``python``."""
    for rank, size in _LAUNCHERS:
        if os.environ.get(rank, "").isdigit() and os.environ.get(size, "").isdigit():
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


def start() -> Comm:
    """The communicator of this process, the same object at each call.

    The first call starts MPI if a launcher has started several processes, chooses the number of
    threads, and installs the hook by which an uncaught error on one rank ends all ranks.

    Returns:
        An ``MpiComm`` under ``mpiexec -n P`` with P > 1, otherwise a ``SerialComm``.

    Raises:
        ConfigError: If several processes were started but MPI is not installed, or torchrun has
            started them.
        CommError: If the processes cannot communicate, because the launcher belongs to another MPI
            library.

    Collective: all ranks.
    """
    global _comm, _threads
    if _comm is None:
        open_streams()
        size = launched()[1]
        if size > 1:
            install_excepthook()
            _comm = mpi = _start_mpi(size)
            # ranks may have different environments, and one that failed before would leave the
            # others waiting in MPI
            with mpi.agreed():
                mpi.limit_pauses(read_patience(os.environ.get("GRAPHTHETA_PATIENCE", "")))
            _threads = choose_threads(mpi)
            if not _threads.crowded:
                mpi.own_core()
        else:
            _refuse_torchrun()
            _comm = SerialComm()
            _threads = choose_threads(_comm)
        _comm.cores = _threads.count
        if os.environ.get("GRAPHTHETA_LINK"):
            from ..comm.delayed import SlowComm, read_link

            _comm = SlowComm(_comm, *read_link(os.environ["GRAPHTHETA_LINK"]))
        _log.info("%d rank(s), %s", _comm.size, _threads)
    return _comm


def install_excepthook() -> None:
    """Let an uncaught error end all processes of a launcher, with one message."""
    if launched()[1] > 1:
        sys.excepthook = _excepthook


def threads() -> Threads:
    """The threads of this rank, as chosen by ``start``."""
    start()
    assert _threads is not None
    return _threads


def run_main(fn: Program) -> int:
    """Run a whole program. After an error on any rank, all ranks end and one message is printed.

    Args:
        fn: The program.

    Returns:
        Exit status for ``sys.exit``: what ``fn`` returned (None is 0), or non-zero after an error.
    """
    try:
        start()
        return int(fn() or 0)
    except BaseException as error:  # SystemExit and Ctrl-C on one rank must end the others as well
        return _fail(error)


def read_patience(text: str) -> float | None:
    """Parse GRAPHTHETA_PATIENCE.

    Returns:
        Seconds that a rank may make no progress while others wait for it; None for an empty text.

    Raises:
        ConfigError: The text is not a number of seconds.
    """
    if not text.strip():
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ConfigError(
            f"GRAPHTHETA_PATIENCE={text!r} is not a number of seconds; give a time limit in"
            " seconds, 0 for no limit, or unset it for a limit that follows the pace of the"
            " program"
        )
    return seconds


def _refuse_torchrun() -> None:
    """Refuse processes that would each do all of the work, because torchrun gives them no MPI.

    Raises:
        ConfigError: torchrun has started several processes.
    """
    n = os.environ.get("WORLD_SIZE", "")
    if _TORCHRUN in os.environ and n.isdigit() and int(n) > 1:
        raise ConfigError(
            f"torchrun has started {n} processes, but without MPI, by which workers of GraphTheta"
            f" reach each other; start them with: mpiexec -n {n} python"
            f" {os.path.basename(sys.argv[0]) or 'PROGRAM'}"
        )


def _start_mpi(size: int) -> MpiComm:
    try:
        with warnings.catch_warnings(), watched_start():
            warnings.simplefilter("ignore", RuntimeWarning)  # mpi4py warns of what is checked below
            from .mpi import MpiComm
    except (ImportError, RuntimeError) as error:
        # mpi4py lists the paths that it has tried below
        cause = str(error).partition("\n")[0]
        raise ConfigError(
            f"{size} processes were started together, but MPI cannot be used here ({cause}); "
            'run pip install "graphtheta[mpich]", or load the MPI module of the cluster, or start'
            " one process without mpiexec"
        ) from error
    comm = MpiComm()
    if comm.size == 1:
        raise CommError(
            f"{size} processes were started together, but each has an MPI world of size 1: mpi4py"
            f" uses {comm.library}, which the launcher does not serve; use the mpiexec beside"
            f" {os.path.basename(sys.executable)} in this environment, or another --mpi of srun, or"
            " let MPI4PY_LIBMPI name the launcher's MPI library (graphtheta doctor shows both)"
        )
    atexit.register(comm.close)
    return comm


def _fail(error: BaseException) -> int:
    code = exit_code(error)
    if isinstance(error, BrokenPipeError):
        close_output()
    if _comm is None and launched()[1] > 1:
        # ranks need a communicator to agree which of them prints, also if only one fails
        with suppress(Exception):
            start()
    if _comm is not None:
        if code == 0:
            return 0
        return _comm.leave(report(error, _comm.rank, _comm.size), code)
    rank, size = launched()
    text = report(error, rank, size)
    # without MPI the ranks cannot agree which of them prints, but they fail alike
    if rank == 0 and text:
        complain(text.removesuffix("\n"))
    return code


def _excepthook(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    code = _fail(error.with_traceback(trace))
    # Python would end with status 1 whatever the error, and by a signal after Ctrl-C, which
    # launchers report at length
    sys.exit(code)
