"""One file with all rows, for outputs that fit into the memory of one worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.base.atomic import (
    atomic_file,
    beginning_of_values,
    check_replaceable,
    file_errors,
    make_folder,
)
from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import ConfigError
from graphtheta.inference.outputs.formats import FORMATS, OutputRows, write_csv

FILE_ENDINGS = (".npz", ".csv")


def check_name(path: Path, form: str | None) -> None:
    """Check that a name is that of one file, or of a folder of parts in a format.

    Args:
        path: The name.
        form: The format; None for one file.

    Raises:
        ConfigError: The ending does not fit.
    """
    if (path.suffix in FILE_ENDINGS) == bool(form):
        remedy = (
            f"; for parts in this format: --to {path.with_suffix('')} --format {path.suffix[1:]}"
            if path.suffix[1:] in FORMATS
            else ""
        )
        raise ConfigError(
            f"--to {path}: expected a name that ends in .npz or .csv, or a folder and"
            f" --format{'' if form else remedy}"
        )


def write_file(path: Path, rows: OutputRows) -> None:
    """Write all rows.

    Args:
        path: .npz (arrays of the fields by name, ``id``, and ``columns`` if the values have names)
            or .csv (a line for each row).
        rows: The rows.

    Raises:
        FormatError: The file cannot be written.
    """
    with file_errors(path, "the file"):
        make_folder(path.parent)
        with atomic_file(path, beginning_of_values(rows.name, path.suffix)) as file:
            if path.suffix == ".npz":
                arrays: dict[str, Any] = {**rows.fields, "id": rows.ids}
                arrays |= {"columns": np.array(rows.columns)} if rows.columns else {}
                np.savez_compressed(file, **arrays)
            else:
                write_csv(file, rows)


def write_together(path: Path, rows: OutputRows | None, comm: Comm) -> int:
    """Write what rank 0 has to one file; returns the number of rows.

    Raises:
        FormatError: The file cannot be written; on all ranks together.

    Collective: all ranks of comm.
    """
    with comm.agreed():
        if rows is not None:
            write_file(path, rows)
    return 0 if rows is None else len(rows.ids)


def check_free_name(path: Path, name: str) -> None:
    """Check that a file with values may be written.

    Args:
        path: The file.
        name: Of the values.

    Raises:
        FormatError: Something else has its name.
    """
    with file_errors(path, "the file"):
        check_replaceable(path, beginning_of_values(name, path.suffix))
