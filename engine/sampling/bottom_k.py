"""Bottom-k sampling: the edges with the k lowest ranks of each row, over all workers.

Lists of the k lowest ranks are merged like the states of an aggregator, so the edges of a node may
be on several workers: each sends its lowest ranks to the master, and the master sends back the
cut, the highest rank that is chosen. With replacement a row makes k choices. Every choice has
ranks of its own and takes the edge with the lowest one.

Source: bottom-k sketches, https://arxiv.org/abs/0802.3448
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ops.kernels import sample
from ...ops.kernels.pool import run_blocks
from ..partition.message import Columns
from ..partition.partition import MASTER, MIRROR
from .candidates import Candidates, Chosen, Frontier, Sample
from .priority import Priority, Ranked

# a thread takes rows with about so many edges at a time
EDGES_PER_BLOCK = 1 << 16
_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
_NO_ROWS = np.zeros(0, bool)


@dataclass(frozen=True)
class BottomK:
    """One choice of ``k`` edges for each receiving row.

    Attributes:
        priority: Ranks the edges.
        key: Key of the draws.
        replace: Choose with replacement.
    """

    frontier: Frontier
    priority: Priority
    key: int
    k: int
    replace: bool

    def choose(self) -> Sample:
        """The chosen edges with their importance weights.

        Collective: all ranks of the frontier's partition.
        """
        candidates, receivers = self.frontier.candidates, self.frontier.receivers
        found = [self._shortlist(c) for c in candidates]
        # without receiving mirrors and with one block, all edges of a row are here: the shortlist
        # is the sample
        if not receivers.plan.anywhere and len(candidates) < 2:
            return Sample([self._weighted(chosen, often, c.end - c.begin) for c, (chosen, often) in zip(candidates, found, strict=True)])
        degree = {MASTER: np.zeros(receivers.plan.n_rows, np.int64), MIRROR: np.zeros(receivers.plan.n_halo, np.int64)}
        for c in candidates:
            degree[c.kinds[1]] += c.end - c.begin
        return self._agreed([chosen for chosen, _ in found], degree)

    def _ranked(self, edges: Candidates) -> Ranked:
        return self.priority.rank(self.frontier, edges, self.key)

    def _shortlist(self, c: Candidates) -> tuple[Chosen, np.ndarray]:
        """``sample.shortlist`` by all threads, each on some of the rows."""
        ranked = self._ranked(c)
        edges, ranks = ranked.edges, ranked.arrays(self.frontier.relation)
        last = np.cumsum(edges.end - edges.begin)
        n = 1 + int(last[-1:].sum()) // EDGES_PER_BLOCK
        cuts = [0, *np.searchsorted(last, np.arange(1, n) * EDGES_PER_BLOCK).tolist(), len(last)]
        parts: list[Any] = [None] * n

        def block(b: int) -> None:
            rows = slice(cuts[b], cuts[b + 1])
            parts[b] = sample.shortlist(edges.begin[rows], edges.end[rows], edges.senders, ranks, self.k, self.replace)

        run_blocks(block, n)
        *lists, often = parts[0] if n == 1 else _joined(parts)
        return c.of(*lists), often

    def _agreed(self, shorter: list[Chosen], degree: dict[int, np.ndarray]) -> Sample:
        """The edges of shortlists that are still among the chosen once the ranks of all workers are merged."""
        receivers, ranks = self.frontier.receivers, [self._ranked(c).arrays(self.frontier.relation) for c in shorter]
        low = {kind: np.full((len(n), self.k), _LAST) for kind, n in degree.items()}
        for c, r in zip(shorter, ranks, strict=True):
            (sample.lowest_each if self.replace else sample.lowest)(c.ptr, r, low[c.kinds[1]])
        received = []

        def merge(rows: np.ndarray, other: Columns) -> None:
            received.append((rows, other["low"], other["degree"]))
            low[MASTER][rows] = self._merged(low[MASTER][rows], other["low"])
            degree[MASTER][rows] += other["degree"]

        mine = degree[MIRROR]
        receivers.to_masters_begin({"low": low[MIRROR], "degree": mine}).end(merge)
        cut = dict(low) if self.replace else {kind: x[:, -1:] for kind, x in low.items()}
        back = receivers.to_mirrors({"cut": cut[MASTER], "degree": degree[MASTER]})
        cut[MIRROR], degree[MIRROR] = back["cut"], back["degree"]
        chosen = []
        for c, r in zip(shorter, ranks, strict=True):
            kind = c.kinds[1]
            bound = np.ascontiguousarray(cut[kind] if self.replace else cut[kind][:, 0])
            times = (sample.times_each if self.replace else sample.times_low)(c.ptr, r, bound)
            chosen.append(self._weighted(*c.kept(times), degree[kind]))
        # the ranks that were sent show on both sides whether an edge of the worker is among the
        # chosen
        sent = [_among(theirs, n, cut[MASTER][rows]) for rows, theirs, n in received]
        return Sample(chosen, (np.flatnonzero(np.concatenate([_NO_ROWS, *sent])), np.flatnonzero(_among(low[MIRROR], mine, cut[MIRROR]))))

    def _weighted(self, chosen: Chosen, often: np.ndarray, degree: np.ndarray) -> Chosen:
        """Edges with their importance weights, given how often each is chosen and row degrees."""
        # the weights of a row that keeps all its edges are 1
        share = (degree if self.replace else np.maximum(degree, self.k)) / self.k
        weight = self.priority.weight(self.frontier, chosen, share)
        if weight is not None:
            return chosen.weighted(often * weight)
        return chosen.weighted(often.astype(np.float64)) if self.replace else chosen

    def _merged(self, mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        if self.replace:
            return np.minimum(mine, theirs)
        return np.sort(np.concatenate((mine, theirs), axis=1), axis=1)[:, : mine.shape[1]]


def _joined(parts: Sequence[Any]) -> Sequence[np.ndarray]:
    """The results of ``sample.shortlist`` for consecutive rows as one."""
    counts, *lists = (np.concatenate(x) for x in zip(*((bounds[1:] - bounds[:-1], *rest) for bounds, *rest in parts), strict=True))
    return np.append(0, np.cumsum(counts)), *lists


def _among(low: np.ndarray, degree: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """Which rows have an edge among the chosen, [n] bool, given their lowest ranks and where each column is cut."""
    return (low[:, : cut.shape[1]] <= cut).any(axis=1) & (degree > 0)
