"""Formats of predictions and embeddings: rows with their original ids as CSV, Parquet or NumPy
arrays.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from graphtheta.base.wording import did_you_mean
from graphtheta.errors import ConfigError

# rows that are converted at a time
BLOCK = 1 << 14


class OutputRows(NamedTuple):
    """Values of nodes, edges or links.

    Attributes:
        name: What the values are: "probability", "prediction", "embedding" or "score".
        ids: Original ids, [n], or [n, 2] for links and [n, 3] for triples, integers or text.
        values: [n, ...].
        classes: Predicted classes, [n], names or numbers; None if there are none.
        columns: Names of the columns of the values, [k]; empty if they have none.
        others: Further values by name, [n, ...] each.
        written: What is written after the ids, names of these, "class" or "values", in this order.
    """

    name: str
    ids: np.ndarray
    values: np.ndarray
    classes: np.ndarray | None = None
    columns: tuple[str, ...] = ()
    others: Mapping[str, np.ndarray] = MappingProxyType({})
    written: tuple[str, ...] = ("class", "values")

    @property
    def ids_by_column(self) -> dict[str, np.ndarray]:
        """The ids as columns: "id", or "id_0", "id_1", ... for links and triples."""
        return (
            {"id": self.ids}
            if self.ids.ndim == 1
            else {f"id_{k}": self.ids[:, k] for k in range(self.ids.shape[1])}
        )

    @property
    def fields(self) -> dict[str, np.ndarray]:
        """What is written after the ids, by name, [n, ...] each."""
        by_name = {"class": self.classes, **self.others, "values": self.values}
        return {
            self.name if name == "values" else name: x
            for name in self.written
            if (x := by_name[name]) is not None
        }

    @property
    def flat(self) -> dict[str, np.ndarray]:
        """The ids and these, with at most one axis besides that of the rows, [n] or [n, k]."""
        return self.ids_by_column | {
            name: x if x.ndim < 3 else x.reshape(len(x), int(np.prod(x.shape[1:])))
            for name, x in self.fields.items()
        }

    def titles(self, name: str, width: int) -> list[str]:
        """Titles of the columns of a field, [width]."""
        named = self.columns if len(self.columns) == width else range(width)
        return [f"{name}_{k}" for k in named]

    def blocks(self) -> Iterator[OutputRows]:
        """The rows, some at a time."""
        for a in range(0, len(self.ids), BLOCK):
            some = slice(a, a + BLOCK)
            yield self._replace(
                ids=self.ids[some],
                values=self.values[some],
                classes=None if self.classes is None else self.classes[some],
                others={name: x[some] for name, x in self.others.items()},
            )


Write = Callable[[BinaryIO, OutputRows], None]


def write_csv(file: BinaryIO, rows: OutputRows) -> None:
    """Write a line of titles and a line for each row. Text with special characters is in quotes;
    numbers are read back exactly.
    """
    flat = rows.flat
    titles = [
        title
        for name, x in flat.items()
        for title in ([name] if x.ndim == 1 else rows.titles(name, x.shape[1]))
    ]
    text = io.TextIOWrapper(file, "utf-8", newline="")
    # before Python 3.13 the module does not quote a text because of a carriage return
    texts = [x for x in (np.array(titles), *flat.values()) if x.dtype.kind == "U"]
    quoted = any((np.char.find(x, "\r") >= 0).any() for x in texts)
    lines = csv.writer(
        text, quoting=csv.QUOTE_NONNUMERIC if quoted else csv.QUOTE_MINIMAL, lineterminator="\n"
    )
    lines.writerow(titles)
    for block in rows.blocks():
        columns = [
            _numbers(column)
            for x in block.flat.values()
            for column in ([x] if x.ndim == 1 else x.T)
        ]
        lines.writerows(zip(*columns, strict=True))
    # the caller closes the file
    text.detach()


def write_parquet(file: BinaryIO, rows: OutputRows) -> None:
    """Write a table with a column for each id and each field, of lists of a fixed length if a row
    has several values of it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    def kind(x: np.ndarray) -> Any:
        plain = {"U": pa.string(), "i": pa.int64(), "u": pa.int64()}.get(x.dtype.kind)
        plain = pa.from_numpy_dtype(x.dtype) if plain is None else plain
        return plain if x.ndim == 1 else pa.list_(plain, x.shape[1])

    def column(x: np.ndarray) -> Any:
        if x.ndim == 1:
            return pa.array(x.tolist() if x.dtype.kind == "U" else x, kind(x))
        return pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), x.shape[1])

    schema = pa.schema({name: kind(x) for name, x in rows.flat.items()})
    with pq.ParquetWriter(file, schema) as table:
        for block in rows.blocks():
            columns = {name: column(x) for name, x in block.flat.items()}
            table.write_table(pa.table(columns, schema))


def write_ids(file: BinaryIO, rows: OutputRows) -> None:
    """Write the ids as an array of NumPy, [n] or [n, 2]."""
    np.save(file, rows.ids)


def write_field(name: str, file: BinaryIO, rows: OutputRows) -> None:
    """Write a field as an array of NumPy, [n, ...]."""
    np.save(file, rows.fields[name])


# files of a part by format
FORMATS: dict[str, dict[str, Write]] = {
    "parquet": {".parquet": write_parquet},
    "csv": {".csv": write_csv},
    "npy": {".id.npy": write_ids},
}


def files_of(form: str, rows: OutputRows) -> dict[str, Write]:
    """The files of a part: what writes each, by the ending of its name."""
    fields = rows.fields if form == "npy" else ()
    return FORMATS[form] | {f".{name}.npy": partial(write_field, name) for name in fields}


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
