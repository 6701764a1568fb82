"""Streams of edges, one for each part, that place their edges in rounds.

The copies and degrees of a node are stored by the worker that has the node's block of ids. A stream
looks up those of the ends of the edges that it reads in a round, and sends what it changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import EdgeChunk, EdgeSource
from graphtheta.ops.kernels.partition.copies import mark_copies
from graphtheta.partitioners.streaming.blocks import IdBlocks
from graphtheta.partitioners.streaming.dealing import n_rounds, settle, share_of_room
from graphtheta.partitioners.streaming.degrees import NO_EDGES

# what a stream changed in a round: nodes, their copies, and the edges by which their degrees grew
Changes = tuple[np.ndarray, np.ndarray, np.ndarray]


class EdgeStreams:
    """Places the edges of some streams.

    Args:
        source: The edges.
        comm: The workers: one, or ``size``.
        size: Number of parts, and of streams.
        loop: A loop of ``ops.partition.greedy_edges``.
        settings: Its settings.
        copies: Copies of the nodes of this worker's block, [n, n_words] uint64; changed.
        degree: Their degrees for the loop, [n] int64; changed.
    """

    def __init__(
        self,
        source: EdgeSource,
        comm: Comm,
        size: int,
        loop: Callable[..., None],
        settings: tuple[Any, ...],
        copies: np.ndarray,
        degree: np.ndarray,
    ):
        self._source = source
        self._comm = comm
        self._size = size
        self._loop = loop
        self._settings = settings
        self._blocks = IdBlocks(comm, source.n_nodes)
        self._copies = copies
        self._degree = degree
        self._own = range(size) if comm.size == 1 else range(comm.rank, comm.rank + 1)

    def place(self, capacity: int) -> np.ndarray:
        """Workers of the edges of this worker's share, [n] int32.

        Args:
            capacity: The most edges of a part.

        Collective: all ranks.
        """
        n_edges = self._source.n_edges
        size = self._size
        rounds = min(n_rounds(self._size), max(self._source.n_edges // self._size, 1))
        first, last = (n_edges * part // size for part in (self._own.start, self._own.stop))
        workers = np.empty(last - first, np.int32)
        load = np.zeros(size, np.int64)
        for number in range(rounds):
            chunks = [self._read(stream * rounds + number, size * rounds) for stream in self._own]
            parts = []
            changes = []
            for stream, chunk in zip(self._own, chunks, strict=True):
                out, changed = self._placed(
                    chunk, load.copy(), share_of_room(capacity - load, stream)
                )
                parts.append(out)
                changes.append(changed)
            left = [np.flatnonzero(out < 0) for out in parts]
            load = settle(self._comm, list(self._own), parts, load, capacity)
            for chunk, out, late, changed in zip(chunks, parts, left, changes, strict=True):
                for end in (chunk.src, chunk.dst):
                    mark_copies(np.searchsorted(changed[0], end[late]), out[late], changed[1])
                self._merge(*changed)
                workers[chunk.ids - first] = out
        return workers

    def _read(self, part: int, parts: int) -> EdgeChunk:
        """The edges of a round of a stream."""
        read = list(self._source.share(part, parts)) or [NO_EDGES]
        return EdgeChunk(*(np.concatenate(columns) for columns in zip(*read, strict=True)))

    def _placed(
        self, chunk: EdgeChunk, load: np.ndarray, room: np.ndarray
    ) -> tuple[np.ndarray, Changes]:
        """Workers of some edges, -1 for those that are left; and what changes.

        Collective: all ranks.
        """
        ids, at = np.unique(np.concatenate((chunk.src, chunk.dst)), return_inverse=True)
        copies = self._blocks.look_up(self._copies, ids)
        before = self._blocks.look_up(self._degree, ids)
        degree = before.copy()
        out = np.empty(len(chunk.ids), np.int32)
        n = len(chunk.ids)
        self._loop(
            ids=chunk.ids,
            src=at[:n],
            dst=at[n:],
            copies=copies,
            degree=degree,
            load=load,
            room=room,
            settings=self._settings,
            out=out,
        )
        return out, (ids, copies, degree - before)

    def _merge(self, ids: np.ndarray, copies: np.ndarray, grown: np.ndarray) -> None:
        """Add the copies and degrees of a stream of each worker to the blocks.

        Collective: all ranks.
        """
        for nodes, bits, more in zip(
            *(self._blocks.received(ids, x) for x in (ids, copies, grown)), strict=True
        ):
            self._copies[nodes - self._blocks.first] |= bits
            self._degree[nodes - self._blocks.first] += more
