"""Sums of the gradients of values that have been used more than once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.errors import ShapeError

from ..parallel import buffers


@dataclass(slots=True)
class PartialGradient:
    """A gradient that is 0 but for a part, such as that of a value of which an operation read some
    rows or columns.

    Attributes:
        shape: Of the whole.
        at: Index of the part; no number twice.
        part: Its gradient.
    """

    shape: tuple[int, ...]
    at: Any
    part: np.ndarray


class Gradients:
    """Gradients by variable or parameter, summed where a value was used more than once."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Any, Any]] = {}
        # ids of values whose gradient nobody else reads, so that it may be changed in place
        self._own: set[int] = set()

    def add(self, x: Any, g: Any, operation: str = "backward", fresh: bool = False) -> None:
        """Add a gradient of a value.

        Args:
            x: The value.
            g: Its gradient, an array or ``PartialGradient``.
            operation: What computed it, for messages.
            fresh: Whether nobody else reads g, so that it may be changed in place.

        Raises:
            ShapeError: It has another shape than the value.
        """
        if g.shape != x.shape:
            raise ShapeError(
                f"{operation}: the gradient of a value of shape {list(x.shape)} has shape"
                f" {list(g.shape)}; a gradient rule must return the shape of its argument"
            )
        if isinstance(g, PartialGradient):
            self._place(x, g)
            return
        # a rule may compute in another float type than that of its argument
        g = g if g.dtype == x.dtype else g.astype(x.dtype)
        old = self._of.get(id(x))
        if old is not None:
            into = old[1] if id(x) in self._own else g if fresh else None
            g = buffers.add(old[1], g, out=into)
        self._of[id(x)] = (x, g)
        if fresh or old is not None:
            self._own.add(id(x))

    def _place(self, x: Any, g: PartialGradient) -> None:
        old = self._of.get(id(x))
        total = buffers.full(x.shape, 0, x.dtype) if old is None else old[1]
        if old is not None and id(x) not in self._own:
            total = total.copy()
        self._of[id(x)] = (x, total)
        self._own.add(id(x))
        part = total[g.at]
        if np.may_share_memory(part, total):
            buffers.add(part, g.part.astype(x.dtype, copy=False), out=part)
        else:
            # a list of numbers copies them
            total[g.at] = part + g.part

    def take(self, x: Any) -> Any:
        """Remove and return the gradient of an intermediate value; None if there is none."""
        entry = self._of.pop(id(x), None)
        self._own.discard(id(x))
        return None if entry is None else entry[1]

    def of(self, x: Any) -> Any:
        """The gradient of a leaf or parameter; None if it was not reached."""
        entry = self._of.get(id(x))
        return None if entry is None else entry[1]
