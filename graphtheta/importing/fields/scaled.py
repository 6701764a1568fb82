"""Features with mean 0 and deviation 1, found while the rows are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from graphtheta.engine.comm.communicator import Comm
from graphtheta.graph.data.scale import Scale, varying
from graphtheta.importing.fields.filling import rows_of
from graphtheta.importing.fields.numbers import Numbers
from graphtheta.importing.fields.statistics import Moments


class Scaled(Numbers):
    """Columns standardised over the training nodes, or over all nodes if there are none; a constant
    column becomes 0. Missing values do not count.

    Args:
        name, columns, types, width: As of ``Numbers``.
        training: Gives the training rows of a table, [n] bool.
        **options: Further arguments of ``Numbers``.
    """

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        types: Mapping[str, Any],
        width: int | None,
        training: Callable[[pa.Table], np.ndarray],
        **options: Any,
    ):
        super().__init__(name, columns, types, width, **options)
        self._training = training
        self._moments = Moments()
        self._scale: Scale | None = None
        self._rows = ""

    def observe(self, table: pa.Table) -> None:
        """Add the moments of a block."""
        values = self._given(table)
        self._observe_missing(table, values)
        if self._scale is None:
            self._moments.add(self._encoded(values), self._training(table))

    def agree(self, comm: Comm, n: int) -> None:
        """Combine the moments of all blocks."""
        self._agree_missing(comm)
        if self._scale is None:
            (width,) = self.outputs()[0].trailing
            _, mean, deviation, in_train = self._moments.agree(comm, width)
            self._scale = Scale(mean, np.where(varying(mean, deviation), deviation, 0.0))
            self._rows = rows_of(in_train)

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """Standardised rows of float32."""
        assert self._scale is not None
        return [self._scale.scaled(self._values(table))]

    def over(self) -> set[str]:
        """Of the scale."""
        return {self._rows} if self._rows else set()

    def learnt(self) -> dict[str, Any]:
        """The scale, too."""
        assert self._scale is not None
        scale = {"mean": self._scale.mean.tolist(), "deviation": self._scale.deviation.tolist()}
        return {**super().learnt(), "scale": scale}

    def take(self, learnt: dict[str, Any], store: str) -> None:
        """Take the scale of another import, too."""
        super().take(learnt, store)
        scale = learnt["scale"]
        self._scale = Scale(np.array(scale["mean"]), np.array(scale["deviation"]))

    def meta(self) -> dict[str, Any]:
        """Means and deviations, to scale other rows alike."""
        assert self._scale is not None
        return self._scale.in_meta({}, "x")
