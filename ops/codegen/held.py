"""Values that outlive the line they are made in: in variables, one for each vector, or in a row of an array."""
from __future__ import annotations

from typing import Any

import numpy as np

from .place import Place, Shape, cells


class Held:
    """A value of some shape, read and written by place.

    Args:
        writer: Writes the lines.
        name: Of its variables, or of its scratch row.
        shape: Trailing shape.
        backing: Array and row if it lives in memory; None for variables.
        first: Where in the row it begins.
    """

    def __init__(self, writer: Any, name: str, shape: Shape, backing: tuple[str, str] | None = None, first: int = 0):
        self.writer, self.name, self.shape = writer, name, shape
        self.backing, self.first = backing, first
        self.filled: set[int] = set()
        self._cells = cells(shape, writer.lanes) if backing is None else []
        self._number = {(int(c.at[0]), c.active): i for i, c in enumerate(self._cells)}

    @classmethod
    def scratch(cls, writer: Any, name: str, shape: Shape, dtype: str = "") -> Held:
        """One in scratch space."""
        return cls(writer, name, shape, (writer.buffer(name, int(np.prod(shape)), dtype), "0"))

    @classmethod
    def best(cls, writer: Any, name: str, shape: Shape) -> Held:
        """One in variables, unless the kernel works in loops."""
        return cls.scratch(writer, name, shape) if writer.rolled else cls(writer, name, shape)

    def get(self, place: Place) -> str:
        """The numbers at a place."""
        if self.backing is not None:
            return str(self.writer.read(*self.backing, place.after(self.first)))
        if place.run is not None:
            found = self._number.get((int(place.at[0]), place.active))
            if found is not None:
                return f"{self.name}_{found}"
        if place.same is not None:
            found = next(i for i, c in enumerate(self._cells) if c.at[0] <= place.same <= c.at[-1])
            return f"lane({self.name}_{found}, {place.same - int(self._cells[found].at[0])})"
        return str(self.writer.read(*self.memory(), place))

    def set(self, place: Place, text: str) -> None:
        """Give the vector at one of its places a value."""
        if self.backing is not None:
            self.writer.write(*self.backing, place.after(self.first), text)
        else:
            self.writer.put(f"{self.variable(place)} = {text}")

    def add(self, place: Place, text: str) -> None:
        """Add to the vector at one of its places, which holds nothing at first."""
        if self.backing is not None:
            self.writer.write(*self.backing, place, f"{self.get(place)} + {text}")
            return
        variable, start = self.variable(place), int(place.at[0])
        self.writer.put(f"{variable} = {variable} + {text}" if start in self.filled else f"{variable} = {text}")
        self.filled.add(start)

    def variable(self, place: Place) -> str:
        return f"{self.name}_{self._number[int(place.at[0]), place.active]}"

    def clear(self) -> None:
        """Zero in memory; variables need none, because their first sum is an assignment."""
        if self.backing is not None:
            for place in self.writer.cells(self.shape):
                self.writer.write(*self.backing, place, "ZERO")

    def fill_up(self) -> None:
        """Zero in the variables that nothing was added to."""
        for c in self._cells:
            if int(c.at[0]) not in self.filled:
                self.writer.put(f"{self.variable(c)} = single(ZERO)")
                self.filled.add(int(c.at[0]))

    def memory(self) -> tuple[str, str]:
        """Array and row it can be read from at places known at run time only; variables are copied there."""
        if self.backing is not None:
            return self.backing
        name = f"copy_{self.name}"
        if self.writer.known[self.writer.section].get(name) is None:
            self.writer.known[self.writer.section][name] = name
            self.writer.buffer(name, int(np.prod(self.shape)))
            for c in self._cells:
                self.writer.write(name, "0", c, self.variable(c))
        return name, "0"
