"""Rows and edges of a worker: the order of its masters, its mirrors, and its edges in blocks.

``whole_rows`` reads a graph in memory, and has arrays over all nodes. ``sliced_rows`` is for graphs
larger than one worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...ops.kernels.partition.edge_order import mark_ends
from ...ops.kernels.partition.pairs import numbered, occurrences
from ...ops.kernels.partition.row_order import sample_step, votes
from ...ops.parallel.buffers import by_blocks
from ..comm.communicator import Comm
from .blocks import edge_blocks
from .directory import DenseDirectory, Directory
from .edge_source import EdgeChunk, EdgeSource
from .relation import EdgeBlock

# makes a directory from the workers and this worker's masters in the order of their rows
MakeDirectory = Callable[[Comm, np.ndarray], Directory]


class PartRows(NamedTuple):
    """The rows and edges of a worker.

    Attributes:
        masters: Global ids in the order of their rows, [n_masters] int64.
        degrees: Edges into and out of the masters over all workers by name, [n_masters] int64 each.
        mirrors: Global ids in the order of their rows, [n_mirrors] int64.
        owner, row: Owners of the mirrors and their rows there, [n_mirrors] int32.
        blocks: The edges in blocks.
        edges: Global ids of the edges in storage order, [n_local_edges] int64.
        directory: Owner and row of every node.
    """

    masters: np.ndarray
    degrees: dict[str, np.ndarray]
    mirrors: np.ndarray
    owner: np.ndarray
    row: np.ndarray
    blocks: list[EdgeBlock]
    edges: np.ndarray
    directory: Directory


def whole_rows(
    graph: Any,
    source: EdgeSource,
    comm: Comm,
    owner: np.ndarray,
    worker: Callable[[EdgeChunk], np.ndarray],
    directory: MakeDirectory | None,
) -> PartRows:
    """The rows and edges of a worker that reads all edges.

    Args:
        graph: Has ``n_nodes``, ``src`` and ``dst``.
        source: Its edges.
        comm: The workers.
        owner: Owner of every node, [n_nodes] int32.
        worker: Function from a chunk to the workers of its edges.
        directory: Makes the directory; None is a ``DenseDirectory``.

    Collective: all ranks of comm.
    """
    degrees = {
        name: occurrences(end, graph.n_nodes)
        for name, end in (("in_degree", graph.dst), ("out_degree", graph.src))
    }
    order, bounds, row_of = _ordered(
        graph, degrees["in_degree"] + degrees["out_degree"], owner, comm.size
    )
    mine = order[bounds[comm.rank] : bounds[comm.rank + 1]]
    if comm.size == 1:
        edges = numbered(graph.n_edges, graph.n_edges)
    else:
        local_ids = (c.ids[worker(c) == comm.rank] for c in source.chunks())
        edges = np.concatenate([np.zeros(0, np.int64), *local_ids])
    where = DenseDirectory(owner, row_of) if directory is None else directory(comm, mine)
    mirrors = _mirrors(graph, mine, edges)
    theirs, row = where.locate(mirrors)
    by_owner = np.lexsort((row, theirs))
    mirrors = mirrors[by_owner]
    theirs = theirs[by_owner]
    row = row[by_owner]
    gid = np.concatenate((mine, mirrors))
    row_of = np.empty(graph.n_nodes, np.int32)
    row_of[gid] = np.arange(len(gid))
    blocks, edges = edge_blocks(
        src=graph.src,
        dst=graph.dst,
        edges=edges,
        row_of=row_of,
        n_masters=len(mine),
        n_mirrors=len(mirrors),
    )
    return PartRows(
        masters=mine,
        degrees={name: degree[mine] for name, degree in degrees.items()},
        mirrors=mirrors,
        owner=theirs,
        row=row,
        blocks=blocks,
        edges=edges,
        directory=where,
    )


def _mirrors(graph: Any, mine: np.ndarray, edge_ids: np.ndarray) -> np.ndarray:
    """The other nodes at the ends of some edges, ascending."""
    if len(mine) == graph.n_nodes:
        return np.zeros(0, np.int64)
    marks = np.zeros(graph.n_nodes, np.uint8)
    by_blocks(
        lambda b, begin, end: mark_ends(
            src=graph.src, dst=graph.dst, edges=edge_ids, marks=marks, first=begin, last=end
        ),
        len(edge_ids),
        1,
    )
    marks[mine] = 0
    return np.flatnonzero(marks)


def _ordered(
    graph: Any, degree: np.ndarray, owner: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All nodes by owner, bounds of the nodes of each, and the row of each, in the better of two
    orders for cache locality.
    """
    counts = np.bincount(owner, minlength=size)
    bounds = np.append(0, np.cumsum(counts))
    sample = slice(None, None, sample_step(len(graph.src)))
    src, dst = graph.src[sample], graph.dst[sample]

    def rows(order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        order = order[np.argsort(owner[order], kind="stable")] if size > 1 else order
        row_of = np.empty(graph.n_nodes, np.int32)
        row_of[order] = np.arange(graph.n_nodes) - np.repeat(bounds[:-1], counts)
        return order, row_of

    by_degree = rows(np.argsort(-degree, kind="stable"))
    by_number = rows(np.arange(graph.n_nodes))
    at_front, side_by_side = votes(by_degree[1][src], by_number[1][src], by_number[1][dst])
    order, row_of = by_number if side_by_side > at_front else by_degree
    return order, bounds, row_of
