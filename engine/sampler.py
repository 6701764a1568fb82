"""Neighbour sampling, keyed by global edge ids.

Every in-edge of a node draws hash(seed, step, layer, edge id). Without replacement the node keeps the ``fanout`` edges
with the lowest draws; with replacement it draws ``fanout`` times and keeps, each time, the edge whose draw is lowest.
The lowest of the lowest is a monoid like any aggregator, so the edges of a node may be spread over workers: each
sends its own lowest draws to the master, which sends back where to cut. The chosen sets are the same for every
number of workers and every partition.

Source: uniform neighbour sampling of GraphSAGE, https://arxiv.org/abs/1706.02216; lowest draws as bottom-k sketches.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphtheta.errors import ConfigError
from graphtheta.rng import Purpose, key

from ..ops.kernels import sample
from ..ops.kernels.batch import expand
from .exchange import Columns, Exchange
from .partition import MASTER, MIRROR, EdgeBlock, Partition

_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
_IN_ORDER = np.zeros(0, np.int32)


@dataclass
class Candidates:
    """Edges of one block into some receiving rows, while a view grows.

    Attributes:
        rows: Receiving rows of the block, [n_groups] int64.
        ptr: Bounds of each row's edges, [n_groups + 1].
        edges: Positions within the block, [n_edges] int32.
        senders: Sending rows of the block, [n_edges] int32.
        scale: How many edges each stands for; None for one.
    """

    block: EdgeBlock
    reverse: bool
    rows: np.ndarray
    ptr: np.ndarray
    edges: np.ndarray
    senders: np.ndarray
    scale: np.ndarray | None = None

    @classmethod
    def into(cls, block: EdgeBlock, reverse: bool, rows: np.ndarray) -> Candidates:
        """All edges of a block into some rows."""
        ends = (block.out_indptr, block.out_dst, block.out_edge) if reverse else (block.in_indptr, block.in_src, _IN_ORDER)
        return cls(block, reverse, rows, *expand(rows, *ends))

    @property
    def kinds(self) -> tuple[int, int]:
        """Kinds of the sending and of the receiving rows."""
        return (self.block.dst_kind, self.block.src_kind) if self.reverse else (self.block.src_kind, self.block.dst_kind)

    def kept(self, times: np.ndarray, share: np.ndarray | None = None) -> Candidates:
        """The edges that are chosen at least once ([n_edges]); one stands for its times multiplied by the share of its row."""
        ptr, edges, senders, often = sample.keep(self.ptr, times, self.edges, self.senders)
        scale = None if share is None else often * np.repeat(share, np.diff(ptr))
        return Candidates(self.block, self.reverse, self.rows, ptr, edges, senders, scale)


@dataclass(frozen=True)
class NeighbourSampler:
    """Uniform sampling of ``fanout`` in-edges of every receiving node.

    Attributes:
        fanouts: Edges per node for each superstep, first to last; -1 keeps all.
        replace: Draw with replacement; an edge drawn twice counts twice.
        seed: Seed of the draws.
        shared: Use the draws of the first superstep in all of them, so that edge values can be carried.
    """

    fanouts: tuple[int, ...]
    replace: bool = False
    seed: int = 0
    shared: bool = False

    def __post_init__(self) -> None:
        if any(f == 0 or f < -1 for f in self.fanouts):
            raise ConfigError(f"fanout {self.fanouts} must hold positive numbers, or -1 for all neighbours")
        if self.shared and len(set(self.fanouts)) > 1:
            raise ConfigError(f"one sample shared by all layers needs equal fanouts, got {self.fanouts}")

    def choose(self, partition: Partition, candidates: list[Candidates], receivers: Exchange, places: dict[int, np.ndarray], *,
               layer: int, reverse: bool, step: int) -> list[Candidates]:
        """Keep a sample of the edges of each receiving row.

        Args:
            candidates: All edges of one pass, by block.
            receivers: Moves of the receiving rows that have candidates.
            places: Row in those moves of each group of edges, by the kind of the receiving rows; anything without edges.
            layer, reverse, step: Words of the key.

        Collective: all ranks of the partition.
        """
        fanout = self.fanouts[layer]
        if fanout < 0:
            return candidates
        k = np.uint64(key(self.seed, Purpose.SAMPLE, step, 0 if self.shared else layer, int(reverse)))
        ids = [partition.edge_gid[c.block.start + c.edges] for c in candidates]
        low = {MASTER: np.full((receivers.plan.n_rows, fanout), _LAST), MIRROR: np.full((receivers.plan.n_halo, fanout), _LAST)}
        degree = {kind: np.zeros(len(x), np.int64) for kind, x in low.items()}
        for c, gid in zip(candidates, ids, strict=True):
            kind = c.kinds[1]
            (sample.lowest_each if self.replace else sample.lowest)(c.ptr, places[kind], gid, k, low[kind], degree[kind])

        def merge(rows: np.ndarray, other: Columns) -> None:
            low[MASTER][rows] = self._merged(low[MASTER][rows], other["low"])
            degree[MASTER][rows] += other["degree"]

        receivers.to_masters_begin({"low": low[MIRROR], "degree": degree[MIRROR]}).end(merge)
        cut = low if self.replace else {kind: x[:, -1] for kind, x in low.items()}
        back = receivers.to_mirrors({"cut": cut[MASTER], "degree": degree[MASTER]})
        cut[MIRROR], degree[MIRROR] = back["cut"], back["degree"]
        return [self._cut(c, gid, k, places[c.kinds[1]], np.ascontiguousarray(cut[c.kinds[1]]), degree[c.kinds[1]], fanout)
                for c, gid in zip(candidates, ids, strict=True)]

    def _merged(self, mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        if self.replace:
            return np.minimum(mine, theirs)
        return np.sort(np.concatenate((mine, theirs), axis=1), axis=1)[:, : mine.shape[1]]

    def _cut(self, c: Candidates, ids: np.ndarray, k: np.uint64, place: np.ndarray, cut: np.ndarray, degree: np.ndarray,
             fanout: int) -> Candidates:
        times = (sample.times_each if self.replace else sample.times_low)(c.ptr, place, ids, k, cut)
        # a row that keeps all its edges needs no scale; rows without edges may have no place
        share = degree if self.replace else np.maximum(degree, fanout)
        return c.kept(times, share[place] / fanout if len(share) else np.zeros(len(place)))
