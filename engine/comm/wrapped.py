"""The base of communicators that change some of what another one does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphtheta.errors import CommError

from .channel import Channel, Send
from .communicator import Comm


class WrappedComm(Comm):
    """Another communicator, whose channels, machines and messages this one uses. Subclasses
    override some methods.

    Args:
        inner: Communicator that carries the messages.
    """

    def __init__(self, inner: Comm):
        super().__init__(inner.rank, inner.size)
        self.inner = inner
        self.cores = inner.cores
        self.machines = inner.machines
        self.takes_threads = inner.takes_threads

    def open_channels(self, user: str, n: int) -> list[int]:
        """Those of the inner communicator, which other wrappers open, too; collective."""
        return self.inner.open_channels(user, n)

    def poll(self, ready: Callable[[], bool], line: str) -> None:
        """Return when ``ready``, without letting other work items run."""
        self.inner.poll(ready, line)

    def start_thread(self, work: Callable[[], None], name: str) -> Callable[[], bool]:
        """Call a function in another thread of this rank, as the inner communicator does."""
        return self.inner.start_thread(work, name)

    def changed(self) -> None:
        """Wake the threads of this rank that poll, as the inner communicator does."""
        self.inner.changed()

    def leave(self, text: str, code: int) -> int:
        """End the job after an uncaught error on this rank, as the inner communicator does."""
        return self.inner.leave(text, code)

    @property
    def _channel(self) -> Channel:
        return self.inner._channel

    def _gather_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        self.inner._gather_flat(x, out)

    def _swap_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        self.inner._swap_flat(x, out)

    def _broadcast_flat(self, x: np.ndarray, root: int) -> None:
        self.inner._broadcast_flat(x, root)

    def _post(
        self, sends: list[Send], recvs: list[Send], tag: int, at_most: bool
    ) -> Callable[[], None]:
        return self.inner._post(sends, recvs, tag, at_most)

    def _disagreement(self) -> CommError:
        return self.inner._disagreement()

    def _positions(self) -> list[str]:
        return self.inner._positions()
