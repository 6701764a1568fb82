"""Creates, replaces and removes the files of runs, stores and predictions. No other module does.

What GraphTheta did not write is neither changed nor removed; ``NotOurs`` is raised instead. It
knows its own files like this:

- A new file is created exclusively (``O_EXCL``), so it is none that exists, and a symbolic link
  in its place is not followed. So is an existing one that is opened to write (``O_NOFOLLOW``).
- A file is replaced by renaming a new one over it, which replaces a symbolic link and not what
  it points to. A regular file is replaced or removed if it is empty or begins as the new one does
  (``BEGINNINGS``), so that no output replaces a file of a run that is none. Pipes, devices and
  folders never are.
- A folder that is written to before it gets its name (``FOLDER.part``) is claimed: it is new or
  empty, or ``MARKER`` in it says that GraphTheta made it, with host, process and start time. The
  marker is locked with ``flock``, which the system releases when the process dies. What an
  interrupted process left is removed if all names in the folder are those of its format.
- A folder is removed entry by entry, after all names in it were compared with those of its format.
  Symbolic links are removed themselves, and never entered.

A file that somebody else writes in one of these formats, under a name of GraphTheta, cannot be
told from an own one.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EEXIST
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep
from typing import IO, Any, BinaryIO

from graphtheta.base.strict_json import to_json
from graphtheta.errors import FormatError

MARKER = ".lock"
# new files have such names until they are complete
ASIDE = re.compile(r"\.graphtheta-[0-9a-f]{16}\.part")
# how files begin, as patterns by what they are
BEGINNINGS = {
    "job": rb"# Data\ndataset: ",
    "metrics": rb'\{"epoch": \d',
    "result": rb'\{\s*"(best_epoch|seeds)": ',
    "profile": rb'\{\s*"ranks": ?\d+,\s*"epochs"',
    "timeline": rb'\{"displayTimeUnit": "ms", "otherData": ',
    "weights": rb'.{8}\{"__metadata__":\{"(job|checksums?)":',
    "plan": rb'\[\s*\{\s*"strategy": ',
    "simulation": rb'\{\s*"cluster": ',
    "machine": rb'\{\s*"seconds": \[',
    "runs": rb'\{\s*"runs": \[',
    "download": rb'\{\s*"downloaded": ',
    "page": rb'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="generator"'
    rb' content="graphtheta">',
    "svg": rb"<!-- graphtheta -->\n<svg ",
}
# names of predicted values, and of what may be written beside them
PREDICTED = ("prediction", "probability")
CHOSEN = ("class", "confidence", "label", "split")
# begins no file that exists: for one in a folder of its own, or that is never replaced
NEW = rb"(?!)"
# bytes of a file that are compared with them
COMPARED = 1 << 12


class NotOurs(OSError):
    """Something that is not replaced is where GraphTheta would write."""

    def __init__(self, path: Path, what: str):
        super().__init__(EEXIST, f"{what}, which is left as it is", str(path))


class Taken(OSError):
    """Another process writes to a folder."""


def beginning_of_values(name: str, ending: str) -> bytes:
    """How a file with values by id begins, as a pattern: with the name of the first array, or with
    the titles of the columns.

    Args:
        name: Of the values.
        ending: ".npz" or ".csv".
    """
    names = "|".join((*PREDICTED, *CHOSEN) if name in PREDICTED else (re.escape(name),))
    if ending == ".npz":
        # the ids were first in those of earlier versions
        return rf"PK\x03\x04.{{26}}({names}|id)\.npy".encode()
    ids = r'("?id"?|"?id_0"?(,"?id_\d"?)+)'
    return rf'{ids},"?({names})("|_|\n|,)'.encode()


def unwritable(
    path: Path | str,
    what: str,
    error: OSError,
    remedy: str = "free disk space or make the folder writable",
) -> FormatError:
    """The error for something that cannot be written.

    Args:
        path: The file or folder.
        what: Its name in the message, such as "the weights".
        error: Why not.
        remedy: What to do about it, unless something else is in the place.
    """
    at = path
    if isinstance(error, NotOurs):
        at = error.filename
        remedy = f"move it away, or {remedy if 'another' in remedy else 'choose another name'}"
    return FormatError(f"{at}: {what} cannot be written: {error.strerror or error}; {remedy}")


@contextmanager
def file_errors(
    path: Path | str, what: str, remedy: str = "free disk space or make the folder writable"
) -> Iterator[None]:
    """A block that writes; an error of the system in it is raised as that of ``unwritable``, which
    describes the arguments.
    """
    try:
        yield
    except OSError as error:
        raise unwritable(path, what, error, remedy) from None


@contextmanager
def atomic_file(path: Path, begins: bytes) -> Iterator[BinaryIO]:
    """Open a temporary file, which replaces ``path`` when the block ends without an error.

    Args:
        path: The file.
        begins: A pattern of bytes; a file is replaced if it begins so.

    Raises:
        NotOurs: ``path`` is something else.
        OSError: It cannot be written; ``path`` is unchanged.
    """
    check_replaceable(path, begins)
    aside = _aside(path)
    try:
        with create(aside) as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(
    path: Path | str,
    value: object,
    begins: bytes,
    what: str,
    remedy: str = "free disk space or make the folder writable",
) -> None:
    """Write a value as indented JSON in place of a file; ``begins`` is as of ``atomic_file``, and
    ``what`` and ``remedy`` are as of ``unwritable``.

    Raises:
        FormatError: It cannot be written.
    """
    with file_errors(path, what, remedy), atomic_file(Path(path), begins) as file:
        file.write((to_json(value, indent=1) + "\n").encode())


def started_file(path: Path, begins: bytes) -> BinaryIO:
    """A new file that has replaced ``path`` and is written from now on; arguments as of
    ``atomic_file``.

    Raises:
        OSError: As of ``atomic_file``.
    """
    check_replaceable(path, begins)
    aside = _aside(path)
    file = create(aside)
    try:
        os.replace(aside, path)
    except OSError:
        file.close()
        aside.unlink(missing_ok=True)
        raise
    return file


def create(path: Path) -> BinaryIO:
    """A new file, open to write.

    Raises:
        OSError: There is something of this name, or it cannot be made.
    """
    return path.open("xb")


def reopen(path: Path | str) -> BinaryIO:
    """An own file, open to change bytes in it; no link is followed.

    Raises:
        OSError: It cannot be opened.
    """
    return open(path, "r+b", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW))


def check_replaceable(path: Path, begins: bytes) -> None:
    """Check that a path is free, a symbolic link, or a file that is replaced; arguments as of
    ``atomic_file``.

    Raises:
        NotOurs: It is something else.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        return
    if not stat.S_ISREG(mode):
        raise NotOurs(path, f"there is a {'folder' if stat.S_ISDIR(mode) else 'pipe or device'}")
    other = NotOurs(path, "there is a file of another kind")
    try:
        with path.open("rb") as file:
            head = file.read(COMPARED)
    except PermissionError:
        raise other from None
    if head and not re.match(begins, head, re.DOTALL):
        raise other


def remove_file(path: Path, begins: bytes) -> None:
    """Remove an own file or a link, if there is one; arguments as of ``atomic_file``.

    Raises:
        NotOurs: It is something else.
        OSError: It cannot be removed.
    """
    check_replaceable(path, begins)
    path.unlink(missing_ok=True)


def remove_new(path: Path) -> None:
    """Remove a file that this process, or one that it has started, created.

    Raises:
        OSError: It cannot be removed.
    """
    path.unlink()


def make_folder(path: Path) -> None:
    """Make a folder and those above it, unless they exist.

    Raises:
        OSError: It cannot be made.
    """
    path.mkdir(parents=True, exist_ok=True)


def make_new_folder(path: Path) -> None:
    """Make a folder that does not exist yet, and those above it unless they exist.

    Raises:
        OSError: It exists, or cannot be made.
    """
    path.mkdir(parents=True)


def claim(folder: Path, names: re.Pattern[str], patience: float = 0.0) -> int:
    """Make a folder for files of one's own, empty but for its marker, and lock it.

    Args:
        folder: The folder.
        names: Paths below it that an interrupted process may have left.
        patience: Seconds to wait for another process.

    Returns:
        The lock, which ends when this file descriptor is closed.

    Raises:
        NotOurs: The folder is a link or a file, or holds something else.
        Taken: Another process writes to it.
        OSError: It cannot be made.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise NotOurs(
            folder, "there is a symbolic link" if folder.is_symlink() else "there is a file"
        )
    make_folder(folder)
    entries = os.listdir(folder)
    if entries and MARKER not in entries:
        raise NotOurs(
            folder / min(entries), "there is a file in a folder that graphtheta did not make"
        )
    lock = open_marker(folder)
    try:
        if not locked(lock, patience):
            raise Taken(f"{folder}: another process writes to it")
        signed = bool(_signature(lock))
        entries = sorted(os.listdir(folder))
        # a process that is killed before it signs leaves an empty marker and nothing else
        if not signed and (entries != [MARKER] or os.fstat(lock).st_size):
            raise NotOurs(
                folder / entries[0], "there is a file in a folder that graphtheta did not make"
            )
        _clear(folder, names)
        sign(lock)
    except BaseException:
        os.close(lock)
        raise
    return lock


def open_marker(folder: Path) -> int:
    """The marker of a folder, which is made if there is none, open to lock it.

    Raises:
        NotOurs: It is no regular file.
        OSError: It cannot be opened.
    """
    file = os.open(folder / MARKER, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotOurs(folder / MARKER, "there is a pipe or device")
    return file


def sign(lock: int) -> None:
    """Say in a marker that is locked who writes to the folder; one that holds something else is
    left as it is.
    """
    if os.fstat(lock).st_size and not _signature(lock):
        return
    text = to_json(_this_process()).encode() + b"\n"
    os.ftruncate(lock, 0)
    os.pwrite(lock, text, 0)


def locked(file: int, patience: float) -> bool:
    """Lock a marker until it is closed; False if another process has it for ``patience`` seconds.

    Where the file system has no locks, the marker says which process of this machine has it.
    """
    end = monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            free = False
        except OSError:
            free = not _is_at_work(_signature(file))
        else:
            free = True
        if free or monotonic() > end:
            return free
        sleep(0.1)


def remove_folder(folder: Path, names: re.Pattern[str]) -> None:
    """Remove a folder if all that it holds is one's own.

    Args:
        folder: The folder.
        names: Paths below it that are.

    Raises:
        NotOurs: It is a link, or holds something else; nothing has been removed.
        OSError: Something in it cannot be removed.
    """
    if folder.is_symlink():
        raise NotOurs(folder, "there is a symbolic link")
    _clear(folder, names)
    (folder / MARKER).unlink(missing_ok=True)
    folder.rmdir()


def publish(folder: Path, final: Path) -> None:
    """Give a claimed folder, which is complete, its name.

    Raises:
        OSError: It cannot be renamed, or there is something of this name that is no empty folder.
    """
    os.rename(folder, final)
    (final / MARKER).unlink(missing_ok=True)
    sync_folder(final.parent)


def rename_own(path: Path, final: Path) -> None:
    """Rename a file or folder that was created here.

    Raises:
        OSError: It cannot be renamed.
    """
    os.rename(path, final)


def sweep_asides(folder: Path) -> None:
    """Remove the incomplete files of a process that was killed, from a folder that is locked."""
    for name in os.listdir(folder) if folder.is_dir() else ():
        if ASIDE.fullmatch(name) and stat.S_ISREG(os.lstat(folder / name).st_mode):
            (folder / name).unlink(missing_ok=True)


def link_or_copy(source: Path, path: Path) -> None:
    """Give a file a second name, or copy it where the file system cannot.

    Raises:
        OSError: There is something of this name, or it cannot be made.
    """
    try:
        os.link(source, path)
    except FileExistsError:
        raise
    except OSError:
        with source.open("rb") as old, create(path) as new:
            shutil.copyfileobj(old, new, 1 << 20)


def temporary_folder(parent: Path | str = "") -> Path:
    """A new folder with a random name, for this user alone; in that of the system (``TMPDIR``) by
    default.

    Raises:
        OSError: It cannot be made.
    """
    return Path(tempfile.mkdtemp(prefix="graphtheta-", dir=parent or None))


def remove_temporary(folder: Path) -> None:
    """Remove a folder that ``temporary_folder`` made."""
    shutil.rmtree(folder, ignore_errors=True)


def temporary_file(parent: Path | str = "") -> IO[bytes]:
    """A file without a name, which disappears when it is closed; in the folder of the system
    (``TMPDIR``) by default.

    Raises:
        OSError: It cannot be made.
    """
    return tempfile.TemporaryFile(dir=parent or None, prefix="graphtheta-")


@contextmanager
def named_temporary_file(parent: Path) -> Iterator[tuple[IO[bytes], str]]:
    """A file with a random name, which others can open until the block ends, and the name.

    Raises:
        OSError: It cannot be made.
    """
    number, name = tempfile.mkstemp(prefix="graphtheta-", dir=parent)
    try:
        with open(number, "r+b") as file:
            yield file, name
    finally:
        os.unlink(name)


def sync_folder(path: Path) -> None:
    """Flush the entries of a folder to disk; otherwise a power failure may lose a renamed file."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _aside(path: Path) -> Path:
    return path.with_name(f".graphtheta-{token_hex(8)}.part")


def _clear(folder: Path, names: re.Pattern[str]) -> None:
    """Remove all of a folder but its marker, after comparing the names."""
    files = list[Path]()
    folders = list[Path]()
    for above, inside, plain in os.walk(folder):
        entries = [Path(above, name) for name in (*plain, *inside)]
        for path in entries:
            name = path.relative_to(folder).as_posix()
            if name == MARKER:
                continue
            if not names.fullmatch(name) and not ASIDE.fullmatch(path.name):
                raise NotOurs(path, "there is a file that graphtheta did not write")
            (folders if path.is_dir() and not path.is_symlink() else files).append(path)
    for path in files:
        path.unlink(missing_ok=True)
    for path in reversed(folders):
        path.rmdir()


def _this_process() -> dict[str, Any]:
    return {
        "graphtheta": "lock",
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
    }


def _signature(file: int) -> dict[str, Any]:
    """What a marker says; empty if it is none."""
    with suppress(ValueError, RecursionError):
        record = json.loads(os.pread(file, COMPARED, 0))
        if isinstance(record, dict) and record.get("graphtheta") == "lock":
            return record
    return {}


def _is_at_work(signature: dict[str, Any]) -> bool:
    """Whether another process of this machine, which signed a marker, still runs."""
    pid = signature.get("pid")
    if (
        signature.get("host") != socket.gethostname()
        or not isinstance(pid, int)
        or pid == os.getpid()
    ):
        return False
    return _started(pid) is not None and _started(pid) == signature.get("started")


def _started(pid: int) -> str | None:
    """When a process was started, in ticks since the machine was; None if there is none."""
    with suppress(OSError, IndexError):
        return (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="ascii", errors="replace")
            .rpartition(")")[2]
            .split()[19]
        )
    return None
