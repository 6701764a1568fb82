"""What a graph algorithm is: values of the nodes, computed on a partition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from graphtheta.engine.partition.partition import Partition


@dataclass(frozen=True)
class Algorithm(ABC):
    """Computes a value, or a row of values, of each node.

    The fields of a derived class are its options.

    Attributes:
        name: Name on the command line and of the values.
        weighted: Whether it reads the weights of the edges.
        gives_nodes: Whether values are numbers of nodes, which files have as original ids.
    """

    name: ClassVar[str]
    weighted: ClassVar[bool] = False
    gives_nodes: ClassVar[bool] = False

    @abstractmethod
    def run(self, partition: Partition, graph: Any) -> np.ndarray:
        """Values of the masters, [n_masters, ...].

        Args:
            partition: This worker's part; floating columns are float64.
            graph: The whole graph, for its ids.

        Raises:
            ConfigError: An option has no meaning for this graph.
            DataError: The graph is of a kind that the algorithm does not take.

        Collective: all ranks of the partition.
        """
