"""Names as codes: classes, named columns of texts, and what one-hot features are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import DataError
from graphtheta.graph.data.columns import listed
from graphtheta.graph.data.validation import MOST_CLASSES
from graphtheta.importing.fields.base import Field, Output, Tally, Wrong, says
from graphtheta.importing.fields.filling import OWN, no_value, rows_of
from graphtheta.importing.fields.statistics import Frequencies
from graphtheta.importing.tables.arrow import (
    TEXT,
    absent,
    flags,
    integers,
    one,
)


class Codes(Field):
    """A column of texts as codes of their sorted values.

    Args:
        name: Name in the store.
        column: The column.
        key: Where the values are kept in the meta data: a name, or the name of a table and one in
            it.
        dtype: Type of the codes.
        missing: Code of rows without a value; None refuses such rows, unless a rule fills them.
        rule: What stands for missing values, see ``filling.RULES``.
        training: Gives the training rows of a table, [n] bool, of which the most frequent value is
            taken.
    """

    # whether names that a store does not know have no code, instead of being wrong
    passes_unknown = False

    def __init__(
        self,
        name: str,
        column: str,
        key: tuple[str, ...],
        dtype: Any,
        missing: int | None = None,
        rule: str = "error",
        training: Callable[[pa.Table], np.ndarray] | None = None,
    ):
        self.inputs = {column: TEXT}
        self._name = name
        self._column = column
        self._key = key
        self._dtype = dtype
        self._missing = missing
        self._rule = rule
        self._training = training
        self._seen: set[str] = set()
        self._values: list[str] = []
        # the store whose values are taken, and the most frequent one
        self._store = ""
        self._mode: str | None = None
        self._over = ""
        self._frequencies = Frequencies(column)
        self._lacking = Tally("missing_values")
        self._unknown = Tally("unknown_names")

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """Rows without a value, and values that the store of another import does not know."""
        if self._missing is None and self._rule == "error":
            yield self.missing(table), says(f"column '{self._column}' has no value")
        if self._store and not self.passes_unknown and self._rule != "own":
            texts = self.texts(table)
            yield (
                self.unknown(texts),
                lambda row: (
                    f"column '{self._column}': {self._store} does not know"
                    f" '{texts[row].as_py()}'; it knows {listed(self._values)}"
                ),
            )

    def observe(self, table: pa.Table) -> None:
        """Collect the values."""
        values = self.texts(table)
        if self._store:
            self._unknown.add(self._column, int(self.unknown(values).sum()))
        else:
            self._seen.update(value for value in values.unique().to_pylist() if value)
            check_categories(self._column, len(self._seen))
        if self._rule == "error":
            return
        lacking = absent(values)
        self._lacking.add(self._column, int(lacking.sum()))
        if self._rule == "mode" and not self._store and self._training is not None:
            present = pc.if_else(pa.array(lacking), None, values)
            self._frequencies.add(present, self._training(table))

    def agree(self, comm: Comm, n: int) -> None:
        """Sort the values of all workers."""
        self._lacking.agree(comm)
        self._unknown.agree(comm)
        if self._store:
            return
        own = {OWN} if self._rule == "own" else set[str]()
        self._values = sorted(own.union(*comm.all_gather(sorted(self._seen))))
        check_categories(self._column, len(self._values))
        if self._rule == "mode":
            self._mode, in_train = self._frequencies.agree(comm)
            if self._mode is None:
                raise no_value(self._column, self._rule, in_train)
            self._over = rows_of(in_train)

    def outputs(self) -> list[Output]:
        """One code a row."""
        return [Output(self._name, (), self._dtype)]

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """One code a row."""
        texts = self.texts(table)
        if self._mode is not None:
            texts = pc.if_else(pa.array(absent(texts)), self._mode, texts)
        codes = integers(pc.index_in(texts, pa.array(self._values, TEXT)).fill_null(-1))
        if self._rule == "own":
            codes = np.where(codes < 0, self._values.index(OWN), codes)
        return [codes.astype(self._dtype)]

    def texts(self, table: pa.Table) -> Any:
        """The values of the column as texts."""
        return one(table.column(self._column))

    def unknown(self, texts: Any) -> np.ndarray:
        """Whether texts are none of the values, [n] bool; missing ones are not."""
        return ~flags(pc.is_in(texts, pa.array(self._values, TEXT))) & ~absent(texts)

    def missing(self, table: pa.Table) -> np.ndarray:
        """Rows without a value, [n] bool."""
        return absent(self.texts(table))

    def marks(self, table: pa.Table, columns: Sequence[str]) -> np.ndarray:
        """Whether a row lacks a value, [n, 1] bool."""
        return self.missing(table)[:, None]

    def learnt(self) -> dict[str, Any]:
        """The values, and the most frequent one."""
        return {"values": self._values, "mode": self._mode}

    def take(self, learnt: dict[str, Any], store: str) -> None:
        """Take the values of another import."""
        self._values = list(learnt["values"])
        self._mode = learnt["mode"]
        self._store = store

    def over(self) -> set[str]:
        """Of the most frequent value."""
        return {self._over} if self._over else set()

    def counts(self) -> dict[str, dict[str, int]]:
        """Missing values and unknown names."""
        return self._lacking.by_column() | self._unknown.by_column()

    def meta(self) -> dict[str, Any]:
        """The values, in the order of their codes."""
        value: Any = self._values
        for key in reversed(self._key):
            value = {key: value}
        return dict(value)


def check_categories(column: str, n: int) -> None:
    """Check that a column of names has not too many.

    Raises:
        DataError: They are ids rather than names.
    """
    if n > MOST_CLASSES:
        raise DataError(
            f"column '{column}' has more than {MOST_CLASSES:,} different texts; codes are for names"
            " of kinds, so leave it out"
        )
