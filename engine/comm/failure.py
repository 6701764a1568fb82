"""Errors that cross the border of a rank: how they are named, rebuilt elsewhere, and printed."""
from __future__ import annotations

import builtins
import os
import sys
import traceback
from contextlib import suppress
from fcntl import ioctl
from termios import FIONREAD
from time import monotonic, sleep

from graphtheta import errors
from graphtheta.errors import CommError, ConfigError, GraphThetaError

# exit status if nobody reads what is printed; there is nothing to say then
BROKEN_PIPE = 141


def kinds(error: Exception) -> list[str]:
    """Names of the class of an error and its bases, nearest first.

    Args:
        error: Any exception.

    Returns:
        What ``rebuild`` needs beside the text.
    """
    return [kind.__name__ for kind in type(error).__mro__ if kind.__module__ in (errors.__name__, "builtins")]


def rebuild(names: list[str], text: str) -> Exception:
    """Make an error of another rank again.

    Args:
        names: What ``kinds`` returned there.
        text: Its message.

    Returns:
        An error of the first class in ``names`` that can be made from a text.
    """
    for name in names:
        kind = getattr(errors, name, None) or getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                return kind(text)
            except TypeError:
                continue  # some builtins, UnicodeDecodeError for one, cannot be made from a text
    return CommError(text)


def exit_code(error: BaseException) -> int:
    """Exit status of a process that ends with ``error``.

    Args:
        error: The uncaught error.

    Returns:
        What ``SystemExit`` asks for, 2 for a job or a command that cannot be understood, 1 for everything else that goes
        wrong, 130 for Ctrl-C, 141 if nobody reads what is printed; the last two are what a shell says of programs that
        end by these signals.
    """
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    kinds: tuple[tuple[type[BaseException], int], ...] = ((ConfigError, 2), (KeyboardInterrupt, 130), (BrokenPipeError, BROKEN_PIPE))
    return next((code for kind, code in kinds if isinstance(error, kind)), 1)


def close_output() -> None:
    """Stop printing: the reader (head, less) has seen enough, and Python would fail to write the rest when it ends."""
    # in a notebook or under a test it is no file of the system's
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def wait_until_read(pipe: int, patience: float = 0.7) -> None:
    """Wait until a launcher has read what was written; MPICH's loses what is left in its pipes when a job is aborted.

    Args:
        pipe: File descriptor; of a file or a terminal there is nothing to wait for.
        patience: Seconds after which it is left unread.
    """
    end = monotonic() + patience
    with suppress(OSError):
        while int.from_bytes(ioctl(pipe, FIONREAD, bytes(4)), sys.byteorder) and monotonic() < end:
            sleep(1e-4)


def report(error: BaseException, rank: int, size: int) -> str:
    """What the user reads about an uncaught error.

    Args:
        error: The error.
        rank: Where it was raised.
        size: Number of ranks.

    Returns:
        Class and message for an error raised on purpose, since a traceback adds nothing to it; the traceback for
        others, which are bugs. Prefixed by the rank where there are several. Empty if there is nothing to say.
    """
    if isinstance(error, KeyboardInterrupt):
        text = "interrupted"
    elif isinstance(error, SystemExit):
        text = error.code if isinstance(error.code, str) else ""
    elif isinstance(error, BrokenPipeError):
        text = ""
    elif isinstance(error, GraphThetaError):
        text = f"{type(error).__name__}: {error}"
    else:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
        # Python 3.10 does not show them
        text = "\n".join([text, *(note for note in getattr(error, "__notes__", []) if note not in text)])
    if not text:
        return ""
    return f"rank {rank}/{size}: {text}\n" if size > 1 else f"{text}\n"
