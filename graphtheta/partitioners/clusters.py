"""Node partitioners that cluster the whole graph: Louvain, Leiden and METIS, in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import Assignment, Partitioner
from graphtheta.ops.kernels.partition import blocks
from graphtheta.partitioners.communities import clusters_of, neighbours
from graphtheta.partitioners.greedy import refine
from graphtheta.partitioners.stream import capacity, check_option


def all_clusters(source: EdgeSource, method: str, n: int, seed: int) -> np.ndarray:
    """The cluster of every node; see ``find_clusters``."""
    return clusters_of(
        lambda: neighbours(*_ends(source), source.n_nodes), source.n_nodes, method, n, seed
    )


def _ends(source: EdgeSource) -> tuple[np.ndarray, np.ndarray]:
    """Sources and destinations of all edges, [n_edges] int32, or int64 from 2**31 nodes."""
    kind = np.int32 if source.n_nodes <= np.iinfo(np.int32).max else np.int64
    src = np.empty(source.n_edges, kind)
    dst = np.empty(source.n_edges, kind)
    end = 0
    for chunk in source.chunks():
        here = slice(end, end + len(chunk.ids))
        src[here] = chunk.src
        dst[here] = chunk.dst
        end = here.stop
    return src, dst


def pack(cluster: np.ndarray, size: int, room: int) -> np.ndarray:
    """Pack clusters into workers: the largest first, each into the emptiest worker, which takes as
    much as has room.

    Args:
        cluster: Of each node, [n] int64.
        size: Number of workers.
        room: The most nodes of a worker.

    Returns:
        Owner of each node, [n] int32.
    """
    sizes = np.bincount(cluster)
    bounds = np.append(0, np.cumsum(sizes))
    owner = np.empty(len(cluster), np.int32)
    blocks.pack(
        members=np.argsort(cluster, kind="stable"),
        bounds=bounds,
        order=np.argsort(-sizes, kind="stable"),
        room=room,
        load=np.zeros(size, np.int64),
        owner=owner,
    )
    return owner


@dataclass(frozen=True)
class LouvainPartitioner(Partitioner):
    """Communities of Louvain (NetworKit), packed into balanced parts, then passes of restreamed
    LDG.

    Attributes:
        slack: Nodes of a worker are at most (1 + slack) times the mean; a community that does not
            fit is split.
        passes: Passes of LDG afterwards, which move nodes of split communities to their neighbours.

    Source: Blondel et al., https://arxiv.org/abs/0803.0476
    """

    name = "louvain"
    sequential = True
    slack: float = 0.1
    passes: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        check_option(self, "slack", self.slack >= 0, "at least 0")
        check_option(self, "passes", self.passes >= 0, "at least 0")

    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        cluster = all_clusters(source, self.name, 0, self.seed)
        owner = pack(cluster, comm.size, capacity(source.n_nodes, comm.size, self.slack))
        refine(source, owner, comm.size, self.slack, self.passes)
        return Assignment(owner.__getitem__)


@dataclass(frozen=True)
class LeidenPartitioner(LouvainPartitioner):
    """Communities of Leiden (NetworKit), whose nodes are connected; options as of ``louvain``.

    Source: Traag et al., https://arxiv.org/abs/1810.08473
    """

    name = "leiden"


@dataclass(frozen=True)
class MetisPartitioner(Partitioner):
    """METIS (pymetis): multilevel k-way cuts, the reference for small cuts. Parts may exceed the
    mean by about 3 %.

    Source: Karypis and Kumar, SIAM J. Sci. Comput. 20, 1998,
    https://doi.org/10.1137/S1064827595287997
    """

    name = "metis"
    sequential = True
    seed: int = 0

    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        return Assignment(all_clusters(source, self.name, comm.size, self.seed).__getitem__)
