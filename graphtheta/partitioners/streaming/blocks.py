"""Values of all nodes, of which each worker holds those of a block of ids, and messages to the
blocks.
"""

from __future__ import annotations

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.partitioner import block_bounds, block_owner
from graphtheta.engine.partition.table import Route
from graphtheta.ops.parallel.buffers import taken


class IdBlocks:
    """The ids from 0 to n - 1 in blocks, one for each worker.

    Args:
        comm: The workers.
        n: Number of ids.

    Attributes:
        first, last: The first id of this worker's block, and the first one beyond.
        kind: The smallest integer type of 4 or 8 bytes that has all ids.
    """

    def __init__(self, comm: Comm, n: int):
        self.comm = comm
        self._home = block_owner(n, comm.size)
        self.first, self.last = block_bounds(n, comm.rank, comm.size)
        self.kind = np.dtype(np.int32 if n <= np.iinfo(np.int32).max else np.int64)

    def route(self, ids: np.ndarray) -> Route:
        """The way to the workers whose blocks have some ids, [n] integers."""
        return Route(self._home(ids), self.comm.size)

    def received(self, ids: np.ndarray, x: np.ndarray | None = None) -> list[np.ndarray]:
        """Rows that all workers send to the blocks of ids, in rank order.

        Args:
            ids: An id for each row, [n] integers.
            x: The rows, [n, ...]; None sends the ids.

        Collective: all ranks.
        """
        x = ids if x is None else x
        return [x] if self.comm.size == 1 else self.comm.all_to_all(self.route(ids).parts(x))

    def add(self, ids: np.ndarray, x: np.ndarray, to: np.ndarray) -> None:
        """Add values that all workers send to the blocks of ids.

        Args:
            ids: [n] integers; a worker sends each id once.
            x: Value of each id, [n] integers.
            to: Of this worker's block, [last - first]; changed.

        Collective: all ranks.
        """
        for part, more in zip(self.received(ids), self.received(ids, x), strict=True):
            to[part - self.first] += more

    def look_up(self, values: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Values of some ids, [n, ...].

        Args:
            values: Of this worker's block, [last - first, ...].
            ids: In any order, [n] integers.

        Collective: all ranks.
        """
        if self.comm.size == 1:
            return taken(values, ids)
        route = self.route(ids)
        asked = self.comm.all_to_all(route.parts(ids))
        return route.back(self.comm.all_to_all([values[part - self.first] for part in asked]))
