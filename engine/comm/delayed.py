"""A network that can be chosen: every message of another communicator arrives as late as it would over a given link.

For benches and tests. Ranks of one machine exchange messages through memory, in no time; what a program does while it
waits can then neither be measured nor seen. Here a message that was sent at t is there at

    max(t + latency, end of the message before it on the receiver's link) + bytes / bandwidth

and a collective takes as many latencies as a tree over the ranks has levels, from the moment the last rank is in it.
Ranks must share a clock, and so a machine.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np

from graphtheta.errors import CommError, ConfigError

from .channel import Send
from .communicator import Comm

_STAMP = 8
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "bit/s": 1 / 8, "kbit/s": 1e3 / 8, "Mbit/s": 1e6 / 8, "Gbit/s": 1e9 / 8}


class SlowComm(Comm):
    """The ranks of another communicator, farther apart.

    Args:
        inner: Carries the messages.
        latency: Seconds from sending to receiving a message of no bytes.
        bandwidth: Bytes a second that a rank can receive.
        blocking: Whether each move is waited for where it is begun, so that nothing is computed meanwhile: what there is
            to win by not doing so.

    Attributes:
        link_seconds: How long moves of this rank were under way on the links.
        exposed_seconds: How much of that it waited for them, after they had been sent.
    """

    def __init__(self, inner: Comm, latency: float, bandwidth: float, blocking: bool = False):
        super().__init__(inner.rank, inner.size)
        self.inner, self.latency, self.bandwidth, self.blocking = inner, latency, bandwidth, blocking
        self.cores = inner.cores
        self._levels = int(np.ceil(np.log2(max(inner.size, 1))))
        self._free_at = self.link_seconds = self.exposed_seconds = 0.0

    def open_channels(self, n: int) -> None:
        """Have at least so many channels besides channel 0; collective."""
        self.inner.open_channels(n)
        super().open_channels(n)

    def poll(self, ready: Callable[[], bool], line: str) -> None:
        """Return when ``ready``, without letting other tasks compute."""
        self.inner.poll(ready, line)

    def leave(self, text: str, code: int) -> int:
        """End this rank's part after an uncaught error, as the communicator inside does."""
        return self.inner.leave(text, code)

    def _enter(self, *operation: Any) -> None:
        # errors are raised inside
        self.inner._enter(*operation)
        super()._enter(*operation)

    def _disagreement(self) -> CommError:
        return self.inner._disagreement()

    def _gather_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        arrived = np.empty((self.size, x.nbytes + _STAMP), np.uint8)
        self.inner._gather_flat(_stamped(x.reshape(1, -1))[0], arrived)
        self._unpack(arrived, out, (self.size - 1) * x.nbytes)

    def _swap_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        sent = _stamped(x)
        arrived = np.empty_like(sent)
        self.inner._swap_flat(sent, arrived)
        self._unpack(arrived, out, (self.size - 1) * x.nbytes // self.size)

    def _unpack(self, arrived: np.ndarray, out: np.ndarray, n_bytes: int) -> None:
        """Take rows and stamps of all ranks apart; returns when the last to begin can be here."""
        out.reshape(self.size, -1).view(np.uint8)[...] = arrived[:, :-_STAMP]
        began = float(arrived[:, -_STAMP:].copy().view(np.float64).max())
        self._arrive(began, self._levels, n_bytes)

    def _broadcast_flat(self, x: np.ndarray, root: int) -> None:
        stamps = np.empty((self.size, 1))
        self.inner._gather_flat(np.array([monotonic()]), stamps)
        self.inner._broadcast_flat(x, root)
        self._arrive(float(stamps.max()), self._levels, x.nbytes if self.rank != root else 0)

    def _post(self, sends: list[Send], recvs: list[Send], tag: int, at_most: bool) -> Callable[[], None]:
        # when each was sent, and how long it is
        stamps = [np.empty(2) for _ in recvs]
        finish = self.inner._post([pair for q, x in sends for pair in ((q, np.array([monotonic(), x.nbytes])), (q, x))],
                                  [pair for (q, x), stamp in zip(recvs, stamps, strict=True) for pair in ((q, stamp), (q, x))],
                                  tag, at_most)

        def finish_late() -> None:
            finish()
            began = monotonic()
            arrived = sorted((float(sent), int(n_bytes)) for sent, n_bytes in stamps)
            self.link_seconds += bool(recvs) * self.latency + sum(n_bytes for _, n_bytes in arrived) / self.bandwidth
            for sent, n_bytes in arrived:
                self._free_at = self._due(sent, 1, n_bytes)
            self._wait_until(self._free_at)
            self.exposed_seconds += monotonic() - began

        if not self.blocking:
            return finish_late
        with self.ledger.waiting():
            finish_late()
        return lambda: None

    def _arrive(self, sent: float, latencies: int, n_bytes: int) -> None:
        """Return when bytes that were sent then are here."""
        self._free_at = self._due(sent, latencies, n_bytes)
        self._wait_until(self._free_at)

    def _due(self, sent: float, latencies: int, n_bytes: int) -> float:
        return max(sent + latencies * self.latency, self._free_at) + n_bytes / self.bandwidth

    def _wait_until(self, due: float) -> None:
        if self.size > 1:
            self.until(lambda: monotonic() >= due, "waits for a slow link")


def _stamped(rows: np.ndarray) -> np.ndarray:
    """Bytes of rows [n, ...], with the time at the end of each."""
    raw = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
    return np.hstack([raw, np.tile(np.array([monotonic()]).view(np.uint8), (len(rows), 1))])


def read_link(text: str) -> tuple[float, float, bool]:
    """Latency in seconds, bandwidth in bytes a second, and whether moves block, from a text such as "50us,10Gbit/s,blocking".

    Raises:
        ConfigError: It is none.
    """
    found = re.fullmatch(r"([\d.]+) *(s|ms|us) *, *([\d.]+) *([kMG]?bit/s) *(, *blocking)?", text.strip())
    if found is None or not float(found[3]):
        raise ConfigError(f"GRAPHTHETA_LINK={text!r} is not valid; expected latency and bandwidth, such as 50us,10Gbit/s, "
                          "optionally followed by ,blocking")
    return float(found[1]) * _UNITS[found[2]], float(found[3]) * _UNITS[found[4]], found[5] is not None
