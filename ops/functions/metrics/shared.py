"""What the measures share."""

from __future__ import annotations

import numpy as np

from graphtheta.errors import ShapeError


def ratio(a: float, b: float) -> float:
    """a / b, NaN if b is zero."""
    return float(a / b) if b else float("nan")


def same_shape(a: np.ndarray, b: np.ndarray) -> None:
    """Check that labels and predictions have the same shape."""
    if a.shape != b.shape:
        raise ShapeError(
            f"metric: labels have shape {list(a.shape)} and predictions {list(b.shape)}; give one"
            " prediction per label"
        )
