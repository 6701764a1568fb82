"""Formats of predictions and embeddings: rows with their original ids as CSV, Parquet or NumPy arrays."""
from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from graphtheta.errors import ConfigError
from graphtheta.wording import did_you_mean

# rows that are converted at a time
BLOCK = 1 << 14


class Rows(NamedTuple):
    """Values of nodes, edges or links.

    Attributes:
        name: What the values are: "prediction" or "embedding".
        ids: Original ids, [n], or [n, 2] for links, integers or text.
        values: [n, ...].
    """

    name: str
    ids: np.ndarray
    values: np.ndarray

    @property
    def ids_by_column(self) -> dict[str, np.ndarray]:
        """The ids as columns: "id", or "id_0" and "id_1" for links."""
        return {"id": self.ids} if self.ids.ndim == 1 else {f"id_{k}": self.ids[:, k] for k in range(self.ids.shape[1])}

    @property
    def flat(self) -> np.ndarray:
        """The values with at most one axis besides that of the rows, [n] or [n, k]."""
        width = int(np.prod(self.values.shape[1:]))
        return self.values if self.values.ndim < 3 else self.values.reshape(len(self.values), width)

    def blocks(self) -> Iterator[Rows]:
        """The rows, some at a time."""
        for a in range(0, len(self.ids), BLOCK):
            yield Rows(self.name, self.ids[a: a + BLOCK], self.values[a: a + BLOCK])


Write = Callable[[BinaryIO, Rows], None]


def write_csv(file: BinaryIO, rows: Rows) -> None:
    """Write a line of titles and a line for each row. Text with special characters is in quotes; numbers are read back exactly."""
    flat = rows.flat
    titles = [*rows.ids_by_column, *([rows.name] if flat.ndim == 1 else [f"{rows.name}_{k}" for k in range(flat.shape[1])])]
    text = io.TextIOWrapper(file, "utf-8", newline="")
    text.write(",".join(titles) + "\n")
    # before Python 3.13 the module does not quote a text because of a carriage return
    quoted = rows.ids.dtype.kind == "U" and (np.char.find(rows.ids, "\r") >= 0).any()
    lines = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC if quoted else csv.QUOTE_MINIMAL, lineterminator="\n")
    for block in rows.blocks():
        columns = [_numbers(x) for x in (*block.ids_by_column.values(), *block.flat.reshape(len(block.ids), -1).T)]
        lines.writerows(zip(*columns, strict=True))
    # the caller closes the file
    text.detach()


def write_parquet(file: BinaryIO, rows: Rows) -> None:
    """Write a table with the ids and one column of values, of lists of a fixed length if a row has several."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = rows.flat
    kind = pa.from_numpy_dtype(flat.dtype)
    schema = {name: pa.string() if ids.dtype.kind == "U" else pa.int64() for name, ids in rows.ids_by_column.items()}
    schema[rows.name] = kind if flat.ndim == 1 else pa.list_(kind, flat.shape[1])
    with pq.ParquetWriter(file, pa.schema(schema)) as table:
        for block in rows.blocks():
            columns = {name: pa.array(ids.tolist(), schema[name]) for name, ids in block.ids_by_column.items()}
            values = pa.array(block.flat.reshape(-1))
            columns[rows.name] = values if flat.ndim == 1 else pa.FixedSizeListArray.from_arrays(values, flat.shape[1])
            table.write_table(pa.table(columns, pa.schema(schema)))


def write_values(file: BinaryIO, rows: Rows) -> None:
    """Write the values as an array of NumPy, [n, ...]."""
    np.save(file, rows.values)


def write_ids(file: BinaryIO, rows: Rows) -> None:
    """Write the ids as an array of NumPy, [n] or [n, 2]."""
    np.save(file, rows.ids)


# files of a part by format, with {} for the name of the values
FORMATS: dict[str, dict[str, Write]] = {
    "parquet": {".parquet": write_parquet}, "csv": {".csv": write_csv}, "npy": {".id.npy": write_ids, ".{}.npy": write_values}}


def check_format(name: str) -> None:
    """Check that parts can be written in a format.

    Raises:
        ConfigError: There is no such format, or its library is not installed.
    """
    if name not in FORMATS:
        raise ConfigError(f"format: unknown format {name!r}{did_you_mean(name, FORMATS)}; choose from {', '.join(FORMATS)}")
    if name == "parquet" and find_spec("pyarrow") is None:
        raise ConfigError("format=parquet needs pyarrow: pip install 'graphtheta[tables]', or choose csv or npy")


def _numbers(x: np.ndarray) -> list[Any]:
    """Values that the csv module writes exactly: of float32, only the NumPy scalar is written with as few digits as it needs."""
    return list(x) if x.dtype == np.float32 else x.tolist()
