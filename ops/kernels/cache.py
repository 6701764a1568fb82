"""The folder in which compiled kernels are kept, shared by runs and by the processes of a run.

Numba numbers the overloads of a function when it saves them, so two processes that save different overloads at once
could give one the other's machine code. One kernel is therefore compiled by one process at a time, under a file lock;
those that wait find it in the cache.

What lies in the folder is loaded and run: whoever can write there can run code as the user. A folder that every user of the
machine may write to is therefore not used, and a new one is the user's alone.
"""
from __future__ import annotations

import atexit
import fcntl
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from graphtheta.errors import ConfigError

LOG = logging.getLogger("graphtheta")


def cache_folder() -> Path:
    """Where kernels are kept: $GRAPHTHETA_CACHE, else the user's cache folder, else a folder of this process alone.

    Raises:
        ConfigError: $GRAPHTHETA_CACHE cannot be written to.
    """
    given = os.environ.get("GRAPHTHETA_CACHE")
    if given:
        folder = Path(given)
        if _writable(folder) and _open_to_all(folder):
            raise ConfigError(f"GRAPHTHETA_CACHE = {given} can be written to by every user of this machine, who could put code there "
                              f"that you would run; name a folder of your own, or: chmod o-w {given}")
        if not _writable(folder):
            raise ConfigError(f"GRAPHTHETA_CACHE = {given} cannot be written to; compiled kernels are kept there, "
                              "so name a folder of your own or unset it")
        return folder
    usual = _usual()
    return usual if usual is not None and _writable(usual) and not _open_to_all(usual) else _private()


def _usual() -> Path | None:
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(given) if given else Path.home() / ".cache") / "graphtheta"
    except RuntimeError:
        # there is no home
        return None


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _open_to_all(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IWOTH)


@cache
def _private() -> Path:
    """Not a fixed name in the temporary folder: whoever made that first could put code of their own there."""
    folder = Path(tempfile.mkdtemp(prefix="graphtheta-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    LOG.warning("the cache folder of this user cannot be written to, or by all users, so kernels are compiled for this run only; "
                "set GRAPHTHETA_CACHE to a folder of your own")
    return folder


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Hold the lock file of a path; where the file system has no locks, go on without."""
    with open(path.with_suffix(".lock"), "wb") as file:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
