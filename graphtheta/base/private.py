"""Creates, checks and reads files and folders that nobody but this user can change.

Anyone who can write to a folder can replace its entries, and anyone who can write to a folder
above it can replace the folder. A path is therefore followed from the root, and through symbolic
links. Every folder and link on the way must belong to this user or to root, who can change
everything anyway, and must not be writable by group or others. A folder above the last one may be
writable if it has the sticky bit, as ``/tmp`` has: then only the owner of an entry can replace the
entry. The rules are close to those of OpenSSH for the files of a user (``StrictModes`` in
sshd_config(5)).

Modes are set when a file is created and do not rely on the umask, which all threads share.
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def user_folder() -> Path:
    """The folder of GraphTheta in the cache folder of this user.

    Raises:
        RuntimeError: The user has no home.
    """
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "graphtheta"


def make_folder(folder: Path) -> None:
    """Make a folder, and those missing above it, for this user; check that no other can change it.

    Args:
        folder: An absolute path.

    Raises:
        OSError: It cannot be made or written to, or others can change it. The message names the
            path, its owner and mode, and a remedy if there is one.
    """
    for path in (*reversed(folder.parents), folder):
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)
    *above, last = _way(folder)
    for path, info in above:
        _refuse_owner(path, info, _system_owner())
        if not (stat.S_ISLNK(info.st_mode) or info.st_mode & stat.S_ISVTX):
            _refuse_writers(path, info, remedy=True)
    _refuse_owner(*last)
    _refuse_writers(*last, remedy=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{folder} cannot be written to ({_described(last[1])})")


def read(path: Path) -> bytes:
    """Content of a file that no other user can change.

    Raises:
        FileNotFoundError: There is none.
        OSError: It cannot be read, is a link or no file, or others can change it.
    """
    if path.is_symlink():
        raise PermissionError(f"{path} is a symbolic link")
    # the checked file is the one that is read; opening a pipe must not block
    with open(
        path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    ) as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise PermissionError(f"{path} is not a regular file")
        _refuse_owner(path, info)
        _refuse_writers(path, info)
        return file.read()


def write(path: Path, content: bytes) -> None:
    """Create or replace a file for this user alone, atomically: readers see old or new content.

    Raises:
        OSError: It cannot be written.
    """
    # mode 0600, and never an existing file
    number, aside = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with open(number, "wb") as file:
            file.write(content)
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Folders and symbolic links from the root to a path; each of them can redirect it."""
    done = Path(path.anchor)
    rest = [*reversed(path.parts[1:])]
    yield done, os.lstat(done)
    while rest:
        step = done / rest.pop()
        info = os.lstat(step)
        yield step, info
        if stat.S_ISLNK(info.st_mode):
            # the first part of an absolute target is the root, at which the path starts again
            rest += reversed(Path(os.readlink(step)).parts)
        else:
            done = step


def _described(info: os.stat_result) -> str:
    return f"owner {info.st_uid}, mode {stat.S_IMODE(info.st_mode):04o}"


def _refuse_owner(path: Path, info: os.stat_result, system: int = 0) -> None:
    if info.st_uid not in (os.geteuid(), 0, system):
        raise PermissionError(
            f"{path} belongs to user {info.st_uid} and not to you, user {os.geteuid()}"
            f" ({_described(info)})"
        )


def _refuse_writers(path: Path, info: os.stat_result, remedy: bool = False) -> None:
    if info.st_mode & stat.S_IWOTH:
        writers = "every user"
    elif info.st_mode & stat.S_IWGRP and not _own_group(info.st_gid):
        writers = f"group {info.st_gid}"
    else:
        return
    advice = (
        f"; remedy: chmod go-w {shlex.quote(str(path))}"
        if remedy and os.geteuid() in (0, info.st_uid)
        else ""
    )
    raise PermissionError(f"{writers} can write to {path} ({_described(info)}{advice})")


def _system_owner() -> int:
    """Owner of the system's folders: root; in a container without root, the id of all users
    outside.
    """
    try:
        return os.stat("/proc/sys").st_uid
    except OSError:
        return 0


def _own_group(group: int) -> bool:
    """Whether this user is the only member of a group, as most Linux distributions make it."""
    try:
        user = pwd.getpwuid(os.geteuid())
        entry = grp.getgrgid(group)
    except KeyError:
        return False
    # containers put users of any name into group 0
    return (
        group == user.pw_gid != 0
        and entry.gr_name == user.pw_name
        and set(entry.gr_mem) <= {user.pw_name}
    )
