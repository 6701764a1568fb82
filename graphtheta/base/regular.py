"""Reads regular files only, up to a size: a pipe in place of a file would block, and a device might
never end.
"""

from __future__ import annotations

import os
import stat
from errno import EFBIG, EINVAL
from typing import BinaryIO


def _open_at_once(name: str, flags: int) -> int:
    # without this flag, opening a pipe waits for its other end
    return os.open(name, flags | os.O_NONBLOCK)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, open to read.

    Raises:
        OSError: It is something else, or cannot be opened.
    """
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(EINVAL, "it is no regular file", os.fspath(path))
    return file


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """The content of a regular file.

    Args:
        path: The file.
        most: Bytes that it may have.

    Raises:
        OSError: It is something else, is larger, or cannot be read.
    """
    with open_regular(path) as file:
        # a number of bytes to read is allocated before they are read
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(EFBIG, f"it is larger than {most >> 20} MiB", os.fspath(path))
        return file.read(size)
