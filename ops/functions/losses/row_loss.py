"""User-defined losses: a function computes a value for each row, and the engine takes the mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.errors import ShapeError, UserFunctionError

from ...autodiff.naming import naming
from ...autodiff.primitive import defvjp, primitive
from ...autodiff.space import RowSpace
from ...autodiff.tape import Var, current, value_of
from ..rows import as_floats


@dataclass(frozen=True)
class Grouping:
    """Rows that belong together, as the pairs of a link: the positive first, then its negatives.

    Attributes:
        order: Position of each row in the concatenation of the groups, [n].
        size: Rows of a group.
    """

    order: np.ndarray
    size: int


@primitive("weighted_share", rowwise=False)
def _weighted_share(values: Any, weights: Any, *, total: float) -> Any:
    """sum(weights * values) / total as a 0-d array; a value without a weight may be infinite or
    NaN.
    """
    terms = np.multiply(weights, values, out=np.zeros_like(values), where=weights > 0)
    return np.asarray(np.sum(terms, dtype=np.float64) / total if total else 0.0, values.dtype)


defvjp(
    _weighted_share,
    weights=None,
    values=lambda g, y, values, weights, total: (weights * (g / total if total else 0.0)).astype(
        values.dtype
    ),
)


@dataclass(frozen=True)
class RowLoss:
    """The weighted mean, over all rows of all workers that count, of what a function returns.

    The function is called with the outputs and the labels of the rows that count, ``(out [n, ...],
    y [n, ...])``, and returns a value for each, [n] or [n, ...], or (values, weights). It gets no
    other rows and does not compute the mean, so it can neither count a row without a label nor
    divide by the wrong number.

    - A row counts if the mask is true and any of its labels is known. For an unknown label of such
      a row the function gets a known one of the same column, since its logarithm, say, exists: 0
      times an infinite slope would be NaN. Values of the shape of the labels count where the label
      is known; values of another shape count in rows without an unknown label.
    - Weights are constants of at least 0, [n] or of the shape of the values; the mean is
      sum(weights * values) / sum(weights).
    - If no row counts on any worker, the loss is 0.

    Attributes:
        function: Composed of functions of gt.
    """

    function: Callable[[Var, Var], Any]

    def __call__(
        self,
        out: Var,
        y: np.ndarray,
        mask: np.ndarray | None,
        importance: np.ndarray | None = None,
        total: float | None = None,
    ) -> Var:
        """This worker's share of the mean.

        Args:
            out: Outputs, [n, ...].
            y: Labels, [n, ...]: integers, negative where unknown; or floats, NaN where unknown.
            mask: The rows that may count, [n] bool; None for all.
            importance: Factor of the weights of each row, [n]; None for 1.
            total: What the weighted sum is divided by, the same on all ranks; None for the sum of
                all weights.

        Raises:
            UserFunctionError, ShapeError: The function returned something else.

        Collective: all ranks.
        """
        y = y if y.dtype.kind in "iu" or y.size != out.value.size else y.reshape(out.shape)
        labelled: np.ndarray = np.asarray(y >= 0 if y.dtype.kind in "iu" else ~np.isnan(y))
        allowed = np.ones(len(y), bool) if mask is None else np.asarray(mask, bool)
        entries = labelled.reshape(len(labelled), int(np.prod(labelled.shape[1:])))
        any_known = np.asarray(entries.any(axis=1))
        all_known = np.asarray(entries.all(axis=1))
        used = np.flatnonzero(allowed & any_known)
        rows = _rows(out, used)
        assert rows.space is not None
        filled = _filled(y[used], labelled[used])
        labels = Var(
            filled if y.dtype.kind in "iu" else filled.astype(out.dtype, copy=False),
            rows.space,
            name="y",
        )
        name = getattr(self.function, "__name__", type(self.function).__name__)
        with naming(f"the loss {name}"):
            values, weights = self._checked(self.function(rows, labels), name, rows.space)
        counts = labelled[used] if values.shape == labelled[used].shape else all_known[used]
        weights = np.where(_wide(counts, values), _wide(weights, values), 0)
        if importance is not None:
            weights = weights * _wide(importance[used], values)
        weights = np.broadcast_to(weights.astype(values.dtype), values.shape)
        if total is None:
            total = float(current().all_sum(np.asarray(weights.sum(dtype=np.float64))))
        share: Var = _weighted_share(values, weights, total=total)
        return share

    def _checked(self, returned: Any, name: str, space: RowSpace) -> tuple[Var, np.ndarray]:
        values, weights = (
            returned
            if isinstance(returned, tuple) and len(returned) == 2
            else (returned, np.ones(space.n))
        )
        if not isinstance(values, Var) or values.space is not space:
            got = (
                f"values of shape {list(values.shape)} that belong to no rows"
                if isinstance(values, Var)
                else type(values).__name__
            )
            raise UserFunctionError(
                f"the loss {name} returned {got}; expected a value for each row of out, computed"
                " from out and y with functions of gt, or (values, weights): the engine takes the"
                " mean over all rows of all workers"
            )
        weights = np.asarray(value_of(weights))
        if weights.shape not in ((space.n,), values.shape):
            raise ShapeError(
                f"the loss {name} returned weights of shape {list(weights.shape)} for values of"
                f" shape {list(values.shape)}; expected the same shape, or one weight for each row"
            )
        if not (weights >= 0).all():
            raise UserFunctionError(
                f"the loss {name} returned a negative weight or NaN; expected numbers of at least 0"
            )
        return as_floats(values), weights


def grouped(
    out: Var, y: np.ndarray, grouping: Grouping, weights: np.ndarray | None = None
) -> tuple[Var, np.ndarray, np.ndarray | None]:
    """Outputs, labels and weights with a row for each group.

    Args:
        out: One number for each row.
        y: [n].
        grouping: Of the rows.
        weights: [n], the same in a group, or None.

    Returns:
        Outputs and labels as [n / size, size], weights as [n / size] or None.
    """
    place = np.empty(len(grouping.order), np.int64)
    place[grouping.order] = np.arange(len(place))
    at = place.reshape(-1, grouping.size)
    return _rows(out, at), y.reshape(-1)[at], None if weights is None else weights[at[:, 0]]


def _filled(y: np.ndarray, labelled: np.ndarray) -> np.ndarray:
    """Labels with the first known one of the same column in place of unknown ones.

    Where a column has none, it is 0, the first class, or 1.0.
    """
    if labelled.all():
        return y
    first = labelled.argmax(axis=0)[None]
    some = np.take_along_axis(labelled, first, axis=0)
    neutral = 0 if y.dtype.kind in "iu" else 1
    other = np.where(some, np.take_along_axis(y, first, axis=0), neutral)
    return np.where(labelled, y, other).astype(y.dtype, copy=False)


def _wide(x: np.ndarray, like: Var) -> np.ndarray:
    """x with axes of length 1 at the right, until it has as many as ``like``."""
    return x.reshape(x.shape + (1,) * (len(like.shape) - x.ndim))


def _rows(x: Var, at: np.ndarray) -> Var:
    """Rows ``at`` of a value as a new value: [m] numbers, each once, or [m, k] for rows of k."""
    assert x.space is not None
    values = x.value[at]
    flat = values.reshape(at.shape) if at.ndim == 2 else values
    out = Var(flat, RowSpace(x.space.gid[at if at.ndim == 1 else at[:, 0]], x.space.kind))

    def vjp(gs: list[Any]) -> list[Any]:
        back = np.zeros(x.shape, x.dtype)
        back[at] = gs[0].reshape(values.shape)
        return [back]

    current().add("rows_that_count", [x], [out], vjp)
    return out
