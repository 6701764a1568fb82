"""Formats of predictions and embeddings: rows with their original ids as CSV, Parquet or NumPy
arrays.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from graphtheta.base.wording import did_you_mean
from graphtheta.errors import ConfigError

# rows that are converted at a time
BLOCK = 1 << 14


class OutputRows(NamedTuple):
    """Values of nodes, edges or links.

    Attributes:
        name: What the values are: "prediction", "embedding" or "score".
        ids: Original ids, [n], or [n, 2] for links and [n, 3] for triples, integers or text.
        values: [n, ...].
        classes: Predicted classes, [n], names or numbers; None if there are none.
        columns: Names of the columns of the values, [k]; empty if they have none.
    """

    name: str
    ids: np.ndarray
    values: np.ndarray
    classes: np.ndarray | None = None
    columns: tuple[str, ...] = ()

    @property
    def ids_by_column(self) -> dict[str, np.ndarray]:
        """The ids as columns: "id", or "id_0", "id_1", ... for links and triples."""
        return (
            {"id": self.ids}
            if self.ids.ndim == 1
            else {f"id_{k}": self.ids[:, k] for k in range(self.ids.shape[1])}
        )

    @property
    def keys(self) -> dict[str, np.ndarray]:
        """The columns before the values: those of the ids, and "class" if rows have one."""
        return self.ids_by_column | ({} if self.classes is None else {"class": self.classes})

    @property
    def flat(self) -> np.ndarray:
        """The values with at most one axis besides that of the rows, [n] or [n, k]."""
        width = int(np.prod(self.values.shape[1:]))
        return self.values if self.values.ndim < 3 else self.values.reshape(len(self.values), width)

    def blocks(self) -> Iterator[OutputRows]:
        """The rows, some at a time."""
        for a in range(0, len(self.ids), BLOCK):
            some = slice(a, a + BLOCK)
            yield self._replace(
                ids=self.ids[some],
                values=self.values[some],
                classes=None if self.classes is None else self.classes[some],
            )


Write = Callable[[BinaryIO, OutputRows], None]


def write_csv(file: BinaryIO, rows: OutputRows) -> None:
    """Write a line of titles and a line for each row. Text with special characters is in quotes;
    numbers are read back exactly.
    """
    flat = rows.flat
    titles = [
        *rows.keys,
        *(
            [rows.name]
            if flat.ndim == 1
            else [f"{rows.name}_{k}" for k in rows.columns or range(flat.shape[1])]
        ),
    ]
    text = io.TextIOWrapper(file, "utf-8", newline="")
    # before Python 3.13 the module does not quote a text because of a carriage return
    texts = [x for x in (np.array(titles), *rows.keys.values()) if x.dtype.kind == "U"]
    quoted = any((np.char.find(x, "\r") >= 0).any() for x in texts)
    lines = csv.writer(
        text, quoting=csv.QUOTE_NONNUMERIC if quoted else csv.QUOTE_MINIMAL, lineterminator="\n"
    )
    lines.writerow(titles)
    for block in rows.blocks():
        columns = [
            _numbers(x) for x in (*block.keys.values(), *block.flat.reshape(len(block.ids), -1).T)
        ]
        lines.writerows(zip(*columns, strict=True))
    # the caller closes the file
    text.detach()


def write_parquet(file: BinaryIO, rows: OutputRows) -> None:
    """Write a table with the ids, the classes if there are any, and a column of values, of lists of
    a fixed length if a row has several.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = rows.flat
    kind = pa.from_numpy_dtype(flat.dtype)
    schema = {
        name: pa.string() if ids.dtype.kind == "U" else pa.int64()
        for name, ids in rows.keys.items()
    }
    schema[rows.name] = kind if flat.ndim == 1 else pa.list_(kind, flat.shape[1])
    with pq.ParquetWriter(file, pa.schema(schema)) as table:
        for block in rows.blocks():
            columns = {
                name: pa.array(ids.tolist(), schema[name]) for name, ids in block.keys.items()
            }
            values = pa.array(block.flat.reshape(-1))
            columns[rows.name] = (
                values
                if flat.ndim == 1
                else pa.FixedSizeListArray.from_arrays(values, flat.shape[1])
            )
            table.write_table(pa.table(columns, pa.schema(schema)))


def write_values(file: BinaryIO, rows: OutputRows) -> None:
    """Write the values as an array of NumPy, [n, ...]."""
    np.save(file, rows.values)


def write_ids(file: BinaryIO, rows: OutputRows) -> None:
    """Write the ids as an array of NumPy, [n] or [n, 2]."""
    np.save(file, rows.ids)


def write_classes(file: BinaryIO, rows: OutputRows) -> None:
    """Write the classes as an array of NumPy, [n]."""
    np.save(file, rows.keys["class"])


# files of a part by format, with {} for the name of the values
FORMATS: dict[str, dict[str, Write]] = {
    "parquet": {".parquet": write_parquet},
    "csv": {".csv": write_csv},
    "npy": {".id.npy": write_ids, ".class.npy": write_classes, ".{}.npy": write_values},
}


def files_of(form: str, rows: OutputRows) -> dict[str, Write]:
    """The files of a part: what writes each, by the ending of its name."""
    files = FORMATS[form].items()
    return {
        ending.format(rows.name): write
        for ending, write in files
        if write is not write_classes or rows.classes is not None
    }


def check_format(name: str) -> None:
    """Check that parts can be written in a format.

    Raises:
        ConfigError: There is no such format, or its library is not installed.
    """
    if name not in FORMATS:
        raise ConfigError(
            f"format: unknown format {name!r}{did_you_mean(name, FORMATS)}; choose from"
            f" {', '.join(FORMATS)}"
        )
    if name == "parquet" and find_spec("pyarrow") is None:
        raise ConfigError(
            "format=parquet needs pyarrow: pip install 'graphtheta[tables]', or choose csv or npy"
        )


def _numbers(x: np.ndarray) -> list[Any]:
    """Values that the csv module writes exactly: of float32, only the NumPy scalar is written with
    as few digits as it needs.
    """
    return list(x) if x.dtype == np.float32 else x.tolist()
