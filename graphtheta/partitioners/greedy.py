"""Greedy streaming over the nodes: LDG and Fennel, in one pass or several.

There are as many streams as parts. The result depends on the order of the ids and not on the order
or the chunks of the edges, and not on the number of workers that compute the streams.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import Owners
from graphtheta.ops.kernels.partition.greedy_nodes import place_nodes
from graphtheta.partitioners.stream import capacity, check_option
from graphtheta.partitioners.streaming.dealing import settle, share_of_room
from graphtheta.partitioners.streaming.lists import numbered
from graphtheta.partitioners.streaming.nodes import NodeChunk, NodeStreams
from graphtheta.partitioners.streaming.shared import SharedPartitioner


class Streamed:
    """Parts of nodes, which streams choose together.

    Args:
        source: The edges.
        comm: The workers: one, or ``size``.
        size: Number of parts, and of streams.
        owner: Part of each node that this worker streams, -1 for none, [n] int32; changed.

    Collective: all ranks of comm.
    """

    def __init__(self, source: EdgeSource, comm: Comm, size: int, owner: np.ndarray | None = None):
        self._comm = comm
        self._size = size
        self._n = source.n_nodes
        self._streams = NodeStreams(source, comm, size)
        blocks = self._streams.blocks
        self._owner = np.full(blocks.last - blocks.first, -1, np.int32) if owner is None else owner

    def owners(self, ids: np.ndarray) -> np.ndarray:
        """Parts of some nodes, [n] int32.

        Collective: all ranks.
        """
        return self._streams.blocks.look_up(self._owner, ids)

    def run(self, scale: np.ndarray, cost: np.ndarray) -> None:
        """Give each node to the part of the highest neighbours * scale[load] - cost[load], with
        room.

        All parts are empty at the beginning. Neighbours count by their latest parts.

        Args:
            scale, cost: By the nodes that a part has, [capacity] float64.

        Collective: all ranks.
        """
        load = np.zeros(self._size, np.int64)
        for chunks in self._streams.rounds():
            load = self._round(chunks, load, scale, cost)

    def _round(
        self, chunks: list[NodeChunk], load: np.ndarray, scale: np.ndarray, cost: np.ndarray
    ) -> np.ndarray:
        """Place the nodes of a round; returns the loads after it.

        A stream does not see what others place in the round, and gets a share of the room of each
        part, so that no part exceeds its capacity. Nodes that find no room in these shares are
        dealt out at the end of the round, to the least loaded parts.
        """
        parts = []
        for chunk in chunks:
            out = np.empty(len(chunk.ptr) - 1, np.int32)
            place_nodes(
                first=chunk.first,
                ptr=chunk.ptr,
                near=chunk.near,
                seen=self._seen(chunk.near),
                load=load.copy(),
                room=share_of_room(len(scale) - load, chunk.stream),
                prefers=chunk.stream,
                scale=scale,
                cost=cost,
                out=out,
            )
            parts.append(out)
        load = settle(self._comm, [chunk.stream for chunk in chunks], parts, load, len(scale))
        for chunk, out in zip(chunks, parts, strict=True):
            first = chunk.first - self._streams.blocks.first
            self._owner[first : first + len(out)] = out
        return load

    def _seen(self, near: np.ndarray) -> np.ndarray:
        """Latest parts of neighbours; each is looked up once.

        Collective: all ranks.
        """
        if self._comm.size == 1:
            return self.owners(near)
        at = near.copy()
        ids = numbered(at, 0, 0, self._n)
        return self.owners(ids)[at]


def refine(source: EdgeSource, owner: np.ndarray, size: int, slack: float, passes: int) -> None:
    """Passes of LDG from these owners, on one worker.

    Args:
        source: The edges.
        owner: Owner of each node, -1 for none, [n_nodes] int32; changed.
        size: Number of workers.
        slack: Nodes of a worker are at most (1 + slack) times the mean.
        passes: Number of passes.
    """
    if passes:
        streamed = Streamed(source, SerialComm(), size, owner)
        for _ in range(passes):
            streamed.run(*ldg_score(source.n_nodes, size, slack))


def ldg_score(n: int, size: int, slack: float) -> tuple[np.ndarray, np.ndarray]:
    """Scale and cost by load of LDG, [capacity] float64 each."""
    room = capacity(n, size, slack)
    return 1 - np.arange(room) / room, np.zeros(room)


@dataclass(frozen=True)
class LdgPartitioner(SharedPartitioner):
    """Linear deterministic greedy: most neighbours, times the share of the worker's room that is
    left.

    Attributes:
        slack: Nodes of a worker are at most (1 + slack) times the mean.
        passes: With more than 1, restreamed LDG: every pass places all nodes again, and counts
            neighbours that it has not reached by their owners of the pass before.

    Source: Stanton and Kliot, KDD 2012, https://doi.org/10.1145/2339530.2339722; Nishimura and
    Ugander, KDD 2013, https://doi.org/10.1145/2487575.2487696
    """

    name = "ldg"
    slack: float = 0.1
    passes: int = 1

    def __post_init__(self) -> None:
        check_option(self, "slack", self.slack >= 0, "at least 0")
        check_option(self, "passes", self.passes >= 1, "at least 1")

    def owners(self, source: EdgeSource, comm: Comm, size: int) -> Owners:
        streamed = Streamed(source, comm, size)
        for _ in range(self.passes):
            streamed.run(*ldg_score(source.n_nodes, size, self.slack))
        return streamed.owners


@dataclass(frozen=True)
class FennelPartitioner(SharedPartitioner):
    """Fennel: most neighbours, minus the derivative of alpha load^gamma.

    Attributes:
        gamma: Exponent of the cost of a load, above 1.
        alpha: Its factor; 0 is that of the paper, edges * workers^(gamma - 1) / nodes^gamma.
        slack: Nodes of a worker are at most (1 + slack) times the mean.
        passes: With more than 1, restreamed as LDG is.

    Source: Tsourakakis et al., WSDM 2014, https://doi.org/10.1145/2556195.2556213
    """

    name = "fennel"
    gamma: float = 1.5
    alpha: float = 0.0
    slack: float = 0.1
    passes: int = 1

    def __post_init__(self) -> None:
        # higher powers of the number of nodes are no numbers
        check_option(self, "gamma", 1 < self.gamma <= 10, "above 1, and at most 10")
        check_option(self, "alpha", 0 <= self.alpha <= 1e100, "from 0 to 1e100")
        check_option(self, "slack", self.slack >= 0, "at least 0")
        check_option(self, "passes", self.passes >= 1, "at least 1")

    def owners(self, source: EdgeSource, comm: Comm, size: int) -> Owners:
        n = source.n_nodes
        room = capacity(source.n_nodes, size, self.slack)
        power = self.gamma - 1
        alpha = self.alpha or source.n_edges * size**power / max(n, 1) ** self.gamma
        # a square root is the same to the bit on every machine, other powers may not be
        raised = np.sqrt(np.arange(room)) if power == 0.5 else np.arange(room) ** power
        streamed = Streamed(source, comm, size)
        for _ in range(self.passes):
            streamed.run(np.ones(room), alpha * self.gamma * raised)
        return streamed.owners
