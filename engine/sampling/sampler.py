"""Neighbour sampling, keyed by global edge ids.

Every in-edge of a node draws hash(seed, step, hop, edge id). Without replacement the node keeps the ``fanout`` edges
with the lowest draws; with replacement it draws ``fanout`` times and keeps, each time, the edge whose draw is lowest.
The lowest of the lowest is a monoid like any aggregator, so the edges of a node may be spread over workers: each
sends its own lowest draws to the master, which sends back where to cut. The chosen sets are the same for every
number of workers and every partition.

Source: uniform neighbour sampling of GraphSAGE, https://arxiv.org/abs/1706.02216; lowest draws as bottom-k sketches.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphtheta.errors import ConfigError
from graphtheta.rng import Purpose, key

from ...ops.kernels import sample
from ...ops.kernels.batch import expand
from ...ops.kernels.pool import run_blocks
from ..partition.exchange import Exchange
from ..partition.message import Columns
from ..partition.partition import MASTER, MIRROR, EdgeBlock, Partition

# a thread takes rows with about so many edges at a time
EDGES_PER_BLOCK = 1 << 16
_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
_IN_ORDER = np.zeros(0, np.int32)
_NOBODY = np.zeros(0, bool)
# positions of the sent rows of a plan, and halo rows
Kept = tuple[np.ndarray, np.ndarray]


@dataclass
class Candidates:
    """Edges of one block into some receiving rows, while a view grows.

    Attributes:
        rows: Receiving rows of the block, [n_groups] int64.
        begin, end: Where the edges of each row lie in the two lists, [n_groups].
        edges: Positions within the block; empty if position k stands at k.
        senders: Sending rows of the block.
    """

    block: EdgeBlock
    reverse: bool
    rows: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    edges: np.ndarray
    senders: np.ndarray

    @classmethod
    def into(cls, block: EdgeBlock, reverse: bool, rows: np.ndarray) -> Candidates:
        """All edges of a block into some rows; the lists are the block's own."""
        ptr, *lists = (block.out_indptr, block.out_edge, block.out_dst) if reverse else (block.in_indptr, _IN_ORDER, block.in_src)
        return cls(block, reverse, rows, ptr[rows], ptr[rows + 1], *lists)

    @property
    def kinds(self) -> tuple[int, int]:
        """Kinds of the sending and of the receiving rows."""
        return (self.block.dst_kind, self.block.src_kind) if self.reverse else (self.block.src_kind, self.block.dst_kind)

    def listed(self) -> Chosen:
        """The same edges in lists of their own."""
        return self.of(*expand(self.begin, self.end, self.edges, self.senders))

    def of(self, ptr: np.ndarray, edges: np.ndarray, senders: np.ndarray) -> Chosen:
        """Other edges of the same rows."""
        return Chosen(self.block, self.reverse, self.rows, ptr[:-1], ptr[1:], edges, senders, ptr)


@dataclass
class Chosen(Candidates):
    """Edges in lists of their own, one row after another.

    Attributes:
        ptr: Bounds of the rows' edges, [n_groups + 1].
        scale: How many edges each stands for; None for one.
    """

    ptr: np.ndarray
    scale: np.ndarray | None = None

    def listed(self) -> Chosen:
        return self

    def kept(self, times: np.ndarray, share: np.ndarray | None = None) -> Chosen:
        """The edges that are chosen at least once ([n_edges] int32), scaled if there are shares."""
        *lists, often = sample.keep(self.ptr, times, self.edges, self.senders)
        chosen = self.of(*lists)
        return chosen if share is None else chosen.scaled(often, share)

    def scaled(self, times: np.ndarray, share: np.ndarray) -> Chosen:
        """The same edges, each of which stands for its times ([n_edges]) multiplied by the share of its row ([n_groups])."""
        return replace(self, scale=times * np.repeat(share, np.diff(self.ptr)))


@dataclass(frozen=True)
class NeighbourSampler:
    """Uniform sampling of ``fanout`` in-edges of every receiving node.

    Attributes:
        fanouts: Edges per node for each hop, the one furthest from the targets first; -1 keeps all.
        replace: Draw with replacement; an edge drawn twice counts twice.
        seed: Seed of the draws.
        shared: Use the draws of the first hop in all of them, so that edge values can be carried.
    """

    fanouts: tuple[int, ...]
    replace: bool = False
    seed: int = 0
    shared: bool = False

    def __post_init__(self) -> None:
        if any(f == 0 or f < -1 for f in self.fanouts):
            raise ConfigError(f"fanout {self.fanouts} must hold positive numbers, or -1 for all neighbours")
        if self.shared and len(set(self.fanouts)) > 1:
            raise ConfigError(f"one sample shared by all hops needs equal fanouts, got {self.fanouts}")

    def choose(self, partition: Partition, candidates: Sequence[Candidates], receivers: Exchange, *, hop: int, reverse: bool,
               step: int) -> tuple[list[Chosen], Kept | None]:
        """Keep a sample of the edges of each receiving row.

        Args:
            candidates: All edges of one pass, by block: a group of edges for each row of the moves, also for those without edges.
            receivers: Moves of the receiving rows.
            hop, reverse, step: Words of the key; the number of the hop as in ``fanouts``.

        Returns:
            The edges by block, and the rows of the moves that still have edges at mirrors, as ``MovePlan.kept`` takes them;
            None if all may have.

        Collective: all ranks of the partition.
        """
        fanout = self.fanouts[hop]
        if fanout < 0:
            return [c.listed() for c in candidates], None
        k = np.uint64(key(self.seed, Purpose.SAMPLE, step, 0 if self.shared else hop, int(reverse)))
        shorter = []
        for c in candidates:
            *lists, often = self._shortlist(c, _ids(partition, c), k, fanout)
            shorter.append(c.of(*lists).scaled(often, self._share(c.end - c.begin, fanout)))
        # without receiving mirrors and with one block all edges of a row are here, and the shortlist is the sample
        if not receivers.plan.anywhere and len(candidates) < 2:
            return shorter, None
        degree = {MASTER: np.zeros(receivers.plan.n_rows, np.int64), MIRROR: np.zeros(receivers.plan.n_halo, np.int64)}
        for c in candidates:
            degree[c.kinds[1]] += c.end - c.begin
        return self._agreed(partition, shorter, degree, receivers, k, fanout)

    def _shortlist(self, c: Candidates, gid: np.ndarray, k: np.uint64, fanout: int) -> Sequence[np.ndarray]:
        """``sample.shortlist`` by all threads, each on some of the rows."""
        last = np.cumsum(c.end - c.begin)
        n = 1 + int(last[-1:].sum()) // EDGES_PER_BLOCK
        cuts = [0, *np.searchsorted(last, np.arange(1, n) * EDGES_PER_BLOCK).tolist(), len(last)]
        parts: list[Any] = [None] * n

        def block(b: int) -> None:
            rows = slice(cuts[b], cuts[b + 1])
            parts[b] = sample.shortlist(c.begin[rows], c.end[rows], c.edges, c.senders, gid, k, fanout, self.replace)

        run_blocks(block, n)
        if n == 1:
            return parts[0]
        ptr, *lists = (np.concatenate(x) for x in zip(*((bounds[1:] - bounds[:-1], *rest) for bounds, *rest in parts), strict=True))
        return np.append(0, np.cumsum(ptr)), *lists

    def _agreed(self, partition: Partition, shorter: list[Chosen], degree: dict[int, np.ndarray], receivers: Exchange, k: np.uint64,
                fanout: int) -> tuple[list[Chosen], Kept]:
        """The edges of shortlists that are still among the chosen once all workers have been heard."""
        ids = [_ids(partition, c)[c.edges] for c in shorter]
        low = {kind: np.full((len(n), fanout), _LAST) for kind, n in degree.items()}
        for c, gid in zip(shorter, ids, strict=True):
            (sample.lowest_each if self.replace else sample.lowest)(c.ptr, gid, k, low[c.kinds[1]])
        heard = []

        def merge(rows: np.ndarray, other: Columns) -> None:
            heard.append((rows, other["low"], other["degree"]))
            low[MASTER][rows] = self._merged(low[MASTER][rows], other["low"])
            degree[MASTER][rows] += other["degree"]

        mine = degree[MIRROR]
        receivers.to_masters_begin({"low": low[MIRROR], "degree": mine}).end(merge)
        cut = dict(low) if self.replace else {kind: x[:, -1:] for kind, x in low.items()}
        back = receivers.to_mirrors({"cut": cut[MASTER], "degree": degree[MASTER]})
        cut[MIRROR], degree[MIRROR] = back["cut"], back["degree"]
        chosen = []
        for c, gid in zip(shorter, ids, strict=True):
            kind = c.kinds[1]
            bound = np.ascontiguousarray(cut[kind] if self.replace else cut[kind][:, 0])
            times = (sample.times_each if self.replace else sample.times_low)(c.ptr, gid, k, bound)
            chosen.append(c.kept(times, self._share(degree[kind], fanout)))
        # what a worker has drawn tells it and the master alike whether any of its edges is among the chosen
        sent = [_among(theirs, n, cut[MASTER][rows]) for rows, theirs, n in heard]
        return chosen, (np.flatnonzero(np.concatenate([_NOBODY, *sent])), np.flatnonzero(_among(low[MIRROR], mine, cut[MIRROR])))

    def _share(self, degree: np.ndarray, fanout: int) -> np.ndarray:
        """How many edges a chosen edge of each row stands for, each time it is chosen; a row that keeps all needs no scale."""
        return (degree if self.replace else np.maximum(degree, fanout)) / fanout

    def _merged(self, mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        if self.replace:
            return np.minimum(mine, theirs)
        return np.sort(np.concatenate((mine, theirs), axis=1), axis=1)[:, : mine.shape[1]]


def _among(low: np.ndarray, degree: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """Which rows have an edge among the chosen, [n] bool, given their lowest draws and where each column is cut."""
    return (low[:, : cut.shape[1]] <= cut).any(axis=1) & (degree > 0)


def _ids(partition: Partition, c: Candidates) -> np.ndarray:
    """Global ids of the edges of a block, by position."""
    return partition.edge_gid[c.block.start: c.block.start + c.block.n_edges]
