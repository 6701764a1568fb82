"""Files that are there whole or not at all, whenever the machine stops."""
from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of ``path`` when the block ends without an error.

    Raises:
        OSError: It cannot be written; ``path`` is as it was.
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
    """Have the names in a folder on disk, without which a file that is there may be lost with the power."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
