"""The whole kernel: loops over rows and edges around the body, and its arguments in order."""
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..autodiff.expr import Expr
from ..autodiff.scalar import SCALARS
from ..edge.program import Phase
from .aggregate import AggregateWriter
from .frontier import Frontier, Kept, numbers
from .text import Variant
from .value import STRUCTURAL

# edges between asking for a row and reading it, and cache lines asked for at most
AHEAD, MOST_LINES, LINE = 8, 16, 64
KNOWN = (*STRUCTURAL, "sum", "max", "matmul", "dropout", "concat", "embedding", "standardise")
FIXED = ("lo", "hi", "ptr", "row", "target", "other", "at", "positions", "start", "offset", "tie_shift")


@dataclass
class Kernel:
    """Generated source and what its arguments are.

    Attributes:
        source: Text of the function, after those of the functions it needs.
        arguments: Names in order.
        maps: Constant index arrays among them.
        buffers: Scratch arrays among them, as length and dtype; no two threads may share them.
        lines: Cache lines that an edge reads at places nobody can foresee.
    """

    source: str
    arguments: list[str]
    maps: dict[str, np.ndarray]
    buffers: dict[str, tuple[int, str]]
    lines: int


def unsupported(phase: Phase) -> str:
    """Which operations on the rows of a phase have no fused form, and the remedy; empty if all have one.

    The fused form knows the operations of this package, and computes in the one float type of the kernel. Integers are read, and
    parts of them are taken, as they are.
    """
    dtype = phase.dtype
    computed = [(e, e.prim) for e in phase.order if e.prim is not None and e.rows]
    unknown = {prim.name for _, prim in computed if prim.name not in KNOWN and prim.name not in SCALARS}
    if unknown:
        return (f"its gather uses {', '.join(sorted(unknown))}, which has no compiled form; write it with the functions of gt, or compute "
                "it in transform")
    other = sorted({f"{prim.name} in {e.dtype}" for e, prim in computed if e.dtype != dtype and not _selects(e)})
    if other:
        return (f"its gather computes {', '.join(other)}, and compiled gathers compute in {dtype} only; compute it in transform, or store "
                "it with the graph, as one of its edge_columns")
    return ""


def _selects(e: Expr) -> bool:
    """Whether it is an integer column, or the same numbers in another shape or a part of them."""
    return e.dtype.kind in "iu" and (e.leaf is not None or (e.prim is not None and e.prim.name in STRUCTURAL and _selects(e.args[0])))


def generate(phase: Phase, variant: Variant) -> Kernel:
    """The source of one kernel."""
    return KernelWriter(phase, variant).build()


def kept_at_most(phase: Phase) -> int:
    """Numbers that an edge keeps while the phase is walked back, if all it reads gets a gradient."""
    wanted = frozenset(e.leaf for e in phase.order if e.leaf is not None and e.leaf[0] == "src" and e.live)
    spreads = tuple(phase.aggregators), tuple(phase.outputs)
    sender = Variant("sender", False, True, False, frozenset(), wanted, spreads, phase.dtype.name)
    return numbers(phase, Frontier(KernelWriter(phase, sender)).kept)


def worth_keeping(phase: Phase, receiver: Variant, sender: Variant) -> Kept:
    """What the kernel that walks by receivers should keep of each edge for the one that walks by senders.

    It must save more scattered cache lines than the row takes that is written and read.
    """
    kept = Frontier(KernelWriter(phase, sender)).kept
    if not kept:
        return ()
    plain, keeping = (sum(generate(phase, replace(v, kept=k)).lines for v in (receiver, sender)) for k in ((), kept))
    return kept if keeping < plain else ()


class KernelWriter(AggregateWriter):
    """Puts the sections into their loops."""

    def build(self) -> Kernel:
        v = self.v
        if v.mode == "forward":
            self.keep_values([*self.phase.message, *self.phase.outputs.values()])
            self.accumulate()
        else:
            if v.mode == "sender" and v.kept:
                roots = self.take()
            else:
                roots = [*(self.phase.message if v.spreads[0] else ()), *(self.phase.outputs[n] for n in v.spreads[1])]
                roots += [self.phase.order[n] for kind, n in v.kept if kind == "value"]
            self.keep_values(roots)
            self.seed()
            self.walk_back()
            if v.mode == "receiver":
                self.leave()
        sender, head = v.mode == "sender", self.head()
        lines = [*self.sections["top"], "    last = ptr[hi] - 1", "    for r in range(lo, hi):"]
        lines += ["        sr = row[r]" if sender else "        dr = row[r]", "        tr = target[r]", *self.sections["row"]]
        lines += ["        for k in range(ptr[r], ptr[r + 1]):", *head, *self.sections["edge"]]
        lines += [*self.sections["end"], *self.sections["bottom"]]
        arguments = [*FIXED, *self.arguments]
        functions = [f"{name} = {made}" for name, made in sorted(self.functions.items())]
        source = "\n".join([*functions, "", "", "@kernel_form", f"def kernel({', '.join(arguments)}):", *lines]) + "\n"
        return Kernel(source, arguments, self.maps, self.buffers, sum(-(-size // LINE) for _, _, size in self.far()))

    def head(self) -> list[str]:
        """Where an edge stands, and the rows that a later one needs."""
        v, lines = self.v, self.ahead()
        sender = v.mode == "sender"
        lines += ["en = at[k]" if sender else "en = k", "dr = other[k]" if sender else "sr = other[k]"]
        lines += ["se = start + positions[en]" if v.listed else "se = start + en", "ce = offset + en"]
        if any(a.name in ("max", "min") for a in self.phase.aggregators.values()):
            lines.append(f"tie = {self.arg('edge_gid')}[se] + tie_shift")
        return ["            " + line for line in lines]

    def ahead(self) -> list[str]:
        """Ask for the rows that a later edge reads at places nobody can foresee."""
        far = self.far()
        if not far:
            return []
        lines = [f"later = min(k + {AHEAD}, last)", "far = other[later]"]
        if any(place != "far" for _, place, _ in far):
            lines += ["el = at[later]", "sl = start + positions[el]" if self.v.listed else "sl = start + el"]
        for name, place, size in far:
            lines += [f"prefetch({name}, {place}, {line})" for line in range(min(MOST_LINES, -(-size // LINE)))]
        return lines

    def far(self) -> list[tuple[str, str, int]]:
        """Arrays read at scattered rows, where a later edge reads them, and bytes of a row."""
        item, found = np.dtype(self.v.dtype).itemsize, []
        for n, e in enumerate(self.phase.order):
            if e.leaf is None or e.leaf[0] not in ("src", "dst", "edge") or f"{e.leaf[0]}{n}" not in self.arguments:
                continue
            kind, name = e.leaf
            size = e.dtype.itemsize * int(np.prod(e.dims))
            if kind == "edge" and self.v.mode == "sender":
                found.append((f"{kind}{n}", "offset + el" if name in self.v.carried else "sl", size))
            elif kind not in ("edge", self.fixed_end):
                found.append((f"{kind}{n}", "far", size))
        if self.v.mode == "sender":
            score, value = self.phase.message[:1], self.phase.message[-1:]
            for name in self.arguments:
                if name.startswith("spread_"):
                    (e,) = value if name.endswith("_g") else score
                    found.append((name, "far", item * int(np.prod(e.dims))))
            if self.v.kept:
                found.append(("kept", "el", item * numbers(self.phase, self.v.kept)))
        return found
