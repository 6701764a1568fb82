"""Errors of files of tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from graphtheta.errors import FormatError


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of the system and of pyarrow into one about the file.

    Raises:
        FormatError: The file is missing or damaged.
    """
    try:
        yield
    except FileNotFoundError:
        raise FormatError(f"{path}: the file does not exist; check the path") from None
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise FormatError(
            f"{path}: the file cannot be read ({error}); it is damaged or incomplete, copy or"
            " create it again"
        ) from None
