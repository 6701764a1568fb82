"""What a precomputed total was computed from, so that an outdated total is detected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphtheta.errors import UserFunctionError

from ...ops.autodiff.tape import value_of
from ...ops.edge.symbolic import SymbolicTrace

# masters of a worker whose columns are stored for comparison
COMPARED_ROWS = 64
# relative, of numbers computed in another order
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Ingredients:
    """The traced gather, and what it read at some nodes.

    Attributes:
        direction: Direction of the layer.
        structure: Structure of the trace.
        constants: Values of its operands.
        columns: Node columns made by transform that the gather reads, for some masters of this
            worker.
        ids: Global ids of these masters, ascending.
    """

    direction: str
    structure: tuple[Any, ...] = ()
    constants: tuple[np.ndarray, ...] = ()
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    ids: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of(
        cls, direction: str, traced: SymbolicTrace, columns: Mapping[str, Any], ids: np.ndarray
    ) -> Ingredients:
        """The ingredients of a pass over all masters, whose global ids are ``ids``."""
        some = np.argsort(ids)[:COMPARED_ROWS]
        values = {name: columns[name].value[some] for name in _read(traced) if name in columns}
        return cls(
            direction,
            traced.structure(),
            tuple(np.array(value_of(x)) for x in traced.operands),
            values,
            ids[some],
        )

    def check(
        self, owner: str, traced: SymbolicTrace, columns: Mapping[str, Any], ids: np.ndarray
    ) -> None:
        """Compare with a later pass.

        Args:
            owner: Name of the layer.
            traced, columns: Trace and columns of that pass.
            ids: Global ids of the rows of the columns.

        Raises:
            UserFunctionError: The messages have changed.
        """
        same = traced.structure() == self.structure and all(
            map(np.array_equal, self.constants, map(value_of, traced.operands))
        )
        for name, values in self.columns.items() if same else ():
            now = columns[name].value
            at = np.flatnonzero(np.isin(ids, self.ids))
            before = values[np.searchsorted(self.ids, ids[at])]
            same &= bool(
                np.allclose(
                    now[at],
                    before,
                    rtol=TOLERANCE,
                    atol=TOLERANCE * float(np.max(np.abs(before), initial=0)),
                )
            )
        if not same:
            raise UserFunctionError(
                f"the messages of {owner} have changed since their total was precomputed, because"
                " its transform or gather reads a setting that has changed; make a new trainer, or"
                " disable precompute"
            )


def _read(traced: SymbolicTrace) -> list[str]:
    """Node columns that edges read, each once."""
    return list(
        dict.fromkeys(
            e.leaf[1] for e in traced.order if e.leaf is not None and e.leaf[0] in ("src", "dst")
        )
    )
