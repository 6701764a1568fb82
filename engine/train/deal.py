"""Independent mode: a group of views, searched by all workers together, is dealt to one worker
each.

View q of a group goes to worker q. Each worker sends it the structure of the view: its part, see
``parts.py``, in one message for each kind of rows. Worker q puts the parts together to a view of
its own, over a partition without mirrors, fetches the features of its nodes (``fetch.py``), and
computes the view without messages.

Nodes are ordered by hop and id, and the edges of a node by id, so the numbers of a view do not
depend on the number of workers or on the partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...ops.autodiff.space import RowSpace
from ...ops.kernels.batch import group
from ...ops.kernels.sampling.received import NONE, by_receiver, place, positions
from ..comm.serial import LocalComm
from ..partition.directory import LocalDirectory
from ..partition.exchange import Exchange
from ..partition.message import Columns
from ..partition.partition import MASTER, NO_MIRRORS, Partition
from ..partition.relation import EDGE, StoredRelation
from ..view.hop import Layers, depth
from ..view.level import Level, Pass, Selection, tie_shift
from ..view.scored_pairs import PairPlan, ScoredPairs
from ..view.view import GraphView
from .fetch import Features, request_bytes, row_bytes
from .parts import COLUMN, ROWS, Parts, bytes_of, parts_of_views, typed_columns
from .scatter import Received, scatter


def deal(parts: Parts, layers: Layers, features: Features) -> GraphView:
    """The view of this worker, from a group of views that all workers have searched.

    Args:
        parts: This worker's parts of at least one view and at most one for each worker.
        layers: The supersteps of the model.
        features: Fetches the wide columns.

    Returns:
        View number ``rank``; an empty view on a worker for which there is none.

    Collective: all ranks of the views' partition.
    """
    view = structure(parts, layers)
    with parts.partition.halo_comm.ledger.stage("fetch"):
        return complete(view, parts.partition, *features.fetch([view.partition.masters]))


def structure(parts: Parts, layers: Layers) -> GraphView:
    """The view of this worker without the wide node columns; arguments and result are those of
    ``deal``.

    Collective: all ranks of the views' partition.
    """
    comm = parts.partition.halo_comm
    return _unpacked(
        parts,
        layers,
        scatter(comm, parts.kinds, [_for_all(ptr, comm.size) for ptr in parts.bounds]),
    )


def members(parts: Parts) -> np.ndarray:
    """Global ids of the nodes of this worker's view, in the order in which ``deal`` would fetch
    them; arguments as for ``deal``.

    Collective: all ranks of the views' partition.
    """
    gid, ptr = parts.nodes
    comm = parts.partition.halo_comm
    return np.concatenate(comm.all_to_all(np.split(gid, _for_all(ptr, comm.size)[1:-1])))


def _for_all(ptr: np.ndarray, size: int) -> np.ndarray:
    """Bounds of the rows of each worker, given those of each view."""
    return np.pad(ptr, (0, size + 1 - len(ptr)), mode="edge")


def complete(view: GraphView, partition: Partition, wide: Mapping[str, Any]) -> GraphView:
    """A view with its wide columns.

    Args:
        view: The result of ``structure``.
        partition: The partition of the views it was dealt from.
        wide: Rows of the masters of the view's partition, by name.
    """
    local = view.partition
    return replace(
        view,
        partition=replace(
            local, node=local.node.joined(partition.node.filled(local.n_masters, wide))
        ),
    )


def dealt_bytes(views: Sequence[GraphView], layers: Layers) -> int:
    """Bytes that this worker would send to deal a group of views and to fetch its features, with
    those of no directory.

    Args:
        views: At least one and at most one for each worker; in each, this worker's part.
        layers: The supersteps of the model.

    Collective: all ranks of the views' partition.
    """
    p = views[0].partition
    rank = p.halo_comm.rank
    nodes = p.halo_comm.all_sum(np.array([view.space.n for view in views]))
    sent = bytes_of(parts_of_views(views, layers))
    fetched = sum(int(row_bytes(p, view.rows).sum()) for q, view in enumerate(views) if q != rank)
    asked = request_bytes(p, int(nodes[rank]) - views[rank].space.n) if rank < len(views) else 0
    return int(sent.sum() - sent[rank : rank + 1].sum()) + fetched + asked


# ---- receiving


def _unpacked(parts: Parts, layers: Layers, received: list[Received]) -> GraphView:
    """The view of the received rows."""
    nodes, edges, uses, *others = received
    edge, pairs = _of_edges(parts, edges, others)
    gid, hop = nodes.columns["gid"], nodes.columns["hop"]
    rows = np.argsort(hop.astype(np.int64) * parts.partition.n_nodes + gid)
    by_id = np.argsort(edges.columns["gid"])
    row_of = _inverse(rows)
    position = _inverse(by_id)
    local = local_partition(
        partition=parts.partition,
        masters=gid,
        node=_given(nodes),
        edges=edges.columns["gid"][by_id],
        edge={name: x[by_id] for name, x in edge.items()},
    )
    ends = [np.empty(len(by_id), np.int32) for _ in range(2)]
    for end, out in zip(("src", "dst"), ends, strict=True):
        place(local.directory.row(edges.columns[end]), row_of, position, out)
    levels = _levels(
        parts=parts,
        local=local,
        uses=uses,
        chosen=_positions(uses, edges, position),
        ends=ends,
        sizes=np.cumsum(np.bincount(hop, minlength=depth(layers) + 1)).tolist(),
    )
    view = GraphView(local, [levels[i] for i in parts.of_superstep], rows, RowSpace(gid[rows]))
    return (
        replace(view, pairs=_pairs(local, pairs[0], edges, position).level(row_of, view.n_targets))
        if pairs
        else view
    )


def _levels(
    parts: Parts,
    local: Partition,
    uses: Received,
    chosen: np.ndarray,
    ends: list[np.ndarray],
    sizes: list[int],
) -> list[Level]:
    """The levels of the view: of each sweep over the edges, those that it uses.

    Args:
        parts: The parts of the views of the group.
        local: The worker's own partition of the view.
        uses: Which edge is used in which sweep.
        chosen: Position of the edge of each use.
        ends: Rows of the sources and of the destinations of all edges, by position.
        sizes: Number of rows up to each hop.
    """
    weight = uses.columns.get("weight")
    bounds, _, by_sweep = group(
        np.array([0, len(chosen)]),
        np.zeros(1, np.int32),
        uses.columns["sweep"],
        len(parts.weighted),
    )
    marks = np.full(len(ends[0]), NONE, np.int32)
    levels: list[Level] = []
    sweep = 0
    for (at, reverses), counts in zip(parts.levels, parts.counts, strict=True):
        n_out, n_in = sizes[at.from_end : at.from_end + 2]
        passes = []
        for reverse in reverses:
            of_sweep = by_sweep[bounds[sweep] : bounds[sweep + 1]]
            edges_by_receiver = by_receiver(
                of_sweep, chosen, *(ends if reverse else ends[::-1]), marks, n_out
            )
            passes.append(
                _pass(
                    local=local,
                    reverse=reverse,
                    edges_by_receiver=edges_by_receiver,
                    weight=weight if weight is not None and parts.weighted[sweep] else None,
                    n_in=n_in,
                )
            )
            sweep += 1
        levels.append(Level(n_in, n_out, passes, at.direction, counts=counts))
    return levels


def _of_edges(
    parts: Parts, edges: Received, others: list[Received]
) -> tuple[dict[str, Any], list[Received]]:
    """The columns of the edges by name, with the rows of those at the widths of types, and what
    remains of the other kinds: pairs, if there are any.
    """
    columns: dict[str, Any] = dict(_given(edges))
    typed = typed_columns(parts.partition)
    count = sum(part.shape[1] > 0 for like in typed.values() for part in like.parts)
    rest, rows = others[: len(others) - count], iter(others[len(others) - count :])
    for name, like in typed.items():
        kind = columns[name]
        blocks = [
            next(rows).columns[ROWS]
            if part.shape[1]
            else np.zeros((np.count_nonzero(kind == code), 0), like.dtype)
            for code, part in enumerate(like.parts)
        ]
        columns[name] = like.of_kind(kind, blocks)
    return columns, rest


def _given(received: Received) -> Columns:
    """The columns of the graph among those of a message, by their own names."""
    return {
        name.removeprefix(COLUMN): x
        for name, x in received.columns.items()
        if name.startswith(COLUMN)
    }


def _pass(
    local: Partition,
    reverse: bool,
    edges_by_receiver: tuple[np.ndarray, ...],
    weight: np.ndarray | None,
    n_in: int,
) -> Pass:
    """The pass over some edges, by receiving row and id.

    Args:
        edges_by_receiver: The result of ``by_receiver``.
        weight: Importance weights of all uses, or None.
        n_in: Number of rows that may send.
    """
    relation = local.relations[EDGE]
    row, ptr, other, edges, use = edges_by_receiver
    selection = Selection(
        kinds=(MASTER, MASTER),
        row=row,
        ptr=ptr,
        other=other,
        n_senders=n_in,
        gid=relation.gid,
        start=0,
        edges=edges,
        weight=None if weight is None else weight[use],
        tie_shift=tie_shift(relation, reverse),
    )
    exchange = Exchange(local.halo_comm, NO_MIRRORS.plan)
    return Pass(
        relation=relation,
        reverse=reverse,
        selections=[selection] if len(edges) else [],
        senders=exchange,
        receivers=exchange,
    )


def _pairs(local: Partition, pairs: Received, edges: Received, position: np.ndarray) -> PairPlan:
    """The received pairs, one worker's after another's, so that groups stay together."""
    x = pairs.columns
    stored = _positions(pairs, edges, position) if "edge" in x else None
    return PairPlan(
        local,
        ScoredPairs(
            src=x["src"],
            dst=x["dst"],
            gid=x["gid"],
            stored=stored,
            label=x["label"],
            columns=_given(pairs),
        ),
    )


def _positions(of: Received, edges: Received, position: np.ndarray) -> np.ndarray:
    """Storage positions of edges, which messages number among those of their sender, int32."""
    out = np.empty(len(of.columns["edge"]), np.int32)
    positions(of.columns["edge"], of.ptr, edges.ptr, position, out)
    return out


def _inverse(order: np.ndarray) -> np.ndarray:
    """The position of each number in a permutation, int32."""
    out = np.empty(len(order), np.int32)
    out[order] = np.arange(len(order), dtype=np.int32)
    return out


def local_partition(
    partition: Partition,
    masters: np.ndarray,
    node: Mapping[str, Any],
    edges: np.ndarray,
    edge: Mapping[str, Any],
) -> Partition:
    """A partition whose nodes and edges belong to this worker alone.

    Its edges have no blocks, so views of it are made from lists of edges and not by a search.

    Args:
        partition: This worker's part of the graph; the workers that share parameters remain its.
        masters: Global ids of the nodes, [n] int64, none twice.
        node: Columns of ``partition.node`` for these nodes, by name; others are left out.
        edges: Global ids of the edges, [m] int64, none twice.
        edge: All columns of ``partition.edge`` for these edges.
    """
    stored = StoredRelation(
        EDGE,
        edges,
        True,
        n_edges=partition.relations[EDGE].n_edges,
        blocks=[],
        sources=NO_MIRRORS,
        destinations=NO_MIRRORS,
    )
    return Partition(
        halo_comm=LocalComm(partition.job_comm),
        n_nodes=partition.n_nodes,
        n_edges=partition.n_edges,
        gid=masters,
        n_masters=len(masters),
        directory=LocalDirectory(masters),
        relations={EDGE: stored},
        node=partition.node.filled(len(masters), node),
        edge=partition.edge.filled(len(edges), edge),
        job_comm=partition.job_comm,
        short=partition.short,
    )
