"""Edge lists as compiled kernels traverse them: in blocks of rows with about equally many edges.

One thread handles a row, which needs no atomic operations and makes results independent of the
number of threads. A hub with more edges than a block would occupy one thread while others are
idle, so it is split into parts. The first part sums into the row itself, later ones into spill
rows that are merged in order afterwards. Where rows are split depends on the edges alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

EDGES_PER_BLOCK = 1 << 14
MOST_BLOCKS = 256
# without hubs
NOT_SPILLING = np.zeros(MOST_BLOCKS, bool)


@dataclass
class EdgeLists:
    """Edges grouped by the row at one of their ends.

    Attributes:
        ptr: Bounds of the groups, [n_groups + 1] int64.
        row: Row of each group, [n_groups] int32, no row twice.
        other: Row at the other end of each edge, [n_edges] int32.
        at: Number of each edge in the order of receivers, [n_edges] int32; empty if that is this
            order, or if edge values are in this order.
        positions: Position of each edge (in the order of receivers) within its block; None if they
            are in order.
        start: Storage position of the block.
        offset: Position of the first edge in the order of the level.
        tie_shift: Added to global ids in ties between equal messages.
        weight: Importance weight of each edge, in the order of receivers, or None.
        traversal: The same edges in blocks.
    """

    ptr: np.ndarray
    row: np.ndarray
    other: np.ndarray
    at: np.ndarray
    positions: np.ndarray | None
    start: int
    offset: int
    tie_shift: int
    weight: np.ndarray | None
    traversal: Traversal = field(init=False)

    def __post_init__(self) -> None:
        self.traversal = cut(self.ptr, self.row)


@dataclass
class Traversal:
    """The order in which kernels traverse edges: blocks of groups.

    Attributes:
        ptr, row: Bounds and row of each group; the parts of a hub are groups of their own.
        blocks: Bounds of blocks of groups, [n_blocks + 1].
        spill: Spill row of each group, [n_groups] int32; None if no row is split.
        spilling: Whether the groups of a block sum into spill rows, [at least n_blocks].
        hubs: Row that each spill row is merged into, in order.
    """

    ptr: np.ndarray
    row: np.ndarray
    blocks: np.ndarray
    spill: np.ndarray | None = None
    spilling: np.ndarray = field(default_factory=lambda: NOT_SPILLING)
    hubs: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))

    @property
    def n_blocks(self) -> int:
        return len(self.blocks) - 1


def cut(ptr: np.ndarray, row: np.ndarray) -> Traversal:
    """Divide groups of edges into blocks, and split hubs into parts.

    Args:
        ptr: Bounds of the groups, [n_groups + 1].
        row: Row of each, [n_groups].
    """
    n_edges = int(ptr[-1])
    if n_edges < 2 * EDGES_PER_BLOCK:
        return Traversal(ptr, row, np.array([0, len(row)]))
    n_blocks = min(n_edges // EDGES_PER_BLOCK, MOST_BLOCKS)
    most = -(-n_edges // n_blocks)
    counts = np.diff(ptr)
    parts = np.where(counts > 2 * most, -(-counts // most), 1)
    if (parts == 1).all():
        cuts = np.searchsorted(ptr, np.arange(1, n_blocks) * (n_edges / n_blocks))
        return Traversal(ptr, row, np.unique(np.concatenate(([0], cuts, [len(row)]))))
    first = np.concatenate(([0], np.cumsum(parts)))
    groups = np.repeat(np.arange(len(row)), parts)
    part = np.arange(first[-1]) - first[groups]
    finer = np.append(np.minimum(ptr[groups] + part * most, ptr[groups + 1]), n_edges)
    is_hub = parts[groups] > 1
    later = part > 0
    spill = np.cumsum(later, dtype=np.int32) - 1
    # every part of a hub is a block of its own
    alone = np.flatnonzero(is_hub)
    cuts = np.searchsorted(finer, np.arange(1, n_blocks) * (n_edges / n_blocks))
    blocks = np.unique(np.concatenate(([0], cuts, alone, alone + 1, [len(groups)])))
    return Traversal(
        ptr=finer,
        row=row[groups],
        blocks=blocks,
        spill=spill,
        spilling=later[blocks[:-1]],
        hubs=row[groups][later],
    )
