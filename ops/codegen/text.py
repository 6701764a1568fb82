"""Lines, scopes, scratch space and arguments of a kernel being written."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ..edge.program import Phase
from .place import Place, cells

# vectors of one value that are held in variables; wider values are worked on in loops over scratch space
MOST_VECTORS = 64
# where a line stands: before all rows, before and after the edges of a row, with every edge, after all rows
SECTIONS = ("top", "row", "edge", "end", "bottom")
DEPTHS = {"top": 1, "row": 2, "edge": 3, "end": 2, "bottom": 1}


@dataclass(frozen=True)
class Variant:
    """What a kernel is specialised for, besides the phase.

    Attributes:
        mode: "forward", "receiver" or "sender".
        listed: Whether edges are given by a list of positions, or lie in order from a start.
        training: Whether dropout drops.
        scaled: Whether edges stand for several.
        carried: Edge values indexed in the level's own order.
        wanted: Leaves whose gradients this kernel computes, as (kind, name).
        spreads: Totals with a gradient, and output values with one.
        dtype: Of the numbers.
        kept: What walking by receivers leaves for walking by senders, as (kind, number of the expression).
    """

    mode: str
    listed: bool
    training: bool
    scaled: bool
    carried: frozenset[str]
    wanted: frozenset[tuple[str, object]]
    spreads: tuple[tuple[str, ...], tuple[str, ...]]
    dtype: str
    kept: tuple[tuple[str, int], ...] = ()


class TextWriter:
    """Collects the lines of each section, and what must be allocated and passed for them."""

    def __init__(self, phase: Phase, variant: Variant):
        self.phase, self.v = phase, variant
        self.number = {id(e): i for i, e in enumerate(phase.order)}
        self.lanes = 64 // np.dtype(variant.dtype).itemsize
        self.rolled = max(len(cells(e.dims, self.lanes)) for e in phase.order if e.rows) > MOST_VECTORS
        self.sections: dict[str, list[str]] = {name: [] for name in SECTIONS}
        self.section = "edge"
        self.indent = 0
        self.known: dict[str, dict[str, str]] = {name: {} for name in SECTIONS}
        self.arguments: dict[str, None] = {}
        self.functions: dict[str, str] = {}
        self.maps: dict[str, np.ndarray] = {}
        self.buffers: dict[str, tuple[int, str]] = {}
        self._names = 0

    def put(self, line: str) -> None:
        self.sections[self.section].append("    " * (DEPTHS[self.section] + self.indent) + line)

    @contextmanager
    def within(self, section: str) -> Iterator[None]:
        """Write into another section, at its outermost level."""
        before = self.section, self.indent
        self.section, self.indent = section, 0
        yield
        self.section, self.indent = before

    @contextmanager
    def block(self, line: str) -> Iterator[None]:
        """Lines inside a loop or a condition; variables made there are not known outside."""
        self.put(line)
        self.indent += 1
        before, lines = dict(self.known[self.section]), len(self.sections[self.section])
        yield
        if len(self.sections[self.section]) == lines:
            self.put("pass")
        self.known[self.section] = before
        self.indent -= 1

    def name(self, prefix: str) -> str:
        """A name that no other line has."""
        self._names += 1
        return f"{prefix}_{self._names}"

    def arg(self, name: str) -> str:
        self.arguments[name] = None
        return name

    def buffer(self, name: str, size: int, dtype: str = "") -> str:
        """Scratch space of one edge, one row; allocated outside, because allocation in the kernel costs a sixth of its compilation."""
        self.buffers[self.arg(name)] = (max(size, 1), dtype or self.v.dtype)
        return name

    def map(self, where: np.ndarray) -> str:
        """A constant row of positions."""
        for name, known in self.maps.items():
            if np.array_equal(known, where):
                return name
        name = self.arg(f"map{len(self.maps)}")
        self.maps[name] = where.astype(np.int64)
        return name

    def function(self, name: str, made: str) -> str:
        """A function of this kernel alone, as an expression over ``lanes`` and ``lane_tools``."""
        self.functions[name] = made
        return name

    # ---- numbers of rows

    def cells(self, shape: tuple[int, ...]) -> Iterator[Place]:
        """Vectors that cover a value: one after another, or the body of a loop and what is left."""
        if not self.rolled:
            yield from cells(shape, self.lanes)
            return
        size = int(np.prod(shape))
        whole = size // self.lanes * self.lanes
        if whole:
            name = self.name("z")
            with self.block(f"for {name} in range(0, {whole}, {self.lanes}):"):
                yield Place(np.arange(whole), self.lanes, name)
        if whole < size:
            yield Place(np.arange(whole, size), size - whole)

    def read(self, array: str, row: str, place: Place) -> str:
        """Numbers of a row as a vector."""
        if place.run is not None:
            return f"{self.loads(place.active)}({array}, {row}, {place.run})"
        if place.same is not None:
            return f"{self.loads(1)}({array}, {row}, {place.same})"
        name = self.function(f"pick{place.active}", f"lanes.picker({place.active})")
        return f"{name}({array}, {row}, {self.map(place.at)}, {place.start})"

    def loads(self, active: int) -> str:
        return self.function(f"load{active}", f"lanes.loader({active})")

    def zeros(self, place: Place) -> str:
        return f"{self.function(f'zeros{place.active}', f'lanes.zeros({place.active}, ELEMENT)')}()"

    def write(self, array: str, row: str, place: Place, text: str) -> None:
        """Lanes of a vector into a row."""
        assert place.run is not None
        self.put(f"{self.function(f'store{place.active}', f'lanes.storer({place.active})')}({array}, {row}, {place.run}, {text})")

    def once(self, text: str, section: str = "") -> str:
        """A variable with this value; the same one where it is known already."""
        section = section or self.section
        known = self.known[section]
        if text not in known:
            known[text] = self.name("v")
            if section == self.section:
                self.put(f"{known[text]} = {text}")
            else:
                with self.within(section):
                    self.put(f"{known[text]} = {text}")
        return known[text]
