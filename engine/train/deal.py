"""Independent mode: a group of views, expanded by all workers together, is dealt to one worker each.

View q of a group goes to worker q. Each worker sends it the structure of the view: the nodes and
edges that it owns, in one message for each kind of rows. Worker q puts them together to a view of
its own, over a partition without mirrors, fetches the features of its nodes (``fetch.py``), and
computes the view without messages:

    nodes     id, hop, narrow node columns: labels, masks, degrees and other single numbers
    edges     id, ends, edge columns; an edge that several hops use is sent once
    uses      sweep, number of the edge, importance weight
    pairs     id, ends, label, number of the edge if they are stored edges, else their columns

A sweep is a pass of a level. Nodes are ordered by hop and id, and the edges of a node by id, so the
numbers of a view do not depend on the number of workers or on the partition.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...ops.autodiff.space import RowSpace
from ...ops.kernels.batch import group
from ..partition.exchange import Exchange
from ..partition.message import Columns
from ..partition.partition import MASTER, NO_MIRRORS, Partition
from ..partition.relation import EDGE
from ..view.hop import Layers, depth, hops
from ..view.level import Counts, Level, Pass, Selection, tie_shift
from ..view.scored_pairs import PairPlan, Pairs
from ..view.view import GraphView
from .fetch import Features, request_bytes, row_bytes
from .local import local_partition
from .scatter import Received, scatter

# a column of the graph in a message, beside those of the engine
COLUMN = "column "
LARGEST = 1 << 31


def deal(views: Sequence[GraphView], layers: Layers, features: Features) -> GraphView:
    """The view of this worker, from a group of views that all workers have expanded.

    Args:
        views: At least one and at most one for each worker; in each, this worker's part.
        layers: The supersteps of the model.
        features: Fetches the wide columns.

    Returns:
        View number ``rank``; an empty view on a worker for which there is none.

    Collective: all ranks of the views' partition.
    """
    view = structure(views, layers)
    with views[0].partition.halo_comm.ledger.stage("fetch"):
        return complete(view, views[0].partition, *features.fetch([view.partition.masters]))


def structure(views: Sequence[GraphView], layers: Layers) -> GraphView:
    """The view of this worker without the wide node columns; arguments and result are those of ``deal``.

    Collective: all ranks of the views' partition.
    """
    weighted, parts = _parts(views, layers)
    received = scatter(views[0].partition.halo_comm, list(zip(*parts, strict=True)))
    counts = [Counts(*np.sum([level.counts[:3] for level in same], axis=0).tolist()) for same in zip(*map(_levels, views), strict=True)]
    return _unpacked(views[0], layers, received, weighted, counts)


def members(views: Sequence[GraphView]) -> np.ndarray:
    """Global ids of the nodes of this worker's view, in the order in which ``deal`` would fetch them; arguments as for ``deal``.

    Collective: all ranks of the views' partition.
    """
    comm, none = views[0].partition.halo_comm, np.zeros(0, np.int64)
    return np.concatenate(comm.all_to_all([views[q].space.gid if q < len(views) else none for q in range(comm.size)]))


def complete(view: GraphView, partition: Partition, wide: Mapping[str, Any]) -> GraphView:
    """A view with its wide columns.

    Args:
        view: The result of ``structure``.
        partition: The partition of the views it was dealt from.
        wide: Rows of the masters of the view's partition, by name.
    """
    local = view.partition
    return replace(view, partition=replace(local, node=local.node.joined(partition.node.filled(local.n_masters, wide))))


def dealt_bytes(views: Sequence[GraphView], layers: Layers) -> int:
    """Bytes that this worker would send to deal a group of views and to fetch its features; arguments as for ``structure``.

    Without those of a directory that is distributed.

    Collective: all ranks of the views' partition.
    """
    p = views[0].partition
    rank, nodes = p.halo_comm.rank, p.halo_comm.all_sum(np.array([view.space.n for view in views]))
    sent = sum(x.nbytes for q, part in enumerate(_parts(views, layers)[1]) if q != rank for kind in part for x in kind.values())
    sent += sum(int(row_bytes(p, view.rows).sum()) for q, view in enumerate(views) if q != rank)
    return sent + (request_bytes(p, int(nodes[rank]) - views[rank].space.n) if rank < len(views) else 0)


def _levels(view: GraphView) -> list[Level]:
    """The levels of a view, each once, in the order of calls."""
    return list({id(level): level for level in view.levels}.values())


def sweeps_of(view: GraphView) -> list[Pass]:
    """The passes of the levels of a view, each level once."""
    return [p for level in _levels(view) for p in level.passes]


# ---- sending


def _parts(views: Sequence[GraphView], layers: Layers) -> tuple[np.ndarray, list[list[Columns]]]:
    """Whether each sweep has importance weights in any view, and what each worker gets from this one."""
    comm = views[0].partition.halo_comm
    given = np.array([[any(s.weight is not None for s in p.selections) for p in sweeps_of(view)] for view in views], bool)
    weighted = comm.all_max(np.any(given, axis=0, keepdims=True))[0]
    parts = [packed(view, layers, bool(weighted.any())) for view in views]
    nothing = [{name: x[:0] for name, x in kind.items()} for kind in parts[0]]
    return weighted, [*parts, *[nothing] * (comm.size - len(views))]


def packed(view: GraphView, layers: Layers, weighted: bool) -> list[Columns]:
    """This worker's rows of a view as messages: nodes, edges, uses, and pairs if there are any.

    Args:
        view: The view.
        layers: The supersteps of the model.
        weighted: Whether uses have importance weights.
    """
    p, sweeps = view.partition, sweeps_of(view)
    uses = [s.stored for sweep in sweeps for s in sweep.selections]
    pairs = None if view.pairs is None else view.pairs.pairs
    paired = [] if pairs is None or pairs.stored is None else [pairs.stored]
    stored, number = np.unique(np.concatenate([np.zeros(0, np.int64), *uses, *paired]), return_inverse=True)
    number, n_uses = number.astype(np.int32), sum(map(len, uses))
    # half the bytes wherever node ids fit
    src, dst = (x.astype(np.int32) if p.n_nodes <= LARGEST else x for x in p.ends_of(stored))
    edges = {"gid": p.edge_gid[stored], "src": src, "dst": dst, **_read(p.edge, p.edge.names(), stored)}
    used = {"edge": number[:n_uses],
            "sweep": np.repeat(np.arange(len(sweeps), dtype=np.int16), [sum(s.n_edges for s in sweep.selections) for sweep in sweeps])}
    if weighted:
        weights = [np.ones(s.n_edges) if s.weight is None else s.weight for sweep in sweeps for s in sweep.selections]
        used["weight"] = np.concatenate([np.zeros(0), *weights])
    if pairs is None:
        return [_nodes(view, layers), edges, used]
    ends = {"gid": pairs.gid, "src": pairs.src, "dst": pairs.dst, "label": pairs.label} | {COLUMN + n: x for n, x in pairs.columns.items()}
    return [_nodes(view, layers), edges, used, ends | ({"edge": number[n_uses:]} if paired else {})]


def _nodes(view: GraphView, layers: Layers) -> Columns:
    """The nodes of a view with their narrow columns."""
    hop = np.repeat(np.arange(depth(layers) + 1, dtype=np.int16), np.diff([0, *_sizes(view, layers)]))
    store = view.partition.node
    return {"gid": view.space.gid, "hop": hop, **_read(store, store.narrow(), view.rows)}


def _sizes(view: GraphView, layers: Layers) -> list[int]:
    """Number of rows at the end of the model, one hop before it, and so on."""
    sizes = [view.space.n] * (depth(layers) + 1)
    for hop, level in zip(hops(layers), view.levels, strict=True):
        sizes[hop.from_end] = level.n_out
    return sizes


def _read(store: Any, names: Iterable[str], rows: np.ndarray | None) -> Columns:
    """Rows of some columns of a store, by their names in messages."""
    return {COLUMN + name: read.end() for name, read in store.read_begin(names, rows).items()}


# ---- receiving


def _unpacked(like: GraphView, layers: Layers, received: list[Received], weighted: np.ndarray, counts: list[Counts]) -> GraphView:
    """The view of the received rows.

    Args:
        like: Any view of the group.
        weighted: Whether the edges of each sweep have importance weights.
        counts: Size of each level, over all views of the group.
    """
    nodes, edges, uses, *pairs = received
    gid, hop = nodes.columns["gid"], nodes.columns["hop"]
    rows = np.argsort(hop.astype(np.int64) * like.partition.n_nodes + gid)
    row_of = _inverse(rows)
    by_id = np.argsort(edges.columns["gid"])
    local = local_partition(like.partition, gid, _given(nodes), edges.columns["gid"][by_id],
                            {name: x[by_id] for name, x in _given(edges).items()})
    ends = [row_of[local.directory.row(edges.columns[end][by_id])] for end in ("src", "dst")]
    position = _inverse(by_id)
    chosen = _positions(uses, edges, position)
    weight = uses.columns.get("weight")
    sizes = np.cumsum(np.bincount(hop, minlength=depth(layers) + 1)).tolist()
    made: dict[int, Level] = {}
    sweep = 0
    for place, level in zip(hops(layers), like.levels, strict=True):
        if id(level) in made:
            continue
        n_out, n_in = sizes[place.from_end: place.from_end + 2]
        passes = []
        for p in level.passes:
            at = np.flatnonzero(uses.columns["sweep"] == sweep)
            its_weight = weight[at] if weight is not None and weighted[sweep] else None
            passes.append(_pass(local, p.reverse, chosen[at], its_weight, ends, n_in, n_out))
            sweep += 1
        made[id(level)] = Level(n_in, n_out, passes, level.direction, counts=counts[len(made)])
    view = GraphView(local, [made[id(level)] for level in like.levels], rows, RowSpace(gid[rows]))
    return replace(view, pairs=_pairs(local, pairs[0], edges, position).level(row_of, view.n_targets)) if pairs else view


def _given(received: Received) -> Columns:
    """The columns of the graph among those of a message, by their own names."""
    return {name.removeprefix(COLUMN): x for name, x in received.columns.items() if name.startswith(COLUMN)}


def _pass(local: Partition, reverse: bool, edges: np.ndarray, weight: np.ndarray | None, ends: list[np.ndarray], n_in: int,
          n_out: int) -> Pass:
    """The pass over some edges, by receiving row and id.

    Args:
        edges: Storage positions, in any order.
        weight: Their importance weights, or None.
        ends: Frame rows of the sources and destinations of all edges.
        n_in, n_out: Number of rows that may send and receive.
    """
    relation = local.relations[EDGE]
    send, receive = ends[::-1] if reverse else ends
    of_edge = np.full(len(relation.gid), -1, np.int32)
    of_edge[edges] = np.arange(len(edges), dtype=np.int32)
    by_id = np.flatnonzero(of_edge >= 0).astype(np.int32)
    ptr, _, order = group(np.array([0, len(by_id)]), np.zeros(1, np.int32), receive[by_id], n_out)
    by_receiver, row = by_id[order], np.flatnonzero(np.diff(ptr)).astype(np.int32)
    selection = Selection((MASTER, MASTER), row, np.append(ptr[row], ptr[-1]), send[by_receiver], n_in, relation.gid, 0, by_receiver,
                          None if weight is None else weight[of_edge[by_receiver]], tie_shift(relation, reverse))
    exchange = Exchange(local.halo_comm, NO_MIRRORS.plan)
    return Pass(relation, reverse, [selection] if len(edges) else [], exchange, exchange)


def _pairs(local: Partition, pairs: Received, edges: Received, position: np.ndarray) -> PairPlan:
    """The received pairs: those of one worker after those of another, so that groups stay together."""
    x = pairs.columns
    stored = _positions(pairs, edges, position) if "edge" in x else None
    return PairPlan(local, Pairs(x["src"], x["dst"], x["gid"], stored, x["label"], _given(pairs)))


def _positions(of: Received, edges: Received, position: np.ndarray) -> np.ndarray:
    """Storage positions of edges, which messages number among those of their sender."""
    return position[np.repeat(edges.ptr[:-1], np.diff(of.ptr)) + of.columns["edge"]]


def _inverse(order: np.ndarray) -> np.ndarray:
    """The position of each number in a permutation, int32."""
    out = np.empty(len(order), np.int32)
    out[order] = np.arange(len(order), dtype=np.int32)
    return out
