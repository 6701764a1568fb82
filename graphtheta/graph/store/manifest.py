"""The manifest of a store: format version, counts, and the columns with their types, shapes and
checksums.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    model_validator,
)

from graphtheta.base.strict_json import to_json
from graphtheta.errors import DataError, FormatError

FILE = "store.json"
FORMAT: Literal["graphtheta store"] = "graphtheta store"
VERSION: Literal[1] = 1
# bytes of a manifest: 64 characters per block of 16 MiB leave room for 16 TiB of columns
MOST_BYTES = 1 << 26
AGAIN = "import the source again with `graphtheta import`"
# columns that have another number of rows than nodes or edges: parts of CSR rows, texts, quantised
# columns, and rows of types
PARTS = (".data", ".indices", ".indptr", ".shape", ".bytes", ".offsets", ".scale", ".zero", ".rows")
# types of node features that an import can choose
FEATURES = ("stored", "float16", "int8")
Group = Literal["node", "edge"]


class StoredColumn(BaseModel):
    """A column of a store.

    Attributes:
        group: Whether its rows are nodes or edges.
        name: Name in the group, such as ``x``, ``y``, ``columns.kind``, or ``x.data`` for a part of
            CSR rows.
        file: File in the folder.
        dtype: Type of the values, little-endian.
        shape: Rows, and the shape of a row.
        rows_per_block: Rows that a checksum covers.
        checksums: BLAKE2b of each block in order, 16 bytes in hexadecimal.
        page_sums: Of each block, which reads compare (``page_sum``); none in a store of an earlier
            version.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    group: Group
    name: str = Field(pattern=r"^[^\W\d]\w*(\.\w+)*$", max_length=200)
    file: str
    dtype: Literal["bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64"]
    shape: list[NonNegativeInt] = Field(min_length=1, max_length=2)
    rows_per_block: PositiveInt
    checksums: list[str]
    page_sums: list[NonNegativeInt] = []

    @model_validator(mode="after")
    def _consistent(self) -> StoredColumn:
        if self.file != file_name(self.group, self.name):
            raise ValueError(
                f"the file of column {self.group}.{self.name} is {self.file!r}, expected"
                f" {file_name(self.group, self.name)!r}"
            )
        if len(self.checksums) != -(-self.shape[0] // self.rows_per_block):
            raise ValueError(
                f"column {self.group}.{self.name} has {len(self.checksums)} checksums, which do not"
                " fit its rows"
            )
        if self.page_sums and len(self.page_sums) != len(self.checksums):
            raise ValueError(
                f"column {self.group}.{self.name} has {len(self.page_sums)} sums of pages, which do"
                " not fit its rows"
            )
        return self

    @property
    def type(self) -> np.dtype:
        """The type of the values in a file."""
        return np.dtype(self.dtype).newbyteorder("<")


class Manifest(BaseModel):
    """What a store contains.

    Attributes:
        format, version: Of the layout.
        n_nodes, n_edges: Size of the graph.
        name: Name of the graph.
        n_classes, multilabel: As in ``Graph``; None where they follow from the labels.
        meta: Anything else worth keeping (source, class names, ...).
        columns: The columns.
        checksum: CRC-32 of all other fields; None in a store of an earlier version.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: Literal["graphtheta store"] = FORMAT
    version: Literal[1] = VERSION
    n_nodes: PositiveInt
    n_edges: NonNegativeInt
    name: str
    n_classes: NonNegativeInt | None
    multilabel: bool | None
    meta: dict[str, Any]
    columns: list[StoredColumn]
    checksum: int | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Manifest:
        names = {(c.group, c.name) for c in self.columns}
        if len(names) < len(self.columns):
            raise ValueError("a column is listed twice")
        for name in ("src", "dst"):
            if ("edge", name) not in names:
                raise ValueError(f"the column edge.{name} is missing")
        for c in self.columns:
            n = self.n_nodes if c.group == "node" else self.n_edges
            if c.shape[0] != n and (c.name.startswith("columns.") or not c.name.endswith(PARTS)):
                raise ValueError(
                    f"column {c.group}.{c.name} has {c.shape[0]} rows, but the graph has {n}"
                    f" {c.group}s"
                )
        return self

    def text(self) -> str:
        """The content of the file.

        Raises:
            DataError: ``meta`` holds something other than plain values.
        """
        try:
            return to_json(self.model_dump() | {"checksum": self.computed_checksum()}, indent=1)
        except (TypeError, ValueError, RecursionError) as error:
            raise DataError(
                f"meta cannot be stored as JSON ({error}); give texts, numbers, lists and dicts by"
                " text"
            ) from None

    def computed_checksum(self) -> int:
        """CRC-32 of all fields but the checksum."""
        return zlib.crc32(to_json(self.model_dump(exclude={"checksum"}), sort_keys=True).encode())


def check_column(group: str, name: str, shape: tuple[int, ...], dtype: str) -> None:
    """Check what a column is called and of which type it is.

    Raises:
        FormatError: A store takes no such column.
    """
    record = {
        "group": group,
        "name": name,
        "file": file_name(group, name),
        "dtype": dtype,
        "shape": [0, *shape[1:]],
        "rows_per_block": 1,
        "checksums": [],
    }
    try:
        StoredColumn.model_validate(record)
    except ValidationError as error:
        raise FormatError(
            f"a store takes no column {group}.{name} of {dtype}: {_first(error)}; choose another"
            " name or type"
        ) from None


def file_name(group: str, name: str) -> str:
    """The file of a column."""
    return f"{group}.{name}.npy"


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a folder is a store, of any version."""
    return Path(path, FILE).is_file()


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a store.

    Raises:
        FormatError: It is missing, damaged, or of another version.
    """
    path = folder / FILE
    if not path.is_file():
        raise FormatError(
            f"{path}: the file does not exist, so {folder} is no complete store; {AGAIN}"
        )
    try:
        if path.stat().st_size > MOST_BYTES:
            raise FormatError(f"{path}: the file has more than {MOST_BYTES} bytes; {AGAIN}")
        record = json.loads(path.read_bytes())
    except OSError as error:
        raise FormatError(
            f"{path}: cannot be read: {error.strerror or error}; check the path"
        ) from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not JSON ({error}); {AGAIN}") from None
    if not isinstance(record, Mapping) or record.get("format") != FORMAT:
        raise FormatError(
            f"{path}: not the manifest of a store (its format is not {FORMAT!r}); {AGAIN}"
        )
    if record.get("version") != VERSION:
        raise FormatError(
            f"{path}: a store of version {record.get('version')!r:.20}, but this GraphTheta reads"
            f" version {VERSION}; {AGAIN}"
        )
    manifest = checked_manifest(record, str(path))
    if manifest.checksum not in (None, manifest.computed_checksum()):
        raise FormatError(
            f"{path}: damaged: its fields differ from the checksum; copy the folder again, or"
            f" {AGAIN}"
        )
    return manifest


def checked_manifest(record: Mapping[str, Any], where: str) -> Manifest:
    """A manifest of plain values.

    Raises:
        FormatError: They do not make a manifest.
    """
    try:
        return Manifest.model_validate(record)
    except ValidationError as error:
        raise FormatError(f"{where}: {_first(error)}; {AGAIN}") from None


def _first(error: ValidationError) -> str:
    """The first problem, with its field."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(map(str, first["loc"]))
    return f"{f'field {field}: ' if field else ''}{first['msg'].removeprefix('Value error, ')}"
