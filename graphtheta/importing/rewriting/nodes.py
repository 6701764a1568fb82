"""The nodes that a new store keeps, and their new numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from graphtheta.analytics.analyse import on_worker
from graphtheta.analytics.components import Components
from graphtheta.base.npy import map_npy
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.table import DistributedTable, Route, occurrences_of
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.validation import Origin, as_array
from graphtheta.graph.store.checksum import share

SPLITS = ("train", "val", "test")
# nodes or edges that are read at a time
BLOCK = 1 << 18
# number of the first row that is written, and which rows of a block are written, [n] bool
Runs = list[tuple[int, np.ndarray]]


class NodeSubset:
    """The nodes that are kept of this worker's slice.

    Args:
        comm: The workers.
        mask: Whether each node of the slice is kept, [n] bool; None for all.
        n_nodes: Number of nodes of the old store.

    Attributes:
        total: Number of kept nodes of all workers.
        all: Whether all nodes are kept.

    Collective: all ranks of comm.
    """

    def __init__(self, comm: Comm, mask: np.ndarray | None, n_nodes: int):
        self._slice = share(n_nodes, comm.rank, comm.size)
        self._mask = np.ones(len(self._slice), bool) if mask is None else mask
        counts = comm.all_gather(int(self._mask.sum()))
        self._begin = sum(counts[: comm.rank])
        self.total = sum(counts)
        self.all = self.total == n_nodes
        new = self._begin + np.arange(counts[comm.rank])
        self._table = (
            None
            if self.all
            else DistributedTable(comm, self._slice.start + np.flatnonzero(self._mask), new)
        )

    def numbers(self, nodes: np.ndarray) -> np.ndarray:
        """New numbers of nodes, [n] int64; -1 for those that are not kept.

        Collective: all ranks of comm.
        """
        return nodes if self._table is None else self._table.look_up(nodes)

    def runs(self) -> Iterator[tuple[slice, Runs]]:
        """For each block of the slice, in the old store, where its rows go in the new one; see
        ``Edges.runs``.
        """
        begin = self._begin
        for a in range(self._slice.start, self._slice.stop, BLOCK):
            rows = slice(a, min(a + BLOCK, self._slice.stop))
            picked = self._mask[rows.start - self._slice.start : rows.stop - self._slice.start]
            yield rows, [(begin, picked)]
            begin += int(picked.sum())


def chosen(graph: Graph, nodes: str | np.ndarray, comm: Comm) -> np.ndarray:
    """The slice of a mask.

    Args:
        graph: The graph.
        nodes: A mask [n_nodes] bool, a .npy file of one, or the name of a split.
        comm: The workers.

    Raises:
        ConfigError: There is no such split or file.
        DataError: It is no mask of the nodes.
    """
    if isinstance(nodes, str) and nodes in SPLITS:
        mask = getattr(graph, nodes)
        where = f"the split '{nodes}' of {graph.name}"
        if mask is None:
            raise ConfigError(
                f"nodes={nodes}: {graph.name} has no such split; give a .npy file with a mask"
            )
    elif isinstance(nodes, str):
        if not Path(nodes).is_file():
            raise ConfigError(
                f"nodes={nodes}: there is no such file; give {', '.join(SPLITS)}, or a .npy file"
                " with a mask"
            )
        mask = map_npy(Path(nodes))
        where = nodes
    else:
        mask = as_array(nodes, Origin("", "nodes"))
        where = "nodes"
    if mask.shape != (graph.n_nodes,) or mask.dtype != np.bool_:
        raise DataError(
            f"{where}: expected a mask of {graph.n_nodes} truth values, got {mask.dtype}"
            f" {list(mask.shape)}"
        )
    slice_ = share(graph.n_nodes, comm.rank, comm.size)
    return np.array(mask[slice_.start : slice_.stop])


def largest_component(graph: Graph, comm: Comm) -> np.ndarray:
    """The slice of the largest weakly connected component, [n] bool; of several, of that with the
    lowest node.

    Collective: all ranks of comm.
    """
    nodes, label = on_worker(graph, Components(), comm)
    sizes = occurrences_of(comm, label)
    # by size, then the lowest node
    largest = max(zip(sizes.tolist(), (-label).tolist(), strict=True), default=(0, 0))
    best = -max(comm.all_gather(largest))[1]
    bounds = np.array([share(graph.n_nodes, rank, comm.size).stop for rank in range(comm.size)])
    inside = nodes[label == best]
    route = Route(np.searchsorted(bounds, inside, side="right").astype(np.int32), comm.size)
    mine = share(graph.n_nodes, comm.rank, comm.size)
    mask = np.zeros(len(mine), bool)
    mask[np.concatenate(comm.all_to_all(route.parts(inside))) - mine.start] = True
    return mask
