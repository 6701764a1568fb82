"""The folder in which compiled kernels are kept, shared by runs and by the processes of a run.

What lies in the folder is loaded and run: whoever could write there could run code as the user. The
folder is therefore the user's alone (``private.py``), and so is each file that is loaded.

A file is named after the hash of all that its machine code depends on, and begins with a hash of
this name and of its content. A file that is cut off, damaged or renamed is not loaded: its kernel is
compiled again and the file replaced. The hash is no signature: that nobody else wrote the file
follows from its owner and mode.
"""
from __future__ import annotations

import atexit
import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from graphtheta.errors import ConfigError

from . import private

SUFFIX = ".kernel"
LOG = logging.getLogger("graphtheta")


def cache_folder() -> Path:
    """Where kernels are kept: the lasting folder, or a temporary one if the default cannot be used.

    The temporary folder is for this process alone; a warning says why it is used.

    Raises:
        ConfigError: $GRAPHTHETA_CACHE cannot be used.
    """
    try:
        return lasting_folder()
    except ConfigError as error:
        if os.environ.get("GRAPHTHETA_CACHE"):
            raise
        _warn(f"kernels are compiled for this run only: {error}")
        return _temporary()


def lasting_folder() -> Path:
    """Where later runs find kernels: $GRAPHTHETA_CACHE, or a folder in the user's cache folder.

    Raises:
        ConfigError: The folder cannot be written to, or others can change what lies there.
    """
    given = os.environ.get("GRAPHTHETA_CACHE")
    try:
        folder = Path(given or _usual()).absolute()
        private.make_folder(folder)
    except (OSError, RuntimeError) as error:
        named, unset = (f"GRAPHTHETA_CACHE = {given}", ", or unset it") if given else ("the cache folder of this user", "")
        raise ConfigError(f"{named} is not safe for compiled kernels, which are executable code: {error}; use a folder of your own "
                          f"(export GRAPHTHETA_CACHE=FOLDER){unset}") from None
    return folder


def load(path: Path) -> bytes | None:
    """What was saved as this file; None if there is none, or one that must not be loaded."""
    try:
        content = private.read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        LOG.warning("a kernel is compiled again and its file replaced: %s", error)
        return None
    code = content[hashlib.sha256().digest_size:]
    if not content.startswith(_seal(path, code)):
        LOG.warning("a kernel is compiled again and its file replaced: %s is damaged", path)
        return None
    return code


def save(path: Path, code: bytes) -> None:
    """Keep machine code as this file. An error, such as a full disk, is only logged."""
    try:
        private.write(path, _seal(path, code) + code)
    except OSError as error:
        LOG.warning("a compiled kernel cannot be cached and will be compiled again in the next run: %s", error)


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Hold the lock file of a path; where the file system has no locks, go on without.

    A kernel is compiled by one process at a time; those that wait find it in the cache.
    """
    file = None
    with suppress(OSError):
        file = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if file is not None:
            os.close(file)


def _seal(path: Path, code: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + code).digest()


def _usual() -> Path:
    """Raises RuntimeError if the user has no home."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "graphtheta"


@cache
def _temporary() -> Path:
    """A random name: whoever made a folder of a known name first could put code there."""
    folder = Path(tempfile.mkdtemp(prefix="graphtheta-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _warn(message: str) -> None:
    """Once for each message."""
    LOG.warning(message)
