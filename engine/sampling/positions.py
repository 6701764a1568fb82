"""Positions of edges: the number of each edge among all edges into its receiving node.

Edges are numbered in the order of their global ids, over all workers, so that an edge has the same
position in every partition. A sampler that draws positions needs no list of the edges of a node.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...ops.kernels.sampling.draw import sort_rows
from ...ops.parallel.pool import run_blocks
from ..partition.exchange import Exchange, pointers
from ..partition.message import Columns
from ..partition.partition import MASTER, MIRROR, Partition
from ..partition.relation import EdgeBlock, Places, Positions, StoredRelation
from .row_blocks import row_blocks

# a thread sorts rows with about so many edges at a time
EDGES_PER_BLOCK = 1 << 18
_NONE = np.zeros(0, np.int32)


def positions_of(partition: Partition, relation: StoredRelation, reverse: bool) -> Positions:
    """Positions of the edges at the receiving ends of a pass; computed at the first call.

    Collective: at the first call, all ranks of the partition.
    """
    if reverse not in relation.positions:
        relation.positions[reverse] = _positions(partition, relation, reverse)
    return relation.positions[reverse]


class _Sorted(NamedTuple):
    """Edges by row, and by global id within each row.

    Attributes:
        rows: The rows, each once, [n].
        ptr: Bounds of their edges, [n + 1].
        gid: Global ids, [n_edges].
        order: Number of each edge in the order it had before; empty if that was the same.
    """

    rows: np.ndarray
    ptr: np.ndarray
    gid: np.ndarray
    order: np.ndarray

    @classmethod
    def of(cls, relation: StoredRelation, block: EdgeBlock, reverse: bool) -> _Sorted:
        """The edges of a block by receiving row."""
        gid = relation.gid[block.start : block.start + block.n_edges]
        ptr, gid = (block.out_indptr, gid[block.out_edge]) if reverse else (block.in_indptr, gid)
        order = _order(ptr, gid)
        return cls(np.arange(len(ptr) - 1), ptr, gid[order] if len(order) else gid, order)


class _Merged(NamedTuple):
    """Several lists of edges as one, by row and by global id.

    Attributes:
        ptr: Bounds of the edges of each row, [n + 1].
        gid: Global ids, [n_edges].
        at: For each list the place of its edges in the merged one.
    """

    ptr: np.ndarray
    gid: np.ndarray
    at: list[np.ndarray]

    @classmethod
    def of(cls, lists: list[_Sorted], n: int) -> _Merged:
        """The lists as one over n rows."""
        counts = np.zeros(n, np.int64)
        for x in lists:
            counts[x.rows] += np.diff(x.ptr)
        ptr = np.append(0, np.cumsum(counts))
        gid = np.empty(ptr[-1], np.int64)
        free = ptr[:-1].copy()
        slots: list[np.ndarray] = []
        for x in lists:
            each = np.diff(x.ptr)
            slots.append(np.repeat(free[x.rows] - x.ptr[:-1], each) + np.arange(len(x.gid)))
            gid[slots[-1]] = x.gid
            free[x.rows] += each
        order = _order(ptr, gid)
        if len(order):
            place = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            gid = gid[order]
            slots = [place[slot] for slot in slots]
        return cls(ptr, gid, slots)


def _positions(partition: Partition, relation: StoredRelation, reverse: bool) -> Positions:
    plan, mirrors = relation.served(reverse)[1]
    blocks = {b.kinds(False): b for b in relation.blocks if b.n_edges}
    by_row = {key: _Sorted.of(relation, b, reverse) for key, b in blocks.items()}
    listed = {key: _listed(b, reverse, by_row[key].order) for key, b in blocks.items()}
    kind_of = {key: b.kinds(reverse)[1] for key, b in blocks.items()}
    if not plan.anywhere and len(by_row) < 2:
        return Positions(
            {key: Places(x, _NONE) for key, x in listed.items()},
            dict.fromkeys((MASTER, MIRROR), np.zeros(0, np.int64)),
        )
    into_masters, into_mirrors = (
        [key for key, kind in kind_of.items() if kind == wanted] for wanted in (MASTER, MIRROR)
    )
    # every mirror that is a receiver here is one of ``mirrors``, so that a block has no other edges
    halo = _Merged.of(
        [
            by_row[key]._replace(
                rows=np.arange(len(mirrors)),
                ptr=np.append(by_row[key].ptr[mirrors], by_row[key].ptr[-1]),
            )
            for key in into_mirrors
        ],
        len(mirrors),
    )
    degree, at_masters, at_mirrors = _exchanged(
        Exchange(partition.halo_comm, plan), [by_row[key] for key in into_masters], halo
    )
    everywhere = {MASTER: degree[MASTER], MIRROR: np.zeros(partition.n_mirrors, np.int64)}
    everywhere[MIRROR][mirrors] = degree[MIRROR]
    position = dict(zip(into_masters, at_masters, strict=True)) | {
        key: at_mirrors[at] for key, at in zip(into_mirrors, halo.at, strict=True)
    }
    places = {}
    for key, x in by_row.items():
        here = np.diff(x.ptr)
        spread = ((here > 0) & (here < everywhere[kind_of[key]])).any()
        places[key] = Places(listed[key], position[key] if spread else _NONE)
    return Positions(places, everywhere)


def _exchanged(
    exchange: Exchange, into_masters: list[_Sorted], halo: _Merged
) -> tuple[dict[int, np.ndarray], list[np.ndarray], np.ndarray]:
    """Let masters number the edges of their mirrors together with their own.

    Args:
        exchange: Moves of the receiving rows.
        into_masters: Lists of edges into masters.
        halo: The edges into mirrors.

    Returns:
        Degrees of masters and of halo rows; the positions of the edges of each list of
        ``into_masters``, and of the merged edges of ``halo``, int32.
    """
    comm = exchange.comm
    plan = exchange.plan
    lists = list(into_masters)
    senders = np.flatnonzero(np.diff(plan.send_ptr))
    if plan.anywhere:
        received = comm.all_to_all([halo.gid[a:b] for a, b in pairwise(halo.ptr[plan.recv_ptr])])
        gids = iter([received[q] for q in senders])

        def merge(masters: np.ndarray, other: Columns) -> None:
            lists.append(_Sorted(masters, pointers(other["n"].tolist()), next(gids), _NONE))

        exchange.to_masters_begin({"n": np.diff(halo.ptr)}).end(merge)
    merged = _Merged.of(lists, plan.n_rows)
    positions = [
        (at - np.repeat(merged.ptr[x.rows], np.diff(x.ptr))).astype(np.int32)
        for x, at in zip(lists, merged.at, strict=True)
    ]
    degree = {MASTER: np.diff(merged.ptr)}
    degree[MIRROR] = exchange.to_mirrors({"n": degree[MASTER]})["n"]
    if not plan.anywhere:
        return degree, positions, _NONE
    answers = [_NONE] * comm.size
    for q, x in zip(senders, positions[len(into_masters) :], strict=True):
        answers[q] = x
    return degree, positions[: len(into_masters)], np.concatenate(comm.all_to_all(answers))


def _listed(block: EdgeBlock, reverse: bool, order: np.ndarray) -> np.ndarray:
    """Number and sending row of each edge in an order, [n_edges, 2] int32, one read for both; empty
    for the order of the block.
    """
    if not len(order):
        return np.zeros((0, 2), np.int32)
    edges, senders = (block.out_edge, block.out_dst) if reverse else (None, block.in_src)
    return np.stack((order if edges is None else edges[order], senders[order]), axis=1)


def _order(ptr: np.ndarray, gid: np.ndarray) -> np.ndarray:
    """The edges of each row by ascending id, [n_edges] int32; empty if they are in this order."""
    order = np.empty(len(gid), np.int32)
    cuts = row_blocks(ptr[1:], EDGES_PER_BLOCK)
    in_order = [True] * (len(cuts) - 1)

    def block(b: int) -> None:
        in_order[b] = sort_rows(ptr=ptr, values=gid, order=order, first=cuts[b], last=cuts[b + 1])

    run_blocks(block, len(in_order))
    return _NONE if all(in_order) else order
