"""Edge sources: the edges of a graph in chunks, as partitioners read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from graphtheta.base.npy import in_files

# edges per chunk
CHUNK = 1 << 20


class EdgeChunk(NamedTuple):
    """A chunk of edges.

    Attributes:
        ids: Global edge ids, [n] int64.
        src, dst: Global ids of the sources and destinations, [n] int64.
    """

    ids: np.ndarray
    src: np.ndarray
    dst: np.ndarray


class EdgeSource:
    """The edges of a graph in memory or in mapped files, in chunks, the same on every rank, for any
    number of iterations.

    Args:
        graph: Has ``n_nodes``, ``n_edges``, ``src``, ``dst`` and ``train``.
        chunk: Edges per chunk.

    Attributes:
        n_nodes: Nodes of the graph; their ids are 0 to n_nodes - 1.
        n_edges: Edges of the graph.
        train: Training nodes, [n_nodes] bool, for partitioners that balance them; None if there are
            none.
        mapped: Whether both ends of the edges are in mapped files.
    """

    def __init__(self, graph: Any, chunk: int = CHUNK):
        self._graph = graph
        self._chunk = chunk
        self.n_nodes = int(graph.n_nodes)
        self.n_edges = int(graph.n_edges)
        self.train: np.ndarray | None = graph.train
        self.mapped = in_files(graph.src) and in_files(graph.dst)

    def chunks(self) -> Iterator[EdgeChunk]:
        """All edges, each once, by ascending global id."""
        return self.share(0, 1)

    def share(self, rank: int, size: int) -> Iterator[EdgeChunk]:
        """The edges that a worker reads if each edge is read by one of ``size``.

        They are by ascending global id, and above those of lower ranks.
        """
        first, end = (self.n_edges * part // size for part in (rank, rank + 1))
        for a in range(first, end, self._chunk):
            b = min(a + self._chunk, end)
            yield EdgeChunk(np.arange(a, b), self._graph.src[a:b], self._graph.dst[a:b])
