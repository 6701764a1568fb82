"""Losses: this rank's share of the mean over all workers, so that shares and their gradients add
up.

A row counts if the mask, if given, is true there and its label is known: class labels below 0 and
NaN targets are missing. A rank without rows that count has the loss 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from graphtheta.errors import DataError, ShapeError, UserFunctionError

from ...autodiff.expr import Expr
from ...autodiff.primitive import defvjp, primitive
from ...autodiff.tape import current, value_of
from ...parallel.buffers import by_blocks, empty, row_blocks
from ..rows import as_floats, same_rows


def _share(terms: Any, total: float, dtype: Any) -> Any:
    """Sum of terms / total as a 0-d array; summed in float64 because there may be very many."""
    return np.asarray(terms.sum(dtype=np.float64) / total if total else 0.0, dtype)


@primitive("softmax_cross_entropy", rowwise=False)
def _softmax_cross_entropy(logits: Any, labels: Any, used: Any, *, total: float) -> Any:
    from ...kernels.logits import cross_entropy

    parts = np.zeros(row_blocks(len(logits), logits.shape[1])[0])

    def block(b: int, begin: int, end: int) -> None:
        parts[b] = cross_entropy(logits, labels, _between(used, begin, end))

    by_blocks(block, len(logits), logits.shape[1])
    return _share(parts, total, logits.dtype)


def _softmax_cross_entropy_vjp(
    g: Any, y: Any, logits: Any, labels: Any, used: Any, total: float
) -> Any:
    from ...kernels.logits import cross_entropy_slope

    out = empty(logits.shape, logits.dtype)
    scale = logits.dtype.type(g / total if total else 0)

    def block(b: int, begin: int, end: int) -> None:
        cross_entropy_slope(
            logits=logits,
            labels=labels,
            rows=_between(used, begin, end),
            begin=begin,
            end=end,
            scale=scale,
            out=out,
        )

    by_blocks(block, len(logits), logits.shape[1])
    return out


def _between(used: Any, begin: int, end: int) -> Any:
    """The part of an ascending list of rows that lies in a block."""
    first, last = np.searchsorted(used, (begin, end))
    return used[first:last]


@primitive("binary_cross_entropy", rowwise=False)
def _binary_cross_entropy(logits: Any, targets: Any, used: Any, *, total: float) -> Any:
    z, t = logits[used], targets[used]
    return _share(np.maximum(z, 0) - z * t + np.log1p(np.exp(-np.abs(z))), total, logits.dtype)


@primitive("mean_squared_error", rowwise=False)
def _mean_squared_error(predictions: Any, targets: Any, used: Any, *, total: float) -> Any:
    return _share(np.square(predictions[used] - targets[used]), total, predictions.dtype)


def _scattered(like: Any, used: Any, values: Any, g: Any, total: float) -> Any:
    out = np.zeros_like(like)
    if total:
        out[used] = values * (g / total)
    return out


defvjp(_softmax_cross_entropy, logits=_softmax_cross_entropy_vjp, labels=None, used=None)
defvjp(
    _binary_cross_entropy,
    targets=None,
    used=None,
    logits=lambda g, y, logits, targets, used, total: _scattered(
        like=logits,
        used=used,
        values=scipy.special.expit(logits[used]) - targets[used],
        g=g,
        total=total,
    ),
)
defvjp(
    _mean_squared_error,
    targets=None,
    used=None,
    predictions=lambda g, y, x, targets, used, total: _scattered(
        like=x, used=used, values=2 * (x[used] - targets[used]), g=g, total=total
    ),
)


def softmax_cross_entropy(
    logits: Any, labels: Any, mask: Any = None, total: float | None = None
) -> Any:
    """Cross entropy of class labels.

    Args:
        logits: [n, n_classes].
        labels: [n] integers of any type; negative labels are missing.
        mask: [n] bool, or None for all rows.
        total: Number of rows that count on all workers; None to count them now.

    Returns:
        0-d: this rank's sum / total.

    Raises:
        DataError: A label is not below n_classes.
        ShapeError: Shapes do not fit.

    Collective: one sum if ``total`` is None.
    """
    logits, labels, mask = _rows("softmax_cross_entropy", logits, labels, mask)
    if len(logits.shape) != 2 or labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ShapeError(
            "softmax_cross_entropy: expected logits [n, n_classes] and integer labels [n], got"
            f" {list(logits.shape)} and {labels.dtype} {list(labels.shape)}"
        )
    counts = labels >= 0 if mask is None else mask & (labels >= 0)
    used = np.flatnonzero(counts)
    if len(used) and labels[used].max() >= logits.shape[1]:
        raise DataError(
            f"a label is {labels[used].max()}, but the model has {logits.shape[1]} classes (0 to"
            f" {logits.shape[1] - 1})"
        )
    # one kernel for all integer types
    labels = labels.astype(np.int64, copy=False)
    return _softmax_cross_entropy(logits, labels, used, total=_total(total, len(used)))


def binary_cross_entropy(
    logits: Any, targets: Any, mask: Any = None, total: float | None = None
) -> Any:
    """Binary cross entropy of independent labels, from logits.

    Args:
        logits: [n, k] or [n].
        targets: 0, 1 or NaN (missing), in the shape of the logits.
        mask: [n] bool, or None for all rows.
        total: Number of entries (not rows) that count on all workers; None to count them now.

    Returns:
        0-d: this rank's sum / total.

    Raises:
        ShapeError: Shapes do not fit.

    Collective: one sum if ``total`` is None.
    """
    logits, targets, mask = _rows("binary_cross_entropy", logits, targets, mask)
    used, targets = _present("binary_cross_entropy", logits, targets, mask)
    return _binary_cross_entropy(logits, targets, used, total=_total(total, len(used[0])))


def mean_squared_error(
    predictions: Any, targets: Any, mask: Any = None, total: float | None = None
) -> Any:
    """Mean of squared differences; arguments, result and errors as for ``binary_cross_entropy``."""
    predictions, targets, mask = _rows("mean_squared_error", predictions, targets, mask)
    used, targets = _present("mean_squared_error", predictions, targets, mask)
    return _mean_squared_error(predictions, targets, used, total=_total(total, len(used[0])))


def _rows(
    function: str, x: Any, targets: Any, mask: Any
) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """Cut all three to the same rows; targets and mask as plain arrays."""
    if isinstance(x, Expr):
        raise UserFunctionError(f"{function} is a sum over rows and cannot be used inside gather")
    x, targets, mask = same_rows(as_floats(x), targets, mask)
    targets = np.asarray(value_of(targets))
    mask = None if mask is None else np.asarray(value_of(mask), bool)
    for name, given in (("targets", targets), ("mask", mask)):
        if given is not None and given.shape[:1] != x.shape[:1]:
            raise ShapeError(
                f"{function}: {name} has shape {list(given.shape)}, but there are {x.shape[0]} rows"
            )
    return x, targets, mask


def _present(
    function: str, x: Any, targets: np.ndarray, mask: np.ndarray | None
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Indices of the entries that count, and the targets in the type of x."""
    if targets.shape != x.shape:
        raise ShapeError(
            f"{function}: targets {list(targets.shape)} must have the shape {list(x.shape)} of the"
            " predictions"
        )
    targets = targets.astype(x.dtype, copy=False)
    present = ~np.isnan(targets)
    if mask is not None:
        present &= mask.reshape(-1, *[1] * (targets.ndim - 1))
    return np.nonzero(present), targets


def _total(given: float | None, here: int) -> float:
    return float(current().all_sum(np.asarray(here)) if given is None else given)
