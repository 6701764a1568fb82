"""A folder with a part from each worker, which is complete or absent.

The parts are written to FOLDER.part. When all are complete, the file ``_SUCCESS`` lists them, and
the folder is renamed; it replaces an earlier output. Readers of data sets skip ``_SUCCESS``.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from graphtheta.base.atomic import NEW, atomic_file, publish, remove_folder, rename_own
from graphtheta.base.regular import read_regular
from graphtheta.base.strict_json import to_json
from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import FormatError
from graphtheta.inference.outputs.formats import OutputRows, check_format, files_of
from graphtheta.inference.outputs.together import together
from graphtheta.run.checkpoints.lock import exclusive

MARK, WHAT = "_SUCCESS", "the output"
# bytes of a mark
LARGEST_MARK = 1 << 26
NAMES = re.compile(rf"part-\d{{5,}}-of-\d{{5,}}(\.\w+)?\.(parquet|csv|npy)|{MARK}")


class PartFolder:
    """A folder to which each worker writes a part of an output.

    Args:
        folder: On a file system that all workers share. It must be new, empty or an earlier
            output, which is replaced.
        form: Name in ``FORMATS``.
        comm: The workers.

    Raises:
        ConfigError: There is no such format, or its library is not installed; on all ranks
            together.
        FormatError: The folder holds other files; on all ranks together.

    Collective: all ranks of comm.
    """

    def __init__(self, folder: str | Path, form: str, comm: Comm):
        # the part lies beside the folder that a link points to
        self._folder = Path(os.path.realpath(folder))
        self._form = form
        self._comm = comm
        self._aside, self._old = (
            self._folder.with_name(self._folder.name + ending) for ending in (".part", ".replaced")
        )
        with together(comm, self._folder, WHAT):
            check_format(form)
        self._check_together()

    def write(self, rows: OutputRows) -> int:
        """Write the output.

        Args:
            rows: The rows of this worker.

        Returns:
            Number of rows of all workers.

        Raises:
            FormatError: Another job is writing to the folder, or a file cannot be written; on all
                ranks together. An earlier output is unchanged.

        Collective: all ranks.
        """
        comm = self._comm
        total = sum(comm.all_gather(len(rows.ids)))
        with exclusive(self._aside, comm, "--to", NAMES):
            self._check_together()
            with together(comm, self._folder, WHAT):
                written = self._write_part(rows)
            files = [file for part in comm.all_gather(written) for file in part]
            mark: dict[str, Any] = {
                "values": rows.name,
                "format": self._form,
                "rows": total,
                "files": files,
            }
            if rows.columns:
                mark["columns"] = rows.columns
            with together(comm, self._folder, WHAT):
                if comm.rank == 0:
                    self._finish(mark)
        return total

    def _check_together(self) -> None:
        """Check that nothing but outputs is replaced; an error is raised on all ranks."""
        with together(self._comm, self._folder, WHAT):
            for folder in (self._folder, self._old) if self._comm.rank == 0 else ():
                _check_replaceable(folder)

    def _write_part(self, rows: OutputRows) -> list[dict[str, Any]]:
        """Write the files of this worker's part, and list them."""
        listed = []
        for ending, write in files_of(self._form, rows).items():
            path = self._aside / f"part-{self._comm.rank:05}-of-{self._comm.size:05}{ending}"
            try:
                with atomic_file(path, NEW) as file:
                    write(file, rows)
            except ValueError as error:
                raise FormatError(
                    f"{path}: cannot be written: {error}; choose another format"
                ) from error
            listed.append({"name": path.name, "rows": len(rows.ids), "bytes": path.stat().st_size})
        return listed

    def _finish(self, mark: dict[str, Any]) -> None:
        """Check that all parts are here, mark the output as complete, and move it to its place."""
        for file in mark["files"]:
            path = self._aside / file["name"]
            if not path.is_file() or path.stat().st_size != file["bytes"]:
                raise FormatError(
                    f"{path}: a worker wrote {file['bytes']} bytes to this file, which rank 0 does"
                    " not find; choose a folder on a file system that all workers share"
                )
        with atomic_file(self._aside / MARK, NEW) as stream:
            stream.write((to_json(mark, indent=1) + "\n").encode())
        if self._old.exists():
            # a job was killed after it had moved it there
            remove_folder(self._old, NAMES)
        if self._folder.exists():
            rename_own(self._folder, self._old)
        publish(self._aside, self._folder)
        if self._old.exists():
            remove_folder(self._old, NAMES)


def _check_replaceable(folder: Path) -> None:
    """Check that a folder is new, empty or an output."""
    if folder.exists() and not folder.is_dir():
        raise FormatError(f"{folder} is a file; choose a folder for the parts")
    if not folder.exists() or not any(folder.iterdir()):
        return
    listed = _listed(folder / MARK)
    if listed is None:
        raise FormatError(
            f"{folder} holds files and no {MARK} of graphtheta, so it is not an earlier output;"
            " choose another folder, or empty this one"
        )
    foreign = [
        path.name
        for path in sorted(folder.iterdir())
        if path.name not in (*listed, MARK) or not path.is_file()
    ]
    if foreign:
        raise FormatError(
            f"{folder} holds {foreign[0]}, which belongs to no output; choose another folder, or"
            " move this file"
        )


def _listed(mark: Path) -> list[str] | None:
    """The files that the mark of an output lists; None if it is none."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        return [str(file["name"]) for file in json.loads(read_regular(mark, LARGEST_MARK))["files"]]
    return None
