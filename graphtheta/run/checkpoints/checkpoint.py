"""Checkpoints on disk: a folder each, renamed once it is complete.

RUN/checkpoints/step-00000120 holds ``arrays.safetensors``, every array of the run by name, and
``manifest.msgpack``: types, shapes and checksums of the arrays, the progress of the run and its
job, and a checksum of its own. The content does not depend on the number of ranks or on the
partition. Reading checks all content before it is used, and executes nothing.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgpack
import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from graphtheta.base.atomic import (
    NotOurs,
    create,
    make_new_folder,
    remove_folder,
    rename_own,
    sync_folder,
)
from graphtheta.base.regular import read_regular
from graphtheta.engine.comm.codec import HALVES
from graphtheta.errors import FormatError
from graphtheta.run.checkpoints.progress import Progress
from graphtheta.run.checkpoints.tensors import TABLES, checksum, read_tensors, write_tensors

CHECKPOINTS = "checkpoints"
ARRAYS = "arrays.safetensors"
MANIFEST = "manifest.msgpack"
ASIDE = ".part-"
# bytes of a manifest, which has a row for each evaluated epoch
LARGEST_MANIFEST = 1 << 28
STEP = re.compile(r"step-(\d{8,18})")
# how a manifest begins: a mapping of two entries, the first of which is the checksum
MANIFEST_HEAD = msgpack.packb({"checksum": 0, "body": b""})[:10]
# what a checkpoint holds
NAMES = re.compile(f"{re.escape(ARRAYS)}|{re.escape(MANIFEST)}")


class About(BaseModel):
    """Manifest entry of one array."""

    model_config = ConfigDict(extra="forbid", strict=True)

    dtype: str
    shape: list[int]
    checksum: int


class CheckpointManifest(BaseModel):
    """The content of a checkpoint beside its arrays.

    Attributes:
        format: Version of the format.
        step: Updates so far.
        counters: Integers of the state, by name.
        progress: Progress of the run.
        job: All keys of the job.
        job_hash: Hash of the keys that change numbers.
        arrays: Entries of the arrays, by name.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal[1] = 1
    step: int
    counters: dict[str, int]
    progress: Progress
    job: dict[str, Any]
    job_hash: str
    arrays: dict[str, About] = {}


@dataclass
class Checkpoint:
    """Everything needed to resume a run.

    The arrays are shared with the run, which replaces them and never changes them in place. Those
    that have a row for each node are mapped from a file, on rank 0; ``failure`` is why they could
    not be written there.
    """

    manifest: CheckpointManifest
    arrays: dict[str, np.ndarray]
    failure: OSError | None = None

    @property
    def shared(self) -> dict[str, np.ndarray]:
        """The arrays that every worker needs whole."""
        return {name: x for name, x in self.arrays.items() if not name.startswith(TABLES)}


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint below ``folder`` atomically, and read it back to verify it.

    Returns:
        The folder of the checkpoint.

    Raises:
        OSError: It cannot be written; earlier checkpoints are untouched.
        FormatError: The files read back are damaged.
    """
    if checkpoint.failure is not None:
        raise checkpoint.failure
    manifest = checkpoint.manifest
    final = folder / f"step-{manifest.step:08d}"
    aside = folder / f"{ASIDE}{final.name}-{os.getpid()}"
    try:
        make_new_folder(aside)
        with create(aside / ARRAYS) as f:
            write_tensors(f, checkpoint.arrays, {})
            f.flush()
            os.fsync(f.fileno())
        manifest.arrays = {name: _about(x) for name, x in checkpoint.arrays.items()}
        with create(aside / MANIFEST) as f:
            f.write(_packed(manifest))
            f.flush()
            os.fsync(f.fileno())
        sync_folder(aside)
        # an existing checkpoint of this step was found damaged
        if final.is_dir():
            _remove(final)
        rename_own(aside, final)
        sync_folder(folder)
    except BaseException:
        with suppress(OSError):
            remove_folder(aside, NAMES)
        raise
    read_checkpoint(final)
    return final


def steps_in(folder: Path) -> list[tuple[int, Path]]:
    """Steps and folders of all checkpoints below ``folder``, newest first, damaged or not; symbolic
    links are none.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        steps = [
            (int(m[1]), path)
            for path in folder.iterdir()
            if (m := STEP.fullmatch(path.name)) and path.is_dir() and not path.is_symlink()
        ]
        return sorted(steps, reverse=True)
    return []


def read_manifest(path: Path) -> CheckpointManifest:
    """The manifest of a checkpoint.

    Raises:
        FormatError: It cannot be read, or is damaged; names file and field.
    """
    file = path / MANIFEST
    try:
        data = read_regular(file, LARGEST_MANIFEST)
    except OSError as e:
        raise FormatError(f"{file}: cannot be read: {e.strerror or e}") from None
    try:
        outer = msgpack.unpackb(data)
        if (
            not isinstance(outer, dict)
            or set(outer) != {"checksum", "body"}
            or not isinstance(outer["body"], bytes)
        ):
            raise ValueError("expected a checksum and a body")
        if zlib.crc32(outer["body"]) != outer["checksum"]:
            raise FormatError(f"{file}: damaged: checksum: it does not match the body")
        manifest = CheckpointManifest.model_validate(
            msgpack.unpackb(outer["body"], unicode_errors=HALVES)
        )
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        raise FormatError(
            f"{file}: damaged or of another version: {'.'.join(map(str, first['loc']))}:"
            f" {first['msg']}"
        ) from None
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as e:
        if isinstance(e, FormatError):
            raise
        raise FormatError(f"{file}: damaged: body: {e}") from None
    if path.name != f"step-{manifest.step:08d}":
        raise FormatError(
            f"{file}: damaged: step: it is {manifest.step}, which does not match the name of the"
            " folder"
        )
    return manifest


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        FormatError: Anything is damaged; names file and field.
    """
    manifest = read_manifest(path)
    return Checkpoint(manifest, _checked(path, manifest))


def newest_good(folder: Path, tell: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint below ``folder`` that is not damaged; None if there is none.

    Args:
        folder: Of all checkpoints.
        tell: Called with a line about each damaged one.
    """
    for _, path in steps_in(folder):
        try:
            return read_checkpoint(path)
        except FormatError as e:
            tell(f"{e}; looking for the checkpoint before it")
    return None


def prune(folder: Path, step: int, keep: int) -> None:
    """Remove all but the ``keep`` newest checkpoints up to that of ``step``, which is intact.

    Those of later steps are damaged: otherwise the run would have been resumed from one of them.
    """
    steps = steps_in(folder)
    wanted = [path for other, path in steps if other <= step][:keep]
    for _, path in steps:
        if path not in wanted:
            _remove(path)


def sweep(folder: Path, everything: bool = False) -> None:
    """Remove the temporary folders of interrupted writers.

    Args:
        folder: Of all checkpoints.
        everything: Remove the checkpoints too.
    """
    left = [*folder.glob(f"{ASIDE}*"), *(path for _, path in steps_in(folder) if everything)]
    for path in left:
        with suppress(OSError):
            remove_folder(path, NAMES)


def check_own(folder: Path, resumes: bool) -> None:
    """Check that all that lies below ``folder`` is a checkpoint, or a part of one.

    Args:
        folder: Of all checkpoints.
        resumes: Whether a run resumes from them, which may find that some are damaged; otherwise
            all are removed.

    Raises:
        NotOurs: It is a link, or holds something else.
    """
    if folder.is_symlink():
        raise NotOurs(folder, "there is a symbolic link")
    if folder.exists() and not folder.is_dir():
        raise NotOurs(folder, "there is a file")
    for path in folder.iterdir() if folder.is_dir() else ():
        if (
            not (STEP.fullmatch(path.name) or path.name.startswith(ASIDE))
            or path.is_symlink()
            or not path.is_dir()
        ):
            raise NotOurs(path, "there is something that graphtheta did not write")
        for inside in path.iterdir():
            if (
                not NAMES.fullmatch(inside.name)
                or not inside.is_file()
                or not (resumes or _begins(inside))
            ):
                raise NotOurs(inside, "there is a file that graphtheta did not write")


def _begins(file: Path) -> bool:
    """Whether a file of a checkpoint is empty or begins as such a file."""
    with file.open("rb") as f:
        head = f.read(16)
    return not head or head.startswith(MANIFEST_HEAD) or head[8:9] == b"{"


def _remove(path: Path) -> None:
    """Remove a checkpoint; if interrupted, no incomplete one is left under its name."""
    aside = path.with_name(f"{ASIDE}{path.name}-{os.getpid()}-old")
    rename_own(path, aside)
    with suppress(OSError):
        remove_folder(aside, NAMES)


def _about(x: np.ndarray) -> About:
    return About(dtype=x.dtype.str, shape=list(x.shape), checksum=checksum(x))


def _packed(manifest: CheckpointManifest) -> bytes:
    fields = dict(manifest)
    fields["progress"] = dict(manifest.progress)
    fields["arrays"] = {name: dict(about) for name, about in manifest.arrays.items()}
    body = msgpack.packb(fields, unicode_errors=HALVES)
    return bytes(msgpack.packb({"checksum": zlib.crc32(body), "body": body}))


def _checked(path: Path, manifest: CheckpointManifest) -> dict[str, np.ndarray]:
    """The arrays, checked against the manifest."""
    file = path / ARRAYS
    _, arrays = read_tensors(file)
    if set(arrays) != set(manifest.arrays):
        name = min(set(arrays) ^ set(manifest.arrays))
        raise FormatError(f"{file}: damaged: {name}: it is in only one of {ARRAYS} and {MANIFEST}")
    for name, x in arrays.items():
        if _about(x) != manifest.arrays[name]:
            raise FormatError(f"{file}: damaged: {name}: its checksum does not match the manifest")
    return arrays
