"""Breadth-first orders of the nodes of a graph, over all workers.

Edges count in both directions. A search starts at a root; when it has found all nodes that are
connected, it goes on from the next node by id, after the last one from node 0, that it has not
found. The searches of all components run at the same time, level by level. The order of a node
follows from its component, its level, the order of its earliest neighbour in the level before, and
its id, so it is the same on any number of workers and under any partitioner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from graphtheta.engine.partition.exchange import Exchange
from graphtheta.engine.partition.message import Columns
from graphtheta.engine.partition.partition import MASTER, MIRROR, Partition
from graphtheta.engine.partition.relation import EDGE, StoredRelation
from graphtheta.engine.partition.table import Route
from graphtheta.engine.sampling.candidates import Candidates
from graphtheta.engine.sampling.ranking import ranks_among_all
from graphtheta.ops.kernels.analytics.paths import search_order
from graphtheta.ops.kernels.sampling.allowed import lower

NONE = np.iinfo(np.int64).max


def breadth_first(partition: Partition, roots: Sequence[int]) -> Iterator[np.ndarray]:
    """Positions of the masters in the order of each search over the whole graph, [n_masters] int64.

    Several workers search level by level, with a few messages and passes over their nodes for each
    level. One worker has a queue, and takes time for the nodes and edges.

    Args:
        partition: Holds the graph.
        roots: Ids of the nodes from which the searches start.

    Collective: all ranks of the partition.
    """
    if partition.halo_comm.size == 1:
        # both ends of every edge are masters
        core = partition.relations[EDGE].blocks[0]
        row_of = np.argsort(partition.masters)
        for root in roots:
            position = np.empty(partition.n_masters, np.int64)
            search_order(
                out_bounds=core.out_indptr,
                out_near=core.out_dst,
                in_bounds=core.in_indptr,
                in_near=core.in_src,
                ids=partition.masters,
                row_of=row_of,
                root=root,
                position=position,
            )
            yield position
        return
    component = _components(partition)
    for root in roots:
        yield _by_level(partition, component, root)


def _components(partition: Partition) -> np.ndarray:
    """The lowest id of a node that is connected to each master, [n_masters] int64.

    Collective: all ranks of the partition.
    """
    label = partition.masters.copy()
    rows = np.arange(partition.n_masters)
    while partition.halo_comm.all_max(np.array(len(rows))):
        least = _least_near(partition, rows, label)
        rows = np.flatnonzero(least < label)
        label[rows] = least[rows]
    return label


def _by_level(partition: Partition, component: np.ndarray, root: int) -> np.ndarray:
    """One of the searches of ``breadth_first``.

    Args:
        partition: Holds the graph.
        component: The lowest id of a node that is connected to each master, [n_masters] int64.
        root: Id of the node from which the search starts.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    masters = partition.masters
    after_root = (masters - root) % partition.n_nodes
    start = _least_of_group(partition, component, after_root)
    level = np.full(partition.n_masters, -1, np.int64)
    position = level.copy()
    rows = np.flatnonzero(start == after_root)
    keys = [after_root]
    depth = 0
    while comm.all_max(np.array(len(rows))):
        level[rows] = depth
        position[rows] = ranks_among_all(partition, *(key[rows] for key in keys))
        earliest = _least_near(partition, rows, position)
        rows = np.flatnonzero((earliest < NONE) & (level < 0))
        keys = [earliest, masters]
        depth = depth + 1
    return ranks_among_all(partition, start, level, position)


def _least_near(partition: Partition, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The least value of the chosen neighbours of each master, [n_masters] int64; NONE without such
    a neighbour.

    Args:
        rows: The chosen masters, ascending.
        values: [n_masters] int64.

    Collective: all ranks of the partition.
    """
    chosen = np.zeros(partition.n_masters, bool)
    out = np.full(partition.n_masters, NONE)
    chosen[rows] = True
    for relation in partition.relations.values():
        for reverse in (False, True):
            _lower_along(
                partition=partition,
                relation=relation,
                reverse=reverse,
                rows=rows,
                chosen=chosen,
                values=values,
                out=out,
            )
    return out


def _lower_along(
    partition: Partition,
    relation: StoredRelation,
    reverse: bool,
    rows: np.ndarray,
    chosen: np.ndarray,
    values: np.ndarray,
    out: np.ndarray,
) -> None:
    """Lower ``out`` to the values at the chosen ends of edges, which count as receiving, for the
    other ends.
    """
    comm = partition.halo_comm
    (send, senders), (receive, receivers) = relation.served(reverse)
    narrow, halo = receive.narrow(comm, chosen)
    ends = {MASTER: rows, MIRROR: receivers[halo]}
    values_at = {
        MASTER: values[rows],
        MIRROR: Exchange(comm, narrow).to_mirrors({"value": values})["value"],
    }
    lowered = {MASTER: out, MIRROR: np.full(partition.n_mirrors, NONE)}
    for block in relation.blocks:
        to, at = block.kinds(reverse)
        edges = Candidates.into(block, reverse, ends[at]).listed()
        lower(edges.ptr, values_at[at], edges.senders, lowered[to])
    wanted = np.flatnonzero(lowered[MIRROR][senders] < NONE)

    def merge(masters: np.ndarray, other: Columns) -> None:
        out[masters] = np.minimum(out[masters], other["value"])

    exchange = Exchange(comm, send.restrict(comm, wanted))
    exchange.to_masters_begin({"value": lowered[MIRROR][senders[wanted]]}).end(merge)


def _least_of_group(partition: Partition, group: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The least value of all masters of a group over all workers, for each master.

    Args:
        group: Group of each master: the id of a node, whose owner compares the values.
        values: [n_masters] int64.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    groups, member = np.unique(group, return_inverse=True)
    least = np.full(len(groups), NONE)
    np.minimum.at(least, member, values)
    route = Route(partition.directory.owner(groups), comm.size)
    parts = comm.all_to_all(route.parts(np.stack((groups, least), axis=1)))
    asked = np.concatenate(parts)
    _, at = np.unique(asked[:, 0], return_inverse=True)
    lowest = np.full(len(asked), NONE)
    np.minimum.at(lowest, at, asked[:, 1])
    answers = np.split(lowest[at], np.cumsum([len(part) for part in parts])[:-1])
    return route.back(comm.all_to_all(answers))[member]
