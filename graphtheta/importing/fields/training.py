"""The rows that means, deviations and most frequent values are taken over."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from graphtheta.errors import ConfigError
from graphtheta.importing.fields.base import Field


class TrainingRows:
    """Which rows statistics are taken over.

    Args:
        split: The field of the masks; None if there are none.
        option: What needs one training set, for messages.

    Raises:
        ConfigError: There are several splits.
    """

    def __init__(self, split: Field | None, option: str):
        self._split = split
        self._at = -1
        if split is None:
            return
        outputs = split.outputs()
        if any(output.trailing for output in outputs):
            raise ConfigError(
                f"{option} needs one training set, but the columns of split (--split) make"
                " several; name one split, or change the values of the table beforehand"
            )
        names = [output.name for output in outputs]
        self._at = names.index("train") if "train" in names else -1

    def __call__(self, table: pa.Table) -> np.ndarray:
        """Whether each row is one of training, [n] bool."""
        if self._split is None or self._at < 0:
            return np.zeros(table.num_rows, bool)
        return self._split.rows(table)[self._at]
