"""Any nodes, wherever they are kept: own rows, and rows that a plan brings from their owners."""
from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .exchange import Exchange, MovePlan, plan_requests
from .partition import Partition


@dataclass(frozen=True)
class Located:
    """Where the values of some nodes are found.

    Attributes:
        plan: Brings the rows of other workers.
        away: Whether a node has another owner, [n] bool.
        row: Master row of a node here, or halo row of the plan if it is away, [n] int32.
    """

    plan: MovePlan
    away: np.ndarray
    row: np.ndarray


def locate(partition: Partition, ids: np.ndarray) -> Located:
    """Find some nodes.

    Args:
        partition: Holds the nodes.
        ids: Global ids, [n] int64; they may repeat.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    nodes, each = np.unique(ids, return_inverse=True)
    owner, row = partition.directory.locate(nodes)
    away = owner != comm.rank
    others = np.flatnonzero(away)
    others = others[np.argsort(owner[others], kind="stable")]
    bounds = np.searchsorted(owner[others], np.arange(comm.size + 1))
    plan = plan_requests(comm, partition.n_masters, [row[others[a:b]] for a, b in pairwise(bounds)])
    row = row.copy()
    row[others] = np.arange(len(others))
    return Located(plan, away[each], row[each])


def values_of(partition: Partition, ids: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Values of some nodes, [n, ...].

    Args:
        partition: Holds the nodes.
        ids: Global ids, [n] int64; they may repeat.
        column: Values of this worker's masters, [n_masters, ...].

    Collective: all ranks of the partition.
    """
    found = locate(partition, ids)
    halo = Exchange(partition.halo_comm, found.plan).to_mirrors({"": column})[""]
    out = np.empty((len(ids), *column.shape[1:]), column.dtype)
    out[found.away], out[~found.away] = halo[found.row[found.away]], column[found.row[~found.away]]
    return out
