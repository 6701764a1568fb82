"""Atomic writing of files: after a crash, a file is complete or absent."""
from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file, which replaces ``path`` when the block ends without an error.

    Raises:
        OSError: It cannot be written; ``path`` is unchanged.
    """
    aside = path.with_name(path.name + ".part")
    try:
        with aside.open("wb") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Flush the entries of a folder to disk; otherwise a power failure may lose a renamed file."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
