"""Columns of names as features: a number for each name, 1 for the row's and 0 for the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import DataError
from graphtheta.graph.data.scale import SCALES
from graphtheta.importing.fields.base import Codes, Field, Output, Wrong

SCALE = SCALES["x"]
# names of a column; more are better read from an embedding, which costs a row of a table and not a
# row of zeros for each node
MOST_NAMES = 1000


class OneHot(Codes):
    """A column of names as rows of a unit matrix, in the order of the sorted names.

    Args:
        column: The column; numbers are names, too.
    """

    def __init__(self, column: str):
        super().__init__("x", column, ("one_hot", column), np.int64)

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
        out[np.arange(len(codes)), codes] = 1
        return [out]


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

    def meta(self) -> dict[str, Any]:
        """What the parts keep; names of all columns together, and a scale of all, which leaves
        those of other parts as they are.
        """
        out: dict[str, Any] = {}
        for part in self._parts:
            for key, value in part.meta().items():
                out[key] = {**out.get(key, {}), **value}
        if SCALE in out:
            scales = [
                part.meta().get(SCALE, as_it_is(part.outputs()[0].trailing[0]))
                for part in self._parts
            ]
            out[SCALE] = {
                key: [x for scale in scales for x in scale[key]] for key in ("mean", "deviation")
            }
        return out


def as_it_is(width: int) -> dict[str, list[float]]:
    """The scale of columns that are not scaled."""
    return {"mean": [0.0] * width, "deviation": [1.0] * width}
