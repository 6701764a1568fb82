"""Communicators of a single rank: every collective is a copy."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition

import numpy as np

from .channel import Send
from .communicator import Comm
from .ledger import Ledger

# seconds between two polls, for what no thread tells
PAUSE = 1e-3


class SerialComm(Comm):
    """One rank, no MPI."""

    def __init__(self) -> None:
        super().__init__(rank=0, size=1)
        self._change = Condition()
        self._changes = 0

    def poll(self, ready: Callable[[], bool], line: str) -> None:
        """Return when another thread of this rank has made ``ready`` true."""
        while True:
            seen = self._changes
            if ready():
                return
            with self._change:
                if self._changes == seen:
                    self._change.wait(PAUSE)

    def changed(self) -> None:
        """Wake the threads of this rank that poll."""
        with self._change:
            self._changes += 1
            self._change.notify_all()

    def _gather_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        out[0] = x

    def _swap_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        out[...] = x

    def _broadcast_flat(self, x: np.ndarray, root: int) -> None:
        pass

    def _post(
        self, sends: list[Send], recvs: list[Send], tag: int, at_most: bool
    ) -> Callable[[], None]:
        return lambda: None


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
