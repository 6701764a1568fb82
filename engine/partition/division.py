"""Divides a graph whose edges are in files: only rank 0 may have arrays over all nodes, and for
some methods only.

Rules are computed where they are needed. Owners that other node partitioners compute are stored in
a distributed table. Workers read shares of the edges, and send each edge to its worker. What cannot
be divided runs on rank 0, which reads and sends all edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ..comm.communicator import Comm
from .edge_source import EdgeChunk, EdgeSource
from .partitioner import allowed, block_bounds, block_owner, checked, find_pair
from .table import DistributedTable

NO_EDGES, NO_WORKERS = EdgeChunk(*np.zeros((3, 0), np.int64)), np.zeros(0, np.int32)


class Division(NamedTuple):
    """Where nodes and edges go.

    Attributes:
        owner: From ids [n] int64 to their owners, [n] int32. Collective, unless ``by_rule``.
        by_rule: Whether owners are computed from ids, without messages.
        dealt: Chunks of edges that this rank sends, with the workers of their edges, [n] int32.
            They are by ascending global id, and above those of lower ranks. Collective at each
            item.
    """

    owner: Callable[[np.ndarray], np.ndarray]
    by_rule: bool
    dealt: Iterator[tuple[EdgeChunk, np.ndarray]]


def divide(
    source: EdgeSource, comm: Comm, edge_placement: str, node_partitioner: str, seed: int
) -> Division:
    """Owners of nodes and workers of edges; checks what partitioner and placement return.

    Args:
        source, comm, edge_placement, node_partitioner, seed: As in ``assign``.

    Raises:
        ConfigError: Unknown name or option, or both place edges.
        PartitionError: Owners or workers are no numbers of workers.

    Collective: all ranks of comm.
    """
    placement, partitioner = find_pair(edge_placement, node_partitioner, seed)
    n = source.n_nodes
    size = comm.size
    first = comm.rank == 0
    runs = first or not partitioner.sequential
    # errors of methods that communicate are their own matter: raised on all ranks, or the job ends
    with comm.agreed():
        assignment = (
            allowed(partitioner.divide(source, comm), partitioner, edge_placement) if runs else None
        )

    def owners_of(ids: np.ndarray) -> np.ndarray:
        assert assignment is not None
        return checked(
            assignment.owner(ids),
            len(ids),
            size,
            f"masters={partitioner.name}: the owners of {len(ids)} nodes",
        )

    owner: Callable[[np.ndarray], np.ndarray] = owners_of
    if not partitioner.by_rule:
        ids = np.arange(
            *(
                block_bounds(n, comm.rank, size)
                if not partitioner.sequential
                else (0, n if first else 0)
            )
        )
        with comm.agreed():
            owners = owners_of(ids) if runs else NO_WORKERS
        owner = DistributedTable(comm, ids, owners, block_owner(n, size)).look_up
    said = f"partitioner={placement.name}"
    by_partitioner = comm.broadcast(assignment is not None and assignment.worker is not None)
    with comm.agreed():
        worker = None if by_partitioner else placement.share(source, owner, comm)
    if worker is not None:
        return Division(
            owner, partitioner.by_rule, _dealt(comm, source.share(comm.rank, size), worker, said)
        )
    if by_partitioner:
        worker = None if assignment is None else assignment.worker
        said = f"masters={partitioner.name}"
    else:
        owners = owner(np.arange(n if first else 0))
        with comm.agreed():
            worker = placement.place(source, owners, size) if first else None
    chunks = source.chunks() if worker is not None else iter(())
    return Division(
        owner,
        partitioner.by_rule,
        _dealt(
            comm=comm,
            chunks=chunks,
            worker=worker or (lambda chunk: NO_WORKERS),
            said=said,
            sends=first,
        ),
    )


def _dealt(
    comm: Comm,
    chunks: Iterator[EdgeChunk],
    worker: Callable[[EdgeChunk], np.ndarray],
    said: str,
    sends: bool = True,
) -> Iterator[tuple[EdgeChunk, np.ndarray]]:
    """The chunks of this rank with the workers of their edges, and empty ones as often as other
    ranks have more.

    Args:
        comm: The workers.
        chunks: The chunks that ``worker`` reads.
        worker: Workers of the edges of a chunk.
        said: Partitioner or placement, for messages.
        sends: Whether this rank sends what it reads.

    Collective: all ranks of comm, at each item.
    """
    while True:
        chunk = next(chunks, None)
        if not comm.all_max(np.array(chunk is not None)):
            return
        read = NO_EDGES if chunk is None else chunk
        n = len(read.ids)
        workers = checked(worker(read), n, comm.size, f"{said}: the workers of {n} edges")
        yield (read, workers) if sends else (NO_EDGES, NO_WORKERS)
