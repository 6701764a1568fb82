"""The candidates of a pass as a bipartite graph: numbered senders, receiving rows, edge values.

Samplers that choose vertices, or whose choice of an edge depends on other receivers of its sender,
compute with values of both ends; ``Copies`` makes all workers agree on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...ops.kernels.sampling import vertex_sample
from ...ops.parallel.pool import run_blocks
from ..partition.exchange import Exchange
from ..partition.partition import MASTER, MIRROR
from .candidates import Chosen, Frontier
from .copies import Copies
from .degrees import degrees_of
from .row_blocks import row_blocks

# a thread takes rows with about so many edges at a time
EDGES_PER_BLOCK = 1 << 17
# bits of the terms of exact sums; up to 2**31 of them can be added
TERM_BITS = 32
NO_VALUES = np.zeros(0)


class Bipartite:
    """Edges of a frontier in lists of their own, with numbered senders.

    Senders are numbered over the worker's masters, ascending, then over its mirrors.

    Args:
        frontier: The frontier.
        edges: Its candidates, or those that may be chosen, by block.

    Attributes:
        edges: The edges by block.
        index: Number of the sender of each edge, by block, int32.
        senders, receivers: The rows of both ends.
        ids: Global ids of the senders, [senders.n] int64.
        receiving: Which senders are receiving rows too, [senders.n] bool.

    Collective: all ranks of the frontier's partition.
    """

    def __init__(self, frontier: Frontier, edges: list[Chosen]):
        p = frontier.partition
        self.edges = edges
        self.receivers = Copies(frontier.receivers)
        plan, mirrors = frontier.relation.served(frontier.reverse)[0]
        sending = {
            kind: np.zeros(n, bool) for kind, n in ((MASTER, p.n_masters), (MIRROR, p.n_mirrors))
        }
        for c in edges:
            sending[c.kinds[0]][c.senders] = True
        wanted = np.flatnonzero(sending[MIRROR][mirrors])
        plan = plan.restrict(p.halo_comm, wanted)
        mirrors = mirrors[wanted]
        sending[MASTER][plan.rows] = True
        masters = np.flatnonzero(sending[MASTER])
        number = {MASTER: np.empty(p.n_masters, np.int32), MIRROR: np.empty(p.n_mirrors, np.int32)}
        number[MASTER][masters] = np.arange(len(masters), dtype=np.int32)
        number[MIRROR][mirrors] = np.arange(
            len(masters), len(masters) + len(mirrors), dtype=np.int32
        )
        self.senders = Copies(Exchange(p.halo_comm, plan.renumbered(number[MASTER], len(masters))))
        self.index = [number[c.kinds[0]][c.senders] for c in edges]
        self.ids = np.concatenate((p.masters[masters], p.gid[p.n_masters + mirrors]))
        receiving = np.zeros(p.n_masters, np.uint8)
        receiving[frontier.rows[MASTER]] = 1
        self.receiving = (
            self.senders.copied(np.append(receiving[masters], np.zeros(len(mirrors), np.uint8)))
            != 0
        )

    def each(self, loop: Callable[[int, np.ndarray, slice], object]) -> None:
        """Call loop(block, bounds of edges, rows) for all receiving rows, on all threads.

        The rows are a slice of those of ``receivers``. No two threads have the same rows.
        """
        for b, c in enumerate(self.edges):
            first = self.receivers.at(c.kinds[1]).start
            cuts = row_blocks(c.ptr[1:], EDGES_PER_BLOCK)

            def run(
                i: int, b: int = b, c: Chosen = c, first: int = first, cuts: Sequence[int] = cuts
            ) -> None:
                begin, end = cuts[i : i + 2]
                loop(b, c.ptr[begin : end + 1], slice(first + begin, first + end))

            run_blocks(run, len(cuts) - 1)

    def row_totals(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Sum of the positive values of the edges of each receiving row, [receivers.n], the same
        for every partition.

        Collective: all ranks of the frontier's partition.
        """
        sums, scale = self.moments(values)
        return sums[:, 1] / scale

    def moments(self, values: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Sums of powers 0, 1 and 2 of the values of the edges of each receiving row.

        Args:
            values: Positive value of each edge by block.

        Returns:
            [receivers.n, 3] int64 and [receivers.n]: values are in units of 1 / scale, and their
            squares in units of 2**TERM_BITS / scale**2.

        Collective: all ranks of the frontier's partition.
        """
        top = np.zeros(self.receivers.n)
        sums = np.zeros((self.receivers.n, 3), np.int64)
        self.each(
            lambda b, ptr, rows: vertex_sample.largest(
                ptr=ptr,
                index=self.index[b],
                rho=values[b],
                by_edge=True,
                a=NO_VALUES,
                out=top[rows],
            )
        )
        scale = scale_of(self.receivers.agree(np.maximum, top))
        self.each(
            lambda b, ptr, rows: vertex_sample.moments(ptr, values[b], scale[rows], sums[rows])
        )
        return self.receivers.agree(np.add, sums), scale


def scale_of(top: np.ndarray) -> np.ndarray:
    """Powers of two that bring numbers up to ``top`` into ``TERM_BITS`` bits."""
    scale: np.ndarray = np.ldexp(1.0, TERM_BITS - np.frexp(top)[1])
    return scale


def degrees(frontier: Frontier) -> np.ndarray:
    """Number of candidate edges of each receiving row over all workers, [n] int64, in the order of
    ``Copies``.

    Where these are all stored edges, the numbers were computed before the first batch, and nothing
    is sent.

    Collective: all ranks of the frontier's partition.
    """
    if frontier.complete:
        all_degrees = degrees_of(frontier.partition, frontier.relation, frontier.reverse)
        return np.concatenate([all_degrees[kind][frontier.rows[kind]] for kind in (MASTER, MIRROR)])
    rows = Copies(frontier.receivers)
    count = np.zeros(rows.n, np.int64)
    for c in frontier.candidates:
        count[rows.at(c.kinds[1])] += c.end - c.begin
    return rows.agree(np.add, count)
