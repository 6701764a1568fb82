"""Rows and edges of a worker for edges in files, without an array over all nodes or edges.

The edges are read in chunks and sent to their workers (``division.py``). A worker counts the edges
at all ends that it received, and sends the counts of its mirrors to their owners, which order their
masters and answer with rows. The result is equal to that of ``whole_rows``.
"""

from __future__ import annotations

import numpy as np

from ...ops.kernels.partition.pairs import WIDEST, numbered, occurrences
from ...ops.kernels.partition.row_order import sample_step, votes
from ..comm.communicator import Comm
from .blocks import edge_blocks
from .directory import ComputedDirectory, LocalDirectory, TableDirectory
from .division import Division
from .edge_source import EdgeSource
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
    degree = mirrors.summed(
        [occurrences(end, len(nodes) + len(others)) for end in (dst, src)], len(nodes)
    )
    by_degree = np.argsort(-degree.sum(axis=1), kind="stable")
    placed = np.empty((len(nodes), 2), np.int32)
    placed[by_degree, 0] = placed[:, 1] = np.arange(len(nodes))
    theirs = mirrors.fetched(placed)
    sampled = ids % sample_step(source.n_edges) == 0
    chosen = _better_order(comm, np.concatenate((placed, theirs)), src[sampled], dst[sampled])
    order = np.arange(len(nodes)) if chosen else by_degree
    row = np.ascontiguousarray(theirs[:, chosen])
    by_owner = np.lexsort((row, mirrors.owner))
    final = np.empty(len(nodes) + len(others), np.int32)
    final[order] = np.arange(len(nodes))
    final[len(nodes) + by_owner] = len(nodes) + np.arange(len(others))
    masters = nodes[order]
    degrees = dict(zip(("in_degree", "out_degree"), degree[order].T, strict=True))
    owner = mirrors.owner[by_owner]
    # the sorts of the edges take most memory
    del nodes, mirrors, degree, by_degree, placed, theirs, order
    blocks, stored = edge_blocks(
        src=src,
        dst=dst,
        edges=numbered(len(ids), len(ids)),
        row_of=final,
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
        mirrors=others[by_owner],
        owner=owner,
        row=row[by_owner],
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

    def summed(self, counts: list[np.ndarray], n_masters: int) -> np.ndarray:
        """Counts of the masters over all workers, [n_masters, len(counts)].

        Args:
            counts: By preliminary row, [n_masters + n_mirrors] int64 each.
            n_masters: Number of masters.

        Collective: all ranks.
        """
        total = np.stack([count[:n_masters] for count in counts], axis=1)
        parts = self._route.parts(np.stack([count[n_masters:] for count in counts], axis=1))
        for rows, part in zip(self._rows, self._comm.all_to_all(parts), strict=True):
            total[rows] += part
        return total

    def fetched(self, values: np.ndarray) -> np.ndarray:
        """Values of the mirrors, [n, ...].

        Args:
            values: Of the masters by preliminary row, [n_masters, ...].

        Collective: all ranks.
        """
        return self._route.back(self._comm.all_to_all([values[rows] for rows in self._rows]))


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


def _better_order(comm: Comm, rows: np.ndarray, src: np.ndarray, dst: np.ndarray) -> int:
    """Whether masters are ordered by degree (0) or by id (1); see ``votes``.

    Args:
        comm: The workers.
        rows: Rows of local nodes at their owners in both orders, [n, 2] int32.
        src, dst: Local numbers of the ends of sampled edges, each on one worker.

    Collective: all ranks of comm.
    """
    at_front, side_by_side = comm.all_sum(votes(rows[src, 0], rows[src, 1], rows[dst, 1]))
    return int(side_by_side > at_front)
