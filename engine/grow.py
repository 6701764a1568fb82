"""Building views: by breadth-first search from targets, or induced by a set of nodes.

The search goes from the last superstep to the first. At each, the masters of receiving rows tell their mirrors, every
worker marks the senders of its in-edges, and mirrors that were marked tell their masters. The lists exchanged on the
way are the restricted move plans of the view. What travels is one number per active (master, mirror) pair.
"""
from __future__ import annotations

import numpy as np

from ..ops.space import RowSpace
from .exchange import Exchange, MovePlan
from .partition import MASTER, MIRROR, Partition
from .sampler import NeighbourSampler, Places, keep_edges
from .view import GraphView, Level, Maps, Pass, Selection, directions, halo_map, plans

Chosen = tuple[list[Selection], MovePlan, np.ndarray, MovePlan, np.ndarray]


def grow(partition: Partition, targets: np.ndarray, layers: list[str], *, sampler: NeighbourSampler | None = None,
         excluded: np.ndarray | None = None, step: int = 0) -> GraphView:
    """The view that computes the last superstep for the target nodes and everything they depend on.

    Args:
        targets: Mask of the masters, [n_masters] bool.
        layers: Direction of each superstep, first to last.
        sampler: Keeps a sample of the in-edges; None keeps all.
        excluded: Mask of local edges in storage order that no message may use, or None.
        step: Number of the training step, for the sampler's draws.

    Collective: all ranks of the partition.
    """
    masks, found = [targets], []
    for layer in range(len(layers) - 1, -1, -1):
        reached, passes = masks[-1].copy(), []
        for reverse in directions(layers[layer]):
            chosen = _choose(partition, masks[-1], reverse, sampler, excluded, layer, step)
            _mark_senders(chosen, reached)
            passes.append(chosen)
        masks.append(reached)
        found.append(passes)
    masks.reverse()
    found.reverse()
    return _assemble(partition, masks, found)


def induced(partition: Partition, nodes: np.ndarray, layers: list[str], *, excluded: np.ndarray | None = None) -> GraphView:
    """The view of a set of nodes and all edges between them; every superstep runs over all of it.

    Args:
        nodes: Mask of the masters, [n_masters] bool.

    Collective: all ranks of the partition.
    """
    by_direction = {}
    for direction in dict.fromkeys(layers):
        passes = []
        for reverse in directions(direction):
            inside = _mirror_mask(partition, nodes, not reverse)
            passes.append(_choose(partition, nodes, reverse, None, excluded, 0, 0, senders=inside))
        by_direction[direction] = passes
    return _assemble(partition, [nodes] * (len(layers) + 1), [by_direction[d] for d in layers])


def widen(partition: Partition, nodes: np.ndarray, hops: int) -> np.ndarray:
    """The nodes and everything within ``hops`` edges of them, against and along the edges, [n_masters] bool.

    Collective: all ranks of the partition.
    """
    for _ in range(hops):
        reached = nodes.copy()
        for reverse in (False, True):
            _mark_senders(_choose(partition, nodes, reverse, None, None, 0, 0), reached)
        nodes = reached
    return nodes


def _mirror_mask(partition: Partition, nodes: np.ndarray, reverse: bool) -> np.ndarray:
    """Which mirrors that receive in a pass are active, [n_mirrors] bool."""
    _, (plan, mirrors) = plans(partition, reverse)
    mask = np.zeros(partition.n_mirrors, bool)
    mask[mirrors] = Exchange(partition.comm, plan).to_mirrors({"on": nodes})["on"]
    return mask


def _choose(partition: Partition, receiving: np.ndarray, reverse: bool, sampler: NeighbourSampler | None, excluded: np.ndarray | None,
            layer: int, step: int, senders: np.ndarray | None = None) -> Chosen:
    """The edges of one pass into the receiving masters, and the restricted plans of both ends."""
    active = {MASTER: receiving, MIRROR: _mirror_mask(partition, receiving, reverse)}
    sending = None if senders is None else {MASTER: receiving, MIRROR: senders}
    (send_plan, send_mirrors), (recv_plan, recv_mirrors) = plans(partition, reverse)
    selections = []
    for block in partition.blocks:
        indptr = block.out_indptr if reverse else block.in_indptr
        rows = np.flatnonzero(active[block.src_kind if reverse else block.dst_kind])
        s = Selection(block, reverse, rows, np.concatenate(([0], np.cumsum(indptr[rows + 1] - indptr[rows]))))
        if sending is not None or excluded is not None:
            at = s.all_positions()
            keep = np.ones(len(at), bool) if sending is None else sending[s.kinds[0]][s.sender(at)]
            if excluded is not None:
                keep &= ~excluded[block.start + at]
            s = keep_edges(s, at, keep, None)
        selections.append(s)
    if sampler is not None:
        exchange, places = _candidates(partition, selections, receiving, recv_plan, recv_mirrors)
        selections = sampler.choose(partition, selections, exchange, places, layer=layer, reverse=reverse, step=step)
    used_senders, used_receivers = np.zeros(partition.n_mirrors, bool), _receiving_mirrors(partition, selections)
    for s in selections:
        if s.kinds[0] == MIRROR:
            used_senders[s.sender(s.all_positions())] = True
    senders_used, receivers_used = send_mirrors[used_senders[send_mirrors]], recv_mirrors[used_receivers[recv_mirrors]]
    return (selections,
            send_plan.restrict(partition.comm, np.flatnonzero(used_senders[send_mirrors])), senders_used,
            recv_plan.restrict(partition.comm, np.flatnonzero(used_receivers[recv_mirrors])), receivers_used)


def _receiving_mirrors(partition: Partition, selections: list[Selection]) -> np.ndarray:
    """Mirrors into which some chosen edge runs, [n_mirrors] bool."""
    used = np.zeros(partition.n_mirrors, bool)
    for s in selections:
        if s.kinds[1] == MIRROR:
            assert s.rows is not None
            used[s.rows[np.diff(s.ptr) > 0]] = True
    return used


def _candidates(partition: Partition, selections: list[Selection], receiving: np.ndarray, plan: MovePlan,
                mirrors: np.ndarray) -> tuple[Exchange, Places]:
    """Moves between the receiving masters and their mirrors with candidate edges, and the rows of both in them."""
    used = _receiving_mirrors(partition, selections)[mirrors]
    rows = np.flatnonzero(receiving)
    place = np.full(partition.n_masters, -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    restricted = plan.restrict(partition.comm, np.flatnonzero(used)).renumbered(place, len(rows))
    return Exchange(partition.comm, restricted), (place, halo_map(partition, mirrors[used]))


def _mark_senders(chosen: Chosen, reached: np.ndarray) -> None:
    """Mark the masters whose columns a pass reads at the sending end."""
    selections, send_plan = chosen[0], chosen[1]
    for s in selections:
        if s.kinds[0] == MASTER:
            reached[s.sender(s.all_positions())] = True
    reached[send_plan.rows] = True


def _assemble(partition: Partition, masks: list[np.ndarray], found: list[list[Chosen]]) -> GraphView:
    """Order the frame so that deeper active sets are prefixes, and renumber the plans."""
    depth = np.sum(masks, axis=0)
    rows = np.flatnonzero(masks[0])
    rows = rows[np.argsort(-depth[rows], kind="stable")]
    place = np.full(partition.n_masters, -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    sizes = [int(np.count_nonzero(m)) for m in masks]
    levels, known = [], {}
    for i, passes in enumerate(found):
        if (id(passes), sizes[i]) not in known:
            known[(id(passes), sizes[i])] = Level(sizes[i], sizes[i + 1], [_finish_pass(partition, c, place, sizes[i]) for c in passes])
        levels.append(known[(id(passes), sizes[i])])
    return GraphView(partition, levels, rows, RowSpace(partition.masters[rows]))


def _finish_pass(partition: Partition, chosen: Chosen, place: np.ndarray, n_in: int) -> Pass:
    selections, send_plan, senders, recv_plan, receivers = chosen
    maps = Maps(place, halo_map(partition, senders), halo_map(partition, receivers))
    comm = partition.comm
    sending, receiving = (Exchange(comm, plan.renumbered(place, n_in)) for plan in (send_plan, recv_plan))
    return Pass(partition, selections, maps, sending, receiving)
