"""Rows and edges of a worker for edges in files, without an array over all nodes or edges.

The edges are read in chunks and sent to their workers (``division.py``). A worker counts the edges
at all ends that it received, and sends the counts of its mirrors to their owners, which order their
masters and answer with rows. The result is equal to that of ``whole_rows``.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...ops.kernels.partition.pairs import WIDEST, numbered, occurrences
from ...ops.kernels.partition.row_order import ids_of, keys_of, leaders, row_orders
from ..comm.communicator import Comm
from .blocks import edge_blocks
from .directory import ComputedDirectory, LocalDirectory, TableDirectory
from .division import Division
from .edge_source import EdgeSource
from .layout import Layout, fewest_misses, layout_of
from .partitioner import block_bounds
from .rows import MakeDirectory, PartRows
from .table import Route


def sliced_rows(
    source: EdgeSource, comm: Comm, division: Division, directory: MakeDirectory | None
) -> PartRows:
    """The rows and edges of a worker.

    Args:
        source: The edges.
        comm: The workers.
        division: Owners of nodes and workers of edges.
        directory: Makes the directory; None is a ``ComputedDirectory`` if owners follow a rule,
            else a ``TableDirectory``.

    Collective: all ranks of comm.
    """
    nodes = _own_nodes(source.n_nodes, comm, division)
    edges = _own_edges(source, comm, division)
    others, (src, dst) = _numbered(nodes, edges)
    ids = edges[0].astype(np.int64)
    del edges
    mirrors = _Mirrors(comm, nodes, others, division.owner(others))
    reads, read = (occurrences(end, len(nodes) + len(others)) for end in (dst, src))
    degree = mirrors.combined(np.stack((reads, read), axis=1), len(nodes), np.add)
    del read
    keys = keys_of(degree.sum(axis=1), nodes)
    led = partial(
        _led,
        comm=comm,
        division=division,
        nodes=nodes,
        mirrors=mirrors,
        ends=(src, dst),
        keys=keys,
    )
    layout = fewest_misses(
        comm=comm,
        layouts=(mirrors.layout(order) for order in row_orders(keys, led)),
        reads=reads,
        src=src,
        dst=dst,
    )
    n_masters = len(nodes)
    masters = nodes[layout.masters]
    degrees = dict(zip(("in_degree", "out_degree"), degree[layout.masters].T, strict=True))
    owner = mirrors.owner[layout.mirrors - n_masters]
    others = others[layout.mirrors - n_masters]
    there = layout.at_owner[layout.mirrors]
    row = layout.row
    # the sorts of the edges take most memory
    del nodes, mirrors, degree, reads, keys, led, layout
    blocks, stored = edge_blocks(
        src=src,
        dst=dst,
        edges=numbered(len(ids), len(ids)),
        row_of=row,
        n_masters=len(masters),
        n_mirrors=len(others),
    )
    del src, dst
    computed = directory is None and division.by_rule
    where = (
        ComputedDirectory(comm, masters, division.owner)
        if computed
        else (directory or TableDirectory)(comm, masters)
    )
    return PartRows(
        masters=masters,
        degrees=degrees,
        mirrors=others,
        owner=owner,
        row=there,
        blocks=blocks,
        edges=ids[stored],
        directory=where,
    )


class _Mirrors:
    """Messages between mirrors and their owners, before masters have final rows.

    Args:
        comm: The workers.
        nodes: Nodes of this worker, in the order of preliminary rows, ascending, [m] int64.
        ids: The mirrors, [n] int64.
        owner: Their owners, [n] int32.

    Collective: all ranks of comm.
    """

    def __init__(self, comm: Comm, nodes: np.ndarray, ids: np.ndarray, owner: np.ndarray):
        self._comm = comm
        self.owner = owner
        self._route = Route(owner, comm.size)
        self._rows = [
            np.searchsorted(nodes, part) for part in comm.all_to_all(self._route.parts(ids))
        ]

    def combined(self, values: np.ndarray, n_masters: int, ufunc: np.ufunc) -> np.ndarray:
        """Values of the masters, combined with those of their mirrors on other workers,
        [n_masters, ...].

        Args:
            values: By preliminary row, [n_masters + n_mirrors, ...].
            n_masters: Number of masters.
            ufunc: Combines two arrays, in any order.

        Collective: all ranks.
        """
        total = values[:n_masters].copy()
        parts = self._route.parts(values[n_masters:])
        for rows, part in zip(self._rows, self._comm.all_to_all(parts), strict=True):
            total[rows] = ufunc(total[rows], part)
        return total

    def fetched(self, values: np.ndarray) -> np.ndarray:
        """Values of the mirrors, [n, ...].

        Args:
            values: Of the masters by preliminary row, [n_masters, ...].

        Collective: all ranks.
        """
        return self._route.back(self._comm.all_to_all([values[rows] for rows in self._rows]))

    def layout(self, order: np.ndarray) -> Layout:
        """Preliminary rows as nodes, if masters are in an order, [n_masters] int64.

        Collective: all ranks.
        """
        at_owner = np.empty(len(order), np.int32)
        at_owner[order] = np.arange(len(order))
        at_owner = np.concatenate((at_owner, self.fetched(at_owner)))
        return layout_of(order, np.arange(len(order), len(at_owner)), self.owner, at_owner)


def _led(
    comm: Comm,
    nodes: np.ndarray,
    division: Division,
    mirrors: _Mirrors,
    ends: tuple[np.ndarray, np.ndarray],
    keys: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Keys of the leaders of the nodes of this worker, and of the leaders of these.

    Args:
        comm: The workers.
        nodes: Nodes of this worker, ascending.
        division: Owners of nodes.
        mirrors: The other nodes at the ends of its edges.
        ends: Local nodes at the ends of its edges.
        keys: Of ``nodes``.

    Collective: all ranks of comm.
    """
    first = leaders(*ends, np.concatenate((keys, mirrors.fetched(keys))))
    first = mirrors.combined(first, len(nodes), np.minimum)
    ids = ids_of(first)
    return first, _Mirrors(comm, nodes, ids, division.owner(ids)).fetched(first)


def _own_nodes(n_nodes: int, comm: Comm, division: Division) -> np.ndarray:
    """The nodes of this worker, ascending. Each worker finds the owners of a block of ids.

    Collective: all ranks of comm.
    """
    ids = np.arange(*block_bounds(n_nodes, comm.rank, comm.size))
    return np.concatenate(comm.all_to_all(Route(division.owner(ids), comm.size).parts(ids)))


def _own_edges(source: EdgeSource, comm: Comm, division: Division) -> np.ndarray:
    """Ids of the edges of this worker, ascending, of their sources and of their destinations, [3,
    m] integers.

    Collective: all ranks of comm.
    """
    # half as many bytes are sent if ids fit into 32 bits
    dtype = np.int32 if max(source.n_nodes, source.n_edges) <= WIDEST else np.int64
    received: list[list[np.ndarray]] = [[np.zeros((0, 3), dtype)] for _ in range(comm.size)]
    for chunk, worker in division.dealt:
        columns = np.empty((len(chunk.ids), 3), dtype)
        for k, column in enumerate(chunk):
            columns[:, k] = column
        for rank, part in enumerate(comm.all_to_all(Route(worker, comm.size).parts(columns))):
            received[rank].append(part)
    # a worker's share has lower ids than that of the next
    parts = [part for parts in received for part in parts]
    del received
    edges = np.empty((3, sum(map(len, parts))), dtype)
    np.concatenate(parts, out=edges.T)
    return edges


def _numbered(nodes: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The nodes at the ends of edges that other workers own, ascending, and preliminary rows of the
    ends.

    Args:
        nodes: Nodes of this worker, ascending, [n] int64; their preliminary rows are in this order,
            before the others.
        edges: Ids, sources and destinations, [3, m].
    """
    local = LocalDirectory(nodes)
    rows = [local.find(end) for end in edges[1:]]
    away = [np.flatnonzero(row < 0) for row in rows]
    ids = [end[at].astype(np.int64) for end, at in zip(edges[1:], away, strict=True)]
    others = np.sort(np.concatenate(ids))
    others = others[np.append(True, others[1:] != others[:-1])[: len(others)]]
    at_others = LocalDirectory(others)
    for row, at, end in zip(rows, away, ids, strict=True):
        row[at] = len(nodes) + at_others.find(end)
    return others, rows
