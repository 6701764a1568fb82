"""Errors of a rank: sent to other ranks, turned into an exit status, and printed."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from contextlib import suppress
from fcntl import ioctl
from termios import FIONREAD
from time import monotonic, sleep

from graphtheta import errors
from graphtheta.base.console import printable
from graphtheta.errors import ConfigError, GraphThetaError

# exit status if the reader of the output has gone; nothing is printed then
BROKEN_PIPE = 141


# what to do about errors of the system that are no faults of the program
REMEDIES = {
    errno.ENOSPC: "free disk space",
    errno.EDQUOT: "free disk space",
    errno.EFBIG: "choose another disk",
    errno.EIO: "check the disk",
    errno.EACCES: "choose a path that you may use",
    errno.EPERM: "choose a path that you may use",
    errno.EROFS: "choose a path that can be written to",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "check the links",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "check the path",
    errno.EEXIST: "move it away, or choose another name",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "close other programs",
}


def os_error_text(error: OSError) -> str:
    """One line about an error of the system: the file, why, what to do, and where in the program it
    was.
    """
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" ({os.path.basename(frame.filename)}, line {frame.lineno})" for frame in last)
    at = "" if error.filename is None else f"{os.fspath(error.filename)}: "
    return (
        f"{at}{error.strerror};"
        f" {REMEDIES.get(error.errno or 0, 'check the path and the disk')}{where}"
    )


def class_name(error: GraphThetaError) -> str:
    """Name of the class of an error, or of its nearest base in ``graphtheta.errors``."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == errors.__name__)


def rebuild(name: str, text: str) -> GraphThetaError:
    """Recreate an error of another rank.

    Args:
        name: Result of ``class_name`` on that rank.
        text: Message of the error.
    """
    kind: type[GraphThetaError] = getattr(errors, name)
    return kind(text)


def exit_code(error: BaseException) -> int:
    """Exit status of a process that ends with ``error``.

    Args:
        error: The uncaught error.

    Returns:
        The status of a ``SystemExit``; 2 for an invalid job or command; 130 for Ctrl-C and 141 for
        a broken pipe, which shells return for programs that these signals end; 1 for every other
        error.
    """
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    kinds: tuple[tuple[type[BaseException], int], ...] = (
        (ConfigError, 2),
        (KeyboardInterrupt, 130),
        (BrokenPipeError, BROKEN_PIPE),
    )
    return next((code for kind, code in kinds if isinstance(error, kind)), 1)


def close_output() -> None:
    """Discard further output: its reader (head, less) has exited, so writing would fail."""
    # in a notebook or under a test, stdout has no file descriptor
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def wait_until_read(pipe: int, patience: float = 0.7) -> None:
    """Wait until the launcher has read the output; that of MPICH loses the rest of an aborted job.

    Args:
        pipe: File descriptor. For a file or a terminal the function returns at once.
        patience: Longest wait in seconds.
    """
    end = monotonic() + patience
    with suppress(OSError):
        while int.from_bytes(ioctl(pipe, FIONREAD, bytes(4)), sys.byteorder) and monotonic() < end:
            sleep(1e-4)


def report(error: BaseException, rank: int, size: int) -> str:
    """Text about an uncaught error for the user.

    Args:
        error: The error.
        rank: Rank that raised it.
        size: Number of ranks.

    Returns:
        Class and message of an error raised on purpose, to which a traceback would add nothing;
        for an error of the system, such as a full disk, its file and place; the traceback of any
        other error, which is a bug. It starts with the rank if there are
        several. Empty if nothing is to be printed.
    """
    if isinstance(error, KeyboardInterrupt):
        text = "interrupted"
    elif isinstance(error, SystemExit):
        text = error.code if isinstance(error.code, str) else ""
    elif isinstance(error, BrokenPipeError):
        text = ""
    elif isinstance(error, GraphThetaError):
        text = f"{type(error).__name__}: {error}"
    elif isinstance(error, OSError) and error.errno in REMEDIES:
        text = os_error_text(error)
    else:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
        # Python 3.10 does not show notes
        text = "\n".join(
            [text, *(note for note in getattr(error, "__notes__", []) if note not in text)]
        )
    if not text:
        return ""
    text = printable(text)
    return f"rank {rank}/{size}: {text}\n" if size > 1 else f"{text}\n"
