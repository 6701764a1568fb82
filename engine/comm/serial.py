"""Communicators of a single rank: every collective is a copy."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

import numpy as np

from .channel import Send
from .communicator import Comm
from .ledger import Ledger

# seconds between two polls: at least and at most, and in between this share of the time waited
PAUSE, LONGEST, SHARE = 5e-5, 1e-3, 1 / 32


class SerialComm(Comm):
    """One rank, no MPI."""

    def __init__(self) -> None:
        super().__init__(rank=0, size=1)

    def poll(self, ready: Callable[[], bool], line: str) -> None:
        """Return when another thread of this rank has made ``ready`` true."""
        began = monotonic()
        while not ready():
            sleep(min(max(PAUSE, SHARE * (monotonic() - began)), LONGEST))

    def _gather_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        out[0] = x

    def _swap_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        out[...] = x

    def _broadcast_flat(self, x: np.ndarray, root: int) -> None:
        pass

    def _post(
        self, sends: list[Send], recvs: list[Send], tag: int, at_most: bool
    ) -> Callable[[], None]:
        return _nothing


class LocalComm(SerialComm):
    """One worker of a job that computes by itself; its time is counted in the ledger of the job.

    Args:
        job: The communicator of the job.
    """

    def __init__(self, job: Comm) -> None:
        self._job = job
        super().__init__()

    @property
    def ledger(self) -> Ledger:
        """That of the job's current channel."""
        return self._job.ledger

    @property
    def _channel_number(self) -> int:
        # it belongs to one work item, and needs no other channel
        return 0


def _nothing() -> None:
    pass
