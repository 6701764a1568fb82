"""Register buffers: values that outlive the line they are made in, in variables, one for each
vector, or in a row of an array.
"""

from __future__ import annotations

import numpy as np

from .lane_slice import LaneSlice, Shape, slices
from .source import KernelSource


class RegisterBuffer:
    """A value of some shape, read and written by lane slice.

    Args:
        source: Where the lines go.
        name: Of its variables, or of its scratch row.
        shape: Trailing shape.
        backing: Array and row if it is in memory; None for variables.
        first: Where in the row it begins.
        dtype: Of its numbers; by default that of the kernel.
    """

    def __init__(
        self,
        source: KernelSource,
        name: str,
        shape: Shape,
        backing: tuple[str, str] | None = None,
        first: int = 0,
        dtype: str = "",
    ):
        self.source = source
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.backing = backing
        self.first = first
        self.filled: set[int] = set()
        self._cells = slices(shape, source.lanes) if backing is None else []
        self._number = {(int(c.at[0]), c.active): i for i, c in enumerate(self._cells)}

    @classmethod
    def scratch(
        cls, source: KernelSource, name: str, shape: Shape, dtype: str = ""
    ) -> RegisterBuffer:
        """One in scratch space."""
        return cls(
            source, name, shape, (source.buffer(name, int(np.prod(shape)), dtype), "0"), dtype=dtype
        )

    @classmethod
    def best(cls, source: KernelSource, name: str, shape: Shape, dtype: str = "") -> RegisterBuffer:
        """One in variables, unless the kernel works in loops."""
        return (
            cls.scratch(source, name, shape, dtype)
            if source.rolled
            else cls(source, name, shape, dtype=dtype)
        )

    def get(self, cell: LaneSlice) -> str:
        """The numbers of a lane slice."""
        if self.backing is not None:
            return self.source.read(*self.backing, cell.after(self.first))
        if cell.run is not None:
            number = self._number.get((int(cell.at[0]), cell.active))
            if number is not None:
                return f"{self.name}_{number}"
        if cell.same is not None:
            number = next(i for i, c in enumerate(self._cells) if c.at[0] <= cell.same <= c.at[-1])
            return f"lane({self.name}_{number}, {cell.same - int(self._cells[number].at[0])})"
        return self.source.read(*self.memory(), cell)

    def set(self, cell: LaneSlice, text: str) -> None:
        """Assign a vector."""
        if self.backing is not None:
            self.source.write(*self.backing, cell.after(self.first), text)
        else:
            self.source.put(f"{self.variable(cell)} = {text}")

    def add(self, cell: LaneSlice, text: str) -> None:
        """Add to a vector; the first time, assign it."""
        if self.backing is not None:
            text = f"as_float64({text})" if self.dtype == "float64" else text
            self.source.write(*self.backing, cell, f"{self.get(cell)} + {text}")
            return
        variable = self.variable(cell)
        start = int(cell.at[0])
        self.source.put(
            f"{variable} = {variable} + {text}" if start in self.filled else f"{variable} = {text}"
        )
        self.filled.add(start)

    def variable(self, cell: LaneSlice) -> str:
        return f"{self.name}_{self._number[int(cell.at[0]), cell.active]}"

    def clear(self) -> None:
        """Zero in memory; variables need none, because their first sum is an assignment."""
        if self.backing is not None:
            for cell in self.source.slices(self.shape):
                self.source.write(*self.backing, cell, "ZERO")

    def fill_up(self) -> None:
        """Zero in the variables that nothing was added to."""
        for c in self._cells:
            if int(c.at[0]) not in self.filled:
                self.source.put(f"{self.variable(c)} = single(ZERO)")
                self.filled.add(int(c.at[0]))

    def memory(self) -> tuple[str, str]:
        """Array and row it can be read from at positions known at run time only; variables are
        copied there.
        """
        if self.backing is not None:
            return self.backing
        name = f"copy_{self.name}"
        if self.source.variables[self.source.section].get(name) is None:
            self.source.variables[self.source.section][name] = name
            self.source.buffer(name, int(np.prod(self.shape)), self.dtype)
            for c in self._cells:
                self.source.write(name, "0", c, self.variable(c))
        return name, "0"
