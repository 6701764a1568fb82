"""Prefetching: which arrays edges read at scattered rows, and the lines that fetch them ahead."""

from __future__ import annotations

import numpy as np

from ...autodiff.expr import COMPUTED, Expr
from .boundary import numbers
from .values import TABLES, Values

# edges between prefetch and read of a row, cache lines prefetched at most, bytes of a line
AHEAD = 8
MOST_LINES = 16
LINE = 64
# most bytes of a row that is copied beside others
NARROW = 16
# bytes of arrays that stay in a second-level cache, where a prefetch takes longer than it saves
NEAR = 1 << 19


def prefetches(values: Values) -> list[str]:
    """Lines that prefetch the scattered rows of a later edge."""
    scattered = scattered_reads(values)
    if not scattered:
        return []
    # with rows that stay in the cache ``ahead`` is beyond all edges
    lines = [
        f"later = k + {values.source.arg('ahead')}",
        "if later <= last:",
        "    far = entry(other, later)",
    ]
    if any("el" in row or "sl" in row for _, row, _ in scattered):
        lines += [
            (
                "    el = later"
                if values.variant.in_order or values.variant.mode != "sender"
                else "    el = entry(at, later)"
            ),
            (
                "    sl = start + entry(positions, el)"
                if values.variant.listed
                else "    sl = start + el"
            ),
        ]
    together = side_by_side(values)
    for name, row, size in scattered:
        if name in together[1:]:
            continue
        lines.append(f"    far_{name} = {row}")
        lines += [
            f"    prefetch({name}, far_{name}, {line})"
            for line in range(min(MOST_LINES, -(-size // LINE)))
        ]
    return lines


def edges_ahead(n_bytes: int) -> int:
    """How many edges ahead a kernel prefetches rows of arrays of so many bytes in all; beyond all
    edges where they stay in the cache.
    """
    return AHEAD if n_bytes > NEAR else 1 << 40


def lines_of_edge(values: Values) -> int:
    """Cache lines that an edge reads at scattered rows."""
    together = side_by_side(values)[1:]
    return sum(
        -(-size // LINE) for name, _, size in scattered_reads(values) if name not in together
    )


def side_by_side(values: Values) -> list[str]:
    """Arrays of narrow scattered rows, all of the same end, that the back end copies into one cache
    line per row; nothing for a single one.
    """
    variant = values.variant
    item = np.dtype(variant.dtype).itemsize
    floats = {
        f"{e.leaf[0]}{n}"
        for n, e in enumerate(values.phase.order)
        if e.leaf is not None and e.dtype.name == variant.dtype and id(e) not in values.tables
    }
    names = list[str]()
    room = LINE
    for name, row, size in scattered_reads(values):
        # of the columns of a state, numbers of edges are integers
        of_state = name.startswith("spread_") and not name.rpartition("_")[2].startswith("edge")
        is_float = name in floats or of_state
        if is_float and row == "far" and item <= size <= min(room, NARROW):
            names.append(name)
            room -= size
    return names if len(names) > 1 else []


def scattered_reads(values: Values) -> list[tuple[str, str, int]]:
    """Arrays read at scattered rows, where a later edge reads them, and bytes of a row."""
    variant = values.variant
    arguments = values.source.arguments
    reads = []
    sender = variant.mode == "sender"
    item = np.dtype(variant.dtype).itemsize
    for n, e in enumerate(values.phase.order):
        if e.leaf is None or e.leaf[0] not in ("src", "dst", "edge"):
            continue
        kind, name = e.leaf
        size = e.dtype.itemsize * int(np.prod(e.dims))
        if (
            id(e) in values.tables
            and f"{kind}{n}{TABLES}" in arguments
            and (row := _table_row(values, e))
        ):
            reads.append((f"{kind}{n}{TABLES}", row, size // e.dims[0]))
        if f"{kind}{n}" not in arguments:
            continue
        if kind == "edge" and sender and not variant.in_order:
            row = "offset + el" if name in variant.carried else "sl"
            if e.leaf in variant.in_place:
                row = f"entry(rows_{kind}{n}, {row})"
            elif e.leaf in variant.typed:
                part = f"np.int64(entry(kind_of{n}, {row}))"
                begin = f"entry(begin_of{n}, {part})"
                # a relation may have fewer numbers than one line
                row = f"{begin} + entry(at_of{n}, {row}) * entry(width_of{n}, {part})"
                size = min(size, LINE)
            reads.append((f"{kind}{n}", row, size))
        elif kind not in ("edge", values.fixed_end):
            reads.append(
                (
                    f"{kind}{n}",
                    f"entry(rows_{kind}{n}, far)" if e.leaf in variant.in_place else "far",
                    size,
                )
            )
    if sender:
        for name in arguments:
            if name.startswith("spread_"):
                total, _, column = name.removeprefix("spread_").rpartition("_")
                e = values.phase.parts[total][-1 if column == "g" else 0]
                reads.append((name, "far", item * int(np.prod(e.dims))))
        if variant.residuals:
            reads.append(("kept", "el", item * numbers(values.phase, variant.residuals)))
    return reads


def _table_row(values: Values, table: Expr) -> str:
    """The row of all tables that a later edge reads; empty if a scattered read would be needed to
    find it.
    """
    index = values.tables[id(table)]
    at_end = table.leaf is not None and table.leaf[0] not in ("edge", values.fixed_end)
    at_end = at_end and table.leaf not in values.variant.in_place
    stored = (
        index.leaf is not None
        and index.leaf[0] == "edge"
        and index.leaf[1] not in values.variant.carried | COMPUTED
    )
    return (
        f"far * {table.dims[0]} + edge{values.number[id(index)]}[sl, 0]"
        if at_end and stored
        else ""
    )
