"""Features with mean 0 and deviation 1; the means and deviations are kept in ``meta`` of the graph,
so that others are scaled alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from graphtheta.errors import DataError

# in ``meta``, by the field that is scaled
SCALES = {"x": "feature_scale", "edge_attr": "edge_attr_scale"}
# deviation of a column, of its mean, below which it is the rounding of the mean of a constant
# column; float64 computes it, and two different numbers of float32, such as times, leave a billion
# rows more than that
CONSTANT = 1e-12


def varying(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Which columns are not constant, [d] bool, by their means and deviations."""
    return np.asarray(deviation > CONSTANT * np.maximum(np.abs(mean), 1e-30))


class Scale(NamedTuple):
    """Means and deviations of columns, [d] float64; the deviation of a constant column is 0, and it
    becomes 0.

    Attributes:
        mean, deviation: Of each column.
        widths: Number of columns of each type, side by side, if those of a type are scaled over its
            rows alone. Rows of other types are 0 there, and stay so. Empty if all columns are those
            of all rows.
    """

    mean: np.ndarray
    deviation: np.ndarray
    widths: tuple[int, ...] = ()

    @classmethod
    def over(cls, a: np.ndarray, rows: np.ndarray | None) -> Scale:
        """Those of an array over some rows; over all if they are None or none.

        Raises:
            DataError: The rows are those of several splits.
        """
        if rows is not None and rows.ndim > 1:
            raise DataError(
                f"values cannot be standardised over the training sets of {rows.shape[1]} splits;"
                " choose one with split_index=K"
            )
        used = a if rows is None or not rows.any() else a[rows]
        if not len(used):
            return cls(np.zeros(a.shape[1]), np.ones(a.shape[1]))
        mean = used.mean(axis=0, dtype=np.float64)
        deviation = used.std(axis=0, dtype=np.float64)
        return cls(mean, np.where(varying(mean, deviation), deviation, 0.0))

    @classmethod
    def of_types(cls, parts: Sequence[Scale]) -> Scale:
        """That of columns of types side by side, from that of each type."""
        mean, deviation = (
            np.concatenate([np.zeros(0), *x])
            for x in ([p.mean for p in parts], [p.deviation for p in parts])
        )
        return cls(mean, deviation, tuple(len(p.mean) for p in parts))

    @property
    def parts(self) -> list[Scale]:
        """That of each type."""
        ends = np.cumsum(self.widths)
        return [
            Scale(self.mean[b - n : b], self.deviation[b - n : b])
            for b, n in zip(ends, self.widths, strict=True)
        ]

    @classmethod
    def of(cls, meta: dict[str, Any], field: str) -> Scale | None:
        """That of a graph's field; None if its values are as they were given."""
        numbers = meta.get(SCALES[field])
        return (
            None
            if numbers is None
            else cls(
                np.array(numbers["mean"], np.float64),
                np.array(numbers["deviation"], np.float64),
                tuple(numbers.get("widths", ())),
            )
        )

    def in_meta(self, meta: dict[str, Any], field: str) -> dict[str, Any]:
        """The meta of a graph whose field was scaled; of one that was scaled before, both scales as
        one.
        """
        before = Scale.of(meta, field)
        mean, deviation = (
            (self.mean, self.deviation)
            if before is None
            else (before.mean + before.deviation * self.mean, before.deviation * self.deviation)
        )
        types = {"widths": list(self.widths)} if self.widths else {}
        return {
            **meta,
            SCALES[field]: {"mean": mean.tolist(), "deviation": deviation.tolist(), **types},
        }

    def scaled(self, a: np.ndarray, kind: np.ndarray | None = None) -> np.ndarray:
        """Rows with mean 0 and deviation 1, float32.

        Args:
            a: Rows, [n, d].
            kind: Type of each row, [n] int, which a scale of types needs; rows of a number that has
                no columns are 0.
        """
        varies = self.deviation != 0
        x = (a - self.mean) * np.where(varies, 1 / np.where(varies, self.deviation, 1), 0)
        return self._own(x, kind).astype(np.float32)

    def unscaled(self, a: np.ndarray, kind: np.ndarray | None = None) -> np.ndarray:
        """The values before they were scaled, float64; of a constant column its mean."""
        return self._own(a * self.deviation + self.mean, kind)

    def _own(self, x: np.ndarray, kind: np.ndarray | None) -> np.ndarray:
        """Rows that are 0 outside of the columns of their types."""
        if not self.widths:
            return np.asarray(x)
        assert kind is not None
        return np.where(np.repeat(np.arange(len(self.widths)), self.widths) == kind[:, None], x, 0)

    def equals(self, other: Scale | None) -> bool:
        """Whether another scale has the same numbers."""
        return (
            other is not None
            and self.widths == other.widths
            and all(
                np.array_equal(a, b)
                for a, b in ((self.mean, other.mean), (self.deviation, other.deviation))
            )
        )
