"""Rows and edges of a worker: the order of its masters, its mirrors, and its edges in blocks.

``whole_rows`` reads a graph in memory, and has arrays over all nodes. ``sliced_rows`` is for graphs
larger than one worker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...ops.kernels.partition.edge_order import mark_ends
from ...ops.kernels.partition.pairs import numbered, occurrences
from ...ops.kernels.partition.row_order import ids_of, keys_of, leaders, row_orders
from ...ops.parallel.buffers import by_blocks
from ..comm.communicator import Comm
from .blocks import edge_blocks
from .directory import DenseDirectory, Directory
from .edge_source import EdgeChunk, EdgeSource
from .layout import Layout, fewest_misses, layout_of
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
    if comm.size == 1:
        edges = numbered(graph.n_edges, graph.n_edges)
        src, dst = graph.src, graph.dst
        reads = degrees["in_degree"]
    else:
        local_ids = (c.ids[worker(c) == comm.rank] for c in source.chunks())
        edges = np.concatenate([np.zeros(0, np.int64), *local_ids])
        src, dst = graph.src[edges], graph.dst[edges]
        reads = occurrences(dst, graph.n_nodes)
    mirrors = _mirrors(graph, owner == comm.rank, edges)
    keys = keys_of(degrees["in_degree"] + degrees["out_degree"], np.arange(graph.n_nodes))
    layout = fewest_misses(
        comm=comm,
        layouts=(
            _layout(order, owner, comm, mirrors)
            for order in row_orders(keys, partial(_led, graph, keys))
        ),
        reads=reads,
        src=src,
        dst=dst,
    )
    del keys, reads, src, dst
    masters, mirrors, at_owner, row = layout
    del layout
    blocks, edges = edge_blocks(
        src=graph.src,
        dst=graph.dst,
        edges=edges,
        row_of=row,
        n_masters=len(masters),
        n_mirrors=len(mirrors),
    )
    return PartRows(
        masters=masters,
        degrees={name: degree[masters] for name, degree in degrees.items()},
        mirrors=mirrors,
        owner=owner[mirrors],
        row=at_owner[mirrors],
        blocks=blocks,
        edges=edges,
        directory=(
            DenseDirectory(owner, at_owner) if directory is None else directory(comm, masters)
        ),
    )


def _mirrors(graph: Any, mine: np.ndarray, edge_ids: np.ndarray) -> np.ndarray:
    """The other nodes at the ends of some edges, ascending.

    Args:
        mine: Whether each node is a master, [n_nodes] bool.
    """
    if mine.all():
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


def _led(graph: Any, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keys of the leaders of all nodes, and of the leaders of these, [n_nodes] int64 each."""
    first = leaders(graph.src, graph.dst, keys)
    return first, first[ids_of(first)]


def _layout(order: np.ndarray, owner: np.ndarray, comm: Comm, mirrors: np.ndarray) -> Layout:
    """The rows of a worker if every worker has its masters in the order of some ids, [n_nodes]
    int64.
    """
    counts = np.bincount(owner, minlength=comm.size)
    bounds = np.append(0, np.cumsum(counts))
    order = order[np.argsort(owner[order], kind="stable")] if comm.size > 1 else order
    at_owner = np.empty(len(order), np.int32)
    at_owner[order] = np.arange(len(order)) - np.repeat(bounds[:-1], counts)
    masters = order[bounds[comm.rank] : bounds[comm.rank + 1]]
    return layout_of(masters, mirrors, owner[mirrors], at_owner)
