"""Reads graphs from npz files: zip archives of .npy members, each read by
:mod:`graphtheta.base.npy`.

Fields of a graph file: ``edge_index`` [2, n_edges] (or ``src`` and ``dst``), ``x`` (or CSR parts
``x_data, x_indices, x_indptr, x_shape``), ``y``, ``train_mask, val_mask, test_mask`` (or ``train,
val, test``), ``edge_attr``, ``edge_weight``, ``edge_y``, ``edge_train, edge_val, edge_test``,
``node_ids``, ``n_nodes``, ``meta`` (a JSON text), and named columns as ``node_columns.NAME`` and
``edge_columns.NAME``.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.base.memory import total_bytes
from graphtheta.base.npy import AGAIN, UNREADABLE, read_array
from graphtheta.base.sparse import csr
from graphtheta.errors import FormatError
from graphtheta.graph.data.arrays import COLUMNS
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.labels import LabelForm, label_form

ALIASES = {
    "train_mask": "train",
    "val_mask": "val",
    "test_mask": "test",
    "orig_id": "node_ids",
    "entity_names": "node_ids",
}
FIELDS = (
    "x",
    "y",
    "train",
    "val",
    "test",
    "edge_attr",
    "edge_weight",
    "edge_y",
    "edge_train",
    "edge_val",
    "edge_test",
    "node_ids",
)
PARTS = ("data", "indices", "indptr", "shape")
# deflate expands one byte to at most 1,032
MOST_EXPANDED = 1032


class ArrayFile:
    """Checked access to the arrays of an npz file.

    Args:
        path: The file.

    Attributes:
        path: The file.
        fields: Names of its arrays, in order.

    Raises:
        FormatError: The file is missing, unreadable or not an npz file.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        if not self.path.is_file():
            raise FormatError(f"{self.path}: the file does not exist; check the path")
        try:
            self._size = self.path.stat().st_size
            self._zip = zipfile.ZipFile(self.path)
            members = self._zip.infolist()
        except UNREADABLE as error:
            remedy = (
                f"{AGAIN}, or write it with numpy.savez"
                if self.path.suffix == ".npz"
                else (
                    f"for a table of edges: graphtheta import --edges {self.path} --to"
                    f" {self.path.name.partition('.')[0]}.store"
                )
            )
            raise FormatError(
                f"{self.path}: not a readable npz file ({error}); {remedy}"
            ) from error
        self._members = {m.filename[:-4]: m for m in members if m.filename.endswith(".npy")}
        self.fields = list(self._members)
        self._taken = 0

    def __contains__(self, field: str) -> bool:
        return field in self._members

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def read(self, field: str, kinds: str = "fiub", ndim: int | None = None) -> np.ndarray:
        """One array.

        Args:
            field: Its name.
            kinds: Letters of the numpy dtype kinds accepted (f floats, i and u integers, b bool, U
                text).
            ndim: Number of axes; any if None.

        Raises:
            FormatError: Missing, of another kind or number of axes, or damaged; names file, field
                and remedy.
        """
        if field not in self._members:
            raise FormatError(
                f"{self.path}: field '{field}' is missing; the file has {self.listed()}"
            )
        at = f"{self.path}: field '{field}'"
        member = self._members[field]
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FormatError(
                f"{at} has a compression that NumPy does not write; save it with"
                " numpy.savez_compressed"
            )
        self._taken += member.file_size
        if self._taken > MOST_EXPANDED * self._size:
            raise FormatError(
                f"{at}: a file of {self._size} bytes declares {self._taken} bytes, more than"
                f" compression allows; {AGAIN}"
            )
        if self._taken > total_bytes():
            raise FormatError(
                f"{at}: the arrays up to this one need {self._taken / 2**30:.1f} GiB and this"
                f" machine has {total_bytes() / 2**30:.1f}; use a larger machine"
            )
        try:
            with self._zip.open(member) as stream:
                array = read_array(
                    stream=stream, size=member.file_size, at=at, kinds=kinds, ndim=ndim
                )
            # nobody else has it, so that a graph need not copy it
            array.flags.writeable = False
            return array
        except FormatError:
            raise
        except UNREADABLE as error:
            raise FormatError(
                f"{at} cannot be read ({error or type(error).__name__}); {AGAIN}"
            ) from error

    def listed(self) -> str:
        """The fields in words."""
        return ", ".join(self.fields[:20]) + ", ..." * (len(self.fields) > 20) or "no arrays"

    def text(self, field: str) -> str:
        """A field holding one text; empty if the field is missing."""
        return str(self.read(field, "U", 0)) if field in self else ""


def read_meta(file: ArrayFile) -> dict[str, Any]:
    """The JSON text ``meta``; empty if there is none."""
    text = file.text("meta")
    try:
        meta = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"{file.path}: field 'meta' is not JSON ({error}); write it with json.dumps"
        ) from error
    return meta if isinstance(meta, dict) else {"note": meta}


def count_in(file: ArrayFile, meta: dict[str, Any], *names: str) -> int | None:
    """The first of these counts that ``meta`` states; None if it states none."""
    for name in names:
        count = meta.get(name)
        if count is not None and (
            type(count) is not int or not 0 <= count <= np.iinfo(np.int64).max
        ):
            raise FormatError(
                f"{file.path}: field 'meta' has {name} = {count!r:.40}, expected a whole number;"
                " correct it or leave it out"
            )
        if count is not None:
            return count
    return None


def read_edges(file: ArrayFile) -> tuple[np.ndarray, np.ndarray]:
    """Sources and destinations, from ``edge_index`` or from ``src`` and ``dst``."""
    if "edge_index" in file:
        pair = file.read("edge_index", "iu", 2)
        if pair.shape[0] != 2:
            raise FormatError(
                f"{file.path}: field 'edge_index' has shape {list(pair.shape)}, expected [2,"
                " n_edges]; transpose it before saving"
            )
        return pair[0], pair[1]
    if "src" in file and "dst" in file:
        return file.read("src", "iu", 1), file.read("dst", "iu", 1)
    several = [f for f in file.fields if f.startswith("edge_index__")]
    if several:
        raise FormatError(
            f"{file.path}: several kinds of edges ({', '.join(several)}); a file has one; give the"
            " arrays of types to gt.Graph as dicts, or number all nodes together and save all"
            " edges under 'edge_index', with codes of their relations under"
            " 'edge_columns.relation'"
        )
    raise FormatError(f"{file.path}: field 'edge_index' is missing; the file has {file.listed()}")


def read_features(file: ArrayFile, field: str = "x") -> Any:
    """Features, a plain array or checked CSR parts; None if there are none."""
    if field in file:
        return file.read(field)
    names = [f"{field}_{part}" for part in PARTS]
    present = [name for name in names if name in file]
    if not present:
        return None
    if len(present) < len(names):
        missing = sorted(set(names) - set(present))[0]
        raise FormatError(
            f"{file.path}: field '{missing}' is missing, but not '{present[0]}'; sparse features"
            f" need {', '.join(names)}"
        )
    values = file.read(names[0], "fiub", 1)
    indices, indptr, shape = (file.read(name, "iu", 1) for name in names[1:])
    return csr(
        values=values,
        indices=indices,
        indptr=indptr,
        shape=shape,
        at=f"{file.path}: field '{field}'",
    )


def read_npz(path: str | os.PathLike[str]) -> Graph:
    """A graph from an npz file; see the module for the fields.

    Args:
        path: The file.

    Returns:
        The graph as stored. Fields that are not used are listed in ``meta["unused_fields"]``.

    Raises:
        FormatError: The file is unreadable or a field has the wrong form.
        ShapeError, DataError: The arrays do not make a graph.
    """
    with ArrayFile(path) as file:
        meta = read_meta(file)
        fields: dict[str, Any] = {"x": read_features(file)}
        used = {
            "edge_index",
            "src",
            "dst",
            "meta",
            "n_nodes",
            "x",
            *(f"x_{part}" for part in PARTS),
        }
        for name in file.fields:
            field = ALIASES.get(name, name)
            group, _, column = name.partition(".")
            if field in FIELDS and field != "x":
                fields[field] = file.read(name, "iuU" if field == "node_ids" else "fiub")
                used.add(name)
            elif group in COLUMNS and column:
                # text is read here and rejected by the graph, whose message gives the remedy
                fields.setdefault(group, {})[column] = file.read(name, "fiubU")
                used.add(name)
        n_nodes = (
            int(file.read("n_nodes", "iu", 0))
            if "n_nodes" in file
            else count_in(file, meta, "num_nodes", "n_nodes")
        )
        unused = [name for name in file.fields if name not in used]
        if unused:
            meta["unused_fields"] = unused
        classes = count_in(file, meta, "num_classes")
        y = fields.get("y")
        one = (
            y is not None and label_form(y.dtype.kind, math.prod(y.shape[1:])) is LabelForm.CLASSES
        )
        return Graph(
            read_edges(file),
            n_nodes,
            n_classes=classes if one else None,
            name=file.path.stem,
            meta=meta,
            where=str(file.path),
            **fields,
        )
