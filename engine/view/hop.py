"""Hops: how many hops before the end of a model each superstep is.

Hops follow from data flow, not from the order of calls. Layers side by side, ``a(graph, h) +
b(graph, h)``, are one hop; a layer that reads another one is a further hop. A superstep is as late
as possible: one hop before the first superstep that reads its values, or at the end if none does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...ops.autodiff.tape import Var


class Hop(NamedTuple):
    """The position of a superstep.

    Attributes:
        direction: Direction of its layer: "in", "out" or "both".
        from_end: Number of hops after it until the end of the model; 0 if no layer reads its
            values.
    """

    direction: str
    from_end: int


# one for each superstep, in the order of calls; a direction alone is a layer that the next one
# reads
Layers = Sequence[Hop | str]


def hops(layers: Layers) -> list[Hop]:
    """The position of each superstep; directions alone are layers one after another."""
    return [x if isinstance(x, Hop) else Hop(x, len(layers) - 1 - i) for i, x in enumerate(layers)]


def depth(layers: Layers) -> int:
    """Number of hops of a model."""
    return max((hop.from_end + 1 for hop in hops(layers)), default=0)


class Flow:
    """The supersteps that each value of one forward pass depends on: its sources.

    The source of a superstep's totals is that superstep; any other value has the sources of its
    inputs. If one source of a value reads another one, only the later one is stored, so that the
    number of sources does not increase with depth.
    """

    def __init__(self) -> None:
        self._reads: list[set[int]] = []
        # all supersteps before each, as bits
        self._before: list[int] = []
        # values are kept alive, since ids are reused
        self._sources_of: dict[int, tuple[Var, frozenset[int]]] = {}

    def begin(self) -> int:
        """Number of the superstep that begins."""
        self._reads.append(set())
        self._before.append(0)
        return len(self._reads) - 1

    def read(self, step: int, values: Iterable[Any]) -> None:
        """Record that a superstep reads some values."""
        for earlier in self._sources(values):
            if earlier < step:
                self._reads[step].add(earlier)
                self._before[step] |= self._before[earlier] | 1 << earlier

    def write(self, outputs: Iterable[Var], values: Iterable[Any], step: int | None = None) -> None:
        """Record the sources of outputs: a superstep, or the sources of the inputs ``values``."""
        sources = self._sources(values) if step is None else frozenset((step,))
        self._sources_of.update(
            (id(y), (y, sources)) for y in outputs if sources or y.space is not None
        )

    def _sources(self, values: Iterable[Any]) -> frozenset[int]:
        steps = frozenset().union(*(self._of(x) for x in values if isinstance(x, Var)))
        passed = 0
        for step in steps:
            passed |= self._before[step]
        return frozenset(step for step in steps if not passed >> step & 1)

    def _of(self, x: Var) -> frozenset[int]:
        if id(x) not in self._sources_of and x.space is None:
            return frozenset()
        # rows that no operation has made may depend on any superstep so far
        return self._sources_of.setdefault(id(x), (x, frozenset(range(len(self._reads)))))[1]

    def hops(self, directions: Sequence[str]) -> list[Hop]:
        """The position of each superstep, given its direction."""
        from_end = [0] * len(self._reads)
        for step in reversed(range(len(self._reads))):
            for earlier in self._reads[step]:
                from_end[earlier] = max(from_end[earlier], from_end[step] + 1)
        return [Hop(*pair) for pair in zip(directions, from_end, strict=True)]
