"""Values of any nodes: rows of this worker, and rows that a plan fetches from their owners."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ...ops.kernels.lookup import distinct
from .exchange import Exchange, MovePlan, plan_requests
from .partition import Partition


@dataclass(frozen=True)
class Located:
    """Rows that contain the values of some nodes.

    Attributes:
        plan: Fetches the rows of other workers.
        remote: Whether another worker owns a node, [n] bool.
        row: Master row of a local node, halo row of the plan for a remote one, [n] int32.
    """

    plan: MovePlan
    remote: np.ndarray
    row: np.ndarray


def locate(partition: Partition, ids: np.ndarray) -> Located:
    """Find the rows of some nodes.

    Args:
        partition: The partition.
        ids: Global ids, [n] int64; they may repeat.

    Collective: all ranks of the partition.
    """
    comm = partition.halo_comm
    nodes, each = distinct(ids, partition.n_nodes)
    owner, row = partition.directory.locate(nodes)
    remote = owner != comm.rank
    others = np.flatnonzero(remote)
    others = others[np.argsort(owner[others], kind="stable")]
    bounds = np.searchsorted(owner[others], np.arange(comm.size + 1))
    plan = plan_requests(comm, partition.n_masters, [row[others[a:b]] for a, b in pairwise(bounds)])
    row = row.copy()
    row[others] = np.arange(len(others))
    return Located(plan, remote[each], row[each])


def values_of(partition: Partition, ids: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Values of some nodes, [n, ...].

    Args:
        partition: The partition.
        ids: Global ids, [n] int64; they may repeat.
        column: Values of this worker's masters, [n_masters, ...].

    Collective: all ranks of the partition.
    """
    place = locate(partition, ids)
    halo = Exchange(partition.halo_comm, place.plan).to_mirrors({"": column})[""]
    out = np.empty((len(ids), *column.shape[1:]), column.dtype)
    out[place.remote] = halo[place.row[place.remote]]
    out[~place.remote] = column[place.row[~place.remote]]
    return out
