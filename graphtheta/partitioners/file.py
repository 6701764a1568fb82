"""A node partitioner that reads the owners from a file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphtheta.base.npy import map_npy
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import Owners
from graphtheta.errors import ConfigError, FormatError
from graphtheta.partitioners.streaming.blocks import IdBlocks
from graphtheta.partitioners.streaming.shared import SharedPartitioner


@dataclass(frozen=True)
class FilePartitioner(SharedPartitioner):
    """Owners from an .npy file of one integer for each node, such as another tool wrote for this
    number of workers.

    Each worker reads those of a block of ids.

    Attributes:
        path: The file.
    """

    name = "file"
    path: str = ""

    def owners(self, source: EdgeSource, comm: Comm, size: int) -> Owners:
        if not self.path:
            raise ConfigError(
                "masters=file needs the file of owners; give masters=file:path=owners.npy"
            )
        stored = map_npy(self.path)
        n = source.n_nodes
        if stored.shape != (n,) or stored.dtype.kind not in "iu":
            raise FormatError(
                f"{self.path} holds {stored.dtype} numbers of shape {list(stored.shape)}; expected"
                f" the owners, one integer for each of the {n} nodes"
            )
        blocks = IdBlocks(comm, n)
        block = np.array(stored[blocks.first : blocks.last])
        return lambda ids: blocks.look_up(block, ids)
