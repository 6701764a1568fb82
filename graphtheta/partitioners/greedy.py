"""Greedy streaming over the nodes in the order of their ids: LDG and Fennel, in one pass or several.

The result depends on the order of the ids and not on the order or the chunks of the edges. Besides
the owners, a group of neighbourhoods is in memory; see ``neighbourhoods``.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import Assignment, Partitioner
from graphtheta.ops.partition.greedy_nodes import place_nodes
from graphtheta.partitioners.stream import capacity, check_option, neighbour_bounds, neighbourhoods


def stream(source: EdgeSource, owner: np.ndarray, size: int, scale: np.ndarray, cost: np.ndarray, passes: int) -> None:
    """Give each node to the worker of the highest neighbours * scale[load] - cost[load], with room.

    Each pass starts with empty workers and counts neighbours by their latest owners.

    Args:
        source: The edges.
        owner: Owner of each node, -1 for none, [n_nodes] int32; changed.
        size: Number of workers.
        scale, cost: By the nodes that a worker has, [capacity] float64.
        passes: Number of passes.
    """
    bounds = neighbour_bounds(source) if passes else None
    for _ in range(passes):
        load = np.zeros(size, np.int64)
        for group in neighbourhoods(source, bounds=bounds):
            place_nodes(*group, owner, load, scale, cost)


def refine(source: EdgeSource, owner: np.ndarray, size: int, slack: float, passes: int) -> None:
    """Passes of LDG from these owners; see ``stream``.

    Args:
        source: The edges.
        owner: Owner of each node, -1 for none, [n_nodes] int32; changed.
        size: Number of workers.
        slack: Nodes of a worker are at most (1 + slack) times the mean.
        passes: Number of passes.
    """
    room = capacity(source.n_nodes, size, slack)
    stream(source, owner, size, 1 - np.arange(room) / room, np.zeros(room), passes)


@dataclass(frozen=True)
class LdgPartitioner(Partitioner):
    """Linear deterministic greedy: most neighbours, times the share of the worker's room that is left.

    Attributes:
        slack: Nodes of a worker are at most (1 + slack) times the mean.
        passes: With more than 1, restreamed LDG: every pass places all nodes again, and counts
            neighbours that it has not reached by their owners of the pass before.

    Source: Stanton and Kliot, KDD 2012, https://doi.org/10.1145/2339530.2339722; Nishimura and Ugander, KDD 2013,
    https://doi.org/10.1145/2487575.2487696
    """

    name = "ldg"
    sequential = True
    slack: float = 0.1
    passes: int = 1

    def __post_init__(self) -> None:
        check_option(self, "slack", self.slack >= 0, "at least 0")
        check_option(self, "passes", self.passes >= 1, "at least 1")

    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        owner = np.full(source.n_nodes, -1, np.int32)
        refine(source, owner, comm.size, self.slack, self.passes)
        return Assignment(owner.__getitem__)


@dataclass(frozen=True)
class FennelPartitioner(Partitioner):
    """Fennel: most neighbours, minus the derivative of alpha load^gamma.

    Attributes:
        gamma: Exponent of the cost of a load, above 1.
        alpha: Its factor; 0 is that of the paper, edges * workers^(gamma - 1) / nodes^gamma.
        slack: Nodes of a worker are at most (1 + slack) times the mean.
        passes: With more than 1, restreamed as LDG is.

    Source: Tsourakakis et al., WSDM 2014, https://doi.org/10.1145/2556195.2556213
    """

    name = "fennel"
    sequential = True
    gamma: float = 1.5
    alpha: float = 0.0
    slack: float = 0.1
    passes: int = 1

    def __post_init__(self) -> None:
        check_option(self, "gamma", self.gamma > 1, "above 1")
        check_option(self, "alpha", self.alpha >= 0, "at least 0")
        check_option(self, "slack", self.slack >= 0, "at least 0")
        check_option(self, "passes", self.passes >= 1, "at least 1")

    def assign(self, source: EdgeSource, comm: Comm) -> Assignment:
        n, room = source.n_nodes, capacity(source.n_nodes, comm.size, self.slack)
        power = self.gamma - 1
        alpha = self.alpha or source.n_edges * comm.size**power / max(n, 1)**self.gamma
        # a square root is the same to the bit on every machine, other powers may not be
        raised = np.sqrt(np.arange(room)) if power == 0.5 else np.arange(room) ** power
        owner = np.full(n, -1, np.int32)
        stream(source, owner, comm.size, np.ones(room), alpha * self.gamma * raised, self.passes)
        return Assignment(owner.__getitem__)
