"""Columns of names as features: a number for each name, 1 for the row's and 0 for the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import DataError
from graphtheta.graph.data.scale import SCALES
from graphtheta.importing.fields.base import Field, Output, Wrong
from graphtheta.importing.fields.codes import Codes
from graphtheta.importing.fields.numbers import Numbers
from graphtheta.importing.tables.arrow import NO_VALUE, TEXT
from graphtheta.importing.tables.text import without_point

SCALE = SCALES["x"]
# names of a column; more are better read from an embedding, which costs a row of a table and not a
# row of zeros for each node
MOST_NAMES = 1000


class OneHot(Codes):
    """A column of names as rows of a unit matrix, in the order of the sorted names.

    A name that the store of another import does not know is a row of zeros, as is a missing one
    with the rule "zero".

    Args:
        column: The column; numbers and bools are names, too, which are the same in all formats: 1
            and 1.0, and true and True.
        kind: Its type.
        rule, training: As of ``Codes``.
    """

    passes_unknown = True

    def __init__(
        self,
        column: str,
        kind: Any,
        rule: str = "error",
        training: Callable[[pa.Table], np.ndarray] | None = None,
    ):
        super().__init__(
            name="x",
            column=column,
            key=("one_hot", column),
            dtype=np.int64,
            rule=rule,
            training=training,
        )
        self._numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        self._bools = pa.types.is_boolean(kind)

    def texts(self, table: pa.Table) -> Any:
        """The names."""
        texts = super().texts(table)
        if self._numbers or self._bools:
            # of numbers and bools these are no names
            texts = pc.if_else(pc.is_in(texts, pa.array(NO_VALUE, TEXT)), None, texts)
        if self._numbers:
            return without_point(texts)
        return pc.utf8_lower(texts) if self._bools else texts

    def agree(self, comm: Comm, n: int) -> None:
        """Sort the names of all workers, and refuse many."""
        super().agree(comm, n)
        if len(self._values) > MOST_NAMES:
            raise DataError(
                f"column '{self._column}' has {len(self._values):,} different names, and --one-hot"
                f" makes a feature of each; name at most {MOST_NAMES:,}, or give the column as"
                " --node-columns, for gt.embedding"
            )

    def outputs(self) -> list[Output]:
        """A number for each name."""
        return [Output(self._name, (len(self._values),), np.float32)]

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """A number for each name."""
        codes = super().rows(table)[0]
        out = np.zeros((len(codes), len(self._values)), np.float32)
        coded = np.flatnonzero(codes >= 0)
        out[coded, codes[coded]] = 1
        return [out]


class Indicators(Field):
    """Features that are 1 where a value is missing.

    Args:
        name: Name in the store.
        parts: Fields, and those of their columns of which a feature says so.
    """

    def __init__(self, name: str, parts: Sequence[tuple[Numbers | Codes, Sequence[str]]]):
        self._name = name
        self._parts = parts
        self.inputs: dict[str, Any] = {}

    def outputs(self) -> list[Output]:
        """A number for each column."""
        width = sum(len(columns) for _, columns in self._parts)
        return [Output(self._name, (width,), np.float32)]

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """0 or 1 for each column."""
        marks = [field.marks(table, columns) for field, columns in self._parts]
        return [np.concatenate(marks, axis=1).astype(np.float32)]


class Beside(Field):
    """Fields whose rows of numbers stand side by side in one matrix.

    Args:
        parts: The fields; each has one output [n, d] of float32.
    """

    def __init__(self, parts: Sequence[Field]):
        self._parts = parts
        self.inputs = {name: kind for part in parts for name, kind in part.inputs.items()}

    def wrong(self, table: pa.Table) -> Iterator[Wrong]:
        """What is wrong for any part."""
        for part in self._parts:
            yield from part.wrong(table)

    def observe(self, table: pa.Table) -> None:
        """All parts take notice."""
        for part in self._parts:
            part.observe(table)

    def agree(self, comm: Comm, n: int) -> None:
        """All parts agree."""
        for part in self._parts:
            part.agree(comm, n)

    def outputs(self) -> list[Output]:
        """One matrix."""
        sides = [output for part in self._parts for output in part.outputs()]
        return [Output(sides[0].name, (sum(output.trailing[0] for output in sides),), np.float32)]

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """Rows of float32."""
        return [np.concatenate([x for part in self._parts for x in part.rows(table)], axis=1)]

    def learnt(self) -> dict[str, Any]:
        """What each part learnt."""
        return {"parts": [part.learnt() for part in self._parts]}

    def take(self, learnt: dict[str, Any], store: str) -> None:
        """All parts take what theirs learnt."""
        for part, of_part in zip(self._parts, learnt["parts"], strict=True):
            part.take(of_part, store)

    def over(self) -> set[str]:
        """Those of all parts."""
        return {rows for part in self._parts for rows in part.over()}

    def counts(self) -> dict[str, dict[str, int]]:
        """Those of all parts."""
        return merged([part.counts() for part in self._parts])

    def meta(self) -> dict[str, Any]:
        """What the parts keep; names of all columns together, and a scale of all, which leaves
        those of other parts as they are.
        """
        out: dict[str, Any] = merged([part.meta() for part in self._parts])
        if SCALE in out:
            scales = [
                part.meta().get(SCALE, as_it_is(part.outputs()[0].trailing[0]))
                for part in self._parts
            ]
            out[SCALE] = {
                key: [x for scale in scales for x in scale[key]] for key in ("mean", "deviation")
            }
        return out


def merged(parts: Sequence[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Dicts of dicts as one."""
    out: dict[str, dict[str, Any]] = {}
    for part in parts:
        for key, value in part.items():
            out[key] = {**out.get(key, {}), **value}
    return out


def as_it_is(width: int) -> dict[str, list[float]]:
    """The scale of columns that are not scaled."""
    return {"mean": [0.0] * width, "deviation": [1.0] * width}
