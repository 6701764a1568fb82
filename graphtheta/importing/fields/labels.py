"""Fields of node labels; ``graphtheta.graph.data.labels`` decides which one a column is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.columns import listed
from graphtheta.graph.data.labels import LabelForm, label_form
from graphtheta.graph.data.validation import MOST_CLASSES
from graphtheta.importing.fields.base import Field, Output, Wrong, element, no_list, read_as, says
from graphtheta.importing.fields.codes import Codes, check_categories
from graphtheta.importing.fields.numbers import Numbers
from graphtheta.importing.tables.arrow import (
    TEXT,
    WHOLE,
    absent,
    flags,
    integers,
    is_list,
    is_number,
    is_text,
    is_whole,
    lengths,
    lists_with,
    null,
    one,
    owners,
)


class Classes(Field):
    """A column of class numbers from 0, -1 or nothing for nodes without a label.

    Args:
        column: The column.
        kind: Type to read it in, integers or bools, or lists of them, which must have one value.
    """

    def __init__(self, column: str, kind: Any):
        self.inputs = {column: kind}
        self._column = column
        self._largest = -1
        # number of classes of the store whose classes are taken, and its name
        self._n_classes = 0
        self._store = ""

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """Negative classes, and lists of other lengths."""
        column = one(table.column(self._column))
        if is_list(column.type):
            sizes = lengths(column)
            yield (sizes >= 0) & (sizes != 1), no_list(self._column, sizes, 1)
        values = self._values(table)
        yield (
            values < -1,
            lambda row: (
                f"column '{self._column}': {values[row]} is no class; classes are numbered from 0"
            ),
        )
        if self._store:
            yield (
                values >= self._n_classes,
                lambda row: (
                    f"column '{self._column}': {self._store} does not know the class {values[row]};"
                    f" it has {self._n_classes} classes"
                ),
            )

    def observe(self, table: pa.Table) -> None:
        """Find the largest."""
        self._largest = max(self._largest, int(self._values(table).max(initial=-1)))

    def agree(self, comm: Comm, n: int) -> None:
        """Refuse numbers that are codes."""
        self._largest = max(comm.all_gather(self._largest))
        n_classes = self._largest + 1
        if n_classes > max(n, MOST_CLASSES):
            raise DataError(
                f"column '{self._column}': {n_classes} classes for {n} nodes; if the numbers are"
                f" names, read them as text with --types {self._column}:text"
            )

    def outputs(self) -> list[Output]:
        """One class a row."""
        return [Output("y", (), np.int64)]

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """One class a row."""
        return [self._values(table)]

    def learnt(self) -> dict[str, Any]:
        """The number of classes."""
        return {"n_classes": max(self._n_classes, self._largest + 1)}

    def take(self, learnt: dict[str, Any], store: str) -> None:
        """Take the number of classes of another import."""
        self._n_classes = learnt["n_classes"]
        self._store = store

    def labels(self) -> dict[str, Any]:
        """The classes of the other import, of which some may not occur."""
        return {"n_classes": self._n_classes} if self._store else {}

    def missing(self, table: pa.Table) -> np.ndarray:
        """Rows without a class, [n] bool."""
        return self._values(table) < 0

    def _values(self, table: pa.Table) -> np.ndarray:
        column = one(table.column(self._column))
        if not is_list(column.type):
            return integers(column.cast(WHOLE).fill_null(-1))
        out = np.full(len(column), -1, np.int64)
        single = lengths(column) == 1
        out[single] = integers(column.filter(pa.array(single)).flatten().cast(WHOLE).fill_null(-1))
        return out


class Targets(Numbers):
    """Numbers from several columns or from lists of one length: 0/1 labels, named by their columns,
    or targets of regression.

    Args:
        columns, types, width: As of ``Numbers``.
    """

    def __init__(self, columns: Sequence[str], types: dict[str, Any], width: int | None):
        super().__init__("y", columns, types, width, missing=True, remedy="rescale the targets")
        self._binary = True

    def observe(self, table: pa.Table) -> None:
        """Look for other numbers than 0 and 1, too."""
        super().observe(table)
        values = self._values(table)
        self._binary = self._binary and bool(
            ((values == 0) | (values == 1) | np.isnan(values)).all()
        )

    def agree(self, comm: Comm, n: int) -> None:
        """Agree on whether all are 0 or 1."""
        super().agree(comm, n)
        self._binary = all(comm.all_gather(self._binary))

    def meta(self) -> dict[str, Any]:
        """Names of the labels, if they are 0/1 labels of several columns."""
        return {"class_names": list(self.inputs)} if self._binary and len(self.inputs) > 1 else {}


class Sets(Codes):
    """A column of lists of classes: 0 or 1 for each class, NaN for all if there is no list.

    Lists of one length above 1 that hold only 0 and 1 are rows of a matrix of labels instead: as
    classes, all of the nodes would have the same ones.

    Args:
        column: The column.
        names: Whether the classes are texts.
    """

    def __init__(self, column: str, names: bool):
        super().__init__("y", column, ("class_names",), np.float32, missing=0)
        self.inputs = {column: pa.large_list(TEXT)}
        self._names = names
        # lengths of the lists, and a class that a list has twice
        self._lengths: set[int] = set()
        self._twice = ""
        self._matrix = False

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """Lists with missing values, or with numbers that are no classes."""
        column = one(table.column(self._column))
        sizes = lengths(column)
        values = column.flatten()
        yield (
            lists_with(sizes, absent(values)),
            says(f"column '{self._column}' has a list with a missing class"),
        )
        if self._store:
            yield (
                lists_with(sizes, self.unknown(values)),
                says(
                    f"column '{self._column}' has a list with a class that {self._store} does not"
                    f" know; it knows {listed(self._values)}"
                ),
            )
        if self._store and self._matrix:
            yield (
                (sizes >= 0) & (sizes != len(self._values)),
                no_list(self._column, sizes, len(self._values)),
            )
        if not self._names:
            yield (
                lists_with(sizes, flags(pc.starts_with(values, "-"))),
                says(
                    f"column '{self._column}' has a list with a negative number, which is no class;"
                    " a row without labels has no list"
                ),
            )

    def observe(self, table: pa.Table) -> None:
        """Collect the classes."""
        column = one(table.column(self._column))
        values = column.flatten()
        super().observe(pa.table({self._column: values}))
        if self._names:
            return
        sizes = lengths(column)
        self._lengths.update(np.unique(sizes[sizes >= 0]).tolist())
        if not self._twice:
            codes = integers(values.dictionary_encode().indices)
            owner = owners(sizes)
            order = np.lexsort((codes, owner))
            again = order[1:][(np.diff(owner[order]) == 0) & (np.diff(codes[order]) == 0)]
            self._twice = values[int(again[0])].as_py() if len(again) else ""

    def agree(self, comm: Comm, n: int) -> None:
        """Sort the classes of all workers: names as texts, numbers as numbers.

        Raises:
            DataError: Lists have a class twice, so that they are no lists of classes.
        """
        super().agree(comm, n)
        if self._store:
            return
        if not self._values:
            raise DataError(
                f"column '{self._column}' has no class in any list, so that there is nothing to"
                " learn; check the column, or import without the label"
            )
        if self._names:
            return
        parts = comm.all_gather([sorted(self._lengths), self._twice])
        sizes = set().union(*(part for part, _ in parts))
        twice = next((value for _, value in parts if value), "")
        n_classes = max(map(int, self._values)) + 1
        self._matrix = len(sizes) == 1 and min(sizes) > 1 and set(self._values) <= {"0", "1"}
        if twice and not self._matrix:
            raise DataError(
                f"column '{self._column}' has the class {twice} twice in a list; numbers that are"
                " no classes, such as targets of regression, are given as floats"
            )
        check_categories(self._column, n_classes)
        self._values = [str(k) for k in range(min(sizes) if self._matrix else n_classes)]

    def outputs(self) -> list[Output]:
        """A number for each class."""
        return [Output(self._name, (len(self._values),), np.float32)]

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """A number for each class."""
        column = one(table.column(self._column))
        sizes = lengths(column)
        out = np.zeros((len(column), len(self._values)), np.float32)
        if self._matrix:
            out[sizes >= 0] = flags(pc.equal(column.flatten(), "1")).reshape(-1, len(self._values))
        else:
            codes = super().rows(pa.table({self._column: column.flatten()}))[0].astype(np.int64)
            out[owners(sizes), codes] = 1
        out[sizes < 0] = np.nan
        return [out]

    def missing(self, table: pa.Table) -> np.ndarray:
        """Rows without a list, [n] bool."""
        return null(one(table.column(self._column)))

    def learnt(self) -> dict[str, Any]:
        """The classes, and whether lists are rows of a matrix of labels."""
        return {**super().learnt(), "matrix": self._matrix}

    def take(self, learnt: dict[str, Any], store: str) -> None:
        """Take the classes of another import."""
        super().take(learnt, store)
        self._matrix = learnt["matrix"]

    def meta(self) -> dict[str, Any]:
        """Names of the classes, if they have any."""
        return super().meta() if self._names else {}

    def labels(self) -> dict[str, Any]:
        """Each row has several labels, also if there is one class."""
        return {"multilabel": True, "n_classes": len(self._values)}


class Names(Codes):
    """A column of names of classes, nothing for nodes without a label.

    Args:
        column: The column.
    """

    def __init__(self, column: str):
        super().__init__("y", column, ("class_names",), np.int64, missing=-1)

    def labels(self) -> dict[str, Any]:
        """A class for each name."""
        return {"n_classes": len(self._values)}


# a field of labels, which rows may lack
LabelField = Classes | Numbers | Codes


class Labelled(Field):
    """Refuses nodes of a split that have no label.

    Args:
        label, split: The two fields.
    """

    def __init__(self, label: LabelField, split: Field):
        self.inputs: dict[str, Any] = {}
        self._label = label
        self._split = split

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """Nodes in a mask without a label."""
        inside = np.any(
            [rows.reshape(table.num_rows, -1).any(axis=1) for rows in self._split.rows(table)],
            axis=0,
        )
        yield (
            inside & self._label.missing(table),
            says("the row belongs to a split, but has no label"),
        )


def label_field(columns: Sequence[str], types: dict[str, Any], width: int) -> LabelField:
    """The field of node labels.

    Args:
        columns: The columns.
        types: Types of all columns.
        width: Length of the lists of the first column, if it has lists.

    Raises:
        ConfigError: They have types that labels cannot have.
    """
    column = columns[0]
    kind = types[column]
    fixed = pa.types.is_fixed_size_list(kind)
    lists = is_list(kind) and not fixed
    if len(columns) > 1 and not any(is_list(types[name]) for name in columns):
        return Targets(columns, types, None)
    form = (
        label_form(_letter(element(kind)), width if fixed else 1, lists)
        if len(columns) == 1
        else None
    )
    if form is LabelForm.CLASSES:
        read = read_as(element(kind))
        return Classes(column, pa.large_list(read) if fixed else read)
    if form is LabelForm.NAMES and not fixed:
        return Names(column)
    if form is LabelForm.SETS:
        return Sets(column, is_text(element(kind)))
    if form is LabelForm.TARGETS:
        return Targets(columns, types, width if is_list(kind) else None)
    raise ConfigError(
        f"the label {', '.join(columns)} has type"
        f" {', '.join(str(types[name]) for name in columns)}; labels are integers, texts, numbers"
        f" or one column of lists of them. State another type with --types {column}:text"
    )


def _letter(kind: Any) -> str:
    """Letter of the NumPy kind of the values of a type; that of objects for those that are no
    labels.
    """
    tests = {"U": is_text, "b": pa.types.is_boolean, "i": is_whole, "f": is_number}
    return next((letter for letter, test in tests.items() if test(kind)), "O")
