"""Lines, loops, buffers and arguments of a kernel being written."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ..program import Phase

Index = list[str]
Text = Callable[[Index], str]


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
    """

    mode: str
    listed: bool
    training: bool
    scaled: bool
    carried: frozenset[str]
    wanted: frozenset[tuple[str, object]]
    spreads: tuple[tuple[str, ...], tuple[str, ...]]
    dtype: str


class TextWriter:
    """Collects the lines of the innermost loop body, and what must be allocated and passed for them."""

    def __init__(self, phase: Phase, variant: Variant):
        self.phase, self.v = phase, variant
        self.number = {id(e): i for i, e in enumerate(phase.order)}
        self.lines: list[str] = []
        self.depth = 1
        self.arguments: dict[str, None] = {}
        self.maps: dict[str, np.ndarray] = {}
        self.dims: dict[str, int] = {}
        self.buffers: dict[str, tuple[int, str]] = {}

    def put(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def arg(self, name: str) -> str:
        self.arguments[name] = None
        return name

    def dim(self, d: int) -> str:
        self.dims[f"n{d}"] = d
        return self.arg(f"n{d}")

    def buffer(self, name: str, size: int, dtype: str = "") -> None:
        """Scratch space of one edge; allocated outside, because allocation in the kernel costs a sixth of its compilation."""
        self.buffers[self.arg(name)] = (max(size, 1), dtype or self.v.dtype)

    def flat(self, shape: tuple[int, ...], index: Index) -> str:
        text = ""
        for d, i in zip(shape, index, strict=True):
            if d == 1:
                continue
            text = i if not text else f"{text if text.isidentifier() else f'({text})'} * {self.dim(d)} + {i}"
        return text or "0"

    @contextmanager
    def loops(self, shape: tuple[int, ...], prefix: str) -> Iterator[Index]:
        index, depth = [], self.depth
        for k, d in enumerate(shape):
            if d == 1:
                index.append("0")
                continue
            name = f"{prefix}{k}"
            self.put(f"for {name} in range({self.dim(d)}):")
            self.depth += 1
            index.append(name)
        yield index
        self.depth = depth
