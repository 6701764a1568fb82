"""A node partitioner that reads the owners from a file."""
from __future__ import annotations

from dataclasses import dataclass

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import Assignment, Partitioner
from graphtheta.errors import ConfigError, FormatError
from graphtheta.npy import read_npy


@dataclass(frozen=True)
class FilePartitioner(Partitioner):
    """Owners from an .npy file of one integer for each node, such as another tool wrote for this number of workers.

    Attributes:
        path: The file.
    """

    name = "file"
    sequential = True
    path: str = ""

    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        if not self.path:
            raise ConfigError("masters=file needs the file of owners; give masters=file:path=owners.npy")
        owner = read_npy(self.path, "owners", "iu", 1)
        if len(owner) != source.n_nodes:
            raise FormatError(f"{self.path} holds {len(owner)} owners; expected one integer for each of the {source.n_nodes} nodes")
        return Assignment(owner.__getitem__)
