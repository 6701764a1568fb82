"""Features with mean 0 and deviation 1; the means and deviations are kept in ``meta`` of the graph, so that others are scaled alike."""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from graphtheta.errors import DataError

# in ``meta``, by the field that is scaled
SCALES = {"x": "feature_scale", "edge_attr": "edge_attr_scale"}
# rounding leaves a constant column a deviation of some 1e-8 of its mean
CONSTANT = 1e-6


class Scale(NamedTuple):
    """Means and deviations of columns, [d] float64; the deviation of a constant column is 0, and it becomes 0."""

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def over(cls, a: np.ndarray, rows: np.ndarray | None) -> Scale:
        """Those of an array over some rows; over all if they are None or none.

        Raises:
            DataError: The rows are those of several splits.
        """
        if rows is not None and rows.ndim > 1:
            raise DataError(f"values cannot be standardised over the training sets of {rows.shape[1]} splits; choose one with "
                            "split_index=K")
        known = a if rows is None or not rows.any() else a[rows]
        if not len(known):
            return cls(np.zeros(a.shape[1]), np.ones(a.shape[1]))
        mean, deviation = known.mean(axis=0, dtype=np.float64), known.std(axis=0, dtype=np.float64)
        return cls(mean, np.where(deviation > CONSTANT * np.maximum(np.abs(mean), 1e-30), deviation, 0.0))

    @classmethod
    def of(cls, meta: dict[str, Any], field: str) -> Scale | None:
        """That of a graph's field; None if its values are as they were given."""
        found = meta.get(SCALES[field])
        return None if found is None else cls(np.array(found["mean"], np.float64), np.array(found["deviation"], np.float64))

    def in_meta(self, meta: dict[str, Any], field: str) -> dict[str, Any]:
        """The meta of a graph whose field was scaled; of one that was scaled before, both scales as one."""
        before = Scale.of(meta, field)
        mean, deviation = self if before is None else (before.mean + before.deviation * self.mean, before.deviation * self.deviation)
        return {**meta, SCALES[field]: {"mean": mean.tolist(), "deviation": deviation.tolist()}}

    def scaled(self, a: np.ndarray) -> np.ndarray:
        """Rows with mean 0 and deviation 1, float32."""
        varies = self.deviation != 0
        return np.asarray((a - self.mean) * np.where(varies, 1 / np.where(varies, self.deviation, 1), 0)).astype(np.float32)

    def unscaled(self, a: np.ndarray) -> np.ndarray:
        """The values before they were scaled, float64; of a constant column its mean."""
        return a * self.deviation + self.mean

    def equals(self, other: Scale | None) -> bool:
        """Whether another scale has the same numbers."""
        return other is not None and all(np.array_equal(a, b) for a, b in zip(self, other, strict=True))
