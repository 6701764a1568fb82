"""Lane slices: which numbers of a value a vector holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Shape = tuple[int, ...]


@dataclass
class LaneSlice:
    """Positions in a flattened value.

    Attributes:
        at: Positions, one for each lane; inside a loop, those of all its turns.
        active: Numbers in the vector.
        start: "0", or the loop variable, which says where in ``at`` a turn begins.
    """

    at: np.ndarray
    active: int
    start: str = "0"

    def through(self, where: np.ndarray) -> LaneSlice:
        """The positions that a map gives these."""
        return LaneSlice(where[self.at], self.active, self.start)

    def after(self, first: int) -> LaneSlice:
        """The positions in a row where the value begins at ``first``."""
        return LaneSlice(self.at + first, self.active, self.start) if first else self

    @property
    def run(self) -> str | None:
        """The first position if the others follow it one by one, else None."""
        if len(self.at) > 1 and (np.diff(self.at) != 1).any():
            return None
        if self.start == "0":
            return str(self.at[0])
        return f"{self.start} + {self.at[0]}" if self.at[0] else self.start

    @property
    def same(self) -> int | None:
        """The position if there is only one."""
        return int(self.at[0]) if (self.at == self.at[0]).all() else None


def slices(shape: Shape, lanes: int) -> list[LaneSlice]:
    """The vectors of a value: along its last axis longer than 1, so that what is broadcast along it
    is one number.
    """
    size = int(np.prod(shape))
    last = next((d for d in reversed(shape) if d != 1), 1)
    return [
        LaneSlice(np.arange(o + s, o + min(s + lanes, last)), min(lanes, last - s))
        for o in range(0, size, max(last, 1))
        for s in range(0, last, lanes)
    ]


def broadcast(a: Shape, shape: Shape) -> np.ndarray:
    """Position in a value of shape a of each position of one that it is broadcast to."""
    return np.broadcast_to(np.arange(int(np.prod(a))).reshape(a), shape).ravel()
