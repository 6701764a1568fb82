"""Values of all layers in a folder, from which later inference on a grown graph starts.

Each worker writes a part with the values of its nodes. Any number of workers reads them, by
original ids. Rows have checksums of their own, so that a read compares what it reads and nothing
else.

Ids, fingerprints and outputs are in the order of the numbers of the nodes, so that those of a grown
graph begin with them. Values of layers are in the order in which the worker has its nodes: those
with many edges, which many read, may lie together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graphtheta.base.atomic import (
    NEW,
    atomic_file,
    make_new_folder,
    publish,
    remove_folder,
    remove_new,
)
from graphtheta.base.regular import read_regular
from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import ConfigError, FormatError
from graphtheta.inference.forward.spill import ArrayFiles
from graphtheta.inference.grown.fingerprints import array_hash, row_hashes, take_rows_checked
from graphtheta.inference.outputs.together import together
from graphtheta.run.checkpoints.lock import exclusive

MARK = "layers.json"
VERSION = 5
# bytes of a mark
LARGEST_MARK = 1 << 28
# files of a part, and all paths of a folder
IN_PART = re.compile(r"[^/]+")
NAMES = re.compile(rf"part-\d{{5,}}(/{IN_PART.pattern})?|{MARK}")
WHAT = "values of layers"
FLAG = "--keep-layers"
AGAIN = "compute them again with keep_layers (--keep-layers)"
CHECK = ".check"
# the row of the values of each node
ROW = "row"
# ids are looked up in a table if the largest is at most so many times their number
DENSE = 8


class Array(BaseModel):
    """Shape and type of an array of a part, and a hash of the whole of it if it is in the order of
    numbers.
    """

    model_config = ConfigDict(extra="forbid")

    shape: list[int]
    dtype: str
    hash: str = ""


class Mark(BaseModel):
    """What a folder says about itself; it is written when all parts are complete.

    Attributes:
        version: Of the format.
        weights: Hash of weights, options and precision.
        program: Hash of the operations of the model.
        n_nodes: Nodes of the graph.
        parts: Arrays of each part by name.
    """

    model_config = ConfigDict(extra="forbid")

    version: int
    weights: str
    program: str
    n_nodes: int
    parts: Annotated[list[dict[str, Array]], Field(min_length=1)]


class LayerFiles(ArrayFiles):
    """Arrays in files with a checksum of each row, and a hash of the whole of those that are added
    by rank.

    Args:
        folder: The folder.
        listed: The arrays that it has already.
    """

    def __init__(self, folder: Path, listed: Mapping[str, Array] | None = None):
        listed = listed or {}
        super().__init__(
            folder, {name: (tuple(x.shape), np.dtype(x.dtype)) for name, x in listed.items()}
        )
        self._hashes = {name: x.hash for name, x in listed.items()}
        # ranks that were looked up last, and their rows: layers often have the same senders
        self._last_lookup = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def create(self, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        super().create(name, shape, dtype)
        super().create(name + CHECK, shape[:1], np.uint64)

    def write(self, name: str, rows: np.ndarray, values: np.ndarray) -> None:
        super().write(name, rows, values)
        super().write(name + CHECK, rows, row_hashes(values))

    def at(self, name: str, ranks: np.ndarray) -> np.ndarray:
        """The rows that an array has for nodes with some ranks."""
        if self._hashes.get(name):
            return ranks
        asked, rows = self._last_lookup
        if not np.array_equal(asked, ranks):
            self._last_lookup = ranks, (rows := self.read(ROW, ranks))
        return rows

    def _copy(self, name: str, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy some rows.

        Raises:
            FormatError: A row does not match its checksum.
        """
        wrong = take_rows_checked(self._mapped(name), rows, self._mapped(name + CHECK), out)
        if wrong is not None:
            raise FormatError(
                f"{self._folder / name}: row {wrong} is damaged: it does not match its checksum;"
                f" {AGAIN}"
            )

    def remove(self, name: str) -> None:
        """Remove an array."""
        for each in (name, name + CHECK):
            remove_new(self._folder / each)
            del self._arrays[each]

    def add(self, name: str, values: np.ndarray, ranks: np.ndarray) -> None:
        """Write a whole array, each row to the place of its rank."""
        hashes = row_hashes(values)
        self.create(name, values.shape, values.dtype)
        super().write(name, ranks, values)
        super().write(name + CHECK, ranks, hashes)
        self._hashes[name] = array_hash(hashes, ranks, len(values))

    def has(self, name: str, hashes: np.ndarray, ranks: np.ndarray) -> bool:
        """Whether an array that was added has some rows, by a hash of 64 bits.

        Args:
            name: The array, [n, ...].
            hashes: Of at least n rows, from ``row_hashes``.
            ranks: The row in the file of each, from 0 on; those after the end of the file do not
                count.
        """
        n = self._about(name)[0][0]
        return 0 < n <= len(hashes) and self._hashes.get(name) == array_hash(hashes, ranks, n)

    @property
    def listed(self) -> dict[str, Array]:
        """Its arrays."""
        return {
            name: Array(shape=list(shape), dtype=dtype.str, hash=self._hashes.get(name, ""))
            for name, (shape, dtype) in self._arrays.items()
        }


@contextmanager
def writing(
    folder: Path, weights: str, program: str, n_nodes: int, comm: Comm
) -> Iterator[LayerFiles]:
    """The files of this worker's part of a folder, which replaces an earlier one when the block
    ends without an error.

    Args:
        folder: New, empty, or an earlier one; on a file system that all workers share.
        weights, program, n_nodes: See ``Mark``.
        comm: The workers.

    Raises:
        FormatError: The folder holds other files, another job writes to it, or it cannot be
            written; on all ranks together.

    Collective: all ranks of comm.
    """
    # the part lies beside the folder that a link points to
    folder = folder.resolve()
    aside = folder.with_name(folder.name + ".part")
    part = f"part-{comm.rank:05}"
    with together(comm, folder, WHAT):
        if comm.rank == 0:
            _check_replaceable(folder)
    with exclusive(aside, comm, FLAG, NAMES):
        with together(comm, folder, WHAT):
            make_new_folder(aside / part)
        files = LayerFiles(aside / part)
        try:
            yield files
        except BaseException:
            with suppress(OSError):
                remove_folder(aside / part, IN_PART)
            raise
        parts = comm.all_gather({name: array.model_dump() for name, array in files.listed.items()})
        mark = Mark.model_validate(
            {
                "version": VERSION,
                "weights": weights,
                "program": program,
                "n_nodes": n_nodes,
                "parts": parts,
            }
        )
        with together(comm, folder, WHAT):
            if comm.rank == 0:
                _finish(folder, aside, mark)


def _check_replaceable(folder: Path) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / MARK).is_file():
        raise FormatError(
            f"{folder} holds something else than values of layers (there is no {MARK}); choose"
            " another folder"
        )
    listed = {MARK: {}, **{f"part-{k:05}": part for k, part in enumerate(_read_mark(folder).parts)}}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if name.parts[0] not in listed or (
            len(name.parts) > 1 and name.parts[1] not in listed[name.parts[0]]
        ):
            raise FormatError(
                f"{path} belongs to no values of layers; choose another folder, or move this file"
            )


def _finish(folder: Path, aside: Path, mark: Mark) -> None:
    for k in range(len(mark.parts)):
        if not (aside / f"part-{k:05}").is_dir():
            raise FormatError(
                f"{aside}: rank 0 does not find the part of worker {k}; choose a folder on a file"
                " system that all workers share"
            )
    with atomic_file(aside / MARK, NEW) as file:
        file.write((mark.model_dump_json(indent=1) + "\n").encode())
    if folder.exists():
        remove_folder(folder, NAMES)
    publish(aside, folder)


class EarlierValues:
    """The values of a folder, for some nodes.

    Args:
        folder: The folder.
        ids: Original ids of the nodes, [n].
        ranks: Their ranks in ascending order of the numbers of nodes, [n] int64.
        weights, program: See ``Mark``.

    Attributes:
        n_nodes: Nodes of the graph that the values are those of.
        present: Whether the folder has values of a node, [n] bool.

    Raises:
        FormatError: The folder holds no complete values, or is damaged.
        ConfigError: The values are those of another model, or of other code of its layers, or the
            ids of another kind.
    """

    def __init__(
        self, folder: Path, ids: np.ndarray, ranks: np.ndarray, weights: str, program: str
    ):
        mark = _read_mark(folder)
        if mark.weights != weights:
            raise ConfigError(
                f"{folder}: the values of layers were computed with other weights, layers or"
                f" precision; {AGAIN} for this model"
            )
        if mark.program != program:
            raise ConfigError(
                f"{folder}: the code of the network has changed since the values of layers were"
                f" computed; {AGAIN}"
            )
        self.n_nodes = mark.n_nodes
        for k, part in enumerate(mark.parts):
            _check(folder, k, part)
        self._files = [
            LayerFiles(folder / f"part-{k:05}", part) for k, part in enumerate(mark.parts)
        ]
        hashes = row_hashes(ids)
        self._ranks = ranks
        # the usual case: nodes were appended, and the worker is the same, so that its first ids are
        # those of a part
        same = next(
            (k for k, files in enumerate(self._files) if files.has("ids", hashes, ranks)), None
        )
        self._same = None if same is None else self._files[same]
        self.present = ranks < (0 if same is None else mark.parts[same]["ids"].shape[0])
        self._rest = ~self.present
        if same is None or len(self._files) > 1:
            self._part = np.full(len(ids), same or 0, np.int32)
            self._rank = ranks.copy()
            self._find(folder, ids, same)
        else:
            self._rank = ranks

    def _find(self, folder: Path, ids: np.ndarray, same: int | None) -> None:
        """Find the nodes that are not in the part ``same`` in the others.

        Raises:
            ConfigError: The ids are of another kind.
            FormatError: A row is damaged.
        """
        rest = np.flatnonzero(self._rest)
        for k, files in enumerate(self._files):
            if k != same and len(rest):
                earlier = files.read("ids", np.arange(files.listed["ids"].shape[0]))
                if earlier.dtype.kind != ids.dtype.kind and len(earlier):
                    raise ConfigError(
                        f"{folder}: the nodes had {_kind(earlier)} as ids, and those of this graph"
                        f" are {_kind(ids)}; give the graph that has grown, with the same ids"
                    )
                mine, rows = _matched(ids[rest], earlier)
                nodes = rest[mine]
                self._part[nodes] = k
                self._rank[nodes] = rows
                self.present[nodes] = True

    def differs(self, name: str, values: np.ndarray) -> np.ndarray:
        """Where values differ from those that are kept, or there are none, [n] bool.

        Args:
            name: An array of a number for each node.
            values: Those of the nodes now, [n].

        Raises:
            FormatError: A row is damaged.
        """
        equal = self._same is not None and self._same.has(name, row_hashes(values), self._ranks)
        out = ~self.present
        rows = np.flatnonzero(self.present & self._rest if equal else self.present)
        out[rows] = self.read(name, rows) != values[rows]
        return out

    def read(self, name: str, rows: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Values of known nodes, by their positions in ``ids``, [n, ...]; in ``out``, contiguous,
        if it is given.

        Raises:
            FormatError: A row is damaged.
        """
        if len(self._files) == 1:
            return self._read(self._files[0], name, rows, out)
        for k, files in enumerate(self._files):
            mine = np.flatnonzero(self._part[rows] == k)
            if len(mine) or out is None:
                values = self._read(files, name, rows[mine])
                out = np.empty((len(rows), *values.shape[1:]), values.dtype) if out is None else out
                out[mine] = values
        assert out is not None
        return out

    def _read(
        self, files: LayerFiles, name: str, rows: np.ndarray, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Values of nodes of one part."""
        return files.read(name, files.at(name, self._rank[rows]), out)


def _matched(ids: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The positions of the ids that are among the given ones, and their positions among these."""
    n = len(given)
    if not n:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if (
        ids.dtype.kind == given.dtype.kind == "i"
        and min(ids.min(initial=0), given.min()) >= 0
        and (largest := int(max(ids.max(initial=0), given.max()))) <= DENSE * n
    ):
        row_of = np.full(largest + 1, -1, np.int32)
        row_of[given] = np.arange(n, dtype=np.int32)
        at = row_of[ids]
        mine = np.flatnonzero(at >= 0)
        return mine, at[mine]
    order = np.argsort(given, kind="stable")
    ascending = np.argsort(ids, kind="stable")
    # a search for ascending ids reads memory in order
    at = order[np.minimum(np.searchsorted(given[order], ids[ascending]), n - 1)]
    same = given[at] == ids[ascending]
    return ascending[same], at[same]


def _kind(ids: np.ndarray) -> str:
    return "texts" if ids.dtype.kind == "U" else "integers"


def _read_mark(folder: Path) -> Mark:
    try:
        mark = Mark.model_validate(json.loads(read_regular(folder / MARK, LARGEST_MARK)))
    except OSError as error:
        why = error.strerror or error
        raise FormatError(
            f"{folder} holds no complete values of layers ({MARK} cannot be read: {why}); give the"
            f" folder of an earlier inference, or {AGAIN}"
        ) from None
    except (ValueError, ValidationError, RecursionError):
        raise FormatError(f"{folder / MARK}: damaged; {AGAIN}") from None
    if mark.version != VERSION:
        raise FormatError(
            f"{folder}: the format has version {mark.version}, this program reads {VERSION};"
            f" {AGAIN}"
        )
    return mark


def _check(folder: Path, k: int, part: Mapping[str, Array]) -> None:
    """Check that the files of a part have the sizes that its arrays say."""
    for name, array in part.items():
        path = folder / f"part-{k:05}" / name
        try:
            shape = tuple(array.shape)
            dtype = np.dtype(array.dtype)
        except (TypeError, ValueError, SyntaxError):
            raise FormatError(f"{folder / MARK}: damaged; {AGAIN}") from None
        size = int(np.prod(shape)) * dtype.itemsize
        if (
            "/" in name
            or dtype.hasobject
            or min(shape, default=0) < 0
            or not path.is_file()
            or path.stat().st_size != size
        ):
            raise FormatError(f"{path}: expected a file of {size} bytes; {AGAIN}")
    if "ids" not in part or len({tuple(array.shape[:1]) for array in part.values()}) != 1:
        raise FormatError(
            f"{folder / MARK}: damaged: the arrays of part {k} have different numbers of rows;"
            f" {AGAIN}"
        )
