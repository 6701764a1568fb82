"""Generates a kernel: its parts inside loops over rows and edges, and its arguments in order.

The forward kernel of ``edge.src.h * edge.weight``, summed, for an h of 2 numbers, with the section
of ``KernelSource`` that a line belongs to; lines without one are the same in every kernel:

    for b in range(-(-share * n_blocks // shares), -(-(share + 1) * n_blocks // shares)):
        lo, hi = blocks[b], blocks[b + 1]
        state__sum = spill_state__sum if spilling[b] else own_state__sum
        for r in range(lo, hi):
            dr = row[r]
            tr = target[r]
            for begin in range(ptr[r], ptr[r + 1], 512):
                sum_state__sum_0 = zeros2()                                   # row
                for k in range(begin, beyond):
                    sr = entry(other, k)
                    se = start + en
                    v_1 = load2(src0, sr, 0)                                  # edge
                    v_2 = load1(edge1, se, 0)                                 # edge
                    sum_state__sum_0 = sum_state__sum_0 + (v_1 * v_2)         # edge
                store2(state__sum, tr, 0, load2(state__sum, tr, 0) + sum_state__sum_0)   # end

Names in kernels:

    sr, dr              rows of the source and of the destination of an edge
    tr                  row that is written: that of r, or a spill row for a later part of a hub
    en, se, ce          an edge in the order of receivers, and where its stored and its carried
                        values are
    src0, edge1, c2     column or rowless value of expression 0, 1, 2 in ``Phase.order``; gsrc0,
                        gedge1 and gc2 are their gradients, ct2 and gct2 transposed matrices
    state_T_C           column C of the aggregator state of the total T; spread_T_C of its backward
                        state
    out_N, gout_N       new edge values N, and their gradients
    kept                residuals saved for each edge
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import numpy as np

from ...autodiff.expr import Expr
from ..program import Phase
from ..source.lane_slice import slices
from ..source.source import KernelSource
from .aggregate import aggregate_of, compiled_form
from .boundary import Boundary, numbers, paths
from .gradients import GradientCode
from .lowering import lowering_of
from .messages import Messages
from .prefetch import lines_of_edge, prefetches, scattered_reads, side_by_side
from .registers import Registers
from .values import TABLES, Values
from .variant import Residuals, Variant

# most vectors of a value in variables; wider values are processed in loops over scratch space
MOST_VECTORS = 64
FIXED = (
    "turn",
    "side",
    "shares",
    "blocks",
    "spilling",
    "ptr",
    "row",
    "target",
    "other",
    "at",
    "positions",
    "start",
    "offset",
    "tie_shift",
)
# edges of which sums are added to those of all edges
STRETCH = 512
# arrays with rows for receivers or senders, which blocks with a later part of a hub replace by
# spill rows
AT_THE_ROW = {"forward": "state_", "receiver": "gdst", "sender": "gsrc"}


@dataclass
class Kernel:
    """Generated source and what its arguments are.

    Attributes:
        source: Text of the function, after those of the functions it needs.
        arguments: Names in order.
        spilled: Those that are given a second time, with spill rows, after all others.
        summed: Those that have a partial sum for each share of the blocks, in float64.
        near: Sums of one thread that are added to these, by name; zeros to begin with.
        maps: Constant index arrays among them, [1, n] each.
        buffers: Scratch arrays among them, as length and dtype; no two threads may share them.
        lines: Cache lines that an edge reads at scattered rows.
        scattered: Arguments that they are in.
        together: Those of them whose rows are read side by side.
        scratch: The same as ``buffers``, as position, length and dtype.
        tables: Arguments that are columns as matrices of the rows of tables.
    """

    source: str
    arguments: list[str]
    spilled: list[str]
    summed: list[str]
    near: dict[str, str]
    maps: dict[str, np.ndarray]
    buffers: dict[str, tuple[int, str]]
    lines: int
    scattered: list[str]
    together: list[str]
    scratch: list[tuple[int, int, str]] = field(init=False)
    tables: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.scratch = [
            (i, *self.buffers[name])
            for i, name in enumerate(self.arguments)
            if name in self.buffers
        ]
        self.tables = [name for name in self.arguments if name.endswith(TABLES)]


def unsupported(phase: Phase) -> str:
    """What in a phase has no compiled form, and the remedy; empty if all has one.

    Kernels are made of operations that are elementwise or have a lowering and of aggregators that
    have one, and compute in the one float type of the phase. Masks are 0 and 1 in this type.
    Integers are read, and parts of them are taken, as they are; operations that declare it compute
    integers of 32 and 64 bits.
    """
    dtype = phase.dtype
    computed = [(e, e.prim) for e in phase.order if e.prim is not None and e.rows]
    other = {
        f"{prim.name} in {e.dtype}"
        for e, prim in computed
        if e.dtype not in (dtype, bool) and not _integer(e)
    }
    other |= {
        f"{prim.name} of {a.dtype}"
        for e, prim in computed
        for a in e.args
        if a.dtype.kind in "iu" and prim.scalar is not None and not prim.traits.integers
    }
    if other:
        return (
            f"its gather computes {', '.join(sorted(other))}, and compiled gathers compute in"
            f" {dtype} only; compute it in transform, or store it with the graph, as one of its"
            " edge_columns"
        )
    unknown = {
        prim.name for e, prim in computed if prim.form(e.static) is None and lowering_of(e) is None
    }
    if unknown:
        return (
            f"its gather uses {', '.join(sorted(unknown))}, which has no compiled form; write it"
            " with the functions of gt, or compute it in transform"
        )
    sums = {a.name for a in phase.aggregators.values() if aggregate_of(a) is None}
    if sums:
        return (
            f"its sum is {', '.join(sorted(sums))}, which has no compiled form; sum, mean, max,"
            " min, var, std, median and TopK have one"
        )
    return ""


def _integer(e: Expr) -> bool:
    """Whether it is an integer that kernels can compute: a column, a part of one, or what
    operations for integers make of them.
    """
    if e.prim is None or e.dtype.kind not in "iu":
        return e.dtype.kind in "iu"
    if e.traits.structural:
        return _integer(e.args[0])
    return e.traits.integers and e.dtype.name in ("int32", "int64")


def saved_at_most(phase: Phase) -> int:
    """Residuals per edge between the two backward kernels, if all columns get a gradient."""
    leaves = [e.leaf for e in phase.order if e.leaf is not None and e.requires_grad]
    return max(
        numbers(
            phase,
            residuals_of(
                phase,
                Variant(
                    mode=mode,
                    listed=False,
                    training=True,
                    weighted=False,
                    carried=frozenset(),
                    wanted=frozenset(leaf for leaf in leaves if leaf[0] in ends),
                    totals=(tuple(phase.aggregators), tuple(phase.outputs)),
                    dtype=phase.dtype.name,
                ),
            ),
        )
        for mode, ends in (("sender", ("src",)), ("receiver", ("dst", "edge")))
    )


def residuals_of(phase: Phase, second: Variant) -> Residuals:
    """What the first backward kernel may save for the second one; nothing for one with gradients
    of parameters, whose rules read wide values.
    """
    if any(kind == "const" for kind, _ in second.wanted):
        return ()
    values = values_of(phase, second)
    return Boundary(values, paths(values)).residuals


def in_turn(phase: Phase, receiver: Variant, sender: Variant) -> tuple[Variant, Variant]:
    """The two backward kernels in the order in which they run, with what the first one saves.

    Of both orders, and of kernels that save nothing, those are chosen that read least scattered
    cache lines per edge, the rows of residuals among them.
    """
    choices = [
        (receiver, sender),
        saving(phase, receiver, sender),
        saving(phase, sender, receiver),
    ]
    return min(choices, key=lambda pair: sum(generate(phase, v).lines for v in pair))


def saving(phase: Phase, first: Variant, second: Variant) -> tuple[Variant, Variant]:
    """Two backward kernels of which the first one saves what it may for the second one."""
    residuals = residuals_of(phase, second)
    return (
        replace(first, residuals=residuals, saves=bool(residuals)),
        replace(second, residuals=residuals),
    )


def values_of(phase: Phase, variant: Variant) -> Values:
    """The values of a phase, with a source to write into."""
    lanes = 64 // np.dtype(variant.dtype).itemsize
    rolled = max(len(slices(e.dims, lanes)) for e in phase.order if e.rows) > MOST_VECTORS
    return Values(KernelSource(variant.dtype, rolled), phase, variant)


def generate(phase: Phase, variant: Variant) -> Kernel:
    """The source of one kernel."""
    values = values_of(phase, variant)
    registers = Registers(values.source, values)
    gradients = GradientCode(registers)
    messages = Messages(registers, gradients)
    if variant.mode == "forward":
        registers.save(phase.roots)
        messages.accumulate()
    else:
        registers.save(_roots(phase, variant, gradients))
        messages.seed()
        gradients.backpropagate()
        if variant.saves:
            gradients.store_residuals()
    return _assembled(values)


def _roots(phase: Phase, variant: Variant, gradients: GradientCode) -> list[Expr]:
    """The values that a backward kernel evaluates."""
    if variant.residuals and not variant.saves:
        return gradients.load_residuals()
    roots = [
        *(e for n in variant.totals[0] for e in phase.parts[n]),
        *(phase.outputs[n] for n in variant.totals[1]),
    ]
    return roots + [phase.order[n] for kind, n in variant.residuals if kind == "value"]


def _assembled(values: Values) -> Kernel:
    """The sections in their loops: over shares of the blocks, blocks, rows and edges."""
    source = values.source
    head = _head(values)
    arguments = [*FIXED, *source.arguments]
    spilled = [
        "target",
        *(name for name in source.arguments if name.startswith(AT_THE_ROW[values.variant.mode])),
    ]
    summed = [name for name in source.arguments if re.fullmatch(r"gct?\d+", name)]
    rows = _loops(values, head, bool(summed))
    lines = [
        "    n_blocks = len(blocks) - 1",
        "    while True:",
        "        share = next_turn(turn, shares, side)",
        "        if share >= shares:",
        "            break",
        *(f"        {name} = all_{name}[share]" for name in summed),
        (
            "        for b in range(-(-share * n_blocks // shares), -(-(share + 1) * n_blocks //"
            " shares)):"
        ),
        "            lo, hi = blocks[b], blocks[b + 1]",
        *(f"            {name} = spill_{name} if spilling[b] else own_{name}" for name in spilled),
    ]
    lines += ["        " + line for line in rows]
    prefix = {**dict.fromkeys(spilled, "own_"), **dict.fromkeys(summed, "all_")}
    parameters = [
        *(prefix.get(name, "") + name for name in arguments),
        *(f"spill_{name}" for name in spilled),
    ]
    functions = [f"{name} = {definition}" for name, definition in sorted(source.functions.items())]
    text = (
        "\n".join(
            [*functions, "", "", "@kernel_form", f"def kernel({', '.join(parameters)}):", *lines]
        )
        + "\n"
    )
    maps = {name: where.reshape(1, -1) for name, where in source.maps.items()}
    scattered = [name for name, _, _ in scattered_reads(values)]
    return Kernel(
        source=text,
        arguments=arguments,
        spilled=spilled,
        summed=summed,
        near=source.near,
        maps=maps,
        buffers=source.buffers,
        lines=lines_of_edge(values),
        scattered=scattered,
        together=side_by_side(values),
    )


def _loops(values: Values, head: list[str], sums: bool) -> list[str]:
    """The loops over the rows of a block, over stretches of the edges of a row, and over edges.

    Args:
        values: Of the kernel.
        head: Lines that locate an edge.
        sums: Whether there are sums over all edges; those over a stretch of edges are added to
            them.
    """
    source = values.source
    sections = source.sections
    locate_row = "        sr = row[r]" if values.variant.mode == "sender" else "        dr = row[r]"
    rows = [
        *sections["top"],
        "    last = ptr[hi] - 1",
        *(["    since = 0"] if sums else []),
        "    for r in range(lo, hi):",
        locate_row,
        "        tr = target[r]",
    ]
    # a row without edges keeps what it has, and its columns may hold what no edge may read
    rows += [
        f"        for begin in range(ptr[r], ptr[r + 1], {STRETCH}):",
        f"            beyond = min(begin + {STRETCH}, ptr[r + 1])",
    ]
    rows += _deeper(
        1,
        [
            *sections["row"],
            "        for k in range(begin, beyond):",
            *head,
            *sections["edge"],
            *sections["end"],
        ],
    )
    if not sums:
        return rows
    added = [*sections["bottom"]]
    for near, whole in source.near.items():
        added += [
            f"    for i in range({near}.shape[0]):",
            f"        for j in range({near}.shape[1]):",
            f"            {whole}[i, j] += {near}[i, j]",
            f"            {near}[i, j] = ZERO",
        ]
    rows += ["            since += beyond - begin", f"            if since >= {STRETCH}:"]
    return [*rows, *_deeper(3, [*added, *sections["top"], "    since = 0"]), *added]


def _deeper(steps: int, lines: list[str]) -> list[str]:
    return ["    " * steps + line for line in lines]


def _head(values: Values) -> list[str]:
    """Lines that locate an edge, after the prefetches for a later one."""
    v = values.variant
    lines = prefetches(values)
    sender = v.mode == "sender"
    lines += [
        "en = entry(at, k)" if sender and not v.in_order else "en = k",
        "dr = entry(other, k)" if sender else "sr = entry(other, k)",
    ]
    lines += [
        "se = start + entry(positions, en)" if v.listed else "se = start + en",
        "ce = offset + en",
    ]
    lines += values.locating()
    if any(compiled_form(a).ties for a in values.phase.aggregators.values()):
        lines.append(f"tie = entry({values.source.arg('edge_gid')}, se) + tie_shift")
    return ["            " + line for line in lines]
