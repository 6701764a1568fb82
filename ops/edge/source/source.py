"""Source of a kernel: lines by section, names, arguments, scratch space, and vectors read and
written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from .lane_slice import LaneSlice, slices

# before all rows, before the edges of a row, at each edge, after the edges, after all rows
SECTIONS = ("top", "row", "edge", "end", "bottom")
DEPTHS = {"top": 1, "row": 2, "edge": 3, "end": 2, "bottom": 1}


class KernelSource:
    """Collects the lines of each section, and what must be allocated and passed for them.

    Args:
        dtype: Of the numbers.
        rolled: Whether wide values are processed in loops over scratch space.
    """

    def __init__(self, dtype: str, rolled: bool):
        self.dtype = dtype
        self.rolled = rolled
        self.lanes = 64 // np.dtype(dtype).itemsize
        self.sections: dict[str, list[str]] = {name: [] for name in SECTIONS}
        self.section = "edge"
        self.indent = 0
        self.variables: dict[str, dict[str, str]] = {name: {} for name in SECTIONS}
        self.arguments: dict[str, None] = {}
        self.functions: dict[str, str] = {}
        self.maps: dict[str, np.ndarray] = {}
        self.buffers: dict[str, tuple[int, str]] = {}
        self.near: dict[str, str] = {}
        self._names = 0

    def put(self, line: str) -> None:
        """Add a line to the current section."""
        self.sections[self.section].append("    " * (DEPTHS[self.section] + self.indent) + line)

    @contextmanager
    def within(self, section: str) -> Iterator[None]:
        """Write into another section, at its outermost level."""
        before = self.section, self.indent
        self.section = section
        self.indent = 0
        yield
        self.section, self.indent = before

    @contextmanager
    def block(self, line: str) -> Iterator[None]:
        """Lines inside a loop or a condition; variables made there are not known outside."""
        self.put(line)
        self.indent += 1
        before = dict(self.variables[self.section])
        lines = len(self.sections[self.section])
        yield
        if len(self.sections[self.section]) == lines:
            self.put("pass")
        self.variables[self.section] = before
        self.indent -= 1

    def name(self, prefix: str) -> str:
        """A name that no other line has."""
        self._names += 1
        return f"{prefix}_{self._names}"

    def arg(self, name: str) -> str:
        """An argument of the kernel."""
        self.arguments[name] = None
        return name

    def buffer(self, name: str, size: int, dtype: str = "") -> str:
        """Scratch space of one edge, one row; allocated outside, because allocation in the kernel
        costs a sixth of its compilation.
        """
        self.buffers[self.arg(name)] = (max(size, 1), dtype or self.dtype)
        return name

    def near_sum(self, name: str) -> str:
        """Memory of one thread for a sum over edges, which is added to the argument ``name`` of
        float64 every some hundred edges.
        """
        self.near[self.arg(f"near_{name}")] = self.arg(name)
        return f"near_{name}"

    def map(self, where: np.ndarray) -> str:
        """A constant row of positions."""
        for name, positions in self.maps.items():
            if np.array_equal(positions, where):
                return name
        name = self.arg(f"map{len(self.maps)}")
        self.maps[name] = where.astype(np.int64)
        return name

    def function(self, name: str, definition: str) -> str:
        """A function that the kernel calls, as an expression over ``lanes`` and ``lane_tools``."""
        self.functions[name] = definition
        return name

    # ---- numbers of rows

    def slices(self, shape: tuple[int, ...]) -> Iterator[LaneSlice]:
        """Vectors that cover a value: one after another, or the body of a loop and a remainder."""
        if not self.rolled:
            yield from slices(shape, self.lanes)
            return
        size = int(np.prod(shape))
        whole = size // self.lanes * self.lanes
        if whole:
            name = self.name("z")
            with self.block(f"for {name} in range(0, {whole}, {self.lanes}):"):
                yield LaneSlice(np.arange(whole), self.lanes, name)
        if whole < size:
            yield LaneSlice(np.arange(whole, size), size - whole)

    def read(self, array: str, row: str, cell: LaneSlice) -> str:
        """Numbers of a row as a vector."""
        if cell.run is not None:
            return f"{self.loads(cell.active)}({array}, {row}, {cell.run})"
        if cell.same is not None:
            return f"{self.loads(1)}({array}, {row}, {cell.same})"
        name = self.function(f"pick{cell.active}", f"lanes.picker({cell.active})")
        return f"{name}({array}, {row}, {self.map(cell.at)}, {cell.start})"

    def loads(self, active: int) -> str:
        """The function that loads a vector from consecutive positions."""
        return self.function(f"load{active}", f"lanes.loader({active})")

    def zeros(self, cell: LaneSlice) -> str:
        """A vector of zeros."""
        return f"{self.function(f'zeros{cell.active}', f'lanes.zeros({cell.active}, ELEMENT)')}()"

    def write(self, array: str, row: str, cell: LaneSlice, text: str) -> None:
        """Lanes of a vector into a row."""
        assert cell.run is not None
        self.put(
            f"{self.function(f'store{cell.active}', f'lanes.storer({cell.active})')}({array},"
            f" {row}, {cell.run}, {text})"
        )

    def once(self, text: str, section: str = "") -> str:
        """A variable with this value; the same one where it is known already."""
        section = section or self.section
        variables = self.variables[section]
        if text not in variables:
            variables[text] = self.name("v")
            if section == self.section:
                self.put(f"{variables[text]} = {text}")
            else:
                with self.within(section):
                    self.put(f"{variables[text]} = {text}")
        return variables[text]

    def add_up(self, total: str | None, active: int, text: str) -> str:
        """A variable to which the lanes of one more vector are added."""
        more = f"{self.cut(active, self.lanes)}({text})"
        if total is None:
            total = self.name("d")
            self.put(f"{total} = {more}")
        else:
            self.put(f"{total} = {total} + {more}")
        return total

    def cut(self, active: int, lanes: int) -> str:
        """The function that makes a vector of all lanes, of which some are active."""
        return self.function(f"first{active}", f"lane_tools.first({active}, {lanes})")

    def scratch(self, text: str, active: int) -> str:
        """Scratch space with the lanes of a vector, to be read number by number."""
        name = self.buffer(self.name("x"), self.lanes)
        self.write(name, "0", LaneSlice(np.arange(active), active), text)
        return name
