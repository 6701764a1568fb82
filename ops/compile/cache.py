"""The cache folder of compiled kernels, shared by runs and by the processes of a run.

Files of the folder are loaded and run, so anyone who can write there can run code as the user. The
folder and each file must therefore be writable by this user alone (``graphtheta/base/private.py``).

A file is named after the hash of all that its machine code depends on, and begins with a hash of
this name and of its content. A file that is cut off, damaged or renamed is not loaded: its kernel
is compiled again and the file replaced. The hash is not a signature; owner and mode of the file
show that nobody else wrote it.
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

from graphtheta.base import private
from graphtheta.errors import ConfigError

SUFFIX = ".kernel"
LOG = logging.getLogger("graphtheta")


def cache_folder() -> Path:
    """The folder for kernels: the lasting one, or a temporary one if the default cannot be used.

    The temporary folder belongs to this process; a warning gives the reason.

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
        folder = Path(given or private.user_folder()).absolute()
        private.make_folder(folder)
    except (OSError, RuntimeError) as error:
        named, unset = (
            (f"GRAPHTHETA_CACHE = {given}", ", or unset it")
            if given
            else ("the cache folder of this user", "")
        )
        raise ConfigError(
            f"{named} is not safe for compiled kernels, which are executable code: {error}; use a"
            f" folder of your own (export GRAPHTHETA_CACHE=FOLDER){unset}"
        ) from None
    return folder


def load(path: Path) -> bytes | None:
    """Machine code from this file; None if there is none, or one that must not be loaded."""
    try:
        content = private.read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        LOG.warning("a kernel is compiled again and its file replaced: %s", error)
        return None
    code = content[hashlib.sha256().digest_size :]
    if not content.startswith(_seal(path, code)):
        LOG.warning("a kernel is compiled again and its file replaced: %s is damaged", path)
        return None
    return code


def save(path: Path, code: bytes) -> None:
    """Write machine code to this file. An error, such as a full disk, is only logged."""
    try:
        private.write(path, _seal(path, code) + code)
    except OSError as error:
        LOG.warning(
            "a compiled kernel cannot be cached and will be compiled again in the next run: %s",
            error,
        )


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Hold the lock file of a path, if the file system has locks.

    One process compiles a kernel; the others wait and find it in the cache.
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


@cache
def _temporary() -> Path:
    """A temporary folder with a random name; another user could create a known one first."""
    folder = Path(tempfile.mkdtemp(prefix="graphtheta-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _warn(message: str) -> None:
    """Log a warning once for each message."""
    LOG.warning(message)
