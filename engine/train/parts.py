"""What each worker sends of the views of a group: the nodes that it owns, and the edges that it
stores.

    nodes     id, hop, narrow node columns: labels, masks, degrees and other single numbers
    edges     id, ends, edge columns; an edge that several hops use is sent once
    uses      sweep, number of the edge, importance weight
    pairs     id, ends, label, number of the edge if they are stored edges, else their columns

A sweep is a pass of a level.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from graphtheta.base.typed_rows import TypedRows
from graphtheta.errors import ConfigError

from ...ops.kernels.batch import group
from ..partition.exchange import pointers
from ..partition.message import Columns
from ..partition.partition import Partition
from ..strategy.neighbourhoods import ByView, Searched
from ..strategy.strategy import Strategy
from ..view.hop import Hop, Layers, depth, hops
from ..view.level import Counts, Level, Pass, passes_of
from ..view.scored_pairs import ScoredPairs
from ..view.view import GraphView

# a column of the graph in a message, beside those of the engine
COLUMN = "column "
# name of the rows of a type, in messages of their own
ROWS = "rows"
LARGEST = 1 << 31


@dataclass
class Parts:
    """This worker's part of the views of a group.

    Attributes:
        partition: What they are parts of.
        kinds: Columns of nodes, edges, uses, and pairs if there are any, then the rows of edge
            columns at the widths of types, for each type: the rows of one view after those of
            another.
        bounds: Bounds of the views in each kind, [views + 1].
        levels: Position and direction of each level, and whether the messages of each of its passes
            run against the edges.
        of_superstep: Level of each superstep.
        weighted: Whether the edges of each sweep have importance weights, on any worker.
        counts: Size of each level, over all views and workers.
    """

    partition: Partition
    kinds: list[Columns]
    bounds: list[np.ndarray]
    levels: list[tuple[Hop, list[bool]]]
    of_superstep: list[int]
    weighted: np.ndarray
    counts: list[Counts]

    @property
    def nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """Global ids of the nodes, [n] int64, and bounds of the views."""
        return self.kinds[0]["gid"], self.bounds[0]


def parts_of(strategy: Strategy, epoch: int, first: int, last: int) -> Parts:
    """Find this worker's part of views ``first`` to ``last`` - 1 of an epoch, which
    ``strategy.makers`` has been called for.

    Collective: all ranks of the partition.
    """
    searched = strategy.search(epoch, first, last)
    if searched is not None:
        return parts_of_search(strategy.partition, strategy.layers, searched)
    return parts_of_views(
        strategy.partition.halo_comm.together(strategy.makers(epoch, first, last)), strategy.layers
    )


def parts_of_search(partition: Partition, layers: Layers, searched: Searched) -> Parts:
    """The parts of views that were found by one search.

    Collective: all ranks of the partition.
    """
    result = searched.result
    supersteps = hops(layers)
    # supersteps of the same hop and direction share their level
    positions = list(dict.fromkeys(supersteps))
    levels = [(x, [reverse for _, reverse in passes_of(partition, x.direction)]) for x in positions]
    sweeps = [
        result.edges[x.from_end][relation.name, reverse]
        for x in positions
        for relation, reverse in passes_of(partition, x.direction)
    ]
    n_edges = [sum(len(x.stored.items) for x in sweep) for sweep in sweeps]
    has_weights = [any(x.weight is not None and len(x.weight) for x in sweep) for sweep in sweeps]
    local_rows = [(result.sizes[x.from_end + 1], result.sizes[x.from_end]) for x in positions]
    totals = partition.halo_comm.all_sum(
        np.array([*np.ravel(local_rows), *n_edges, *has_weights], np.int64)
    )
    rows, used, weighted = np.split(totals, np.cumsum([2 * len(local_rows), len(sweeps)]))
    of_level = [
        int(x.sum())
        for x in np.split(used, np.cumsum([len(passes) for _, passes in levels]))[: len(levels)]
    ]
    counts = [
        Counts(n_in, n_out, n)
        for (n_in, n_out), n in zip(rows.reshape(-1, 2).tolist(), of_level, strict=True)
    ]
    flat = [(number, x) for number, sweep in enumerate(sweeps) for x in sweep]
    nodes = result.nodes
    rest = _edges(
        p=partition,
        views=len(nodes.ptr) - 1,
        used=[x.stored for _, x in flat],
        sweep=[number for number, _ in flat],
        weights=[x.weight for _, x in flat] if weighted.any() else None,
        pairs=searched.pairs,
    )
    node = {
        "gid": partition.masters[nodes.items],
        "hop": result.hop,
        **_read(partition.node, partition.node.narrow(), nodes.items),
    }
    kinds, bounds = zip((node, nodes.ptr), *rest, strict=True)
    return Parts(
        partition=partition,
        kinds=list(kinds),
        bounds=list(bounds),
        levels=levels,
        of_superstep=[positions.index(x) for x in supersteps],
        weighted=weighted > 0,
        counts=counts,
    )


def parts_of_views(views: Sequence[GraphView], layers: Layers) -> Parts:
    """The parts of views that were made one by one.

    Raises:
        ConfigError: Some are neighbourhoods of targets, and others subgraphs of nodes, whose levels
            differ.

    Collective: all ranks of the views' partition.
    """
    like = views[0]
    if len({len(levels_of(view)) for view in views}) > 1:
        raise ConfigError(
            "some batches of a step have nodes, and others have targets only; with mode=independent"
            " all batches of a step must be of one kind: let the strategy give all of them nodes,"
            " or drop --mode"
        )
    comm = views[0].partition.halo_comm
    distinct = levels_of(like)
    supersteps = hops(layers)
    of_superstep = [
        next(i for i, level in enumerate(distinct) if level is used) for used in like.levels
    ]
    levels = [
        (supersteps[of_superstep.index(i)], [p.reverse for p in level.passes])
        for i, level in enumerate(distinct)
    ]
    has_weights = np.array(
        [
            [any(s.weight is not None for s in p.selections) for p in sweeps_of(view)]
            for view in views
        ],
        bool,
    )
    weighted = comm.all_max(np.any(has_weights, axis=0, keepdims=True))[0]
    of_views = [_of_view(view, layers, bool(weighted.any())) for view in views]
    kinds = [
        {name: np.concatenate([x[name] for x in same]) for name in same[0]}
        for same in zip(*of_views, strict=True)
    ]
    bounds = [
        pointers([len(next(iter(x.values()))) for x in same])
        for same in zip(*of_views, strict=True)
    ]
    counts = [
        Counts(*np.sum([level.counts[:3] for level in same], axis=0).tolist())
        for same in zip(*map(levels_of, views), strict=True)
    ]
    return Parts(
        partition=like.partition,
        kinds=kinds,
        bounds=bounds,
        levels=levels,
        of_superstep=of_superstep,
        weighted=weighted,
        counts=counts,
    )


def levels_of(view: GraphView) -> list[Level]:
    """The levels of a view, each once, in the order of calls."""
    return list({id(level): level for level in view.levels}.values())


def sweeps_of(view: GraphView) -> list[Pass]:
    """The passes of the levels of a view, each level once."""
    return [p for level in levels_of(view) for p in level.passes]


def _of_view(view: GraphView, layers: Layers, weighted: bool) -> list[Columns]:
    """The columns of each kind of rows of one view."""
    selections = [
        (number, s) for number, sweep in enumerate(sweeps_of(view)) for s in sweep.selections
    ]
    pairs = None if view.pairs is None else [view.pairs.pairs]
    rest = _edges(
        p=view.partition,
        views=1,
        used=[ByView.joined([s.stored]) for _, s in selections],
        sweep=[number for number, _ in selections],
        weights=[s.weight for _, s in selections] if weighted else None,
        pairs=pairs,
    )
    hop = np.repeat(
        np.arange(depth(layers) + 1, dtype=np.int16), np.diff([0, *_sizes(view, layers)])
    )
    store = view.partition.node
    return [
        {"gid": view.space.gid, "hop": hop, **_read(store, store.narrow(), view.rows)},
        *(columns for columns, _ in rest),
    ]


def _sizes(view: GraphView, layers: Layers) -> list[int]:
    """Number of rows at the end of the model, one hop before it, and so on."""
    sizes = [view.space.n] * (depth(layers) + 1)
    for hop, level in zip(hops(layers), view.levels, strict=True):
        sizes[hop.from_end] = level.n_out
    return sizes


def _edges(
    p: Partition,
    views: int,
    used: list[ByView],
    sweep: list[int],
    weights: list[np.ndarray | None] | None,
    pairs: list[ScoredPairs] | None,
) -> list[tuple[Columns, np.ndarray]]:
    """Edges, uses and pairs, with bounds of the views in each.

    Args:
        used: Storage positions of lists of edges.
        sweep: Number of the sweep of each list.
        weights: Importance weights of each list; None if no sweep of the group has any.
        pairs: Pairs by view.
    """
    of_pairs = [x.stored.astype(np.int64) for x in pairs or () if x.stored is not None]
    scored = [ByView.joined(of_pairs)] if of_pairs else []
    none = ByView.none(np.zeros(views + 1, np.int64))
    (stored, ptr), number, bounds = none.number([*used, *scored])
    edges, apart = _stored_edges(p, stored)
    n = int(sum(len(x.items) for x in used))
    uses = _uses(
        used=used,
        begin=bounds[: len(used)],
        edge=number[:n],
        views=views,
        sweep=sweep,
        weights=weights,
    )
    kinds = [(edges, ptr), uses]
    if pairs is not None:
        ends = _ends(pairs) | ({"edge": number[n:]} if scored else {})
        kinds.append((ends, pointers([len(x.src) for x in pairs])))
    return [*kinds, *(({ROWS: rows}, before[ptr]) for rows, before in apart)]


def _stored_edges(
    p: Partition, stored: np.ndarray
) -> tuple[Columns, list[tuple[np.ndarray, np.ndarray]]]:
    """Ends and columns of edges by storage position; and the rows of each type of the columns that
    have types, with how many of them come before each edge. Such a column itself has the types.
    """
    # half the bytes wherever node ids fit
    src, dst = (x.astype(np.int32) if p.n_nodes <= LARGEST else x for x in p.ends_of(stored))
    columns: dict[str, Any] = _read(p.edge, p.edge.names(), stored)
    typed = {name: x for name, x in columns.items() if isinstance(x, TypedRows)}
    apart = [
        (rows, np.append(0, np.cumsum(x.kind == code)))
        for x in typed.values()
        for code, rows in enumerate(x.parts)
        if rows.shape[1]
    ]
    kinds = {name: x.kind for name, x in typed.items()}
    return {"gid": p.edge_gid[stored], "src": src, "dst": dst, **columns, **kinds}, apart


def _uses(
    used: list[ByView],
    begin: np.ndarray,
    edge: np.ndarray,
    views: int,
    sweep: list[int],
    weights: list[np.ndarray | None] | None,
) -> tuple[Columns, np.ndarray]:
    """Which edges each view uses in which sweep, by view.

    Args:
        used, sweep, weights: As for ``_edges``.
        begin: Bounds of the views in each list.
        edge: Number of the edge of each use, list after list.
    """
    lists = np.append(begin[:, :-1].ravel(), len(edge))
    of_view = np.concatenate([np.zeros(0, np.int32), *(x.views.astype(np.int32) for x in used)])
    ptr, its_sweep, at = group(lists, np.repeat(np.array(sweep, np.int32), views), of_view, views)
    uses = {"edge": edge[at], "sweep": its_sweep.astype(np.int16)}
    if weights is not None:
        ones = (
            np.ones(len(x.items)) if w is None else w for x, w in zip(used, weights, strict=True)
        )
        uses["weight"] = np.concatenate([np.zeros(0), *ones])[at]
    return uses, ptr


def _ends(pairs: list[ScoredPairs]) -> Columns:
    """Ends, labels and columns of the pairs of all views."""
    fields = ("gid", "src", "dst", "label")
    ends = {name: np.concatenate([getattr(x, name) for x in pairs]) for name in fields}
    return ends | {
        COLUMN + name: np.concatenate([x.columns[name] for x in pairs]) for name in pairs[0].columns
    }


def typed_columns(p: Partition) -> dict[str, TypedRows]:
    """Edge columns at the widths of types, without rows, in the order of messages."""
    none = np.zeros(0, np.int64)
    columns = {name: p.edge.read(name, none) for name in p.edge.names()}
    return {name: x for name, x in columns.items() if isinstance(x, TypedRows)}


def _read(store: Any, names: Iterable[str], rows: np.ndarray | None) -> Columns:
    """Rows of some columns of a store, by their names in messages."""
    return {COLUMN + name: read.end() for name, read in store.read_begin(names, rows).items()}


def bytes_of(parts: Parts) -> np.ndarray:
    """Bytes of the rows of each view, [views] int64."""
    row = [sum(x.itemsize * prod(x.shape[1:]) for x in columns.values()) for columns in parts.kinds]
    return np.sum([np.diff(ptr) * n for ptr, n in zip(parts.bounds, row, strict=True)], axis=0)
