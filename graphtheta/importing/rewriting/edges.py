"""The edges that a new store has: those that stay, and added reverses behind them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.typed import RELATION
from graphtheta.graph.store.checksum import share
from graphtheta.importing.ingest.pairs import mark
from graphtheta.importing.ingest.spool import in_step
from graphtheta.importing.rewriting.nodes import BLOCK, NodeSubset, Runs


class RewrittenEdges:
    """The edges of this worker's slice that stay, and those whose reverse is added.

    Args:
        graph: The store's graph.
        comm: The workers.
        nodes: Its nodes.
        self_loops, duplicates, reverse: Options of ``transform_store``.

    Attributes:
        slice: Numbers of the edges in the old store.
        src, dst: New numbers of their ends, [n] int64, -1 where an end is left out.
        stay, reversed: Whether an edge stays, and whether its reverse is added, [n] bool.
        first, added: Numbers of the first of each in the new store.
        total: Number of all edges of the new store.
        counts: Edges of all workers that were left out or added, by reason.

    Collective: all ranks of comm.
    """

    def __init__(
        self,
        graph: Graph,
        comm: Comm,
        nodes: NodeSubset,
        self_loops: str,
        duplicates: str,
        reverse: str,
    ):
        self.slice = share(graph.n_edges, comm.rank, comm.size)
        ends: list[list[np.ndarray]] = [[], []]
        empty = np.empty(0, np.int64)
        for rows in in_step(comm, self.blocks()):
            for numbers, end in zip(ends, (graph.src, graph.dst), strict=True):
                numbers.append(nodes.numbers(empty if rows is None else np.asarray(end[rows])))
        self.src, self.dst = (np.concatenate([empty, *numbers]) for numbers in ends)
        self.stay = (self.src >= 0) & (self.dst >= 0)
        outside = int((~self.stay).sum())
        loops = self.stay & (self.src == self.dst) & (self_loops == "drop")
        self.stay &= ~loops
        self.reversed = np.zeros(len(self.stay), bool)
        again = self.reversed
        if duplicates == "drop" or reverse == "add":
            where = np.where(self.stay, self.src, -1)
            codes = graph.edge_columns.get(RELATION)
            blocks = (
                (
                    rows.start,
                    where[self._at(rows)],
                    self.dst[self._at(rows)],
                    None if codes is None else np.asarray(codes[rows]),
                )
                for rows in self.blocks()
            )
            marks = mark(comm, blocks, nodes.total, codes is not None)
            flags = np.concatenate([np.empty((0, 2), bool), *marks])
            if duplicates == "drop":
                again = flags[:, 0]
            if reverse == "add":
                self.reversed = flags[:, 1]
        self.stay = self.stay & ~again
        counts = [
            outside,
            int(loops.sum()),
            int(again.sum()),
            int(self.stay.sum()),
            int(self.reversed.sum()),
        ]
        every = np.array(comm.all_gather(counts))
        left, dropped, repeated, stay, added = every.sum(axis=0).tolist()
        before = every[: comm.rank].sum(axis=0).tolist()
        self.first = before[3]
        self.added = stay + before[4]
        self.total = stay + added
        self.counts = {
            "outside_dropped": left,
            "self_loops_dropped": dropped,
            "duplicates_dropped": repeated,
            "reverse_added": added,
        }

    def blocks(self) -> Iterator[slice]:
        """The slice, in blocks."""
        for a in range(self.slice.start, self.slice.stop, BLOCK):
            yield slice(a, min(a + BLOCK, self.slice.stop))

    def _at(self, rows: slice) -> slice:
        return slice(rows.start - self.slice.start, rows.stop - self.slice.start)

    def runs(self) -> Iterator[tuple[slice, Runs]]:
        """For each block, in the old store, where its rows go in the new one: those that stay, and
        those that are added.
        """
        at = [self.first, self.added]
        for rows in self.blocks():
            picked = [x[self._at(rows)] for x in (self.stay, self.reversed)]
            yield rows, list(zip(at, picked, strict=True))
            at = [a + int(x.sum()) for a, x in zip(at, picked, strict=True)]

    @property
    def same(self) -> bool:
        """Whether the edges are those of the old store."""
        return not any(self.counts.values())

    def ends(self, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """New numbers of the ends of a block."""
        at = self._at(rows)
        return self.src[at], self.dst[at]
