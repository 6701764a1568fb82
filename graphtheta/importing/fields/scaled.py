"""Features with mean 0 and deviation 1, found while the rows are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import ConfigError
from graphtheta.graph.data.scale import Scale, varying
from graphtheta.importing.fields.base import Field, Numbers


class Scaled(Numbers):
    """Columns standardised over the training nodes, or over all nodes if there are none; a constant
    column becomes 0.

    Args:
        name, columns, types, width: As of ``Numbers``.
        split: The field of the masks; None if there are none.

    Raises:
        ConfigError: There are several splits.
    """

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        types: Mapping[str, Any],
        width: int | None,
        split: Field | None,
    ):
        super().__init__(name, columns, types, width)
        if split is not None and split.outputs()[0].trailing:
            raise ConfigError(
                "scale=standard needs one training set, but the columns of split (--split) make"
                " several; name one split, or scale the features of the table beforehand"
            )
        self._split = split
        # of each block, the number of training nodes and of all nodes, their means, and the sums of
        # squares around these
        self._blocks: list[list[tuple[float, ...]]] = [[], []]

    def observe(self, table: pa.Table) -> None:
        """Add the moments of a block."""
        x = self._values(table)
        train = np.zeros(len(x), bool) if self._split is None else self._split.rows(table)[0]
        for blocks, rows in zip(self._blocks, (x[train], x), strict=True):
            if len(rows):
                mean = rows.mean(axis=0)
                blocks.append(
                    (len(rows), *mean.tolist(), *((rows - mean) ** 2).sum(axis=0).tolist())
                )

    def agree(self, comm: Comm, n: int) -> None:
        """Combine the moments of all blocks, sorted, so that they do not depend on who read which
        block.
        """
        parts = comm.all_gather(self._blocks)
        train, every = (sorted(block for part in parts for block in part[k]) for k in (0, 1))
        mean, deviation = _moments(np.array(train or every), len(self._fractions))
        self._scale = Scale(mean, np.where(varying(mean, deviation), deviation, 0.0))

    def rows(self, table: pa.Table) -> list[np.ndarray]:
        """Standardised rows of float32."""
        return [self._scale.scaled(self._values(table))]

    def meta(self) -> dict[str, Any]:
        """Means and deviations, to scale other rows alike."""
        return self._scale.in_meta({}, "x")


def _moments(blocks: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of the rows of some blocks, [d] each.

    Args:
        blocks: Number of rows, means, and sums of squares around the means, [n_blocks, 1 + 2 d].
        d: Number of columns.

    Source: Chan, Golub and LeVeque, The American Statistician 37 (1983).
    """
    count = 0.0
    mean = np.zeros(d)
    squares = np.zeros(d)
    for block in blocks:
        total = count + block[0]
        step = block[1 : 1 + d] - mean
        mean = mean + step * (block[0] / total)
        squares = squares + block[1 + d :] + step**2 * (count * block[0] / total)
        count = total
    return mean, np.sqrt(squares / max(count, 1.0))
