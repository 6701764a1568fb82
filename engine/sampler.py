"""Neighbour sampling, keyed by global edge ids.

Every in-edge of a node draws hash(seed, step, layer, edge id). Without replacement the node keeps the ``fanout`` edges
with the lowest draws; with replacement it draws ``fanout`` times and keeps, each time, the edge whose draw is lowest.
The lowest of the lowest is a monoid like any aggregator, so the edges of a node may be spread over workers: each
sends its own lowest draws to the master, which sends back where to cut. The chosen sets are the same for every
number of workers and every partition.

Source: uniform neighbour sampling of GraphSAGE, https://arxiv.org/abs/1706.02216; lowest draws as bottom-k sketches.
"""
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graphtheta.errors import ConfigError
from graphtheta.rng import Purpose, bits, key

from .exchange import Columns, Exchange
from .partition import MASTER, MIRROR, Partition
from .view import Selection

Places = tuple[np.ndarray, np.ndarray]

_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)


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

    def choose(self, partition: Partition, selections: list[Selection], receivers: Exchange, places: Places, *,
               layer: int, reverse: bool, step: int) -> list[Selection]:
        """Keep a sample of the edges of each receiving row.

        Args:
            selections: All candidate edges of one pass, by block.
            receivers: Moves of the receiving rows that have candidates.
            places: Row in those moves of each master and of each mirror.
            layer, reverse, step: Words of the key.

        Collective: all ranks of the partition.
        """
        fanout = self.fanouts[layer]
        if fanout < 0:
            return selections
        k = key(self.seed, Purpose.SAMPLE, step, 0 if self.shared else layer, int(reverse))
        if self.replace:
            return _with_replacement(partition, selections, receivers, places, fanout, k)
        return _without_replacement(partition, selections, receivers, places, fanout, k)


def _draws(partition: Partition, s: Selection, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions, receiving rows and draws of all edges of a selection."""
    at = s.all_positions()
    rows = np.repeat(np.arange(len(s.ptr) - 1) if s.rows is None else s.rows, np.diff(s.ptr))
    return at, rows, bits(k, partition.edge_gid[s.block.start + at])


def _without_replacement(partition: Partition, selections: list[Selection], receivers: Exchange, places: Places,
                         fanout: int, k: int) -> list[Selection]:
    drawn = [_draws(partition, s, k) for s in selections]
    sketch = {MASTER: _sketch(receivers.plan.n_rows, fanout), MIRROR: _sketch(receivers.plan.n_halo, fanout)}
    for s, (_, rows, draws) in zip(selections, drawn, strict=True):
        kind = s.kinds[1]
        _take_lowest(sketch[kind], places[kind][rows], draws)

    def merge(rows: np.ndarray, other: Columns) -> None:
        mine = sketch[MASTER]
        mine["low"][rows] = np.sort(np.concatenate((mine["low"][rows], other["low"]), axis=1), axis=1)[:, :fanout]
        mine["degree"][rows] += other["degree"]

    receivers.to_masters_begin(sketch[MIRROR]).end(merge)
    cut = {MASTER: {"last": sketch[MASTER]["low"][:, -1], "degree": sketch[MASTER]["degree"]}}
    cut[MIRROR] = receivers.to_mirrors(cut[MASTER])
    chosen = []
    for s, (at, rows, draws) in zip(selections, drawn, strict=True):
        kind = s.kinds[1]
        here = cut[kind]
        place = places[kind][rows]
        degree = here["degree"][place]
        chosen.append(keep_edges(s, at, draws <= here["last"][place], np.maximum(degree, fanout) / fanout))
    return chosen


def _sketch(n: int, fanout: int) -> Columns:
    return {"low": np.full((n, fanout), _LAST), "degree": np.zeros(n, np.int64)}


def _take_lowest(sketch: Columns, rows: np.ndarray, draws: np.ndarray) -> None:
    """Merge the lowest draws of each row into the sketch."""
    if not len(rows):
        return
    fanout = sketch["low"].shape[1]
    order = np.lexsort((draws, rows))
    row, draw = rows[order], draws[order]
    first = np.flatnonzero(np.concatenate(([True], row[1:] != row[:-1])))
    counts = np.diff(first, append=len(row))
    rank = np.arange(len(row)) - np.repeat(first, counts)
    low = np.full((len(first), fanout), _LAST)
    keep = rank < fanout
    low[np.repeat(np.arange(len(first)), counts)[keep], rank[keep]] = draw[keep]
    at = row[first]
    sketch["low"][at] = np.sort(np.concatenate((sketch["low"][at], low), axis=1), axis=1)[:, :fanout]
    sketch["degree"][at] += counts


def _with_replacement(partition: Partition, selections: list[Selection], receivers: Exchange, places: Places,
                      fanout: int, k: int) -> list[Selection]:
    lowest = {MASTER: np.full((receivers.plan.n_rows, fanout), _LAST), MIRROR: np.full((receivers.plan.n_halo, fanout), _LAST)}
    degree = {MASTER: np.zeros(receivers.plan.n_rows, np.int64), MIRROR: np.zeros(receivers.plan.n_halo, np.int64)}
    drawn = []
    for s in selections:
        at, rows, _ = _draws(partition, s, k)
        draws = bits(k, partition.edge_gid[s.block.start + at], fanout)
        kind = s.kinds[1]
        place = places[kind][rows]
        drawn.append((at, place, draws))
        if len(at):
            first = np.flatnonzero(np.concatenate(([True], place[1:] != place[:-1])))
            lowest[kind][place[first]] = np.minimum(lowest[kind][place[first]], np.minimum.reduceat(draws, first, axis=0))
            degree[kind][place[first]] += np.diff(first, append=len(place))

    def merge(rows: np.ndarray, other: Columns) -> None:
        lowest[MASTER][rows] = np.minimum(lowest[MASTER][rows], other["low"])
        degree[MASTER][rows] += other["degree"]

    receivers.to_masters_begin({"low": lowest[MIRROR], "degree": degree[MIRROR]}).end(merge)
    back = receivers.to_mirrors({"low": lowest[MASTER], "degree": degree[MASTER]})
    lowest[MIRROR], degree[MIRROR] = back["low"], back["degree"]
    chosen = []
    for s, (at, place, draws) in zip(selections, drawn, strict=True):
        kind = s.kinds[1]
        times = np.count_nonzero(draws == lowest[kind][place], axis=1)
        chosen.append(keep_edges(s, at, times > 0, times * degree[kind][place] / fanout))
    return chosen


def keep_edges(s: Selection, at: np.ndarray, keep: np.ndarray, scale: np.ndarray | None) -> Selection:
    """The selection reduced to the edges (at block positions ``at``) marked in ``keep``."""
    counts = np.concatenate(([0], np.cumsum(keep)))[s.ptr]
    assert s.scale is None, "edges are excluded before they are sampled"
    return replace(s, ptr=counts, edges=at[keep], scale=None if scale is None else scale[keep])
