"""Pairs of a view and a row, told to other workers in one message for each of them, whatever the
number of views.
"""

from __future__ import annotations

import numpy as np

from ...ops.kernels.batch import group
from ..partition.exchange import Exchange, MovePlan, pointers
from ..partition.partition import Partition


class ViewRoute:
    """Pairs that workers tell each other, and values that follow them later.

    Args:
        partition: Its workers tell each other.
        ptr: Bounds of the views in the pairs that this worker tells, [views + 1].
        partner: The worker that each is told to, [n] int32.
        row: Row of each, [n] int32.

    Attributes:
        ptr: Bounds of the views in the pairs that were told here, [views + 1].
        partner: The worker that told each, [m] int32.
        row: Row of each, [m] int32.

    Collective: all ranks of the partition.
    """

    def __init__(self, partition: Partition, ptr: np.ndarray, partner: np.ndarray, row: np.ndarray):
        comm = partition.halo_comm
        views = np.arange(len(ptr) - 1, dtype=np.int32)
        # no worker has more views than fit into 16 bits, unless there are more workers
        small = np.int16 if len(views) <= 1 << 15 else np.int32
        bounds, view, sent = group(ptr, views, partner, comm.size)
        arriving = pointers(comm.swap(np.diff(bounds)[:, None])[:, 0].tolist())
        self._exchange = Exchange(
            comm,
            MovePlan(
                n_rows=len(row),
                rows=sent.astype(np.int64),
                send_ptr=bounds,
                recv_ptr=arriving,
                anywhere=True,
            ),
        )
        told = np.empty(len(row), small)
        told[sent] = view
        received = self._exchange.to_mirrors({"view": told, "row": row})
        self.ptr, self.partner, self._order = group(
            arriving, np.arange(comm.size, dtype=np.int32), received["view"], len(views)
        )
        self.row = received["row"][self._order]

    def carry(self, values: np.ndarray) -> np.ndarray:
        """Values of the pairs that this worker tells, [n, ...]; returns those of the pairs that
        were told here, [m, ...].

        Collective: all ranks of the partition.
        """
        return self._exchange.to_mirrors({"x": values})["x"][self._order]
