"""How much memory a worker needs, said before it is taken.

An upper bound: every node and edge of the worker takes part in every superstep, whatever the strategy. Without
sampling a deep mini-batch on a graph with hubs comes close to that, and never exceeds it.
"""
from __future__ import annotations

import resource
import sys
from dataclasses import dataclass, fields

from ..ops.reference import CHUNK_BYTES
from .partition import Partition
from .probe import Probe

# values and gradients of a chunk of edges, and what primitives make on the way
CHUNKS_ALIVE = 4
# per edge while a view is searched: positions, senders, marks, ids, draws
SEARCH_BYTES_PER_EDGE = 40
# gradients of intermediate values that are alive at once, in units of the widest value
GRADIENTS_ALIVE = 4
# copies of each parameter: value, gradient, flat bucket and its sum, two optimiser slots and their successors, the best model
PARAMETER_COPIES = 9


@dataclass(frozen=True)
class MemoryBound:
    """Bytes of one worker by what they are for."""

    partition: int
    values: int
    halo: int
    edges: int
    chunks: int
    views: int
    parameters: int

    @property
    def total(self) -> int:
        return sum(getattr(self, f.name) for f in fields(self))


def memory_bound(partition: Partition, probe: Probe, itemsize: int, fanout: int = 0) -> MemoryBound:
    """The most a training step of this worker holds.

    Args:
        partition: The worker's part.
        probe: What the model does.
        itemsize: Bytes of a number.
        fanout: Largest number of sampled neighbours, 0 without sampling.

    Returns:
        Bytes by purpose; ``partition`` counts what is held already.
    """
    rows, mirrors, edges = partition.n_masters, partition.n_mirrors, partition.n_local_edges
    plans = len(partition.src_plan.rows) + len(partition.dst_plan.rows)
    # a halo column is held at the mirrors and, while it moves, packed at both ends
    halo = probe.halo_width * (2 * mirrors + plans)
    search = edges * (SEARCH_BYTES_PER_EDGE + 16 * fanout) + len(probe.layers) * (edges * 4 + (rows + 3 * mirrors) * 12)
    return MemoryBound(
        partition.nbytes(),
        (probe.node_width + GRADIENTS_ALIVE * probe.widest) * rows * itemsize,
        halo * itemsize,
        2 * probe.edge_width * edges * itemsize,
        CHUNKS_ALIVE * CHUNK_BYTES,
        search,
        PARAMETER_COPIES * probe.parameters * itemsize,
    )


def resident_bytes() -> int:
    """The largest amount of memory this process has held so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
