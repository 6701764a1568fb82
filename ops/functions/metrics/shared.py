"""What the measures share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import prod

import numpy as np

from graphtheta.errors import ShapeError

from ...parallel.buffers import LARGE, by_blocks

Counts = Callable[[np.ndarray, np.ndarray], np.ndarray]


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


def counted(function: Counts) -> Counts:
    """Run a function of labels and outputs, [n, ...] each, by blocks of rows on all threads.

    Its results must be integers that add up over rows, so that their order is of no account. What
    it computes from a block of outputs stays in the cache.
    """

    @wraps(function)
    def summed(labels: np.ndarray, out: np.ndarray) -> np.ndarray:
        if out.nbytes < LARGE or len(labels) != len(out):
            return function(labels, out)
        parts = dict[int, np.ndarray]()

        def work(b: int, begin: int, end: int) -> None:
            parts[b] = function(labels[begin:end], out[begin:end])

        by_blocks(work, len(out), prod(out.shape[1:]))
        return np.sum(list(parts.values()), axis=0)

    return summed


def exponentials(wide: np.ndarray, top: np.ndarray) -> np.ndarray:
    """exp(wide - top), [..., C] float64, computed in place; 1 for outputs that are equal to an
    infinite largest one.

    Args:
        wide: Outputs, [..., C] float64; changed.
        top: The largest of each row, [..., 1].
    """
    endless = np.isinf(top)
    with np.errstate(invalid="ignore"):
        wide -= top
    if endless.any():
        # infinity minus itself is no number
        np.copyto(wide, 0, where=endless & np.isnan(wide))
    return np.exp(wide, out=wide)
