"""Machines of one kind with a network between them, in the units of the cost model."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from graphtheta.base.costs import POST
from graphtheta.inspect.planning.machine import Machine
from graphtheta.inspect.planning.work import Load


@dataclass(frozen=True)
class Cluster(Machine):
    """Speed of a cluster.

    Attributes:
        latency: Seconds from sending a message of no bytes to receiving it.
        bandwidth: Bytes per second of the link of a machine, in each direction.
        post: Seconds to send and receive one more message in the same move.
        congestion: How many times as long bytes take as on a link of one's own.
        slowest: How many times as long the slowest worker computes.
    """

    latency: float
    bandwidth: float
    post: float
    congestion: float
    slowest: float

    @classmethod
    def of(
        cls,
        machine: Machine,
        latency: float,
        bandwidth: float,
        *,
        cores: int = 0,
        post: float = POST,
        congestion: float = 1.0,
        slowest: float = 1.0,
    ) -> Cluster:
        """A cluster of machines like one that was measured.

        Args:
            machine: The machine.
            latency, bandwidth, post, congestion, slowest: As the attributes.
            cores: Cores of each; 0 for those of the machine.
        """
        return cls(
            **{**asdict(machine), "cores": cores or machine.cores, "latency": latency},
            bandwidth=bandwidth,
            post=post,
            congestion=congestion,
            slowest=slowest,
        )

    def compute(self, load: Load, workers: int) -> np.ndarray:
        """Seconds in which workers compute, [size]; the one with most work is the slowest.

        Args:
            load, workers: As for ``Machine``.
        """
        seconds = super().compute(load, workers)
        seconds[seconds.argmax()] *= self.slowest
        return seconds

    def transfer(
        self,
        sent: np.ndarray,
        messages: np.ndarray,
        workers: int,
        collectives: float = 0.0,
        counted: bool = False,
    ) -> float:
        """Seconds in which workers send: bytes, which are packed and unpacked besides, over the
        link of their machine, the start and latency of each move and collective, and each message.

        A worker sends at most one message to each other worker in a move, so there are at least as
        many moves as its messages divided by the number of the others.

        Args:
            sent, messages: Of each worker, [size]; messages are those to single workers.
            workers: Workers of a machine, which share its link.
            collectives: Their number.
            counted: Whether the processor time around messages is counted elsewhere.
        """
        most = float(messages.max())
        crowd = max(1.0, workers / self.cores)
        moves = most / max(len(messages) - 1, 1)
        start, each, packed = (
            (0.0, 0.0, 0.0)
            if counted
            else (self.message * crowd, self.collective * crowd, self.byte - self.wire)
        )
        together = collectives * (
            each + (len(messages) - 1).bit_length() * (self.latency + self.post * crowd)
        )
        carried = float(sent.max()) * (
            min(workers, len(sent)) * self.congestion / self.bandwidth + packed * crowd
        )
        return carried + moves * (start + self.latency) + most * self.post * crowd + together
