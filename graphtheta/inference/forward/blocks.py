"""Division of a worker's nodes into blocks that fit into its memory."""

from __future__ import annotations

import resource

import numpy as np
import psutil

from graphtheta.base.console import amount
from graphtheta.base.costs import CHUNKS_ALIVE, LIST_BYTES_PER_EDGE, SEARCH_BYTES_PER_EDGE
from graphtheta.engine.layer.dry_run import Probe
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.view.hop import Hop
from graphtheta.errors import MemoryLimitError
from graphtheta.ops.edge.backend.reference import CHUNK_BYTES

# values of the widest kind that a pass holds at once, for each row of a block and its neighbours
VALUES_ALIVE = 4
# numbers of a row in the frame and in the lists of a view
ROW_BYTES = 64
# columns with the number of edges that a layer of a direction reads
DEGREES = {"in": ("in_degree",), "out": ("out_degree",), "both": ("in_degree", "out_degree")}


def free_now(limit: int) -> int:
    """Bytes that this process may still allocate.

    Pages of mapped files do not count, since the system can drop them. A limit of the system for
    allocated memory (``ulimit -d``) counts as well.

    Args:
        limit: Bytes of the process in all.
    """
    memory = psutil.Process().memory_info()
    allowed, _ = resource.getrlimit(resource.RLIMIT_DATA)
    free = limit - (memory.rss - memory.shared)
    return free if allowed == resource.RLIM_INFINITY else min(free, allowed - memory.data)


def divided(
    partition: Partition, probe: Probe, itemsize: int, limit: int, hops: list[Hop]
) -> list[np.ndarray]:
    """Blocks of masters, in order, of about the same number of edges.

    Args:
        partition: The partition.
        probe: Of the model.
        itemsize: Bytes of a number.
        limit: Bytes that this process may use, with those that it uses already.
        hops: The layers that run over the blocks; none if only node values are computed.

    Returns:
        Rows of the masters of each block, equally many blocks on every worker.

    Raises:
        MemoryLimitError: The limit is too low for a block of one node; on all ranks together.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    n = partition.n_masters
    edges = _edges(partition, hops)
    per_row = (VALUES_ALIVE * probe.widest + probe.halo_width) * itemsize + ROW_BYTES
    per_edge = (
        (SEARCH_BYTES_PER_EDGE + LIST_BYTES_PER_EDGE + 2 * probe.edge_width * itemsize)
        if hops
        else 0
    )
    left = free_now(limit)
    free = left - CHUNKS_ALIVE * CHUNK_BYTES
    # edges are stored at any worker, so all of them have about the mean
    total = int(edges.sum())
    parts = 1

    def needed(parts: int) -> int:
        largest = max(int(edges.max(initial=0)), -(-total // parts))
        return largest * per_edge + min(n, largest + -(-n // parts)) * per_row

    while needed(parts) > free and parts < n:
        parts = min(2 * parts, n)
    with comm.agreed():
        if n and needed(parts) > free:
            raise MemoryLimitError(
                f"inference_memory={limit / 2**30:.4g}: a block of one node needs about"
                f" {amount(needed(parts) + CHUNKS_ALIVE * CHUNK_BYTES)} beside the"
                f" {amount(limit - left)} that the graph and the program use; raise the limit or"
                " use more workers"
            )
    parts = int(comm.all_max(np.array(parts)))
    weight = np.cumsum(edges + 1)
    cuts = np.searchsorted(weight, np.arange(1, parts) * (weight[-1] / parts if n else 0))
    return np.split(np.arange(n), cuts)


def _edges(partition: Partition, hops: list[Hop]) -> np.ndarray:
    """Number of edges into each master that some layers read, [n_masters] int64."""
    names = sorted({name for hop in hops for name in DEGREES[hop.direction]})
    return sum(
        (partition.node.read(name).astype(np.int64) for name in names),
        np.zeros(partition.n_masters, np.int64),
    )
