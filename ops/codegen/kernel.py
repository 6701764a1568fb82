"""The whole kernel: loops over rows and edges around the body, and its arguments in order."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..program import Phase
from ..scalar import scalar
from .aggregate import AggregateWriter
from .text import Variant
from .value import STRUCTURAL

# edges between asking for a row and reading it, and cache lines asked for at most
AHEAD, MOST_LINES, LINE = 8, 8, 64
KNOWN = (*STRUCTURAL, "sum", "max", "matmul", "dropout", "concat", "repeat_rows", "embedding", "standardise")


@dataclass
class Kernel:
    """Generated source and what its arguments are.

    Attributes:
        source: Text of the function.
        arguments: Names in order.
        maps: Constant index arrays among them.
        dims: Trip counts among them.
        buffers: Scratch arrays among them, as length and dtype; no two threads may share them.
    """

    source: str
    arguments: list[str]
    maps: dict[str, np.ndarray]
    dims: dict[str, int]
    buffers: dict[str, tuple[int, str]]


def supported(phase: Phase) -> bool:
    """Whether everything computed on the rows of a phase has a fused form: a known primitive, and the one float type of the kernel."""
    dtype = next(e.dtype for e in (*phase.message, *phase.outputs.values()))
    computed = [(e, e.prim) for e in phase.order if e.prim is not None and e.rows]
    return all(e.dtype == dtype and (prim.name in KNOWN or scalar(prim.name, e.static) is not None) for e, prim in computed)


def generate(phase: Phase, variant: Variant) -> Kernel:
    """The source of one kernel."""
    return KernelWriter(phase, variant).write()


class KernelWriter(AggregateWriter):
    """Puts the body into its loops."""

    def write(self) -> Kernel:
        v = self.v
        self.depth = 3
        if v.mode == "forward":
            self.keep_values([*self.phase.message, *self.phase.outputs.values()])
            self.accumulate()
        else:
            roots = list(self.phase.message) if v.spreads[0] else []
            self.keep_values([*roots, *(self.phase.outputs[n] for n in v.spreads[1])])
            self.seed()
            self.walk_back()
        body = self.lines
        self.lines, self.depth = [], 1
        sender = v.mode == "sender"
        if sender or any(name.startswith("src") for name in self.arguments):
            self.put("last = ptr[hi] - 1")
        self.put("for r in range(lo, hi):")
        self.depth = 2
        self.put("sr = row[r]" if sender else "dr = row[r]")
        self.put("for k in range(ptr[r], ptr[r + 1]):")
        self.depth = 3
        self.ahead()
        self.put("en = at[k]" if sender else "en = k")
        self.put("dr = other[k]" if sender else "sr = other[k]")
        self.put("se = start + positions[en]" if v.listed else "se = start + en")
        self.put("ce = offset + en")
        if any(a.name in ("max", "min") for a in self.phase.aggregators.values()):
            self.put(f"tie = {self.arg('edge_gid')}[se] + tie_shift")
        fixed = ["lo", "hi", "ptr", "row", "other", "at", "positions", "start", "offset", "tie_shift"]
        arguments = fixed + list(self.arguments)
        head = f"def kernel({', '.join(arguments)}):"
        return Kernel("\n".join([head, *self.lines, *body]) + "\n", arguments, self.maps, self.dims, self.buffers)

    def ahead(self) -> None:
        """Ask for the rows that a later edge reads at places nobody can foresee."""
        far = self.far()
        if not far:
            return
        self.put(f"later = min(k + {AHEAD}, last)")
        if any(place != "other[later]" for _, place, _ in far):
            self.put("el = at[later]")
            self.put("sl = start + positions[el]" if self.v.listed else "sl = start + el")
        for name, place, size in far:
            for line in range(min(MOST_LINES, -(-size // LINE))):
                self.put(f"prefetch({name}, {place}, {line})")

    def far(self) -> list[tuple[str, str, int]]:
        """Arrays read at scattered rows, where a later edge reads them, and bytes of a row."""
        item, sender, found = np.dtype(self.v.dtype).itemsize, self.v.mode == "sender", []
        for n, e in enumerate(self.phase.order):
            if e.leaf is None or e.leaf[0] not in ("src", "dst", "edge"):
                continue
            kind, name = e.leaf
            size = item * int(np.prod(e.shape))
            if f"{kind}{n}" not in self.arguments or kind == ("src" if sender else "dst"):
                continue
            if kind == "edge" and sender:
                found.append((f"{kind}{n}", "offset + el" if name in self.v.carried else "sl", size))
            elif kind != "edge" and size >= LINE:
                found.append((f"{kind}{n}", "other[later]", size))
        for name in self.arguments:
            if sender and name.startswith("spread_") and name.endswith("_g"):
                found.append((name, "other[later]", item * int(np.prod(self.phase.message[-1].shape))))
        return found
