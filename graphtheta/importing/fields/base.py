"""What a field is, ids, and what fields have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphtheta.engine.comm.communicator import Comm
from graphtheta.importing.tables.arrow import (
    BOOL,
    TEXT,
    WHOLE,
    absent,
    flags,
    is_list,
    null,
    one,
)

# rows that are wrong, and what is wrong with a row
Wrong = tuple[np.ndarray, Callable[[int], str]]


class Output(NamedTuple):
    """A column of a store: its name, the shape of a row, and the type of its values."""

    name: str
    trailing: tuple[int, ...]
    dtype: Any


class Field:
    """A field of a graph. This base accepts all rows and writes nothing.

    Attributes:
        inputs: Columns to read, and their types.
    """

    inputs: dict[str, Any]

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """Rows that cannot be used, [n] bool, and why."""
        return iter(())

    def observe(self, table: pa.Table) -> None:
        """Take notice of rows that are used."""

    def agree(self, comm: Comm, n: int) -> None:
        """Exchange what was observed, after all n rows.

        Raises:
            DataError: The values together make no field; on all ranks.

        Collective: all ranks of comm.
        """

    def outputs(self) -> list[Output]:
        """The columns of the store."""
        return []

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """Values of the outputs for some rows."""
        return []

    def meta(self) -> dict[str, Any]:
        """What is stored with the graph."""
        return {}

    def labels(self) -> dict[str, Any]:
        """The arguments n_classes and multilabel of a graph, where the labels themselves do not
        tell them.
        """
        return {}

    @property
    def key(self) -> str:
        """What finds what it learnt, among the fields of its table."""
        return next((output.name for output in self.outputs()), "")

    def learnt(self) -> dict[str, Any]:
        """What an import of other tables takes, as plain values; after ``agree``."""
        return {}

    def take(self, learnt: dict[str, Any], store: str) -> None:
        """Take what the same field of another import learnt, before any rows.

        Args:
            learnt: Of the other field.
            store: The store that has it, for messages.
        """

    def over(self) -> set[str]:
        """The rows that means, deviations and most frequent values are those of: "training" or
        "all"; after ``agree``.
        """
        return set()

    def counts(self) -> dict[str, dict[str, int]]:
        """Numbers of values that are something else than the table says, by what is said of them
        and by column; after ``agree``.
        """
        return {}


class Ids(Field):
    """Ids of nodes, which are resolved and not stored as a column.

    Args:
        columns: Their columns.
        kind: Type of the ids.
    """

    def __init__(self, columns: Sequence[str], kind: Any):
        self.inputs = dict.fromkeys(columns, kind)

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """Rows without an id."""
        for name, kind in self.inputs.items():
            column = one(table.column(name))
            yield (
                absent(column) if kind == TEXT else null(column),
                says(f"column '{name}' has no id"),
            )
            if kind == TEXT:
                # arrays of texts end at such a character
                yield (
                    flags(pc.match_substring(column, "\0")),
                    says(f"column '{name}' has an id with the character 0"),
                )


class Tally:
    """Numbers of values by column, of all workers after ``agree``.

    Args:
        what: What is counted.
    """

    def __init__(self, what: str):
        self._what = what
        self._counts: dict[str, int] = {}

    def add(self, column: str, n: int) -> None:
        """Count values of a column."""
        self._counts[column] = self._counts.get(column, 0) + n

    def agree(self, comm: Comm) -> None:
        """Add up the numbers of all workers.

        Collective: all ranks of comm.
        """
        parts = comm.all_gather(self._counts)
        columns = {column: None for part in parts for column in part}
        self._counts = {column: sum(part.get(column, 0) for part in parts) for column in columns}

    def by_column(self) -> dict[str, dict[str, int]]:
        """The numbers that are not 0, by what is counted and by column."""
        counts = {column: n for column, n in self._counts.items() if n}
        return {self._what: counts} if counts else {}


def element(kind: Any) -> Any:
    """The type of the values of a column, those in its lists if it has lists."""
    return kind.value_type if is_list(kind) else kind


def read_as(kind: Any) -> Any:
    """The type to read a column of integers or bools in."""
    return BOOL if pa.types.is_boolean(kind) else WHOLE


def says(text: str) -> Callable[[int], str]:
    """The same text for every row."""
    return lambda row: text


def no_list(name: str, sizes: np.ndarray, width: int) -> Callable[[int], str]:
    """What is wrong with a list of another length, -1 for none."""
    return lambda row: (
        f"column '{name}' has no list"
        if sizes[row] < 0
        else f"column '{name}' has a list of {sizes[row]} numbers, expected {width}"
    )
