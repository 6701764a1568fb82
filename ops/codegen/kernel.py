"""The whole kernel: loops over rows and edges around the body, and its arguments in order."""
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..program import Phase
from ..scalar import scalar
from .aggregate import AggregateWriter
from .text import Variant
from .value import STRUCTURAL

KNOWN = (*STRUCTURAL, "sum", "max", "matmul", "dropout", "concat", "repeat_rows", "embedding", "standardise")


@dataclass
class Kernel:
    """Generated source and the names of its arguments in order; ``maps`` are constant index arrays among them."""

    source: str
    arguments: list[str]
    maps: dict[str, np.ndarray] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)


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
        for name, made in self.buffers.items():
            self.put(f"{name} = {made}")
        self.put("for r in range(lo, hi):")
        self.depth = 2
        self.put("sr = row[r]" if v.mode == "sender" else "dr = row[r]")
        self.put("for k in range(ptr[r], ptr[r + 1]):")
        self.depth = 3
        self.put("en = at[k]" if v.mode == "sender" else "en = k")
        self.put("dr = other[k]" if v.mode == "sender" else "sr = other[k]")
        self.put("se = start + positions[en]" if v.listed else "se = start + en")
        self.put("ce = offset + en")
        if any(a.name in ("max", "min") for a in self.phase.aggregators.values()):
            self.put(f"tie = {self.arg('edge_gid')}[se] + tie_shift")
        fixed = ["lo", "hi", "ptr", "row", "other", "at", "positions", "start", "offset", "tie_shift"]
        arguments = fixed + list(self.arguments)
        head = f"def kernel({', '.join(arguments)}):"
        return Kernel("\n".join([head, *self.lines, *body]) + "\n", arguments, self.maps, self.dims)
