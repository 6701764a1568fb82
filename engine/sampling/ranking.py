"""The rank of rows among those of all workers: a sort by splitters sampled from the rows."""

from __future__ import annotations

import numpy as np

from ..partition.partition import Partition
from ..partition.table import Route

# samples for each worker; more make the shares of the workers more equal
SAMPLES = 64


def ranks_among_all(partition: Partition, *keys: np.ndarray) -> np.ndarray:
    """The rank of each row of this worker among the rows of all workers, however distributed.

    Every worker sorts about the same number of rows.

    Args:
        partition: Its workers share the rows.
        *keys: Columns of the rows, [n] int64 each, in any order; the first one counts most. No row
            twice, on one worker or on several.

    Returns:
        [n] int64, 0 for the lowest row of all.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    rows = np.stack(keys, axis=1)
    order = np.lexsort(keys[::-1])
    step = max(int(comm.all_sum(np.array(len(rows)))) // (comm.size * SAMPLES), 1)
    samples = np.concatenate(comm.all_gather(rows[order[step // 2 :: step]]))
    samples = samples[np.lexsort(samples.T[::-1])]
    splitters = (
        samples[np.arange(1, comm.size) * len(samples) // comm.size] if len(samples) else samples
    )
    # the worker of a row is the number of splitters up to it
    joined = np.lexsort(np.concatenate((splitters, rows)).T[::-1])
    is_row = joined >= len(splitters)
    worker = np.empty(len(rows), np.int64)
    worker[joined[is_row] - len(splitters)] = np.cumsum(~is_row)[is_row]
    route = Route(worker, comm.size)
    parts = comm.all_to_all(route.parts(rows))
    sorted_here = np.concatenate(parts)
    lower = sum(comm.all_gather(len(sorted_here))[: comm.rank])
    ranks = np.empty(len(sorted_here), np.int64)
    ranks[np.lexsort(sorted_here.T[::-1])] = np.arange(lower, lower + len(sorted_here))
    return route.back(
        comm.all_to_all(np.split(ranks, np.cumsum([len(part) for part in parts])[:-1]))
    )
